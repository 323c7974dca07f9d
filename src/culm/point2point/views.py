"""What may hold for the sender of a track: where it is, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from culm.point2point.demand import Demand
from culm.point2point.errors import Violation
from culm.point2point.pieces import Bounds, Cursor, Piece, Range

__all__ = ["Strained", "Views"]

# Ranges times places, where these differ: more than honest adjustments bring about.  Each
# packet costs time linear in it.
_STRAIN_MAX = 256


class Strained(Exception):
    """The sender may be at more places than we keep apart.  Nobody is to blame for that."""


class Views:
    """Cursors, the oldest possibility first.  There is always one, and hardly ever another.

    The sender goes over to a smaller range, or to another demand, at a moment that is not
    told.  What it does rules out that it still was where that is forbidden; it never rules
    out that it goes over to something newer afterwards.

    As long as the sender is among the pieces that all ranges share, nothing that it does can
    tell them from each other, and one cursor stands for all of them.
    """

    __slots__ = ("_cursors", "_other", "_ranges", "_shared", "_told", "demands")

    def __init__(self, range_: Range) -> None:
        self.demands: list[Demand] = []  # now or later in force, the oldest first
        self._other = self
        self._cursors = [Cursor(range_)]
        self._ranges = {range_.bounds: range_}  # in force now or later, the largest first
        # What all adjustments by the receiver, and all by the sender, come to.
        self._told = [range_.bounds, range_.bounds]
        self._shared = range_.count  # how many of their first pieces the ranges share

    def join(self, other: Views) -> None:
        """The `other` direction of the same request has the same ranges: each is made once."""
        self._other, other._other = other, self

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors)

    @property
    def possibilities(self) -> int:
        """How many ranges, or demands, are being kept apart."""
        return max(len(self._ranges), len(self.demands))

    @property
    def first(self) -> Cursor:
        """The cursor under the oldest possibility."""
        return self._cursors[0]

    @property
    def only(self) -> tuple[Cursor, Demand] | None:
        """The one possibility, if there is but one."""
        if len(self._cursors) == len(self._ranges) == len(self.demands) == 1:
            return self._cursors[0], self.demands[0]
        return None

    def retarget(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender from now on."""
        smaller = {bounds: bounds.tightened(end, upper_certpool) for bounds in self._ranges}
        self._told = [bounds.tightened(end, upper_certpool) for bounds in self._told]
        self._ranges = {bounds: self._with(bounds) for bounds in dict.fromkeys(smaller.values())}
        self._shared = _shared_by(self._ranges.values())
        self._cursors = _distinct(
            cursor.retargeted(self._ranges[smaller[cursor.range.bounds]])
            for cursor in self._cursors
        )
        self._part(1)

    def may_be_retargeted(
        self, end: int | None, upper_certpool: int | None, *, by_sender: bool
    ) -> None:
        """A smaller range holds for the sender now or later.

        Adjustments by the same endpoint come to hold in their order.
        """
        told = self._told
        bounds = told[by_sender] = told[by_sender].tightened(end, upper_certpool)
        smaller = {bounds: None}  # where it is smaller than all that may hold
        if told[not by_sender].tightened(*bounds) != bounds:
            smaller = dict.fromkeys(each.tightened(*bounds) for each in self._ranges)
        new = {each: self._with(each) for each in smaller if each not in self._ranges}
        if not new:
            return
        self._ranges.update(new)
        apart = not self._are_together(1)
        self._shared = min(self._shared, _shared_by((self.first.range, *new.values())))
        if apart:
            self._cursors = _distinct((*self._cursors, *self._places_in(new.values())))
        else:
            self._part(1)

    def demand(self, demand: Demand) -> None:
        """Another demand holds for the sender from now on."""
        self.demands = [demand]

    def may_be_demanded(self, demand: Demand) -> None:
        """Another demand holds for the sender now or later."""
        if self.demands[-1] != demand:
            self.demands = [*self.demands, demand]

    def sift(self, check: Callable[[Cursor, Demand], None], count: int = 1) -> None:
        """Rule out what forbids what was done to the next `count` pieces.

        Raises the first `Violation` if all does.
        """
        demands = self.demands
        if count > 1 and self._are_together(1) and not self._are_together(count):
            self._part(count)
        if len(demands) == len(self._cursors) == 1:  # nearly always
            check(self._cursors[0], demands[0])
            return
        kept: list[Cursor] = []
        oldest = len(demands) - 1  # demands before this one are ruled out
        violation: Violation | None = None
        for cursor in self._cursors:
            for index, demand in enumerate(demands):
                try:
                    check(cursor, demand)
                except Violation as error:
                    violation = violation or error
                else:
                    kept.append(cursor)
                    oldest = min(oldest, index)
                    break
        if not kept:
            assert violation is not None
            raise violation
        self._cursors, self.demands = kept, demands[oldest:]

    def keep(self, piece: Piece) -> None:
        """That piece turned out to be the one that is due."""
        if len(self._cursors) > 1:
            self._cursors = [cursor for cursor in self._cursors if cursor.piece == piece]

    def advance(self, count: int) -> None:
        """Pass `count` pieces."""
        for cursor in self._cursors:
            cursor.move(cursor.index + count)
        self._settle()

    def advance_inside(self, size: int) -> None:
        """Pass `size` bytes of the payload that is due."""
        for cursor in self._cursors:
            cursor.offset += size
        self._settle()

    def begin_again(self, piece: Piece) -> None:
        """Return to the beginning of the payload that is due."""
        for cursor in self._cursors:
            if cursor.piece == piece:
                cursor.move(cursor.index)
        self._settle()

    def go_back_to(self, pieces: tuple[Piece, ...]) -> None:
        """Return to the one of `pieces` that has just been passed."""
        for cursor in self._cursors:
            if cursor.index and cursor.range.piece(cursor.index - 1) in pieces:
                cursor.move(cursor.index - 1)
        self._settle()

    # Ranges.

    def _with(self, bounds: Bounds) -> Range:
        known = self._ranges.get(bounds) or self._other._ranges.get(bounds)
        return known or self.first.range.bounded(bounds)

    # Places.

    def _are_together(self, count: int) -> bool:
        """Whether the next `count` pieces are the same, whatever range it is."""
        return len(self._cursors) == 1 and self._cursors[0].index + count <= self._shared

    def _settle(self) -> None:
        """The sender has done something, and may go over to a smaller range now."""
        if len(self._ranges) == 1 or self._are_together(1):  # nearly always
            return
        if len(self._ranges) * len(self._cursors) > _STRAIN_MAX:
            raise Strained
        alive = {cursor.range.bounds for cursor in self._cursors}
        possible = {
            bounds: range_
            for bounds, range_ in self._ranges.items()
            if bounds in alive or any(old.tightened(*bounds) == bounds for old in alive)
        }
        if len(possible) < len(self._ranges):
            self._ranges, self._shared = possible, _shared_by(possible.values())
        self._part(1)

    def _part(self, count: int) -> None:
        """Keep apart where the sender may be, unless it does not matter for `count` pieces."""
        if len(self._ranges) > 1 and not self._are_together(count):
            self._cursors = _distinct(self._places_in(self._ranges.values()))

    def _places_in(self, ranges: Iterable[Range]) -> Iterator[Cursor]:
        return (
            cursor.retargeted(range_)
            for range_ in ranges
            for cursor in self._cursors
            if range_.is_within(cursor.range)
        )


def _shared_by(ranges: Iterable[Range]) -> int:
    """How many of their first pieces these ranges share, the largest of which comes first."""
    largest, *others = ranges
    return min((largest.shared_with(other) for other in others), default=largest.count)


def _distinct(cursors: Iterable[Cursor]) -> list[Cursor]:
    """Each of the cursors of one request once."""
    by_place = {(cursor.range.bounds, cursor.index, cursor.offset): cursor for cursor in cursors}
    return list(by_place.values())

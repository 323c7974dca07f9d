"""Where the sender of a direction may be, and what it may have been asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from culm.point2point.errors import Violation
from culm.point2point.messages import Demand
from culm.point2point.pieces import Bounds, Cursor, Piece, Range

__all__ = ["Candidates", "Possible", "TooManyCandidates"]

# Ranges times places, where these differ: more than honest adjustments bring about.  Each
# packet costs time linear in it.
_CANDIDATES_MAX = 256


class TooManyCandidates(Exception):
    """The sender may be at more places than we keep track of.  Nobody is to blame for that."""


class Possible(NamedTuple):
    """Where the sender may be, and what it may be asked for; the oldest possibility first."""

    cursors: tuple[Cursor, ...]
    demands: tuple[Demand, ...]

    @property
    def piece(self) -> Piece:
        """The piece that is due, under the oldest possibility."""
        piece = self.cursors[0].piece
        assert piece is not None
        return piece


class Candidates:
    """All that may hold for the sender.  There is always one cursor, and hardly ever another.

    The sender goes over to a smaller range, or to another demand, at a moment that we are not
    told.  What it does rules out every possibility under which that is forbidden; it never rules
    out that it goes over to something newer afterwards.

    As long as the sender is among the pieces that all ranges share, nothing that it does can
    tell them from each other, and one cursor stands for all of them.

    `other`, where a method takes it, is the same of the other direction of the request: both
    have the same ranges, and each range is made once.
    """

    __slots__ = ("_adjusted", "_ranges", "_shared", "demand", "first", "possible")

    def __init__(self, range_: Range, demand: Demand | None) -> None:
        self.first = Cursor(range_)
        """The cursor under the oldest possibility."""
        self.demand = demand
        """What the receiver has asked for last; ``None`` if it has not said so yet."""
        self.possible = Possible((self.first,), () if demand is None else (demand,))
        self._ranges = {range_.bounds: range_}  # in force now or later, the largest first
        # What all adjustments by the receiver, and all by the sender, come to.
        self._adjusted: list[Bounds] = [range_.bounds, range_.bounds]
        self._shared = range_.count  # how many of their first pieces the ranges share

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self.possible.cursors)

    @property
    def count(self) -> int:
        """How many ranges, or demands, are being kept apart."""
        return max(len(self._ranges), len(self.possible.demands))

    @property
    def ranges(self) -> tuple[Bounds, ...]:
        """Where the range may end, now or later; the largest first."""
        return tuple(self._ranges)

    @property
    def only(self) -> tuple[Cursor, Demand] | None:
        """The one possibility, if there is but one."""
        cursors, demands = self.possible
        if len(cursors) == len(self._ranges) == len(demands) == 1:
            return cursors[0], demands[0]
        return None

    # Adjustments.

    def retarget(self, end: int | None, upper_certpool: int | None, other: Candidates) -> None:
        """From now on a smaller range applies to the sender."""
        smaller = {bounds: bounds.tightened(end, upper_certpool) for bounds in self._ranges}
        self._adjusted = [bounds.tightened(end, upper_certpool) for bounds in self._adjusted]
        self._ranges = {
            bounds: self._range(bounds, other) for bounds in dict.fromkeys(smaller.values())
        }
        self._shared = _shared_by(self._ranges.values())
        self._place(
            cursor.retargeted(self._ranges[smaller[cursor.range.bounds]]) for cursor in self
        )
        self._place(self._apart(1))

    def may_be_retargeted(
        self,
        end: int | None,
        upper_certpool: int | None,
        other: Candidates,
        *,
        by_sender: bool,
    ) -> None:
        """A smaller range applies to the sender, now or later.

        Adjustments by the same endpoint take effect in order.
        """
        adjusted = self._adjusted
        bounds = adjusted[by_sender] = adjusted[by_sender].tightened(end, upper_certpool)
        smaller = {bounds: None}  # where it is smaller than all that may hold
        if not bounds.is_within(adjusted[not by_sender]):
            smaller = dict.fromkeys(each.tightened(*bounds) for each in self._ranges)
        new = {each: self._range(each, other) for each in smaller if each not in self._ranges}
        if not new:
            return
        self._ranges.update(new)
        were_apart = not self._are_together(1)
        self._shared = min(self._shared, _shared_by((self.first.range, *new.values())))
        if were_apart:
            self._place((*self, *self._places_in(new.values())))
        else:
            self._place(self._apart(1))

    def ask(self, demand: Demand) -> None:
        """From now on another demand applies to the sender."""
        self.possible, self.demand = Possible(self.possible.cursors, (demand,)), demand

    def may_be_asked(self, demand: Demand) -> None:
        """Another demand applies to the sender, now or later."""
        cursors, demands = self.possible
        if demands[-1] != demand:
            self.possible, self.demand = Possible(cursors, (*demands, demand)), demand

    # What the sender does.

    def allowing(self, check: Callable[[Cursor, Demand], None], count: int = 1) -> Possible:
        """Those of the possibilities that allow what was done to the next `count` pieces.

        Changes nothing.  Raises the first `Violation` if none allows it.
        """
        possible = self.possible
        cursors, demands = possible
        if count > 1 and self._are_together(1):
            cursors = self._apart(count)
        if len(demands) == len(cursors) == 1:  # nearly always
            check(cursors[0], demands[0])
            return Possible(cursors, demands) if cursors is not possible.cursors else possible
        kept: list[Cursor] = []
        oldest = len(demands) - 1  # demands before this one are ruled out
        violation: Violation | None = None
        for cursor in cursors:
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
        return Possible(tuple(kept), demands[oldest:])

    def keep(self, possible: Possible) -> None:
        """Keep only what `allowing` has returned."""
        self.possible, self.first = possible, possible.cursors[0]

    def keep_piece(self, piece: Piece) -> None:
        """That piece has turned out to be the one that is due."""
        if len(self.possible.cursors) > 1:
            self._place(cursor for cursor in self if cursor.piece == piece)

    def advance(self, count: int) -> None:
        """Pass `count` pieces.  Raises `TooManyCandidates`, as all that move do."""
        for cursor in self.possible.cursors:
            cursor.move(cursor.index + count)
        self._settle()

    def advance_inside(self, size: int) -> None:
        """Pass `size` bytes of the payload that is due."""
        for cursor in self.possible.cursors:
            cursor.move_inside(size)
        self._settle()

    def begin_again(self, piece: Piece) -> None:
        """Return to the beginning of the payload that is due."""
        for cursor in self.possible.cursors:
            if cursor.piece == piece:
                cursor.move(cursor.index)
        self._settle()

    def go_back_to(self, pieces: tuple[Piece, ...]) -> None:
        """Return to the one of `pieces` that has just been passed."""
        for cursor in self.possible.cursors:
            if cursor.index and cursor.range.piece(cursor.index - 1) in pieces:
                cursor.move(cursor.index - 1)
        self._settle()

    # Ranges and places.

    def _range(self, bounds: Bounds, other: Candidates) -> Range:
        known = self._ranges.get(bounds) or other._ranges.get(bounds)
        return known or self.first.range.bounded(bounds)

    def _are_together(self, count: int) -> bool:
        """Whether the next `count` pieces are the same, whatever range it is."""
        cursors = self.possible.cursors
        return len(cursors) == 1 and cursors[0].index + count <= self._shared

    def _place(self, cursors: Iterable[Cursor]) -> None:
        self.keep(Possible(_distinct(cursors), self.possible.demands))

    def _apart(self, count: int) -> tuple[Cursor, ...]:
        """Where the sender may be; one place for all if the next `count` pieces are the same."""
        if len(self._ranges) == 1 or self._are_together(count):
            return self.possible.cursors
        return _distinct(self._places_in(self._ranges.values()))

    def _places_in(self, ranges: Iterable[Range]) -> Iterator[Cursor]:
        return (
            cursor.retargeted(range_)
            for range_ in ranges
            for cursor in self
            if range_.bounds.is_within(cursor.range.bounds)
        )

    def _settle(self) -> None:
        """The sender has done something, and may now go over to a smaller range."""
        if len(self._ranges) == 1 or self._are_together(1):  # nearly always
            return
        if len(self._ranges) * len(self.possible.cursors) > _CANDIDATES_MAX:
            raise TooManyCandidates
        alive = {cursor.range.bounds for cursor in self}
        possible = {
            bounds: range_
            for bounds, range_ in self._ranges.items()
            if bounds in alive or any(map(bounds.is_within, alive))
        }
        if len(possible) < len(self._ranges):
            self._ranges, self._shared = possible, _shared_by(possible.values())
        self._place(self._apart(1))


def _shared_by(ranges: Iterable[Range]) -> int:
    """How many of their first pieces these ranges share, the largest of which comes first."""
    largest, *others = ranges
    return min((largest.shared_with(other) for other in others), default=largest.count)


def _distinct(cursors: Iterable[Cursor]) -> tuple[Cursor, ...]:
    """Each of the cursors of one request once."""
    by_place = {(cursor.range.bounds, cursor.index, cursor.offset): cursor for cursor in cursors}
    return tuple(by_place.values())

"""What may hold for the sender of a track: where it is, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from culm.point2point.demand import Demand
from culm.point2point.errors import Violation
from culm.point2point.pieces import Cursor, Piece, Range

__all__ = ["Strained", "Views"]

# More cursors than honest adjustments bring about; each packet costs time linear in them.
_CURSORS_MAX = 256


class Strained(Exception):
    """The sender may be at more places than we keep apart.  Nobody is to blame for that."""


class Views:
    """Cursors, the oldest possibility first.  There is always one, and hardly ever another.

    The sender goes over to a smaller range, or to another demand, at a moment that is not
    told.  What it does rules out that it still was where that is forbidden; it never rules
    out that it goes over to something newer afterwards.
    """

    __slots__ = ("_cursors", "_ranges", "demands")

    def __init__(self, range_: Range) -> None:
        self.demands: list[Demand] = []  # now or later in force, the oldest first
        self._cursors = [Cursor(range_)]
        self._ranges = [range_]  # in force now or later, the largest first

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
        smaller = {range_: range_.tightened(end, upper_certpool) for range_ in self._ranges}
        cursors = (cursor.retargeted(smaller[cursor.range]) for cursor in self._cursors)
        self._ranges = list(dict.fromkeys(smaller.values()))
        self._cursors = list(dict.fromkeys(cursors))

    def may_be_retargeted(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender now or later."""
        new = (range_.tightened(end, upper_certpool) for range_ in self._ranges)
        self._ranges = list(dict.fromkeys((*self._ranges, *new)))
        self._spread()

    def demand(self, demand: Demand) -> None:
        """Another demand holds for the sender from now on."""
        self.demands = [demand]

    def may_be_demanded(self, demand: Demand) -> None:
        """Another demand holds for the sender now or later."""
        if self.demands[-1] != demand:
            self.demands = [*self.demands, demand]

    def sift(self, check: Callable[[Cursor, Demand], None]) -> None:
        """Rule out what forbids what was done; raise the first `Violation` if all does."""
        demands = self.demands
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

    def _settle(self) -> None:
        """The sender has done something, and may go over to a smaller range now."""
        if len(self._ranges) == len(self._cursors) == 1:  # nearly always
            return
        self._ranges = [
            range_
            for range_ in self._ranges
            if any(range_.is_within(cursor.range) for cursor in self._cursors)
        ]
        self._spread()
        if len(self._cursors) > _CURSORS_MAX:
            raise Strained

    def _spread(self) -> None:
        places = (
            cursor.retargeted(range_)
            for range_ in self._ranges
            for cursor in self._cursors
            if range_.is_within(cursor.range)
        )
        self._cursors = list(dict.fromkeys(places))

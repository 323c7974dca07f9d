"""The pieces that a request transmits, in order; a cursor into them, and its possible places.

A piece is the metadata or the payload of one entry.  Pieces ascend by sequence number,
metadata before payload: the metadata of the lower certificate pool, the entries of the
range, the metadata of the upper certificate pool (seed, "The Data Channel").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from culm.bamboo.links import SEQNUM_MAX, lower_pool, shortest_path, upper_pool
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import Demand, Proposal

_WHOLE = 1 << 64  # more than any offset

# Ranges times places, where these differ: more than honest adjustments bring about.  Each
# packet costs time linear in it.
_CANDIDATES_MAX = 256


class Part(IntEnum):
    """The two things that an entry consists of, in the order of transmission."""

    METADATA = 0
    PAYLOAD = 1


class Piece(NamedTuple):
    """The metadata or the payload of one entry."""

    seqnum: int
    part: Part


class Bounds(NamedTuple):
    """The ends of a range, which adjustments change.  ``None``: no end."""

    end: int | None
    upper_certpool: int | None

    def tightened(self, end: int | None, upper_certpool: int | None) -> Bounds:
        return Bounds(_smaller(self.end, end), _smaller(self.upper_certpool, upper_certpool))

    def is_within(self, other: Bounds) -> bool:
        """Whether these are the `other` bounds, tightened or unchanged."""
        return other.tightened(*self) == self


class PieceRange:
    """The pieces of a request, by index from 0 on.  Immutable.

    Costs memory logarithmic in the sequence numbers, however many pieces there are.
    """

    __slots__ = (
        "_lower",
        "_middle_count",
        "_parts",
        "_path",
        "_skipped",
        "_upper",
        "bounds",
        "end",
        "proposal",
        "upper_certpool",
    )

    def __init__(self, proposal: Proposal, bounds: Bounds | None = None) -> None:
        self.proposal, start = proposal, proposal.start
        self.bounds = bounds or Bounds(proposal.end, proposal.upper_certpool)
        self.end, self.upper_certpool = end, upper_certpool = self.bounds
        pool = [] if proposal.first_seqnum == start else lower_pool(start)
        self._lower = pool[bisect_left(pool, proposal.first_seqnum) : -1]
        self._parts = 1 if proposal.payload_only else 2
        # Parts of the start entry that come before the beginning of the range.
        self._skipped = 0 if proposal.start_offset is None else self._parts - 1
        self._path: list[int] | None = None
        self._upper: list[int] = []
        last = SEQNUM_MAX if end is None else end  # no log is longer
        if proposal.sparse and end is not None:
            self._path = shortest_path(end, start)[::-1]
        entries = last - start + 1 if self._path is None else len(self._path)
        self._middle_count = entries * self._parts - self._skipped
        if end is not None and (upper_certpool is None or upper_certpool > end):
            pool = upper_pool(end)
            highest = SEQNUM_MAX if upper_certpool is None else upper_certpool
            self._upper = pool[: bisect_right(pool, highest)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PieceRange):
            return NotImplemented
        return (self.bounds, self.proposal) == (other.bounds, other.proposal)

    def __hash__(self) -> int:
        return hash((self.bounds, self.proposal))

    @property
    def count(self) -> int:
        """The number of pieces; without an end, as many as a log can have."""
        return len(self._lower) + self._middle_count + len(self._upper)

    def piece(self, index: int) -> Piece | None:
        """The piece at `index`, or ``None`` after the last one."""
        lower = len(self._lower)
        if index < lower:
            return Piece(self._lower[index], Part.METADATA)
        inner = index - lower
        if inner < self._middle_count:
            entry, part = divmod(inner + self._skipped, self._parts)
            seqnum = self.proposal.start + entry if self._path is None else self._path[entry]
            return Piece(seqnum, Part.PAYLOAD if part or self._parts == 1 else Part.METADATA)
        inner -= self._middle_count
        return Piece(self._upper[inner], Part.METADATA) if inner < len(self._upper) else None

    def entries_from(self, index: int) -> int:
        """The number of whole entries, metadata and payload, in a row from `index` on."""
        inner = index - len(self._lower)
        place = inner + self._skipped
        if self._path is not None or self._parts == 1 or inner < 0 or place % 2:
            return 0
        return max(0, self._middle_count + self._skipped - place) // 2

    def index_after(self, piece: Piece | None) -> int:
        """The number of pieces of this range up to `piece` (which may be foreign), included."""
        if piece is None:
            return 0
        seqnum, part = piece
        if seqnum < self.proposal.start:
            return bisect_right(self._lower, seqnum)
        lower = len(self._lower)
        if self.end is not None and seqnum > self.end:
            return lower + self._middle_count + bisect_right(self._upper, seqnum)
        entry, member = seqnum - self.proposal.start, True
        if self._path is not None:
            entry = bisect_left(self._path, seqnum)
            member = self._path[entry] == seqnum
        count = entry * self._parts - self._skipped
        if member:
            count += self._parts if part is Part.PAYLOAD else self._parts - 1
        return lower + max(0, count)

    def shared_with(self, other: PieceRange) -> int:
        """The number of first pieces that the `other` range of the same request has, too."""
        if self.end == other.end:
            inner = self._middle_count + min(len(self._upper), len(other._upper))
        elif self._path is None or other._path is None:
            inner = min(self._middle_count, other._middle_count)
        else:
            pairs = enumerate(zip(self._path, other._path, strict=False))
            shorter = min(len(self._path), len(other._path))
            equal = next((index for index, (one, two) in pairs if one != two), shorter)
            inner = max(0, equal * self._parts - self._skipped)
        return len(self._lower) + inner


def _smaller(old: int | None, new: int | None) -> int | None:
    if new is None or (old is not None and new >= old):
        return old
    return new


class Cursor:
    """A place in a range: the piece that is due next, and the part of it that is done.

    `offset` counts bytes of the payload that is due.  `piece` is ``None`` at the end.
    """

    __slots__ = ("index", "offset", "piece", "range")

    def __init__(self, range_: PieceRange, index: int = 0, offset: int | None = None) -> None:
        self.range = range_
        self.move(index)
        if offset is not None:
            self.offset = offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cursor):
            return NotImplemented
        return (self.range, self.index, self.offset) == (other.range, other.index, other.offset)

    def __repr__(self) -> str:
        return f"Cursor({self.piece}, offset={self.offset})"

    @property
    def place(self) -> tuple[int, int, int]:
        """The place by entry, part, and bytes of it that are done: comparable across ranges."""
        if self.piece is not None and self.offset > self.start_of(self.piece):
            return self.piece.seqnum, self.piece.part, self.offset
        last = self.last
        return (0, 0, 0) if last is None else (last.seqnum, last.part, _WHOLE)

    @property
    def last(self) -> Piece | None:
        """The piece that was passed last."""
        return self.range.piece(self.index - 1) if self.index else None

    def check_due(self, part: Part) -> int:
        """The number of the entry of which that part is due; raises `Violation` if it is not."""
        if self.piece is None:
            raise Violation(ErrorCode.PAST_END)
        seqnum, due = self.piece
        if due is not part:
            why = f"{part.name.lower()} although {due.name.lower()} of entry {seqnum} is due"
            raise Violation(ErrorCode.PIECE_OUT_OF_TURN, why)
        return seqnum

    def copy(self) -> Cursor:
        return Cursor(self.range, self.index, self.offset)

    def move(self, index: int) -> None:
        self.index = index
        self.piece = self.range.piece(index)
        self.offset = self.start_of(self.piece)

    def move_inside(self, size: int) -> None:
        self.offset += size

    def start_of(self, piece: Piece | None) -> int:
        """The offset in the payload at which the range lets `piece` begin."""
        proposal = self.range.proposal
        if piece != (proposal.start, Part.PAYLOAD):
            return 0
        return proposal.start_offset or 0

    def retargeted(self, range_: PieceRange) -> Cursor:
        """The same place in another range of the same request."""
        if range_ is self.range:
            return self
        index = range_.index_after(self.last)
        same = range_.piece(index) == self.piece
        return Cursor(range_, index, self.offset if same else None)

    def is_behind(self, other: Cursor) -> int:
        """The number of pieces that `other` has passed as a whole and this cursor has not."""
        if other.range.bounds == self.range.bounds:  # nearly always
            return max(0, other.index - self.index)
        return max(0, self.range.index_after(other.last) - self.index)


# The possible places of the sender of a direction, and the possible demands on it.


class TooManyCandidates(Exception):
    """The sender may be at more places than we keep track of, through no fault of either side."""


class Possible(NamedTuple):
    """The possible places of the sender, and the possible demands; the oldest first."""

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
    told.  Each of its packets rules out the possibilities under which it is forbidden, but never a
    later move to something newer.

    As long as the sender is among the pieces that all ranges share, no packet can tell them from
    each other, and one cursor stands for all of them.
    """

    __slots__ = ("_adjusted", "_shared", "first", "possible", "ranges")

    def __init__(self, range_: PieceRange, demand: Demand | None) -> None:
        self.first = Cursor(range_)
        """The cursor under the oldest possibility."""
        self.possible = Possible((self.first,), () if demand is None else (demand,))
        self.ranges = {range_.bounds: range_}  # in force now or later, the largest first
        # All adjustments by the receiver, and all by the sender, taken together.
        self._adjusted: list[Bounds] = [range_.bounds, range_.bounds]
        self._shared = range_.count  # number of first pieces that the ranges share

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self.possible.cursors)

    @property
    def count(self) -> int:
        """The number of ranges, or of demands, that are kept apart."""
        return max(len(self.ranges), len(self.possible.demands))

    # Adjustments.

    def retarget(self, end: int | None, upper_certpool: int | None) -> None:
        """From now on a smaller range applies to the sender."""
        smaller = {bounds: bounds.tightened(end, upper_certpool) for bounds in self.ranges}
        self._adjusted = [bounds.tightened(end, upper_certpool) for bounds in self._adjusted]
        ranges = {bounds: self._range(bounds) for bounds in dict.fromkeys(smaller.values())}
        self._place(cursor.retargeted(ranges[smaller[cursor.range.bounds]]) for cursor in self)
        self._go_on_in(ranges)

    def may_be_retargeted(
        self, end: int | None, upper_certpool: int | None, *, by_sender: bool
    ) -> None:
        """A smaller range applies to the sender, now or later.

        Adjustments by the same endpoint take effect in order.
        """
        adjusted = self._adjusted
        bounds = adjusted[by_sender] = adjusted[by_sender].tightened(end, upper_certpool)
        smaller = {bounds: None}  # where it is smaller than all that may hold
        if not bounds.is_within(adjusted[not by_sender]):
            smaller = dict.fromkeys(each.tightened(*bounds) for each in self.ranges)
        new = {each: self._range(each) for each in smaller if each not in self.ranges}
        if new:
            self.ranges.update(new)
            self._shared = min(self._shared, *map(self.first.range.shared_with, new.values()))
            self._place(self._apart(1))

    def ask(self, demand: Demand) -> None:
        self.possible = Possible(self.possible.cursors, (demand,))

    def may_be_asked(self, demand: Demand) -> None:
        cursors, demands = self.possible
        if demands[-1] != demand:
            self.possible = Possible(cursors, (*demands, demand))

    # Moves of the sender.

    def allowing(self, check: Callable[[Cursor, Demand], None], count: int = 1) -> Possible:
        """The possibilities that allow the sender's move over the next `count` pieces.

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
        """Keep only the possibilities that `allowing` has returned."""
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
        for cursor in self.possible.cursors:
            cursor.move_inside(size)
        self._settle()

    def go_back_to(self, pieces: tuple[Piece, ...]) -> None:
        """Return to the beginning of the one of `pieces` that was just passed, or else is due."""
        for cursor in self.possible.cursors:
            if cursor.last in pieces:
                cursor.move(cursor.index - 1)
            elif cursor.piece in pieces:
                cursor.move(cursor.index)
        self._settle()

    # Ranges and places.

    def _range(self, bounds: Bounds) -> PieceRange:
        return self.ranges.get(bounds) or PieceRange(self.first.range.proposal, bounds)

    def _are_together(self, count: int) -> bool:
        """Whether the next `count` pieces are the same in all ranges."""
        cursors = self.possible.cursors
        return len(cursors) == 1 and cursors[0].index + count <= self._shared

    def _place(self, cursors: Iterable[Cursor]) -> None:
        self.keep(Possible(_distinct(cursors), self.possible.demands))

    def _apart(self, count: int) -> tuple[Cursor, ...]:
        """The sender's possible places; one for all if the next `count` pieces are the same."""
        if len(self.ranges) == 1 or self._are_together(count):
            return self.possible.cursors
        return _distinct(
            cursor.retargeted(range_)
            for range_ in self.ranges.values()
            for cursor in self
            if range_.bounds.is_within(cursor.range.bounds)
        )

    def _settle(self) -> None:
        """The sender has moved, and may now go over to a smaller range."""
        if len(self.ranges) == 1 or self._are_together(1):  # nearly always
            return
        if len(self.ranges) * len(self.possible.cursors) > _CANDIDATES_MAX:
            raise TooManyCandidates
        alive = {cursor.range.bounds for cursor in self}
        possible = {
            bounds: range_
            for bounds, range_ in self.ranges.items()
            if bounds in alive or any(map(bounds.is_within, alive))
        }
        self._go_on_in(possible)

    def _go_on_in(self, ranges: dict[Bounds, PieceRange]) -> None:
        """These are the ranges in force now or later, and any that is smaller may be in force."""
        largest, *others = ranges.values()
        self.ranges = ranges
        self._shared = min(map(largest.shared_with, others), default=largest.count)
        self._place(self._apart(1))


def _distinct(cursors: Iterable[Cursor]) -> tuple[Cursor, ...]:
    """Each of the cursors of one request once."""
    by_place = {(cursor.range.bounds, cursor.index, cursor.offset): cursor for cursor in cursors}
    return tuple(by_place.values())

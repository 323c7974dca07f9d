"""What a request transmits: an ordered sequence of pieces, and a cursor into it.

A piece is the metadata or the payload of one entry.  Pieces ascend by sequence number,
metadata before payload: the metadata of the lower certificate pool, the entries of the
range, the metadata of the upper certificate pool (seed, "The Data Channel").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import NamedTuple

from culm.bamboo.links import SEQNUM_MAX, lower_pool, shortest_path, upper_pool
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import Proposal

__all__ = ["Bounds", "Cursor", "Part", "Piece", "Range"]

_WHOLE = 1 << 64  # more than any offset


class Part(IntEnum):
    """The two things that an entry consists of, in the order of transmission."""

    METADATA = 0
    PAYLOAD = 1


class Piece(NamedTuple):
    """The metadata or the payload of one entry."""

    seqnum: int
    part: Part


class Bounds(NamedTuple):
    """Where a range ends: what adjustments change.  ``None``: nowhere."""

    end: int | None
    upper_certpool: int | None

    def tightened(self, end: int | None, upper_certpool: int | None) -> Bounds:
        """The smaller ones of both."""
        return Bounds(_smaller(self.end, end), _smaller(self.upper_certpool, upper_certpool))

    def is_within(self, other: Bounds) -> bool:
        """Whether these are the `other` bounds, tightened or unchanged."""
        return other.tightened(*self) == self


class Range:
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
        "proposal",
        "start",
        "start_offset",
    )

    def __init__(
        self,
        proposal: Proposal,
        end: int | None,
        upper_certpool: int | None,
        lower: list[int] | None = None,
    ) -> None:
        self.proposal = proposal
        self.bounds = Bounds(end, upper_certpool)
        self.start = proposal.start
        self.start_offset = proposal.start_offset or 0
        from_payload = proposal.start_offset is not None
        self._lower = _lower_part(proposal) if lower is None else lower
        self._parts = 1 if proposal.payload_only else 2
        # Parts of the start entry that come before the beginning of the range.
        self._skipped = 1 if from_payload and not proposal.payload_only else 0
        self._path: list[int] | None = None
        self._upper: list[int] = []
        last = SEQNUM_MAX if end is None else end  # no log is longer
        if proposal.sparse and end is not None:
            self._path = shortest_path(end, self.start)[::-1]
        entries = last - self.start + 1 if self._path is None else len(self._path)
        self._middle_count = entries * self._parts - self._skipped
        if end is not None and (upper_certpool is None or upper_certpool > end):
            pool = upper_pool(end)
            highest = SEQNUM_MAX if upper_certpool is None else upper_certpool
            self._upper = pool[: bisect_right(pool, highest)]

    @classmethod
    def of(cls, proposal: Proposal) -> Range:
        """The range as it was proposed."""
        return cls(proposal, proposal.end, proposal.upper_certpool)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Range):
            return NotImplemented
        return (self.bounds, self.proposal) == (other.bounds, other.proposal)

    def __hash__(self) -> int:
        return hash((self.bounds, self.proposal))

    @property
    def end(self) -> int | None:
        """The last entry of the range itself."""
        return self.bounds.end

    @property
    def upper_certpool(self) -> int | None:
        """The upper certpool info."""
        return self.bounds.upper_certpool

    @property
    def count(self) -> int:
        """How many pieces there are; without an end, as many as a log can have."""
        return len(self._lower) + self._middle_count + len(self._upper)

    def piece(self, index: int) -> Piece | None:
        """The piece at `index`, or ``None`` behind the last one."""
        lower = len(self._lower)
        if index < lower:
            return Piece(self._lower[index], Part.METADATA)
        inner = index - lower
        if inner < self._middle_count:
            entry, part = divmod(inner + self._skipped, self._parts)
            seqnum = self.start + entry if self._path is None else self._path[entry]
            return Piece(seqnum, Part.PAYLOAD if part or self._parts == 1 else Part.METADATA)
        inner -= self._middle_count
        return Piece(self._upper[inner], Part.METADATA) if inner < len(self._upper) else None

    def entries_from(self, index: int) -> int:
        """How many whole entries, metadata and payload, follow each other from `index` on."""
        inner = index - len(self._lower)
        place = inner + self._skipped
        if self._path is not None or self._parts == 1 or inner < 0 or place % 2:
            return 0
        return max(0, self._middle_count + self._skipped - place) // 2

    def index_after(self, piece: Piece) -> int:
        """How many pieces of this range come no later than `piece` (which may be foreign)."""
        seqnum, part = piece
        if seqnum < self.start:
            return bisect_right(self._lower, seqnum)
        lower = len(self._lower)
        if self.end is not None and seqnum > self.end:
            return lower + self._middle_count + bisect_right(self._upper, seqnum)
        entry, member = seqnum - self.start, True
        if self._path is not None:
            entry = bisect_left(self._path, seqnum)
            member = self._path[entry] == seqnum
        count = entry * self._parts - self._skipped
        if member:
            count += self._parts if part is Part.PAYLOAD else self._parts - 1
        return lower + max(0, count)

    def bounded(self, bounds: Bounds) -> Range:
        """The range of the same request that ends there."""
        return Range(self.proposal, *bounds, lower=self._lower)

    def shared_with(self, other: Range) -> int:
        """How many of the first pieces are the same in the `other` range of the same request."""
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


def _lower_part(proposal: Proposal) -> list[int]:
    """The entries of its lower certificate pool, ascending."""
    start, lowest = proposal.start, proposal.lower_certpool
    if lowest is None or lowest == start:
        return []
    pool = lower_pool(start)
    return pool[bisect_left(pool, lowest) : -1]


def _smaller(old: int | None, new: int | None) -> int | None:
    if new is None or (old is not None and new >= old):
        return old
    return new


class Cursor:
    """A place in a range: the piece that is due next, and how much of it is done.

    `offset` counts bytes of the payload that is due.  `piece` is ``None`` at the end.
    """

    __slots__ = ("index", "offset", "piece", "range")

    def __init__(self, range_: Range, index: int = 0, offset: int | None = None) -> None:
        self.range = range_
        self.move(index)
        if offset is not None:
            self.offset = offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cursor):
            return NotImplemented
        return (self.range, self.index, self.offset) == (other.range, other.index, other.offset)

    def __hash__(self) -> int:
        return hash((self.range, self.index, self.offset))

    def __repr__(self) -> str:
        return f"Cursor({self.piece}, offset={self.offset})"

    @property
    def place(self) -> tuple[int, int, int]:
        """How far this is, whatever the range: entry, part, and how much of that is done."""
        if self.piece is not None and self.offset > self.start_of(self.piece):
            return self.piece.seqnum, self.piece.part, self.offset
        last = self.range.piece(self.index - 1) if self.index else None
        return (0, 0, 0) if last is None else (last.seqnum, last.part, _WHOLE)

    def check_due(self, part: Part) -> int:
        """The number of the entry of which that part is due; raises `Violation` if it is not."""
        if self.piece is None:
            raise Violation(ErrorCode.PAST_END)
        seqnum, due = self.piece
        if due is not part:
            raise Violation(
                ErrorCode.PIECE_OUT_OF_TURN,
                f"{part.name.lower()} although {due.name.lower()} of entry {seqnum} is due",
            )
        return seqnum

    def copy(self) -> Cursor:
        """A cursor at the same place, which stays there."""
        return Cursor(self.range, self.index, self.offset)

    def move(self, index: int) -> None:
        """Go to the beginning of the piece at `index`."""
        self.index = index
        self.piece = self.range.piece(index)
        self.offset = self.start_of(self.piece)

    def move_inside(self, size: int) -> None:
        """Go on by `size` bytes within the payload that is due."""
        self.offset += size

    def start_of(self, piece: Piece | None) -> int:
        """The offset in the payload at which the range lets `piece` begin."""
        if piece is not None and piece.part is Part.PAYLOAD and piece.seqnum == self.range.start:
            return self.range.start_offset
        return 0

    def retargeted(self, range_: Range) -> Cursor:
        """The same place in another range of the same request."""
        if range_ is self.range:
            return self
        last = self.range.piece(self.index - 1) if self.index else None
        index = range_.index_after(last) if last is not None else 0
        same = range_.piece(index) == self.piece
        return Cursor(range_, index, self.offset if same else None)

    def is_behind(self, other: Cursor) -> int:
        """How many pieces `other` has wholly passed that this cursor has not."""
        if other.range is self.range:  # nearly always
            return max(0, other.index - self.index)
        last = other.range.piece(other.index - 1) if other.index else None
        passed = self.range.index_after(last) if last is not None else 0
        return max(0, passed - self.index)

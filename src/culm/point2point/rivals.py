"""The overlap rule: which of two proposals counts as never sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from culm.bamboo.entry import LogKey
from culm.bymux import Role
from culm.point2point.pieces import Range
from culm.wire.varu64 import MAX

__all__ = ["Earliest", "Rivals"]


class Rivals:
    """Proposals that have not been answered, by id; the id also says whose they are.

    Finding those that overlap a given one costs about the same however many there are, up to some
    thousands (`Earliest`), apart from the cost of displacing the losers.
    """

    __slots__ = ("_clock", "_ids", "_made", "_sides")

    def __init__(self) -> None:
        self._clock = 0
        self._made: dict[int, tuple[int, Range]] = {}  # when, and for what
        self._ids: dict[int, int] = {}  # by when they were made
        self._sides: dict[tuple[LogKey, Role], _Side] = {}  # by whose they are

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._made

    def add(self, request_id: int, range_: Range) -> None:
        """A proposal has been made."""
        self._clock += 1
        self._made[request_id] = self._clock, range_
        self._ids[self._clock] = request_id
        key = range_.proposal.log, Role(request_id % 2)
        self._sides.setdefault(key, _Side()).add(range_, self._clock)

    def discard(self, request_id: int) -> None:
        """It has been answered, or has been dropped."""
        made = self._made.pop(request_id, None)
        if made is None:
            return
        time, range_ = made
        del self._ids[time]
        key = range_.proposal.log, Role(request_id % 2)
        self._sides[key].remove(range_, time)
        if not self._sides[key]:
            del self._sides[key]

    def overlaps(self, new_id: int) -> Iterator[tuple[int, int]]:
        """Who loses to whom of overlapping proposals that crossed each other; discard the losers.

        Both endpoints compare the same pairs in the same order, because each message on
        the control channel is in order and a proposal takes part until it is answered.
        """
        _, range_ = self._made[new_id]
        proposer = Role(new_id % 2)
        side = self._sides.get((range_.proposal.log, proposer.peer))
        if side is None:
            return
        # Of two with the same start, the one of the reactive endpoint loses.
        new_wins_ties = proposer is Role.PROACTIVE
        start, end = _bounds(range_)
        winner = side.around(start, first_start_max=start - new_wins_ties)
        before = self._clock if winner is None else winner
        for loser in side.starting(start + (not new_wins_ties), end, before=before):
            yield self._ids[loser], new_id
        if winner is not None:
            yield new_id, self._ids[winner]


class _Side:
    """When the proposals of one endpoint for one log were made.

    Each range is kept with one of its numbers: that which the highest power of two divides.  So
    those around a number are kept with one of 65 numbers.
    """

    __slots__ = ("_by_start", "_kept")

    def __init__(self) -> None:
        self._by_start = Earliest()
        # Starts and ends of the ranges kept with each number, by power and multiple.
        self._kept: dict[tuple[int, int], tuple[Earliest, Earliest]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_start)

    def add(self, range_: Range, time: int) -> None:
        start, end = _bounds(range_)
        self._by_start.add(start, time)
        starts, ends = self._kept.setdefault(_place(start, end), (Earliest(), Earliest()))
        starts.add(start, time)
        ends.add(end, time)

    def remove(self, range_: Range, time: int) -> None:
        start, end = _bounds(range_)
        self._by_start.remove(start, time)
        starts, ends = self._kept[_place(start, end)]
        starts.remove(start, time)
        ends.remove(end, time)
        if not starts:
            del self._kept[_place(start, end)]

    def around(self, number: int, *, first_start_max: int) -> int | None:
        """The first proposal whose range has `number` in it, and starts early enough."""
        found: list[int] = []
        for power in range(65):
            kept = self._kept.get((power, number >> power))
            if kept is not None:
                starts, ends = kept
                if number > _middle(power, number >> power):
                    time = ends.first(number, MAX)
                else:
                    time = starts.first(0, first_start_max)
                if time is not None:
                    found.append(time)
        return min(found, default=None)

    def starting(self, low: int, high: int, *, before: int) -> Iterator[int]:
        """The proposals that start there and came before that time, one after the other.

        Whoever gets one discards it.
        """
        while (time := self._by_start.first(low, high)) is not None and time < before:
            yield time


class Earliest:
    """Pairs of a number and the time at which it came; no time twice.

    Kept in two lists, in the order of the numbers: work on all of them is done by the lists
    themselves, which takes about ten microseconds for a thousand.
    """

    __slots__ = ("_numbers", "_times")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._times: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._times)

    def add(self, number: int, time: int) -> None:
        """Put in a pair, which must be later than all the others."""
        at = bisect_right(self._numbers, number)
        self._numbers.insert(at, number)
        self._times.insert(at, time)

    def remove(self, number: int, time: int) -> None:
        """Take out a pair, which must be there."""
        # Those of one number are in the order of their times.
        low = bisect_left(self._numbers, number)
        at = bisect_left(self._times, time, low, bisect_right(self._numbers, number, low))
        del self._numbers[at], self._times[at]

    def first(self, low: int, high: int) -> int | None:
        """The smallest time of the numbers from `low` to `high`."""
        at = bisect_left(self._numbers, low)
        behind = bisect_right(self._numbers, high, at)
        return min(self._times[at:behind], default=None)


def _bounds(range_: Range) -> tuple[int, int]:
    return range_.start, MAX if range_.end is None else range_.end


def _place(start: int, end: int) -> tuple[int, int]:
    """With which number a range is kept; see `_middle`."""
    power = (start ^ end).bit_length()
    return power, start >> power


def _middle(power: int, multiple: int) -> int:
    return multiple if power == 0 else (2 * multiple + 1) << (power - 1)

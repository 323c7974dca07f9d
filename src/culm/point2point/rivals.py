"""The overlap rule: which of two proposals counts as never sent."""

from __future__ import annotations

from collections.abc import Iterator

from culm.bamboo.entry import LogKey
from culm.bymux import Role
from culm.point2point.earliest import Earliest
from culm.point2point.request import RequestRecord
from culm.wire.varu64 import MAX

__all__ = ["Rivals"]


class Rivals:
    """Proposals that have not been answered, by log and by whose they are.

    Looking for those that overlap one costs about the same however many there are (`Earliest`),
    besides what becomes of those that it displaces.
    """

    __slots__ = ("_proposed", "_role")

    def __init__(self, *, role: Role) -> None:
        self._role = role
        self._proposed: dict[tuple[LogKey, bool], _Side] = {}

    def __contains__(self, request: RequestRecord) -> bool:
        side = self._proposed.get((request.proposal.log, request.ours))
        return side is not None and request in side

    def add(self, request: RequestRecord) -> None:
        """A proposal has been made."""
        key = request.proposal.log, request.ours
        self._proposed.setdefault(key, _Side()).add(request)

    def discard(self, request: RequestRecord) -> None:
        """It has been answered, or has been dropped."""
        key = request.proposal.log, request.ours
        side = self._proposed.get(key)
        if side is not None:
            side.discard(request)
            if not side:
                del self._proposed[key]

    def overlaps(self, new: RequestRecord) -> Iterator[tuple[RequestRecord, RequestRecord]]:
        """Who loses to whom of overlapping proposals that crossed each other.

        Both endpoints compare the same pairs in the same order, because each message on
        the control channel is in order and a proposal takes part until it is answered.
        """
        side = self._proposed.get((new.proposal.log, not new.ours))
        if side is None:
            return
        start, end = _bounds(new)
        # Of two with the same start, the one of the reactive endpoint loses.
        new_wins_ties = new.ours is not (self._role is Role.REACTIVE)
        winner = side.around(start, first_start_max=start - new_wins_ties)
        for loser in side.starting(start + (not new_wins_ties), end, before=winner):
            yield loser, new
        if winner is not None:
            yield new, winner


class _Side:
    """The proposals of one endpoint for one log, in the order in which they were made.

    Each range is kept with one of its numbers: that which the highest power of two divides.  So
    those around a number are kept with one of 65 numbers.
    """

    __slots__ = ("_by_start", "_clock", "_kept", "_requests", "_times")

    def __init__(self) -> None:
        self._clock = 0
        self._requests: dict[int, RequestRecord] = {}  # by when they came
        self._times: dict[int, int] = {}  # when they came, by id
        self._by_start = Earliest()
        # Starts and ends of the ranges that are kept with a number, by power and multiple.
        self._kept: dict[tuple[int, int], tuple[Earliest, Earliest]] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __contains__(self, request: RequestRecord) -> bool:
        time = self._times.get(request.request_id)
        return time is not None and self._requests[time] is request

    def add(self, request: RequestRecord) -> None:
        self._clock += 1
        time = self._clock
        self._requests[time], self._times[request.request_id] = request, time
        start, end = _bounds(request)
        self._by_start.add(start, time)
        starts, ends = self._kept.setdefault(_place(start, end), (Earliest(), Earliest()))
        starts.add(start, time)
        ends.add(end, time)

    def discard(self, request: RequestRecord) -> None:
        time = self._times.pop(request.request_id, None)
        if time is None:
            return
        del self._requests[time]
        start, end = _bounds(request)
        self._by_start.remove(start, time)
        starts, ends = self._kept[_place(start, end)]
        starts.remove(start, time)
        ends.remove(end, time)
        if not starts:
            del self._kept[_place(start, end)]

    def around(self, number: int, *, first_start_max: int) -> RequestRecord | None:
        """The first proposal whose range has `number` in it, and starts early enough."""
        found: list[int] = []
        for power in range(65):
            kept = self._kept.get((power, number >> power))
            if kept is not None:
                starts, ends = kept
                middle = _middle(power, number >> power)
                if number > middle:
                    time = ends.first(number, MAX)
                else:
                    time = starts.first(0, first_start_max)
                if time is not None:
                    found.append(time)
        return self._requests[min(found)] if found else None

    def starting(
        self, low: int, high: int, *, before: RequestRecord | None
    ) -> Iterator[RequestRecord]:
        """The proposals that start there, and came before another one, one after the other.

        Whoever gets one discards it.
        """
        limit = self._clock + 1 if before is None else self._times[before.request_id]
        while (time := self._by_start.first(low, high)) is not None and time < limit:
            yield self._requests[time]


def _bounds(request: RequestRecord) -> tuple[int, int]:
    range_ = request.range
    return range_.start, MAX if range_.end is None else range_.end


def _place(start: int, end: int) -> tuple[int, int]:
    """With which number a range is kept; see `_middle`."""
    power = (start ^ end).bit_length()
    return power, start >> power


def _middle(power: int, multiple: int) -> int:
    return multiple if power == 0 else (2 * multiple + 1) << (power - 1)

"""Captures of the same conversation beside each other: which bytes are which, and in what order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from culm.capture.dissect import StepFields, bytes_of
from culm.capture.records import Header, Step
from culm.capture.text import is_idle

__all__ = ["Place", "Side", "arrivals", "in_order"]

Place = tuple[int, int]
"""A step: the number of its side, and its own."""


@dataclass(slots=True)
class Side:
    """One capture, whole.

    fields: of the bytes that steps have moved, by the steps' numbers.
    links: which handles are the same connection.
    times: of the steps, in seconds, on a scale that all sides share as far as that is known.
    """

    name: str
    header: Header
    steps: Sequence[Step]
    fields: Mapping[int, list[StepFields]]
    links: Mapping[int, int]
    torn: int = 0
    times: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        """Tell the time of each step: that of the clock, or else the one that the machine knew."""
        has_clock = any(step.after for step in self.steps)
        at = self.header.began or 0.0
        for step in self.steps:
            if has_clock:
                at += step.after
            elif step.name == "advance" and step.arguments:
                told = step.arguments[0]
                at = max(at, float(told)) if isinstance(told, (int, float)) else at
            self.times.append(at)


def arrivals(sides: Sequence[Side]) -> dict[Place, Place]:
    """For each step that has sent bytes the one of another side in which the last of them came."""
    found: dict[Place, Place] = {}
    for one, other in permutations(range(len(sides)), 2):
        sent, received = _moved(sides[one], False), _moved(sides[other], True)
        if sent[0] and received[0] and _begins_alike(sent[1], received[1]):
            _match_streams(one, other, sent[0], received[0], found)
        _match_datagrams(one, other, sides, found)
    return found


Moves = list[tuple[int, int]]


def _moved(side: Side, received: bool) -> tuple[Moves, bytes]:
    """The ends of what each step has moved in a stream, and the first bytes."""
    ends: Moves = []
    size, first = 0, bytearray()
    for number, step in enumerate(side.steps, 1):
        for moved in bytes_of(step):
            if moved.received is received and moved.peer is None:
                size += len(moved.data)
                ends.append((number, size))
                if len(first) < _COMPARED:
                    first += moved.data
    return ends, bytes(first[:_COMPARED])


_COMPARED = 64


def _begins_alike(one: bytes, other: bytes) -> bool:
    size = min(len(one), len(other))
    return one[:size] == other[:size]


def _match_streams(
    one: int, other: int, sent: Moves, received: Moves, found: dict[Place, Place]
) -> None:
    ends = [end for _, end in received]
    for number, end in sent:
        at = bisect_left(ends, end)
        if at < len(ends):
            found.setdefault((one, number), (other, received[at][0]))


def _match_datagrams(
    one: int, other: int, sides: Sequence[Side], found: dict[Place, Place]
) -> None:
    waiting: dict[bytes, deque[int]] = defaultdict(deque)
    for number, step in enumerate(sides[other].steps, 1):
        for moved in bytes_of(step):
            if moved.received and moved.peer is not None:
                waiting[moved.data].append(number)
    for number, step in enumerate(sides[one].steps, 1):
        for moved in bytes_of(step):
            if not moved.received and moved.peer is not None and waiting.get(moved.data):
                found.setdefault((one, number), (other, waiting[moved.data].popleft()))


def in_order(sides: Sequence[Side], moved: Mapping[Place, Place]) -> Iterator[Place]:
    """The steps of all sides that did something, by time; nothing arrives before it is sent."""
    owed: dict[Place, int] = defaultdict(int)
    for arrived in moved.values():
        owed[arrived] += 1
    left = [deque(_busy(side)) for side in sides]
    while any(left):
        ready = [index for index, steps in enumerate(left) if steps]
        free = [index for index in ready if not owed.get((index, left[index][0]))]
        index = min(free or ready, key=lambda each: sides[each].times[left[each][0] - 1])
        place = index, left[index].popleft()
        if place in moved:
            owed[moved[place]] -= 1
        yield place


# Calls by which a driver finds the connections, and which change nothing.
_LOOKS = frozenset({"links", "links_to_send"})


def _busy(side: Side) -> Iterator[int]:
    for number, step in enumerate(side.steps, 1):
        did_nothing = is_idle(step) and step.name != "next_deadline"
        if not did_nothing and step.name not in _LOOKS:
            yield number

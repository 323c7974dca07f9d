"""Captures of the same conversation side by side: which bytes are which, and their order.

Of each step only numbers are kept, so that long captures can be looked at through a window.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import permutations

from culm.capture.dissect import bytes_of
from culm.capture.links import note_links
from culm.capture.records import Header, Step
from culm.capture.text import is_idle

__all__ = ["Place", "Side", "arrivals", "in_order", "outline"]

Place = tuple[int, int]
"""A step: the number of its side, and its own."""

_COMPARED = 64
_DIGEST_SIZE = 8


@dataclass(slots=True)
class MovedBytes:
    """The bytes that steps have moved in one direction: their ends, and the first ones."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    first: bytes = b""

    def add(self, number: int, data: bytes) -> None:
        """A step has moved bytes."""
        self.steps.append(number)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(data))
        if len(self.first) < _COMPARED:
            self.first = (self.first + data)[:_COMPARED]


@dataclass(slots=True)
class Side:
    """One capture, without its steps.

    steps: how many they are.
    busy: the numbers of those that did something.
    times: of all steps, in seconds, on a scale that all sides share as far as that is known.
    links: which handles are the same connection.
    streams: by whether the bytes were received.
    datagrams: likewise the steps that have moved some, with a digest of each.
    """

    name: str
    header: Header
    steps: int = 0
    busy: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    links: dict[int, int] = field(default_factory=dict[int, int])
    streams: dict[bool, MovedBytes] = field(
        default_factory=lambda: {False: MovedBytes(), True: MovedBytes()}
    )
    datagrams: dict[bool, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {False: [], True: []}
    )

    def note(self, number: int, step: Step) -> None:
        """Note the numbers of a step."""
        self.steps = number
        note_links(step.result, self.links)
        if _is_busy(step):
            self.busy.append(number)
        for moved in bytes_of(step):
            if moved.peer is None:
                self.streams[moved.received].add(number, moved.data)
            else:
                digest = blake2b(moved.data, digest_size=_DIGEST_SIZE).digest()
                self.datagrams[moved.received].append((number, digest))


def outline(name: str, header: Header, steps: Iterable[Step]) -> Side:
    """The kept part of a capture.  The time of a step is the clock's, or else its argument."""
    side = Side(name, header)
    told = array("d")
    at = now = header.began or 0.0
    has_clock = False
    for number, step in enumerate(steps, 1):
        side.note(number, step)
        at += step.after
        has_clock = has_clock or bool(step.after)
        if step.name == "advance" and step.arguments:
            found = step.arguments[0]
            now = max(now, float(found)) if isinstance(found, (int, float)) else now
        side.times.append(at)
        told.append(now)
    if not has_clock:
        side.times = told
    return side


def arrivals(sides: Sequence[Side]) -> dict[Place, Place]:
    """For each step that has sent bytes the one of another side in which the last of them came."""
    found: dict[Place, Place] = {}
    for one, other in permutations(range(len(sides)), 2):
        sent, received = sides[one].streams[False], sides[other].streams[True]
        if sent.steps and received.steps and _begins_alike(sent.first, received.first):
            for number, end in zip(sent.steps, sent.ends, strict=True):
                at = bisect_left(received.ends, end)
                if at < len(received.ends):
                    found.setdefault((one, number), (other, received.steps[at]))
        _match_datagrams(one, other, sides, found)
    return found


def _begins_alike(one: bytes, other: bytes) -> bool:
    size = min(len(one), len(other))
    return one[:size] == other[:size]


def _match_datagrams(
    one: int, other: int, sides: Sequence[Side], found: dict[Place, Place]
) -> None:
    waiting: dict[bytes, deque[int]] = defaultdict(deque)
    for number, digest in sides[other].datagrams[True]:
        waiting[digest].append(number)
    for number, digest in sides[one].datagrams[False]:
        if waiting.get(digest):
            found.setdefault((one, number), (other, waiting[digest].popleft()))


def in_order(sides: Sequence[Side], moved: Mapping[Place, Place]) -> Iterator[Place]:
    """The steps of all sides that did something, by time; nothing arrives before it is sent."""
    owed: dict[Place, int] = defaultdict(int)
    for arrived in moved.values():
        owed[arrived] += 1
    at = [0] * len(sides)
    while ready := [index for index, side in enumerate(sides) if at[index] < len(side.busy)]:
        free = [each for each in ready if not owed.get((each, sides[each].busy[at[each]]))]
        index = min(
            free or ready, key=lambda each: sides[each].times[sides[each].busy[at[each]] - 1]
        )
        place = index, sides[index].busy[at[index]]
        at[index] += 1
        if place in moved:
            owed[moved[place]] -= 1
        yield place


# Calls by which a driver finds the connections, and which change nothing.
_LOOKS = frozenset({"links", "links_to_send"})


def _is_busy(step: Step) -> bool:
    did_nothing = is_idle(step) and step.name != "next_deadline"
    return not did_nothing and step.name not in _LOOKS

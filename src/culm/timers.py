"""The time of a machine, and a table of deadlines, by key."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def earliest(*times: float | None) -> float | None:
    """The first of these times, if there is any."""
    first = None
    for time in times:
        if time is not None and (first is None or time < first):
            first = time
    return first


@dataclass(slots=True)
class LocalTime:
    """The time of the machine, which the machine alone sets.

    epoch: its time 0, in seconds since 1970.
    """

    now: float
    epoch: float

    @property
    def unix_ms(self) -> int:
        """Milliseconds since 1970."""
        return int((self.epoch + self.now) * 1000)

    def advance(self, now: float) -> None:
        self.now = now


class Deadlines(Generic[K]):
    """At most one deadline (monotonic seconds) for each key.

    Keys due at the same time come out in the order in which they were set, so that
    machines stay deterministic.
    """

    __slots__ = ("_entries", "_heap", "_last")

    def __init__(self) -> None:
        # The entries in force; any others in the heap are stale.
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._last = 0  # number of the entry that was made last

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: K) -> float | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def set(self, key: K, time: float) -> None:
        """Set or move the deadline of `key`."""
        self._last += 1
        self._entries[key] = entry = (time, self._last, key)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + 16:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
        self._heap.clear()

    def next(self) -> float | None:
        """The earliest deadline; to its callers a pure query (it drops stale entries)."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            if entries.get(entry[2]) is entry:
                return entry[0]
            heapq.heappop(heap)
        return None

    def pop_due(self, now: float) -> K | None:
        """Remove and return the key that has been due for longest at `now`, if any."""
        heap, entries = self._heap, self._entries
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            key = entry[2]
            if entries.get(key) is entry:
                del entries[key]
                return key
        return None

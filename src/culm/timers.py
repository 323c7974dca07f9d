"""A table of deadlines: what is due, and when the next thing is."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """One deadline (monotonic seconds) a key.

    Keys due at the same time come out in the order in which they were set, so that
    machines stay deterministic.
    """

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._times: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: object) -> bool:
        return key in self._times

    def get(self, key: K) -> float | None:
        entry = self._times.get(key)
        return None if entry is None else entry[0]

    def set(self, key: K, time: float) -> None:
        """Set or move the deadline of `key`."""
        order = next(self._order)
        self._times[key] = (time, order)
        heapq.heappush(self._heap, (time, order, key))
        if len(self._heap) > 2 * len(self._times) + 16:
            self._heap = [(time, order, key) for key, (time, order) in self._times.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._times.pop(key, None)

    def clear(self) -> None:
        self._times.clear()
        self._heap.clear()

    def next(self) -> float | None:
        """The earliest deadline; a pure query as far as anyone can see."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> K | None:
        """Remove and return the key that has been due longest at `now`, if any."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._times[key]
        return key

    def _drop_stale(self) -> None:
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)

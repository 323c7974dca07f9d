"""Virtual time: a clock that stands still until it is moved, and a timetable on it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count


class VirtualClock:
    """A clock whose seconds pass only when it is told to."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    @property
    def now(self) -> float:
        """The time, in seconds."""
        return self._now

    def advance_to(self, now: float) -> None:
        """Move the clock to `now`; an earlier time than the present one changes nothing."""
        self._now = max(self._now, now)


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """The clock of one node, which shows ``offset + rate * time``; `rate` is positive."""

    offset: float = 0.0
    rate: float = 1.0

    def local(self, time: float) -> float:
        """The node's time at the true `time`."""
        return self.offset + self.rate * time

    def true(self, local: float) -> float:
        """The true time at which the node's clock shows `local`."""
        return (local - self.offset) / self.rate


class Timetable:
    """Calls to be made at virtual times; calls for the same time keep the order of their entry."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = VirtualClock() if clock is None else clock
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Call `action` at `time`, or as soon as possible if that is past."""
        heapq.heappush(self._heap, (max(time, self.clock.now), next(self._order), action))

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Call `action` `delay` seconds from now."""
        self.at(self.clock.now + delay, action)

    def next_time(self) -> float | None:
        """When the next call is due."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Move the clock to the next call and make it; false if there is none."""
        if not self._heap:
            return False
        time, _, action = heapq.heappop(self._heap)
        self.clock.advance_to(time)
        action()
        return True

"""The functions that take the processor time of some work, by samples.

The time since the last sample counts for the Python function that runs when the next one is taken.
Its calls into C, a kernel for instance, count as its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import process_time
from types import FrameType
from typing import TypeVar

__all__ = ["profiled", "shares", "watched"]

T = TypeVar("T")

INTERVAL_S = 0.001
LEAST = 0.02

_taken: ContextVar[dict[str, float] | None] = ContextVar("taken", default=None)


@contextmanager
def profiled() -> Iterator[dict[str, float]]:
    """Seconds in each function, over all work `watched` meanwhile."""
    found: dict[str, float] = {}
    token = _taken.set(found)
    try:
        yield found
    finally:
        _taken.reset(token)


def watched(work: Callable[[], T]) -> T:
    """Do the work, in the main thread; within `profiled`, it is sampled."""
    found = _taken.get()
    if found is None:
        return work()
    last = process_time()

    def note(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now = process_time()
        if frame is not None:
            name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
            found[name] = found.get(name, 0.0) + now - last
        last = now

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def shares(found: dict[str, float]) -> dict[str, float]:
    """Shares of the whole, the largest first; those below 2 % together are ``others``."""
    if not found:
        return {}
    whole = sum(found.values())
    ordered = sorted(found.items(), key=lambda each: -each[1])
    large = {name: round(taken / whole, 3) for name, taken in ordered if taken / whole >= LEAST}
    return {**large, "others": round(max(0.0, 1 - sum(large.values())), 3)}

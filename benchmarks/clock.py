"""Processor time of work, apart from everything else in the process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time

__all__ = ["frozen", "seconds"]


def seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread."""
    start = thread_time()
    work()
    return thread_time() - start


@contextmanager
def frozen() -> Iterator[None]:
    """Within it, garbage collection ignores all objects that already exist."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

"""Processes that are killed at a statement of SQL, counted and not timed."""

from __future__ import annotations

import os
import signal
import sqlite3
import warnings
from typing import Any


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        return os.fork()


class Killing:
    """A connection that kills the process before the statement of some number."""

    def __init__(self, inner: sqlite3.Connection, point: int) -> None:
        self._inner, self._left = inner, point

    def _count(self) -> None:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def execute(self, *args: Any) -> Any:
        self._count()
        return self._inner.execute(*args)

    def executemany(self, *args: Any) -> Any:
        self._count()
        return self._inner.executemany(*args)

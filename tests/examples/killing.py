"""Processes killed at a counted SQL statement, independent of time."""

from __future__ import annotations

import os
import signal
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        return os.fork()


def live_and_die(live: Callable[[], Iterator[object]], point: int) -> int | None:
    """Run `live` in a child, which is killed where SQLite begins its statement `point`.

    The statements of all its connections count.  Returns how often it has yielded, ``None`` if it
    ran to its end.
    """
    reader, writer = os.pipe()
    child = fork()
    if not child:
        try:
            kill_at(point)
            for _ in live():
                os.write(writer, b".")
            os._exit(0)
        finally:
            os._exit(1)  # whatever happens, the child never goes on as its parent
    os.close(writer)
    with os.fdopen(reader, "rb") as reports:
        done = reports.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return len(done)
    assert not status
    return None


def kill_at(point: int) -> None:
    """Kill this process where SQLite begins statement `point`, counted over all connections."""
    connect, statements = sqlite3.connect, count()

    def watch(_: str) -> None:
        if next(statements) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(watch)
        return connection

    sqlite3.connect = watched  # type: ignore[assignment]

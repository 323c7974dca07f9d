"""The common part of stores in one file: a ``with`` statement closes them."""

from __future__ import annotations

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "BUSY_TIMEOUT_S",
    "FileStore",
    "check_schema",
    "is_held",
    "refuse_other_files",
    "write_ahead",
]

_MAGIC = b"SQLite format 3\0"
_PAUSE_S = 0.01

BUSY_TIMEOUT_S = 30.0
"""So long a process waits for others that are at work in the file."""


def refuse_other_files(path: Path | str) -> None:
    """Raise `sqlite3.DatabaseError` for a short file that SQLite would take for an empty one.

    An empty file may become a database, and so may one that a journal will put right.
    """
    if not os.path.isfile(path) or os.path.exists(f"{path}-journal"):
        return
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) not in (b"", _MAGIC):
            raise sqlite3.DatabaseError("file is not a database")


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise `sqlite3.DatabaseError` unless the tables' definitions can be read."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UnicodeDecodeError as error:  # names in them, which SQLite wants to tell us
        raise sqlite3.DatabaseError("malformed database schema") from error


def write_ahead(connection: sqlite3.Connection) -> None:
    """Let the file have a write-ahead log.

    Two processes may make the same file at once: here SQLite does not wait, as it does elsewhere.
    """
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(_PAUSE_S)


def is_held(error: sqlite3.OperationalError) -> bool:
    """Whether another process is at work in the file, so that trying again may help."""
    return (error.sqlite_errorcode or 0) & 0xFF == sqlite3.SQLITE_BUSY


class FileStore(ABC):
    """A store in a file."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; the store is of no use any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

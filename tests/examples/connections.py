"""SQLite connections to replace those that stores open."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

__all__ = ["Quick", "opening"]


def opening(kind: type[sqlite3.Connection]) -> AbstractContextManager[object]:
    """Inside it, stores open connections of this kind."""
    return patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=kind))


class Quick(sqlite3.Connection):
    """A connection that leaves flushing to the operating system, which outlives the process.

    Its log holds at most `pages_max` pages before they move into the file.
    """

    pages_max = 1000

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.execute(f"PRAGMA wal_autocheckpoint = {self.pages_max}")

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        quickly = statement.replace("synchronous = FULL", "synchronous = OFF")
        return super().execute(quickly, *values)

"""What stores in one file have in common: a ``with`` statement closes them."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["FileStore", "refuse_other_files"]

_MAGIC = b"SQLite format 3\0"


def refuse_other_files(path: Path | str) -> None:
    """Raise `sqlite3.DatabaseError` for a short file that SQLite would take for an empty one.

    An empty file may become a database, and so may one that a journal will put right.
    """
    if not os.path.isfile(path) or os.path.exists(f"{path}-journal"):
        return
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) not in (b"", _MAGIC):
            raise sqlite3.DatabaseError("file is not a database")


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

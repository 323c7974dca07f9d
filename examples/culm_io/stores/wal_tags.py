"""Does a write-ahead log belong to the database file beside it?

A program that was killed leaves its log beside the file.  If an older copy of the file alone is put
back then, SQLite replays the log over it, and the result is neither of the two: the log says
nothing of the file that it continues.

So each transaction writes two numbers into the header of the file: one that is drawn for it, its
tag, and the tag of the transaction before it.  The log has all tags since it was begun, and the one
before them.  A file with one of these is as it was at the beginning of the log or later, and a file
with another tag is not the one that the log continues.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path
from secrets import randbelow

__all__ = ["refuse_foreign_wal", "set_aside_foreign_wal", "tag"]

# https://www.sqlite.org/fileformat2.html: the header of the file is that of page 1
_HEADER_SIZE = 100
_USER_VERSION, _APPLICATION_ID = slice(60, 64), slice(68, 72)
_WAL_HEADER_SIZE, _FRAME_HEADER_SIZE = 32, 24
_SALTS, _FRAME_SALTS = slice(16, 24), slice(8, 16)
_PAGE_1 = struct.pack(">I", 1)


def tag(connection: sqlite3.Connection) -> None:
    """Tag the transaction that has begun: to be called in each one that writes anything."""
    (last,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA application_id = {last}")
    connection.execute(f"PRAGMA user_version = {1 + randbelow((1 << 31) - 1)}")


def refuse_foreign_wal(path: Path | str) -> None:
    """Raise `sqlite3.DatabaseError` if a log beside the database at `path` is not its own."""
    if _has_foreign_wal(path):
        raise sqlite3.DatabaseError(
            f"{os.path.basename(path)}-wal belongs to another file: put back that, or take it away"
        )


def set_aside_foreign_wal(path: Path | str) -> None:
    """Rename a log that is not the database's own, so that the file is used as it is.

    The caller sees to it that no other process uses the file.
    """
    if _has_foreign_wal(path):
        os.replace(f"{path}-wal", f"{path}-wal.foreign")


def _has_foreign_wal(path: Path | str) -> bool:
    """Another process may write meanwhile: only a log that stays as it is counts."""
    tags = _tags_of_wal(path)
    while tags and _tag_of_file(path) not in tags:
        before, tags = tags, _tags_of_wal(path)
        if tags == before:
            return True
    return False


def _tag_of_file(path: Path | str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEADER_SIZE)[_USER_VERSION]


def _tags_of_wal(path: Path | str) -> set[bytes]:
    """Empty without a log, or if SQLite does not read it: beside a file that is empty or gone."""
    tags: set[bytes] = set()
    if not (os.path.isfile(f"{path}-wal") and os.path.isfile(path) and os.path.getsize(path)):
        return tags
    with open(f"{path}-wal", "rb") as file:
        header = file.read(_WAL_HEADER_SIZE)
        page_size = int.from_bytes(header[8:12])
        size = _FRAME_HEADER_SIZE + _HEADER_SIZE
        while len(frame := file.read(size)) == size and frame[_FRAME_SALTS] == header[_SALTS]:
            if frame.startswith(_PAGE_1):
                page = frame[_FRAME_HEADER_SIZE:]
                tags |= (
                    {page[_USER_VERSION]} if tags else {page[_USER_VERSION], page[_APPLICATION_ID]}
                )
            file.seek(page_size - _HEADER_SIZE, os.SEEK_CUR)
    return tags

"""A Raft log, hard state and snapshots in SQLite: survives kill -9 at any moment.

Every effect is one transaction, and a transaction that is committed is on the disk
(``synchronous = FULL``), so an effect survives a crash once `perform` has returned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from types import UnionType
from typing import Any

from culm.garlic import Limits, StateMachine, decode_configuration, encode_configuration
from culm.garlic.raft import (
    Apply,
    Compact,
    Configuration,
    Entry,
    Persist,
    ReadSnapshot,
    Snapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.store import restored
from culm.machine import Effect, ProtocolError
from culm_io.stores.files import check_schema, refuse_other_files
from culm_io.stores.wal_tags import refuse_foreign_wal, tag

__all__ = ["RaftSqliteStore"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    term INTEGER NOT NULL, voted_for INTEGER, commit_index INTEGER NOT NULL,
    first_index INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS entries (
    at INTEGER PRIMARY KEY, term INTEGER NOT NULL, is_configuration INTEGER NOT NULL,
    value BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS snapshot (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    at INTEGER NOT NULL, term INTEGER NOT NULL, configuration BLOB NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS image (at INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS incoming (at INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS written (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1), times INTEGER NOT NULL
);
INSERT OR IGNORE INTO written VALUES (1, 0);
CREATE TABLE IF NOT EXISTS owner (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1), server_id INTEGER NOT NULL
);
"""

_NEW_ENTRY = "INSERT INTO entries (at, term, is_configuration, value) VALUES (?, ?, ?, ?)"
_NEW_SNAPSHOT = (
    "INSERT OR REPLACE INTO snapshot (only_one, at, term, configuration, size)"
    " VALUES (1, ?, ?, ?, ?)"
)

# A snapshot is kept in parts: reading a piece of a value takes SQLite reading all of it.
_PART_SIZE = 1 << 14


class RaftSqliteStore:
    """A `culm.garlic.store.Store` in the file at `path`.

    `founding` is the content of a new file; an existing one keeps its own.  The
    state machine is kept in memory: `load` restores it from the snapshot, and the node
    applies the rest of the log again.

    server_id: whose store it is, which it keeps.  One with the votes and the log of another
        server would vote again in their name, and count twice for what that one has: it is refused
        (`sqlite3.DatabaseError`).  None: not looked at.
    """

    def __init__(
        self,
        path: str | Path,
        machine: StateMachine,
        founding: Stored | None = None,
        *,
        server_id: int | None = None,
    ) -> None:
        self._machine = machine
        self._limits = Limits()
        refuse_other_files(path)
        refuse_foreign_wal(path)
        # One thread at a time: the node's driver sees to that.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        check_schema(self._db)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        if server_id is not None:
            self._belong_to(server_id)
        self._tidy()
        self._found(founding if founding is not None else Stored())

    def close(self) -> None:
        self._db.close()

    @property
    def written(self) -> int:
        """The number of writes: lower in an older copy of the file."""
        (times,) = _typed(self._db.execute("SELECT times FROM written").fetchone(), int)
        return int(times)

    def _belong_to(self, server_id: int) -> None:
        owner = self._db.execute("SELECT server_id FROM owner").fetchone()
        if owner is None:
            with self._transaction():
                self._db.execute("INSERT INTO owner VALUES (1, ?)", (server_id,))
        elif (found := _typed(owner, int)[0]) != server_id:
            self._db.close()
            raise sqlite3.DatabaseError(f"it is that of server {found}")

    def _tidy(self) -> None:
        """Delete an unfinished snapshot, and shrink a file of mostly empty pages."""
        with self._transaction():
            self._db.execute("DELETE FROM incoming")
        pages, empty = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        if empty > pages // 2:
            self._db.execute("VACUUM")

    def _found(self, stored: Stored) -> None:
        if self._db.execute("SELECT 1 FROM state").fetchone() is None:
            with self._transaction():
                self._db.execute("INSERT INTO state VALUES (1, 0, NULL, 0, 1)")
                self._put_snapshot(stored.snapshot, self._machine.snapshot())

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)

    def load(self) -> Stored:
        """Raises `sqlite3.DatabaseError` if a node cannot start from the file."""
        try:
            return self._load()
        except (ValueError, ProtocolError) as error:
            raise sqlite3.DatabaseError(f"it cannot be restored: {error}") from error

    def _load(self) -> Stored:
        snapshot, image = self._get_snapshot()
        self._machine.restore(image)
        state = self._db.execute("SELECT term, voted_for, commit_index, first_index FROM state")
        kinds = (int, int | None, int, int)
        term, voted_for, commit_index, first_index = _typed(state.fetchone(), *kinds)
        query = "SELECT at, term, is_configuration, value FROM entries ORDER BY at"
        rows = [_typed(row, int, int, int, bytes) for row in self._db.execute(query)]
        if [row[0] for row in rows] != list(range(first_index, first_index + len(rows))):
            raise sqlite3.DatabaseError("entries are missing")
        return Stored(
            term=term,
            voted_for=voted_for,
            commit_index=commit_index,
            snapshot=snapshot,
            first_index=first_index,
            entries=[
                Entry(made, decode_configuration(value, self._limits) if special else value)
                for _, made, special, value in rows
            ],
        )

    def perform(self, effect: Effect[Any]) -> object:
        match effect:
            case Persist():
                self._persist(effect)
            case Apply():
                for index, entry in enumerate(effect.entries, effect.first_index):
                    if isinstance(entry.data, bytes):
                        self._machine.apply(index, entry.data)
            case TakeSnapshot():
                with self._transaction():
                    self._put_snapshot(effect.snapshot, self._machine.snapshot())
            case Compact():
                self._drop_up_to(effect.index)
            case ReadSnapshot():
                return self._read(effect)
            case WriteSnapshot():
                return self._write(effect)
            case _:
                raise TypeError(f"not an effect of a Raft core: {effect}")
        return None

    def _persist(self, effect: Persist) -> None:
        with self._transaction():
            if effect.first_index is not None and effect.first_index > (end := self._end()):
                raise ValueError(
                    f"the log ends before {end}, and is written from {effect.first_index}"
                )
            self._db.execute(
                "UPDATE state SET term = ?, voted_for = ?, commit_index = ?",
                (effect.term, effect.voted_for, effect.commit_index),
            )
            if effect.first_index is not None:
                self._db.execute("DELETE FROM entries WHERE at >= ?", (effect.first_index,))
                self._db.executemany(_NEW_ENTRY, _rows(effect.first_index, effect.entries))

    def _end(self) -> int:
        """The index that follows the last entry."""
        query = "SELECT max(first_index, 1 + coalesce((SELECT max(at) FROM entries), 0)) FROM state"
        return int(self._db.execute(query).fetchone()[0])

    def _drop_up_to(self, index: int) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM entries WHERE at <= ?", (index,))
            self._db.execute("UPDATE state SET first_index = max(first_index, ?)", (index + 1,))

    def _put_snapshot(self, snapshot: Snapshot, image: bytes) -> None:
        self._describe(snapshot, len(image))
        self._db.execute("DELETE FROM image")
        offsets = range(0, len(image), _PART_SIZE)
        parts = ((offset, image[offset : offset + _PART_SIZE]) for offset in offsets)
        self._db.executemany("INSERT INTO image VALUES (?, ?)", parts)

    def _describe(self, snapshot: Snapshot, size: int) -> None:
        configuration = encode_configuration(snapshot.configuration)
        self._db.execute(_NEW_SNAPSHOT, (snapshot.index, snapshot.term, configuration, size))

    def _get_snapshot(self) -> tuple[Snapshot, bytes]:
        row = self._db.execute("SELECT at, term, configuration, size FROM snapshot").fetchone()
        index, term, configuration, size = _typed(row, int, int, bytes, int)
        made = decode_configuration(configuration, self._limits)
        if len(image := self._whole("image")) != size:
            raise ValueError("parts of its snapshot are missing")
        return Snapshot(index, term, made), image

    def _whole(self, table: str) -> bytes:
        rows = self._db.execute(f"SELECT data FROM {table} ORDER BY at")
        return b"".join(_typed(row, bytes)[0] for row in rows)

    def _read(self, effect: ReadSnapshot) -> SnapshotChunk | None:
        row = self._db.execute(
            "SELECT size FROM snapshot WHERE at = ? AND term = ?",
            (effect.snapshot.index, effect.snapshot.term),
        ).fetchone()
        if row is None:
            return None
        end = min(effect.offset + effect.size, row[0])
        parts = self._db.execute(
            "SELECT at, data FROM image WHERE at < ?"
            " AND at >= (SELECT coalesce(max(at), 0) FROM image WHERE at <= ?) ORDER BY at",
            (end, effect.offset),
        ).fetchall()
        start = parts[0][0] if parts else effect.offset
        data = b"".join(data for _, data in parts)[effect.offset - start : end - start]
        return SnapshotChunk(data, end == row[0])

    def _write(self, effect: WriteSnapshot) -> bool:
        with self._transaction():
            if effect.offset == 0:
                self._db.execute("DELETE FROM incoming")
            last = self._db.execute(
                "SELECT at + length(data) FROM incoming ORDER BY at DESC LIMIT 1"
            ).fetchone()
            if effect.offset != (0 if last is None else last[0]):
                return False
            if effect.data:
                self._db.execute("INSERT INTO incoming VALUES (?, ?)", (effect.offset, effect.data))
        return not effect.done or self._install(effect.snapshot)

    def _install(self, snapshot: Snapshot) -> bool:
        """Let the received image replace snapshot, log and state, if it is a state at all."""
        image = self._whole("incoming")
        usable = restored(self._machine, image)
        with self._transaction():
            if usable:
                self._describe(snapshot, len(image))
                self._db.execute("DELETE FROM image")
                self._db.execute("INSERT INTO image SELECT at, data FROM incoming")
                self._db.execute("DELETE FROM entries")
                self._db.execute("UPDATE state SET first_index = ?", (snapshot.index + 1,))
            self._db.execute("DELETE FROM incoming")
        return usable


def _typed(row: tuple[Any, ...] | None, *kinds: type | UnionType) -> tuple[Any, ...]:
    """The values of a row: in a damaged file they may be of any type, or the row is gone."""
    if row is None or not all(map(isinstance, row, kinds)):
        raise sqlite3.DatabaseError("it is damaged: not what was stored")
    return row


def _rows(first_index: int, entries: Iterable[Entry]) -> Iterable[tuple[int, int, int, bytes]]:
    for index, (term, data) in enumerate(entries, first_index):
        if isinstance(data, Configuration):
            yield index, term, 1, encode_configuration(data)
        else:
            yield index, term, 0, data


class _Transaction:
    """A transaction: all or nothing, and on the disk at its end."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        tag(self._db)
        self._db.execute("UPDATE written SET times = times + 1")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")

"""A log store in one SQLite file.

Entries are rows.  Payloads are rows of `CHUNK_SIZE` bytes each, so that a payload of a
gigabyte is neither rewritten while it grows nor loaded whole to be read.  Every
operation is one transaction: killed in the middle of it, a process leaves the store as
it was before, and an operation that has returned stays.

The file is in WAL mode: others can read it while one process writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.bamboo.store import LogStore
from culm.wire.multihash import HashFamily
from culm_io.stores.columns import column as _column
from culm_io.stores.columns import number as _number
from culm_io.stores.files import (
    BUSY_TIMEOUT_S,
    FileStore,
    check_schema,
    refuse_other_files,
    write_ahead,
)

__all__ = ["CHUNK_SIZE", "SqliteStore", "StoreFileError"]

CHUNK_SIZE = 1 << 16
"""Bytes of payload in one row, and the most that are rewritten when a payload grows."""

_APPLICATION_ID = int.from_bytes(b"culm")
_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE store (family TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0);
CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    author BLOB NOT NULL,
    log_id NOT NULL,
    head NOT NULL DEFAULT 0,  -- the end of the unbroken run of entries from entry 1 on
    revision INTEGER NOT NULL DEFAULT 0,  -- of the store, when this log was changed last
    UNIQUE (author, log_id)
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    log INTEGER NOT NULL REFERENCES logs,
    seqnum NOT NULL,
    encoded BLOB NOT NULL,
    hash BLOB NOT NULL,
    payload_size NOT NULL,
    payload_stored INTEGER NOT NULL DEFAULT 0,
    payload_complete INTEGER NOT NULL DEFAULT FALSE,  -- a _PayloadState
    UNIQUE (log, seqnum)
);
CREATE TABLE chunks (
    entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
    number INTEGER NOT NULL,  -- the chunk begins at number * CHUNK_SIZE
    data BLOB NOT NULL,
    PRIMARY KEY (entry, number)
);
CREATE TABLE forks (
    log INTEGER PRIMARY KEY REFERENCES logs,
    seqnum NOT NULL,
    proof BLOB NOT NULL
);
"""
_ENTRY = "id, seqnum, encoded, hash, payload_size, payload_stored, payload_complete"
_NUMBERS_MAX = 500  # in one query


class _PayloadState(IntEnum):
    """The state of a payload."""

    LEFT_OUT = 0
    COMPLETE = 1
    BEGUN = 2


class StoreFileError(Exception):
    """The file cannot be opened as a store, or not used so; says why in one line."""


class SqliteStore(FileStore, LogStore):
    """A store in the file `path`, for one thread at a time.

    Several connections may use one file, each by a store of its own, if their drivers work in
    threads; `changed` then names the logs that others have written to.

    A new store is made where there is no file, unless `must_exist`.

    With `durable`, stored data survives a loss of power as it survives a crash of the process.
    Authors need that: an entry that was sent and then forgotten makes the next one a fork.
    Without it the file stays sound, but may lose the last operations before the power went; a
    process that only fetches can fetch them again, and saves waiting for the disk at every
    operation.

    Raises `StoreFileError` if the file is not a store of this hash family.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        family: HashFamily,
        durable: bool = True,
        must_exist: bool = False,
    ) -> None:
        self._family = family
        self._database = _Database(path, family.name, durable=durable, must_exist=must_exist)
        self._payloads = _Payloads(self._database)
        self._seen = self._database.value("PRAGMA data_version"), self._revision()

    def close(self) -> None:
        self._database.close()

    # Reading.

    @property
    def family(self) -> HashFamily:
        return self._family

    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        author, log_id = (b"", 0) if after is None else after
        rows = self._database.execute(
            "SELECT author, log_id FROM logs WHERE (author, log_id) > (?, ?)"
            " ORDER BY author, log_id LIMIT ?",
            (author, _column(log_id), -1 if count_max is None else _limit(count_max)),
        )
        return [LogKey(author, _number(log_id)) for author, log_id in rows]

    def check_file(self) -> None:
        """Raise `StoreFileError` if SQLite finds the file damaged; takes time with its size."""
        if (found := self._database.value("PRAGMA integrity_check(1)")) != "ok":
            raise StoreFileError(f"the store is damaged: {found.splitlines()[-1]}")

    def head(self, log: LogKey) -> Head | None:
        """See `LogStore.head`.  Raises `StoreFileError` if that entry is gone from the file."""
        head = self._read_head(
            "SELECT seqnum, encoded, hash FROM logs JOIN entries ON entries.log = logs.id"
            " WHERE logs.id = ? AND seqnum = head",
            log,
        )
        lost = "SELECT head FROM logs WHERE id = ?"
        if head is None and self._database.value(lost, (self._log(log),)):
            name = f"{log.author.hex()}/{log.log_id}"
            raise StoreFileError(f"the store is damaged: the last entry of log {name} is gone")
        return head

    def newest(self, log: LogKey) -> Head | None:
        return self._read_head(
            "SELECT seqnum, encoded, hash FROM entries WHERE log = ? ORDER BY seqnum DESC LIMIT 1",
            log,
        )

    def _read_head(self, query: str, log: LogKey) -> Head | None:
        row = self._database.row(query, (self._log(log),))
        return None if row is None else Head(_number(row[0]), row[2], row[1][0] == 1)

    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        row = self._entry_row(self._log(log), seqnum)
        return None if row is None else _stored(row)

    def entries(
        self,
        log: LogKey,
        start: int = 1,
        end: int | None = None,
        *,
        count_max: int | None = None,
        size_max: int | None = None,
        payload_size_max: int | None = None,
    ) -> list[StoredEntry]:
        query = f"SELECT {_ENTRY} FROM entries WHERE log = ? AND seqnum >= ?"
        values = [self._log(log), _column(start)]
        if end is not None:
            query += " AND seqnum <= ?"
            values.append(_column(end))
        values.append(-1 if count_max is None else _limit(max(count_max, 1)))
        entries: list[StoredEntry] = []
        size = 0
        with (
            self._database.transaction("DEFERRED"),  # entries and payloads as of one moment
            closing(self._database.execute(f"{query} ORDER BY seqnum LIMIT ?", values)) as rows,
        ):
            for row in rows:
                entry = _stored(row)
                inline = (
                    payload_size_max is not None
                    and entry.payload_complete
                    and entry.payload_size <= payload_size_max
                )
                size += len(entry.encoded) + (entry.payload_size if inline else 0)
                if entries and size_max is not None and size > size_max:
                    break
                if inline:
                    entry = _stored(row, self._payloads.read(row[0], 0, entry.payload_size))
                entries.append(entry)
        return entries

    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        numbers = [_column(seqnum) for seqnum in seqnums]
        found: dict[int, bytes] = {}
        for first in range(0, len(numbers), _NUMBERS_MAX):
            some = numbers[first : first + _NUMBERS_MAX]
            rows = self._database.execute(
                "SELECT seqnum, hash FROM entries WHERE log = ?"
                f" AND seqnum IN ({','.join('?' * len(some))})",
                [self._log(log), *some],
            )
            found.update((_number(seqnum), hash) for seqnum, hash in rows)
        return found

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        row = self._entry_row(self._log(log), seqnum)
        return b"" if row is None else self._payloads.read(row[0], offset, size)

    def fork(self, log: LogKey) -> ForkProof | None:
        proof = self._database.value("SELECT proof FROM forks WHERE log = ?", (self._log(log),))
        return None if proof is None else ForkProof.decode_prefix(proof, family=self._family)[0]

    def changed(self) -> list[LogKey]:
        """The logs that others have changed since this was asked last, or the file opened.

        Asking costs next to nothing as long as no other has written to the file.  When one has,
        logs that were changed by way of this object may be among them, too.  Bytes of a payload
        that is not complete are no change.
        """
        version = self._database.value("PRAGMA data_version")
        seen_version, seen_revision = self._seen
        if version == seen_version:
            return []
        rows = self._database.execute(
            "SELECT author, log_id, revision FROM logs WHERE revision > ? ORDER BY author, log_id",
            (seen_revision,),
        ).fetchall()
        self._seen = version, max((row[2] for row in rows), default=seen_revision)
        return [LogKey(author, _number(log_id)) for author, log_id, _ in rows]

    def _revision(self) -> int:
        revision: int = self._database.value("SELECT revision FROM store")
        return revision

    # Writing.

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        if not entries:
            return
        with self._database.transaction("IMMEDIATE"):
            log_row = self._make_log(log)
            forked_at = self._forked_at(log_row)
            for new in entries:
                seqnum = new.entry.seqnum
                if new.entry.log != log or new.entry.family is not self._family:
                    raise StoreError(StoreErrorCode.WRONG_LOG, log, seqnum)
                if forked_at is not None and seqnum >= forked_at:
                    raise StoreError(StoreErrorCode.FORKED, log, seqnum)
                self._append_one(log_row, log, new)
            self.check_links(log, entries)
            self._move_head(log_row)
            self._touch(log_row)

    def _append_one(self, log_row: int, log: LogKey, new: NewEntry) -> None:
        entry, payload = new.entry, new.payload
        row = self._entry_row(log_row, entry.seqnum)
        if row is not None and row[2] != entry.encode():
            raise StoreError(StoreErrorCode.CONFLICT, log, entry.seqnum)
        if payload is not None:
            missing = entry.payload_size - len(payload)
            if missing < 0 or (missing and not new.staged):
                raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, entry.seqnum)
        if row is None:
            id, stored, complete = self._insert(log_row, entry), 0, False
        else:
            id, stored, complete = row[0], row[5], row[6] == _PayloadState.COMPLETE
        if payload is not None and not complete and not (new.staged and stored):
            if stored:
                self._payloads.drop(id, complete=False)
            self._payloads.write(id, 0, payload, complete=not new.staged)

    def _insert(self, log_row: int, entry: Entry) -> int:
        id = self._database.execute(
            "INSERT INTO entries (log, seqnum, encoded, hash, payload_size) VALUES (?, ?, ?, ?, ?)",
            (
                log_row,
                _column(entry.seqnum),
                entry.encode(),
                entry.hash(),
                _column(entry.payload_size),
            ),
        ).lastrowid
        assert id is not None
        return id

    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        with self._database.transaction("IMMEDIATE"):
            id, stored, size, complete = self._require(log, seqnum)
            if offset != stored:
                raise StoreError(StoreErrorCode.WRONG_OFFSET, log, seqnum)
            if offset + len(data) > size:
                raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
            if data:
                self._payloads.write(id, offset, data, complete=complete)

    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        with self._database.transaction("IMMEDIATE"):
            id, stored, size, complete = self._require(log, seqnum)
            if stored != size:
                raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
            if not complete:
                self._payloads.write(id, stored, b"", complete=True)
                self._touch(self._log(log))

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        with self._database.transaction("IMMEDIATE"):
            id, _, _, complete = self._require(log, seqnum)
            self._payloads.drop(id, complete=complete)
            self._touch(self._log(log))

    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        with self._database.transaction("IMMEDIATE"):
            id, _, _, complete = self._require(log, seqnum)
            if not complete:
                self._payloads.drop(id, complete=False)
                self._touch(self._log(log))

    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        if proof.log != log or proof.first.family is not self._family:
            raise StoreError(StoreErrorCode.WRONG_LOG, log, proof.seqnum)
        with self._database.transaction("IMMEDIATE"):
            log_row = self._make_log(log)
            known = self._forked_at(log_row)
            if known is not None and known <= proof.seqnum:
                return
            execute = self._database.execute
            seqnum = _column(proof.seqnum)
            execute(
                "INSERT OR REPLACE INTO forks VALUES (?, ?, ?)", (log_row, seqnum, proof.encode())
            )
            execute("DELETE FROM entries WHERE log = ? AND seqnum >= ?", (log_row, seqnum))
            execute(
                "UPDATE logs SET head = min(head, ?) WHERE id = ?",
                (_column(proof.seqnum - 1), log_row),
            )
            self._touch(log_row)

    # Helpers.

    def _log(self, log: LogKey) -> int | None:
        id: int | None = self._database.value(
            "SELECT id FROM logs WHERE author = ? AND log_id = ?", (log.author, _column(log.log_id))
        )
        return id

    def _make_log(self, log: LogKey) -> int:
        self._database.execute(
            "INSERT OR IGNORE INTO logs (author, log_id) VALUES (?, ?)",
            (log.author, _column(log.log_id)),
        )
        id = self._log(log)
        assert id is not None
        return id

    def _touch(self, log_row: int | None) -> None:
        """Let others know that the log has changed."""
        self._database.execute("UPDATE store SET revision = revision + 1")
        self._database.execute(
            "UPDATE logs SET revision = (SELECT revision FROM store) WHERE id = ?", (log_row,)
        )

    def _forked_at(self, log_row: int) -> int | None:
        seqnum = self._database.value("SELECT seqnum FROM forks WHERE log = ?", (log_row,))
        return None if seqnum is None else _number(seqnum)

    def _move_head(self, log_row: int) -> None:
        start = head = _number(
            self._database.value("SELECT head FROM logs WHERE id = ?", (log_row,))
        )
        present = "SELECT 1 FROM entries WHERE log = ? AND seqnum = ?"
        while self._database.value(present, (log_row, _column(head + 1))):
            head += 1
        if head != start:
            self._database.execute(
                "UPDATE logs SET head = ? WHERE id = ?", (_column(head), log_row)
            )

    def _entry_row(self, log_row: int | None, seqnum: int) -> Any:
        return self._database.row(
            f"SELECT {_ENTRY} FROM entries WHERE log = ? AND seqnum = ?",
            (log_row, _column(seqnum)),
        )

    def _require(self, log: LogKey, seqnum: int) -> tuple[int, int, int, bool]:
        """Row id, bytes stored, payload size, complete."""
        row = self._entry_row(self._log(log), seqnum)
        if row is None:
            raise StoreError(StoreErrorCode.UNKNOWN_ENTRY, log, seqnum)
        return row[0], row[5], _number(row[4]), row[6] == _PayloadState.COMPLETE


class _Payloads:
    """Payloads in rows of `CHUNK_SIZE` bytes, by the row id of their entry."""

    def __init__(self, database: _Database) -> None:
        self._execute = database.execute
        self._execute_many = database.execute_many

    def read(self, id: int, offset: int, size: int) -> bytes:
        first, skipped = divmod(offset, CHUNK_SIZE)
        rows = self._execute(
            "SELECT data FROM chunks WHERE entry = ? AND number BETWEEN ? AND ? ORDER BY number",
            (id, first, (offset + size - 1) // CHUNK_SIZE),
        )
        data = b"".join(row[0] for row in rows)
        return data[skipped : skipped + size]

    def write(self, id: int, offset: int, data: bytes, *, complete: bool) -> None:
        """Write at the end, which is at `offset`; the payload is `complete` then, or not."""
        number, filled = divmod(offset, CHUNK_SIZE)
        size = offset + len(data)
        if filled and data:
            data = self.read(id, offset - filled, filled) + data
        self._execute_many(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)",
            (
                (id, number + index, data[start : start + CHUNK_SIZE])
                for index, start in enumerate(range(0, len(data), CHUNK_SIZE))
            ),
        )
        state = _PayloadState.COMPLETE if complete else _PayloadState.BEGUN
        self._execute(
            "UPDATE entries SET payload_stored = ?, payload_complete = ? WHERE id = ?",
            (size, state, id),
        )

    def drop(self, id: int, *, complete: bool) -> None:
        """Drop the bytes; a payload that has begun and is not `complete` stays so."""
        self._execute("DELETE FROM chunks WHERE entry = ?", (id,))
        self._execute("UPDATE entries SET payload_stored = 0 WHERE id = ?", (id,))
        if complete:
            self._execute(
                "UPDATE entries SET payload_complete = ? WHERE id = ?", (_PayloadState.LEFT_OUT, id)
            )


class _Database:
    """The file: opened, of the right kind, with transactions."""

    def __init__(self, path: Path | str, family: str, *, durable: bool, must_exist: bool) -> None:
        mode = "rw" if must_exist else "rwc"
        try:
            refuse_other_files(path)
            self._connection = sqlite3.connect(
                f"{Path(path).absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,  # transactions begin and end where the code says so
                check_same_thread=False,
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreFileError(f"{path}: {error}") from None
        self.execute = self._connection.execute
        self.execute_many = self._connection.executemany
        self.close = self._connection.close
        try:
            self._prepare(family, durable=durable)
        except (sqlite3.Error, StoreFileError) as error:
            self.close()
            raise StoreFileError(f"{path}: {error}") from None

    def _prepare(self, family: str, *, durable: bool) -> None:
        check_schema(self._connection)
        # An empty file may be a store whose making was cut short, so it is not refused.
        if self._is_new():
            self.execute("PRAGMA page_size = 16384")
            write_ahead(self._connection)
            with self.transaction("IMMEDIATE"):
                if self._is_new():  # still: another process may have been faster
                    self._create(family)
        if self.value("PRAGMA application_id") != _APPLICATION_ID:
            raise StoreFileError("not a store of logs")
        if (version := self.value("PRAGMA user_version")) != _SCHEMA_VERSION:
            raise StoreFileError(f"a store of version {version}, not {_SCHEMA_VERSION}")
        if (found := self.value("SELECT family FROM store")) != family:
            raise StoreFileError(f"a store of {found} hashes, not {family}")
        self.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.execute("PRAGMA foreign_keys = ON")
        self.execute("PRAGMA journal_size_limit = 67108864")

    def _is_new(self) -> bool:
        tables = self.value("SELECT count(*) FROM sqlite_master")
        return not tables and not self.value("PRAGMA application_id")

    def _create(self, family: str) -> None:
        for statement in _SCHEMA.split(";\n"):
            self.execute(statement)
        self.execute("INSERT INTO store (family) VALUES (?)", (family,))
        self.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def transaction(self, kind: str) -> Iterator[None]:
        """All of the block or, if it raises, nothing of it."""
        try:
            self.execute(f"BEGIN {kind}")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode or 0) & 0xFF != sqlite3.SQLITE_ERROR:
                raise
            raise StoreFileError(  # the transaction is that of another thread
                "two threads use one store at once: each connection opens the file for itself"
            ) from error
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself gives some up, as on a full disk
                self.execute("ROLLBACK")
            raise

    def row(self, query: str, values: Sequence[object] = ()) -> Any:
        return self.execute(query, values).fetchone()

    def value(self, query: str, values: Sequence[object] = ()) -> Any:
        row = self.row(query, values)
        return None if row is None else row[0]


def _limit(count_max: int) -> int:
    """As a bound of a query, which is no more than SQLite can count."""
    return min(count_max, (1 << 63) - 1)


def _stored(row: Any, payload: bytes | None = None) -> StoredEntry:
    _, seqnum, encoded, hash, size, stored, state = row
    complete = state == _PayloadState.COMPLETE
    begun = not complete and bool(stored or state)  # older files say so by bytes alone
    return StoredEntry(
        _number(seqnum), encoded, hash, _number(size), stored, complete, payload, begun
    )

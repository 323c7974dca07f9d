"""Operations of p2panda in one SQLite file: survives kill -9 at any moment.

Each `append` is one transaction, and a transaction that is committed is on the disk
(``synchronous = FULL``): authors need that, for an operation that was sent and then forgotten
makes the next one a fork.

The file is in WAL mode, and may be written by several processes.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from culm.bamboo.entry import LogKey
from culm.bamboo.links import open_targets
from culm.bamboo.records import Head
from culm.p2panda import Operation, decode
from culm.p2panda.document import Tips
from culm.p2panda.effects import (
    Conflict,
    DocumentLogs,
    Found,
    Located,
    LogState,
    NewOperation,
    OperationState,
    Range,
    Span,
    StoredOperation,
)
from culm.p2panda.heights import Height, RangeTrees
from culm.p2panda.store import DocumentState, OperationStore
from culm.reconcile.monoids import DEFAULT
from culm_io.stores.columns import column, number
from culm_io.stores.files import (
    BUSY_TIMEOUT_S,
    FileStore,
    check_schema,
    refuse_other_files,
    write_ahead,
)
from culm_io.stores.wal_tags import refuse_foreign_wal, tag

__all__ = ["OperationSqliteStore"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, document_id BLOB NOT NULL UNIQUE, schema_id TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS documents_of_schema ON documents (schema_id, document_id);
CREATE TABLE IF NOT EXISTS logs (
    id INTEGER PRIMARY KEY, author BLOB NOT NULL, log_id NOT NULL,
    document INTEGER NOT NULL REFERENCES documents,
    height INTEGER NOT NULL, end_of_log INTEGER NOT NULL,
    UNIQUE (author, log_id)
);
CREATE INDEX IF NOT EXISTS logs_of_document ON logs (document);
CREATE TABLE IF NOT EXISTS operations (
    position INTEGER PRIMARY KEY,
    log INTEGER NOT NULL REFERENCES logs, seqnum INTEGER NOT NULL,
    schema_id TEXT NOT NULL,  -- of its document
    operation_id BLOB NOT NULL UNIQUE, entry BLOB NOT NULL, operation BLOB NOT NULL,
    UNIQUE (log, seqnum)
);
CREATE INDEX IF NOT EXISTS operations_of_schema ON operations (schema_id, position);
CREATE INDEX IF NOT EXISTS operations_of_log ON operations (log, position);
CREATE TABLE IF NOT EXISTS places (place TEXT NOT NULL);
"""
_TIPS_MAX = 256  # documents whose tips are remembered
_COUNTED_MAX = 16  # logs of a document
_LOCATED_AT_ONCE = 16  # entries of a log
_STORED = (
    "SELECT position, author, log_id, seqnum, entry, operation FROM operations"
    " JOIN logs ON logs.id = operations.log WHERE "
)
_LOG = "SELECT id, height, end_of_log, document FROM logs WHERE author = ? AND log_id = ?"


class OperationSqliteStore(FileStore, OperationStore):
    """Operations in the file at `path`, for one thread at a time."""

    def __init__(self, path: Path | str) -> None:
        refuse_other_files(path)
        refuse_foreign_wal(path)
        self._db = sqlite3.connect(
            path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        )
        check_schema(self._db)
        write_ahead(self._db)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        self._trees = RangeTrees()
        self._seen = self._version()  # of the file, when the trees were as it is
        self._tips: OrderedDict[bytes, tuple[Tips, int]] = OrderedDict()  # up to a position

    def close(self) -> None:
        self._db.close()

    def wait_for_others(self, time: float) -> None:
        """Wait `time` seconds for a process that holds the file, instead of `BUSY_TIMEOUT_S`.

        After that `sqlite3.OperationalError` is raised (`stores.file_store.is_held`).
        """
        self._db.execute(f"PRAGMA busy_timeout = {int(time * 1000)}")

    @contextmanager
    def alone(self) -> Iterator[ExitStack]:
        """Let no other process write before the block is over, in which there may be one `append`.

        An author reads in which place of which log to write: several processes may write with one
        key if each does so alone.  The stack is unwound if the block fails or cannot be committed,
        before another process can write.
        """
        with self._transaction("IMMEDIATE") as failed:
            yield failed

    # Reading.

    @property
    def position(self) -> int:
        """The position of the last operation, of any process; 0 if there is none."""
        return self._last()

    def range(self, schema_ids: Sequence[str], *, monoid: str = DEFAULT) -> Range:
        with self._transaction("DEFERRED"):
            self._heed_others()
            view = self._trees.snapshot(schema_ids, monoid, self._heights)
            return Range(view, self._last())

    def _heights(self, schema_id: str) -> Iterator[Height]:
        for author, log_id, height in self._db.execute(
            "SELECT author, log_id, height FROM logs"
            " JOIN documents ON documents.id = logs.document"
            " WHERE schema_id = ? ORDER BY author, log_id",
            (schema_id,),
        ):
            yield Height(LogKey(author, number(log_id)), height)

    def look_up(self, logs: Iterable[LogKey], operations: Iterable[bytes]) -> Found:
        with self._transaction("DEFERRED"):
            states = {log: state for log in logs if (state := self._state(log)) is not None}
            found: dict[bytes, OperationState] = {}
            for each in operations:
                row = self._row(
                    "SELECT document_id, documents.schema_id FROM operations"
                    " JOIN logs ON logs.id = operations.log"
                    " JOIN documents ON documents.id = logs.document WHERE operation_id = ?",
                    (each,),
                )
                if row is not None:
                    found[each] = OperationState(*row)
            return Found(states, found)

    def _state(self, log: LogKey) -> LogState | None:
        row = self._log(log)
        if row is None:
            return None
        id, height, end_of_log, document = row
        hashes = {seqnum: self._hash(id, seqnum) for seqnum in open_targets(height)}
        head = Head(height, self._hash(id, height), bool(end_of_log))
        document_id, schema_id = self._row(
            "SELECT document_id, schema_id FROM documents WHERE id = ?", (document,)
        )
        return LogState(head, hashes, document_id, schema_id)

    def documents_of(self, logs: Iterable[LogKey]) -> dict[LogKey, DocumentLogs]:
        found = {}
        for log in logs:
            row = self._row(
                "SELECT document_id, (SELECT count(*) FROM (SELECT 1 FROM logs AS others"
                " WHERE others.document = logs.document LIMIT ?)) FROM logs"
                " JOIN documents ON documents.id = logs.document WHERE author = ? AND log_id = ?",
                (_COUNTED_MAX, log.author, column(log.log_id)),
            )
            if row is not None:
                found[log] = DocumentLogs(*row)
        return found

    def read(
        self, spans: Sequence[Span], *, after: int = 0, count_max: int, size_max: int
    ) -> list[StoredOperation]:
        query = (
            f"{_STORED} author = ? AND log_id = ? AND seqnum BETWEEN ? AND ? AND position > ?"
            " ORDER BY seqnum LIMIT ?"
        )
        rows = (
            self._db.execute(
                query, (log.author, column(log.log_id), start, end, after, max(1, count_max))
            )
            for log, start, end in spans
        )
        return _bounded(rows, count_max, size_max)

    def locate(self, spans: Sequence[Span], *, after: int = 0, count_max: int) -> list[Located]:
        runs = (self._located(span, after) for span in spans)
        return list(islice(heapq.merge(*runs), count_max))

    def _located(self, span: Span, after: int) -> Iterator[Located]:
        """In a few queries that are not open meanwhile: there may be very many spans."""
        query = (
            "SELECT position, seqnum FROM logs JOIN operations ON operations.log = logs.id"
            " WHERE author = ? AND log_id = ? AND seqnum BETWEEN ? AND ? AND position > ?"
            " ORDER BY seqnum LIMIT ?"
        )
        log, start, end = span
        place = log.author, column(log.log_id)
        rows = [(after, start - 1)] * _LOCATED_AT_ONCE
        while len(rows) == _LOCATED_AT_ONCE:
            last, before = rows[-1]
            bounds = before + 1, end, last, _LOCATED_AT_ONCE
            rows = self._db.execute(query, (*place, *bounds)).fetchall()
            for position, seqnum in rows:
                yield Located(position, log, seqnum)

    def read_new(
        self,
        schema_ids: Sequence[str],
        *,
        after: int = 0,
        end: int | None = None,
        count_max: int,
        size_max: int,
    ) -> list[StoredOperation]:
        last = self._last() if end is None else end
        query = (
            f"{_STORED} schema_id = ? AND position > ? AND position <= ? ORDER BY position LIMIT ?"
        )
        rows = (
            self._db.execute(query, (schema_id, after, last, max(1, count_max)))
            for schema_id in set(schema_ids)
        )
        return _bounded(rows, count_max, size_max)

    def documents(self, schema_id: str) -> list[bytes]:
        rows = self._db.execute(
            "SELECT document_id FROM documents WHERE schema_id = ? ORDER BY document_id",
            (schema_id,),
        )
        return [document_id for (document_id,) in rows]

    def operations(self, document_id: bytes) -> dict[bytes, Operation]:
        rows = self._db.execute(
            "SELECT operation_id, operation FROM operations"
            " JOIN logs ON logs.id = operations.log JOIN documents ON documents.id = logs.document"
            " WHERE document_id = ? ORDER BY position",
            (document_id,),
        )
        return {operation_id: decode(encoded) for operation_id, encoded in rows}

    def backlinks(self, document_id: bytes) -> dict[bytes, bytes]:
        rows = self._db.execute(
            "SELECT this.operation_id, last.operation_id FROM documents"
            " JOIN logs ON logs.document = documents.id"
            " JOIN operations AS this ON this.log = logs.id"
            " JOIN operations AS last ON last.log = logs.id AND last.seqnum = this.seqnum - 1"
            " WHERE document_id = ?",
            (document_id,),
        )
        return dict(rows)

    def state_of(self, document_id: bytes) -> DocumentState | None:
        row = self._row("SELECT id, schema_id FROM documents WHERE document_id = ?", (document_id,))
        if row is None:
            return None
        id, schema_id = row
        tips, last = self._tips.pop(document_id, (Tips(), 0))
        for position, operation_id, encoded in self._db.execute(
            "SELECT position, operation_id, operation FROM logs"
            " JOIN operations ON operations.log = logs.id"
            " WHERE document = ? AND position > ? ORDER BY position",
            (id, last),
        ):
            tips.add(operation_id, decode(encoded))
            last = position
        self._tips[document_id] = tips, last
        while len(self._tips) > _TIPS_MAX:
            self._tips.popitem(last=False)
        return DocumentState(schema_id, tips.ascending(), tips.deleted)

    def logs_of(self, author: bytes) -> dict[int, bytes]:
        rows = self._db.execute(
            "SELECT log_id, document_id FROM logs JOIN documents ON documents.id = logs.document"
            " WHERE author = ? ORDER BY log_id",
            (author,),
        )
        return {number(log_id): document_id for log_id, document_id in rows}

    # Writing.

    def append(self, operations: Sequence[NewOperation]) -> list[int]:
        grown: dict[LogKey, tuple[str, int, int]] = {}  # schema, height before and after
        with self._transaction("IMMEDIATE"):
            self._heed_others()
            positions = [self._append(new, grown) for new in operations]
        for log, (schema_id, before, after) in grown.items():
            self._trees.grow(log, schema_id, before, after)
        return positions

    def _append(self, new: NewOperation, grown: dict[LogKey, tuple[str, int, int]]) -> int:
        entry = new.entry
        log, seqnum = entry.log, entry.seqnum
        row = self._log(log)
        height = 0 if row is None else row[1]
        if seqnum > height + 1:
            raise ValueError(f"entry {seqnum} has a gap before it")
        if row is not None and seqnum <= height:
            position, operation_id = self._row(
                "SELECT position, operation_id FROM operations WHERE log = ? AND seqnum = ?",
                (row[0], seqnum),
            )
            if operation_id != entry.hash():
                raise Conflict(log, seqnum)
            return int(position)
        document, schema_id = self._document(new)
        self._db.execute(
            "INSERT INTO logs (author, log_id, document, height, end_of_log)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET height = excluded.height, end_of_log = excluded.end_of_log",
            (log.author, column(log.log_id), document, seqnum, entry.end_of_log),
        )
        id, *_ = self._log(log)
        position = self._last() + 1
        self._db.execute(
            "INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(position, id, seqnum, schema_id),
                *(entry.hash(), entry.encode(), new.operation.encode()),
            ),
        )
        before = grown[log][1] if log in grown else height
        grown[log] = schema_id, before, seqnum
        return position

    def _document(self, new: NewOperation) -> tuple[int, str]:
        """The row of the operation's document, which may be new, and its schema."""
        self._db.execute(
            "INSERT OR IGNORE INTO documents (document_id, schema_id) VALUES (?, ?)",
            (new.document_id, new.operation.schema_id),
        )
        id, schema_id = self._row(
            "SELECT id, schema_id FROM documents WHERE document_id = ?", (new.document_id,)
        )
        return id, schema_id

    @property
    def place(self) -> str | None:
        """The place that `keep_place` has kept."""
        row = self._row("SELECT place FROM places")
        return None if row is None else str(row[0])

    def keep_place(self, place: str) -> None:
        """Note where this store belongs: elsewhere it is a copy, or comes from a backup."""
        with self._transaction("IMMEDIATE"):
            self._db.execute("DELETE FROM places")
            self._db.execute("INSERT INTO places VALUES (?)", (place,))

    # Helpers.

    def _heed_others(self) -> None:
        """Forget the trees if another process has written to the file."""
        version = self._version()
        if version != self._seen:
            self._seen = version
            self._trees.clear()

    def _version(self) -> int:
        (version,) = self._row("PRAGMA data_version")
        return int(version)

    def _last(self) -> int:
        (last,) = self._row("SELECT ifnull(max(position), 0) FROM operations")
        return int(last)

    def _log(self, log: LogKey) -> Any:
        return self._row(_LOG, (log.author, column(log.log_id)))

    def _hash(self, log: int, seqnum: int) -> bytes:
        (hash,) = self._row(
            "SELECT operation_id FROM operations WHERE log = ? AND seqnum = ?", (log, seqnum)
        )
        return bytes(hash)

    def _row(self, query: str, values: Sequence[object] = ()) -> Any:
        return self._db.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[ExitStack]:
        """All of the block or, if it raises, nothing of it; all reads see one moment.

        A block inside of another is a part of it.  The stack is unwound if nothing is kept.
        """
        if self._db.in_transaction:
            yield ExitStack()
            return
        self._db.execute(f"BEGIN {kind}")
        with ExitStack() as failed:
            failed.callback(self._take_back)
            if kind == "IMMEDIATE":
                tag(self._db)
            yield failed
            self._db.execute("COMMIT")
            failed.pop_all()

    def _take_back(self) -> None:
        """End a transaction of which nothing is kept."""
        if self._db.in_transaction:  # SQLite itself gives some up, as on a full disk
            self._db.execute("ROLLBACK")
        self._trees.clear()  # they may show operations that have been taken back
        self._tips.clear()


def _bounded(
    queries: Iterable[Iterable[Any]], count_max: int, size_max: int
) -> list[StoredOperation]:
    """Rows of several queries by their positions, within bounds, but one at least."""
    found: list[StoredOperation] = []
    size = 0
    for position, author, log_id, seqnum, entry, operation in heapq.merge(*queries):
        size += len(entry) + len(operation)
        if found and (len(found) >= count_max or size > size_max):
            break
        log = LogKey(author, number(log_id))
        found.append(StoredOperation(position, log, seqnum, entry, operation))
    return found

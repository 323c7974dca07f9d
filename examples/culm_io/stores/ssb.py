"""Feeds of Secure Scuttlebutt in SQLite: survives kill -9 at any moment.

Every effect is one transaction, and a transaction that is committed is on the disk
(``synchronous = FULL``), so an effect survives a crash once `perform` has returned.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from culm.ssb.ebt import Head, Message, PeerClock, StoredFeeds
from culm.ssb.store import CLOCKS_MAX, FeedStore
from culm_io.stores.files import check_schema, refuse_other_files
from culm_io.stores.wal_tags import refuse_foreign_wal, tag

__all__ = ["SsbSqliteStore"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    feed TEXT NOT NULL, sequence INTEGER NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (feed, sequence)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (
    feed TEXT PRIMARY KEY, sequence INTEGER NOT NULL, id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forks (
    feed TEXT PRIMARY KEY, ours BLOB NOT NULL, theirs BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clocks (
    peer TEXT PRIMARY KEY, told TEXT NOT NULL, refused TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (place TEXT NOT NULL);
"""
_LATER_COLUMNS = {
    "saved": "INTEGER NOT NULL DEFAULT 0",
    "held": "TEXT NOT NULL DEFAULT '{}'",
    "stored": "INTEGER NOT NULL DEFAULT 0",
    "sessions": "INTEGER NOT NULL DEFAULT 0",
    "distrusted": "TEXT NOT NULL DEFAULT '[]'",
}


class SsbSqliteStore(FeedStore):
    """A `culm.ssb.store.FeedStore` in the file at `path`; its methods raise `sqlite3.Error`, too.

    clocks_max: the number of peers whose clocks it remembers; those that were here last.
    """

    def __init__(self, path: Path, *, clocks_max: int = CLOCKS_MAX) -> None:
        self._clocks_max = clocks_max
        refuse_other_files(path)
        refuse_foreign_wal(path)
        # One thread at a time: the peer's driver sees to that.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        check_schema(self._db)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._make_tables()

    def close(self) -> None:
        self._db.close()

    def _make_tables(self) -> None:
        if self._columns() >= _LATER_COLUMNS.keys():
            return  # these columns are newer than all tables
        with self._transaction():
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)
            for column in _LATER_COLUMNS.keys() - self._columns():
                kind = _LATER_COLUMNS[column]
                self._db.execute(f"ALTER TABLE clocks ADD COLUMN {column} {kind}")
            self._db.execute("CREATE INDEX IF NOT EXISTS clocks_saved ON clocks (saved)")

    def _columns(self) -> set[str]:
        return {row[1] for row in self._db.execute("PRAGMA table_info(clocks)")}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            tag(self._db)
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def load(self) -> StoredFeeds:
        heads = self._db.execute("SELECT feed, sequence, id FROM heads")
        forked = self._db.execute("SELECT feed FROM forks")
        return StoredFeeds(
            heads={feed: Head(sequence, message_id) for feed, sequence, message_id in heads},
            forked=frozenset(feed for (feed,) in forked),
        )

    def messages(self, feed: str) -> list[bytes]:
        """The messages of a feed, as they are stored.  Raises `sqlite3.Error` if some are gone."""
        rows = self._db.execute(
            "SELECT data FROM messages WHERE feed = ? ORDER BY sequence", (feed,)
        )
        found = [data for (data,) in rows]
        heads = self._db.execute("SELECT sequence FROM heads WHERE feed = ?", (feed,)).fetchall()
        if heads != ([(len(found),)] if found else []):
            raise sqlite3.DatabaseError(f"the feed {feed} is damaged: messages are gone")
        return found

    def proof(self, feed: str) -> tuple[bytes, bytes] | None:
        """Two messages that prove a fork of a feed."""
        found: tuple[bytes, bytes] | None = self._db.execute(
            "SELECT ours, theirs FROM forks WHERE feed = ?", (feed,)
        ).fetchone()
        return found

    @property
    def place(self) -> str | None:
        """The place that `keep_place` has kept."""
        row: tuple[str] | None = self._db.execute("SELECT place FROM places").fetchone()
        return None if row is None else row[0]

    def keep_place(self, place: str) -> None:
        """Note where these feeds belong: elsewhere they come from a copy or a backup."""
        with self._transaction():
            self._db.execute("DELETE FROM places")
            self._db.execute("INSERT INTO places VALUES (?)", (place,))
        self._db.execute("PRAGMA wal_checkpoint")  # the file knows it without its log, too

    def mark_forked(self, feed: str, *, ours: bytes, theirs: bytes) -> None:
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO forks (feed, ours, theirs) VALUES (?, ?, ?)",
                (feed, ours, theirs),
            )

    def save_clock(self, peer: str, clock: PeerClock) -> None:
        with self._transaction():
            (saved,) = self._db.execute("SELECT COALESCE(MAX(saved), 0) + 1 FROM clocks").fetchone()
            self._db.execute(
                "INSERT OR REPLACE INTO clocks"
                " (peer, told, refused, held, stored, sessions, distrusted, saved)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    peer,
                    json.dumps(dict(clock.told)),
                    json.dumps(sorted(clock.refused)),
                    json.dumps(dict(clock.held)),
                    clock.stored,
                    clock.sessions,
                    json.dumps(sorted(clock.distrusted)),
                    saved,
                ),
            )
            self._db.execute("DELETE FROM clocks WHERE saved <= ?", (saved - self._clocks_max,))

    def append(self, messages: Sequence[Message]) -> None:
        with self._transaction():
            last: dict[str, tuple[int, str]] = {}
            for message in messages:
                feed = message.author
                if feed not in last:
                    found = self._db.execute(
                        "SELECT sequence, id FROM heads WHERE feed = ?", (feed,)
                    )
                    last[feed] = found.fetchone() or (0, "")
                if message.sequence != last[feed][0] + 1:
                    raise ValueError(f"{feed}: {message.sequence} after {last[feed][0]}")
                last[feed] = message.sequence, message.id
            self._db.executemany(
                "INSERT INTO messages (feed, sequence, id, data) VALUES (?, ?, ?, ?)", messages
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO heads (feed, sequence, id) VALUES (?, ?, ?)",
                [(feed, *head) for feed, head in last.items()],
            )

    def read(self, feed: str, *, first: int, count_max: int, size_max: int) -> tuple[bytes, ...]:
        rows = self._db.execute(
            "SELECT sequence, data FROM messages"
            " WHERE feed = ? AND sequence >= ? ORDER BY sequence LIMIT ?",
            (feed, first, count_max),
        )
        found: list[bytes] = []
        size = 0
        for sequence, data in rows:
            size += len(data)
            if sequence != first + len(found) or (found and size > size_max):
                break
            found.append(data)
        if not found:
            raise LookupError(f"{feed} has no message {first}")
        return tuple(found)

    def load_clock(self, peer: str) -> PeerClock:
        row = self._db.execute(
            "SELECT told, refused, held, stored, sessions, distrusted FROM clocks WHERE peer = ?",
            (peer,),
        ).fetchone()
        if row is None:
            return PeerClock()
        told, refused, held, stored, sessions, distrusted = row
        return PeerClock(
            told=json.loads(told),
            refused=frozenset(json.loads(refused)),
            held=json.loads(held),
            stored=stored,
            sessions=sessions,
            distrusted=frozenset(json.loads(distrusted)),
        )

"""An older database beside the log of a killed program, in stores of every kind."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from connections import Quick, opening
from killing import fork
from nacl.signing import SigningKey

from culm.bamboo.entry import sign
from culm.p2panda import Action, Operation
from culm.p2panda.effects import NewOperation
from culm.testing.raft_store_model import Values, entries_of, persist
from culm.wire.multihash import YASMF
from culm_io.stores.p2panda import OperationSqliteStore
from culm_io.stores.raft import RaftSqliteStore
from culm_io.stores.wal_tags import refuse_foreign_wal, set_aside_foreign_wal, tag

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

SCHEMA = "panda_" + YASMF.hash(b"pandas").hex()
KEY = SigningKey(bytes(32))


class Short(Quick):
    pages_max = 8


@pytest.fixture(autouse=True)
def _short_logs() -> Iterator[None]:
    with opening(Short):
        yield


def raft(path: Path, first: int, count: int) -> int:
    """Adds `count` entries; the number afterwards."""
    with closing(RaftSqliteStore(path, Values())) as store:
        for index in range(first, first + count):
            store.perform(persist(1, None, 0, index, entries_of(1, b"%d" % index * 1000)))
        return len(store.load().entries)


def p2panda(path: Path, first: int, count: int) -> int:
    with OperationSqliteStore(path) as store:
        for log_id in range(first, first + count):
            operation = Operation(
                action=Action.CREATE, schema_id=SCHEMA, fields={"name": "x" * 2000}
            )
            encoded = operation.encode()
            entry = sign(KEY, family=YASMF, log_id=log_id, seqnum=1, payload=encoded)
            store.append([NewOperation(entry, operation, entry.hash())])
        return sum(len(store.operations(each)) for each in store.documents(SCHEMA))


STORES = [raft, p2panda]


def lives(store: Callable[[Path, int, int], int], path: Path, first: int, count: int) -> None:
    """A program that is killed before it closes its store."""
    child = fork()
    if not child:
        opened: list[object] = []
        for kind in (RaftSqliteStore, OperationSqliteStore):
            kind.close = lambda self: opened.append(self)  # type: ignore[assignment, method-assign]
        try:
            store(path, first, count)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("after", [1, 5, 9, 20, 21, 22, 40])
@pytest.mark.parametrize("store", STORES)
def test_the_log_of_another_database_is_refused(
    tmp_path: Path, store: Callable[[Path, int, int], int], after: int
) -> None:
    path, backup = tmp_path / "store", tmp_path / "backup"
    store(path, 1, 2)
    shutil.copy2(path, backup)
    lives(store, path, 3, after)
    shutil.copy2(backup, path)
    try:
        refuse_foreign_wal(path)
        expected = 2 + after
    except sqlite3.DatabaseError:
        with pytest.raises(sqlite3.DatabaseError, match="belongs to another file"):
            store(path, 0, 0)
        set_aside_foreign_wal(path)
        expected = 2
    assert store(path, 0, 0) == expected
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("store", STORES)
def test_a_log_of_its_own_is_taken(tmp_path: Path, store: Callable[[Path, int, int], int]) -> None:
    path, first = tmp_path / "store", 1
    for count in (1, 2, 3, 11, 17):
        lives(store, path, first, count)
        first += count
        assert store(path, 0, 0) == first - 1


def test_a_file_that_is_written_meanwhile_is_not_refused(tmp_path: Path) -> None:
    """Whether it is checkpointed, begun anew or rolled back."""
    path = tmp_path / "store"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("CREATE TABLE numbers (number)")
        for number in range(100):
            database.execute("BEGIN IMMEDIATE")
            tag(database)
            database.execute("INSERT INTO numbers VALUES (?)", (b"x" * number * 20,))
            refuse_foreign_wal(path)
            database.execute("ROLLBACK" if number % 7 == 0 else "COMMIT")
            refuse_foreign_wal(path)
            if number % 10 == 0:
                database.execute("PRAGMA wal_checkpoint")
                refuse_foreign_wal(path)


def test_a_log_without_tags_is_taken(tmp_path: Path) -> None:
    """From stores written before there were tags."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE numbers (number)")
        for name in ("", "-wal"):
            shutil.copy2(f"{path}{name}", f"{copy}{name}")
    refuse_foreign_wal(copy)
    for name in ("", "-wal"):
        os.truncate(f"{copy}{name}", 10)
    refuse_foreign_wal(copy)
    refuse_foreign_wal(tmp_path / "none")

"""Stores in files that two processes make at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from culm.wire.multihash import YAMF
from stores import file_store
from stores.file_store import FileStore
from stores.p2panda_sqlite_store import OperationSqliteStore
from stores.sqlite_store import SqliteStore

STORES: dict[str, Callable[[Path], FileStore]] = {
    "logs": partial(SqliteStore, family=YAMF),
    "operations": OperationSqliteStore,
}


@pytest.mark.parametrize("kind", STORES)
def test_a_new_file_that_another_process_begins_is_waited_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        other.rollback()

    monkeypatch.setattr(file_store.time, "sleep", wait)
    with STORES[kind](path):
        assert len(waited) == 1
    other.close()

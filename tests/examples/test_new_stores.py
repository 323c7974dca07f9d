"""Stores in files that two processes create at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from culm.wire.multihash import YAMF
from culm_io.stores import files as file_store
from culm_io.stores.bamboo import SqliteStore
from culm_io.stores.files import FileStore
from culm_io.stores.p2panda import OperationSqliteStore

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

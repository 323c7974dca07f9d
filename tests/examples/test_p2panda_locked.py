"""Another process holds the store for longer than any patience: nothing is lost, no node goes."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from culm.p2panda import Author
from culm_io.programs.captures import Captures
from culm_io.programs.numbers import Metrics
from culm_io.programs.p2panda.command import SCHEMA
from culm_io.programs.p2panda.links import ADDRESS_MAX, PEERS_MAX, Node
from culm_io.programs.tables import Teller
from culm_io.stores import p2panda as p2panda_sqlite_store
from culm_io.stores.p2panda import OperationSqliteStore

LOCKED_S = 0.5


def node(store: OperationSqliteStore, told: list[str]) -> Node:
    class Listening(Teller):
        def __call__(self, event: str, /, **of: Any) -> None:
            told.append(event)

    return Node(
        store,
        [SCHEMA],
        live=False,
        returns=False,
        patience_s=30.0,
        peers_max=PEERS_MAX,
        address_max=ADDRESS_MAX,
        tell=Listening(),
        captures=Captures(),
        metrics=Metrics(),
    )


def test_what_comes_while_the_store_is_locked_is_stored_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p2panda_sqlite_store, "BUSY_TIMEOUT_S", 0.01)
    paths = [tmp_path / name for name in "ab"]
    told: list[str] = []
    with OperationSqliteStore(paths[0]) as ours, OperationSqliteStore(paths[1]) as theirs:
        for number, store in enumerate((ours, theirs)):
            Author(SigningKey(bytes([number]) * 32), store).create(SCHEMA, {"n": number})

        async def main() -> bool:
            server, other = node(ours, told), node(theirs, [])
            listening = socket.create_server(("127.0.0.1", 0))
            listening.setblocking(False)
            locking = sqlite3.connect(paths[0], isolation_level=None)
            locking.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(LOCKED_S, locking.execute, "ROLLBACK")
            serving = asyncio.create_task(server.serve(listening))
            await other.go_to([listening.getsockname()])
            while ours.position < 2:
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0.01)
            serving.cancel()
            await asyncio.wait([serving])
            server.close()
            other.close()
            listening.close()
            locking.close()
            return other.failed

        assert not asyncio.run(asyncio.wait_for(main(), 60))
        assert ours.documents(SCHEMA) == theirs.documents(SCHEMA)
        assert len(ours.documents(SCHEMA)) == 2

"""The store of feeds in SQLite: the suite, and kill -9 at every statement."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from killing import live_and_die

from culm.machine import Effect, Ticket
from culm.ssb.ebt import LoadClock, MarkForked, PeerClock, SaveClock
from culm.ssb.feed_id import feed_id_of
from culm.testing.ssb_stores import Crashed, FeedStoreSuite
from culm_io.stores.ssb import SsbSqliteStore

ALICE, BOB = feed_id_of(bytes(32)), feed_id_of(bytes([1]) * 32)


class TestSsbSqliteStore(FeedStoreSuite):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> Iterator[None]:
        self._paths = (tmp_path / f"{number}.sqlite" for number in count())
        self._opened: dict[Any, Path] = {}
        yield
        for store in self._opened:
            store.close()

    def make_store(self) -> SsbSqliteStore:
        return self._open(next(self._paths))

    def reopen(self, store: Any) -> SsbSqliteStore:
        store.close()
        return self._open(self._opened[store])

    def _open(self, path: Path) -> SsbSqliteStore:
        store = SsbSqliteStore(path)
        self._opened[store] = path
        return store

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        if not hasattr(os, "fork"):
            return None
        path = next(self._paths)
        returned = live_and_die(lambda: live(path, effects), point)
        return None if returned is None else Crashed(self._open(path), returned)

    def test_who_was_not_here_for_long_is_forgotten(self) -> None:
        store = SsbSqliteStore(next(self._paths), clocks_max=3)
        for number, peer in enumerate(["alice", "bob", "carol", "alice", "dave"]):
            clock = PeerClock(told={"a feed": number})
            store.perform(SaveClock(ticket=Ticket(1), peer=peer, clock=clock))
        found = [
            store.perform(LoadClock(ticket=Ticket(1), peer=peer)).told.get("a feed")
            for peer in ("alice", "bob", "carol", "dave")
        ]
        assert found == [3, None, 2, 4]
        store.close()

    def test_clocks_of_an_older_file_are_kept(self) -> None:
        path = next(self._paths)
        before = sqlite3.connect(path)
        before.execute("CREATE TABLE clocks (peer TEXT PRIMARY KEY, told TEXT, refused TEXT)")
        before.execute("INSERT INTO clocks VALUES ('alice', '{\"a feed\": 3}', '[]')")
        before.commit()
        before.close()
        found = self._open(path).perform(LoadClock(ticket=Ticket(1), peer="alice"))
        assert found == PeerClock(told={"a feed": 3})

    def test_the_proof_of_a_fork_is_kept(self) -> None:
        store = self.make_store()
        store.perform(MarkForked(ticket=Ticket(1), feed=ALICE, ours=b"ours", theirs=b"theirs"))
        found = self.reopen(store)
        assert found.proof(ALICE) == (b"ours", b"theirs")
        assert found.proof(BOB) is None


def live(path: Path, effects: Sequence[Effect[Any]]) -> Iterator[None]:
    store = SsbSqliteStore(path)
    for effect in effects:
        store.perform(effect)
        yield

"""Stores of feeds, in memory and in SQLite: one rule each, and kill -9 at every statement."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from killing import Killing, fork

from culm.machine import Effect, Ticket
from culm.ssb.ebt import (
    AppendMessages,
    Head,
    LoadClock,
    MarkForked,
    Message,
    PeerClock,
    ReadMessages,
    SaveClock,
    Stored,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.store import FeedStore, MemoryStore
from stores.ssb_sqlite_store import SsbSqliteStore

ALICE, BOB = feed_id_of(bytes(32)), feed_id_of(bytes([1]) * 32)
TICKET: Ticket[Any] = Ticket(1)


def messages(feed: str, first: int, last: int) -> tuple[Message, ...]:
    return tuple(
        Message(feed, sequence, f"%{feed[1:4]}{sequence}", b"x" * (10 + sequence))
        for sequence in range(first, last + 1)
    )


def append(*new: Message) -> AppendMessages:
    return AppendMessages(ticket=TICKET, messages=new)


def read(feed: str, first: int, count_max: int = 100, size_max: int = 10_000) -> ReadMessages:
    return ReadMessages(
        ticket=TICKET, feed=feed, first=first, count_max=count_max, size_max=size_max
    )


class Stores:
    """Makes stores of one kind, and opens them again."""

    def __init__(self, folder: Path) -> None:
        self._paths = (folder / f"{number}.sqlite" for number in count())
        self._opened: dict[SsbSqliteStore, Path] = {}

    def make(self, kind: str) -> Any:
        return MemoryStore() if kind == "memory" else self._open(next(self._paths))

    def reopen(self, store: Any) -> Any:
        if isinstance(store, MemoryStore):
            return store
        store.close()
        return self._open(self._opened[store])

    def _open(self, path: Path) -> SsbSqliteStore:
        store = SsbSqliteStore(path)
        self._opened[store] = path
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, stores: Stores) -> Any:
    return stores.make(request.param)


def test_a_new_store_has_nothing(store: FeedStore) -> None:
    assert store.load() == Stored()
    assert store.perform(LoadClock(ticket=TICKET, peer=ALICE)) == PeerClock()
    assert isinstance(store, FeedStore)


def test_what_was_written_is_there_and_is_found_again(store: Any, stores: Stores) -> None:
    assert store.perform(append(*messages(ALICE, 1, 3), *messages(BOB, 1, 2))) is None
    store.perform(append(*messages(ALICE, 4, 5)))
    found = stores.reopen(store)
    assert found.load().heads == {ALICE: Head(5, "%AAA5"), BOB: Head(2, "%AQE2")}
    assert found.messages(ALICE) == [message.data for message in messages(ALICE, 1, 5)]


def test_reading_keeps_to_its_bounds(store: Any) -> None:
    store.perform(append(*messages(ALICE, 1, 9)))
    data = tuple(message.data for message in messages(ALICE, 1, 9))
    assert store.perform(read(ALICE, 1)) == data
    assert store.perform(read(ALICE, 4, count_max=2)) == data[3:5]
    assert store.perform(read(ALICE, 4, size_max=30)) == data[3:5]
    assert store.perform(read(ALICE, 4, size_max=1)) == data[3:4]
    for effect in (read(ALICE, 9), read(ALICE, 1, count_max=1)):
        assert effect.accepts(store.perform(effect))


@pytest.mark.parametrize("first", [4, 2**53, 2**63 - 1])
def test_what_is_not_there_cannot_be_read(store: Any, first: int) -> None:
    store.perform(append(*messages(ALICE, 1, 3)))
    with pytest.raises(LookupError):
        store.perform(read(ALICE, first))
    with pytest.raises(LookupError):
        store.perform(read(BOB, 1))


def test_a_message_is_the_next_one_of_its_feed(store: Any) -> None:
    store.perform(append(*messages(ALICE, 1, 2)))
    for wrong in (messages(ALICE, 2, 2), messages(ALICE, 4, 4), messages(BOB, 2, 2)):
        with pytest.raises(ValueError, match="after"):
            store.perform(append(*wrong))
    assert store.load().heads[ALICE].sequence == 2


def test_clocks_are_kept_by_peer(store: Any, stores: Stores) -> None:
    first = PeerClock(told={ALICE: 3, BOB: -1}, refused=frozenset([BOB]))
    store.perform(SaveClock(ticket=TICKET, peer=ALICE, clock=PeerClock(told={BOB: 7})))
    store.perform(SaveClock(ticket=TICKET, peer=ALICE, clock=first))
    found = stores.reopen(store)
    effect = LoadClock(ticket=TICKET, peer=ALICE)
    assert found.perform(effect) == first
    assert effect.accepts(found.perform(effect))
    assert found.perform(LoadClock(ticket=TICKET, peer=BOB)) == PeerClock()


def test_the_proof_of_a_fork_is_kept(store: Any, stores: Stores) -> None:
    store.perform(MarkForked(ticket=TICKET, feed=ALICE, ours=b"ours", theirs=b"theirs"))
    found = stores.reopen(store)
    assert found.load().forked == frozenset([ALICE])
    assert found.proof(ALICE) == (b"ours", b"theirs")
    assert found.proof(BOB) is None


def test_what_is_no_effect_of_a_replicator_is_refused(store: Any) -> None:
    with pytest.raises(TypeError):
        store.perform(Effect(ticket=TICKET))


# Crashes

LIFE: list[Effect[Any]] = [
    append(*messages(ALICE, 1, 2)),
    append(*messages(ALICE, 3, 3), *messages(BOB, 1, 2)),
    SaveClock(ticket=TICKET, peer=ALICE, clock=PeerClock(told={BOB: 2})),
    MarkForked(ticket=TICKET, feed=BOB, ours=b"ours", theirs=b"theirs"),
    append(*messages(ALICE, 4, 6)),
]


def state(store: Any) -> tuple[Any, ...]:
    clock = store.perform(LoadClock(ticket=TICKET, peer=ALICE))
    return store.load(), store.messages(ALICE), store.messages(BOB), clock, store.proof(BOB)


def states() -> list[tuple[Any, ...]]:
    """After none, one, two... effects."""
    store = MemoryStore()
    found = [state(store)]
    for effect in LIFE:
        store.perform(effect)
        found.append(state(store))
    return found


def live_and_die(path: Path, point: int) -> int | None:
    """Do the effects in a child that is killed; how many had returned, ``None`` if all."""
    reader, writer = os.pipe()
    child = fork()
    if not child:
        store = SsbSqliteStore(path)
        store._db = Killing(store._db, point)  # type: ignore[assignment]
        for _ in map(store.perform, LIFE):
            os.write(writer, b".")
        os._exit(0)
    os.close(writer)
    done = b""
    while piece := os.read(reader, 100):
        done += piece
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return len(done) if os.WIFSIGNALED(status) else None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_store_that_is_killed_has_what_had_returned_or_one_effect_more(tmp_path: Path) -> None:
    expected = states()
    for point in count():
        path = tmp_path / f"{point}.sqlite"
        done = live_and_die(path, point)
        store = SsbSqliteStore(path)
        try:
            if done is None:
                assert state(store) == expected[-1]
                break
            assert state(store) in expected[done : done + 2]
            for effect in LIFE[expected.index(state(store)) :]:
                store.perform(effect)
            assert state(store) == expected[-1]
        finally:
            store.close()
    assert point > 2 * len(LIFE)

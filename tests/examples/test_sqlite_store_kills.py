"""A log store is killed between any two writes of a replication, which then goes on."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from killing import live_and_die
from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, LogKey, LogStore, MemoryStore, NewEntry
from culm.bamboo.audit import audit_log
from culm.point2point import Limits, Role
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits
from culm.testing.link import MachinePair
from culm.testing.stores import contents
from culm.wire.multihash import YAMF
from culm_io.stores.bamboo import CHUNK_SIZE, SqliteStore
from effort import LONG

# The large payload comes in pieces, some of which end within a chunk.
SIZES = (0, 10, CHUNK_SIZE * 2 + 100, 30, 20, 10)
LIMITS = ReplicatorLimits(
    payload_inline_max=64,
    batch_count_max=3,
    connection=Limits(packet_size_max=CHUNK_SIZE // 2 + 7, data_window_max=CHUNK_SIZE),
)


@cache
def log_of(number: int, fill: int = 0) -> tuple[NewEntry, ...]:
    """A log; two of the same number with different fillings are forked at entry 2."""
    author = LogAuthor(SigningKey(number.to_bytes(32)), family=YAMF)
    return tuple(author.publish(bytes([fill]) * size) for size in SIZES)


def key_of(news: Sequence[NewEntry]) -> LogKey:
    return news[0].entry.log


SOUND, FORKED, BRANCH, SPOILED = log_of(0), log_of(1), log_of(1, fill=7), log_of(2)


def source_of(*logs: Sequence[NewEntry]) -> MemoryStore:
    store = MemoryStore(family=YAMF)
    for news in logs:
        store.append(key_of(news), news)
    return store


def spoiled() -> MemoryStore:
    """A store that has lost a byte of its large payload."""
    store = source_of(SPOILED[:2])
    entry, payload = SPOILED[2].entry, SPOILED[2].payload
    assert payload is not None
    store.append(key_of(SPOILED), [NewEntry(entry, payload[:-1] + b"x")])
    return store


def replicate(source: LogStore, target: LogStore) -> None:
    server, client = (
        Replicator(role=role, family=YAMF, interest=interest, limits=LIMITS)
        for role, interest in (
            (Role.REACTIVE, Interest(live=True)),
            (Role.PROACTIVE, Interest(live=False, accept_new_logs=True)),
        )
    )
    MachinePair.of_machines(
        server,
        client,
        respond=(source.perform, target.perform),
    ).run()


def deeds(store: LogStore) -> Iterator[None]:
    """Every operation of a store, most of them through replication."""
    if store.fork(key_of(BRANCH)) is None:
        store.append(key_of(BRANCH), BRANCH[:4])
    yield
    replicate(spoiled(), store)
    yield
    replicate(source_of(SOUND, FORKED, SPOILED), store)
    yield
    store.discard_payload(key_of(SOUND), 2)


def live(path: Path) -> Iterator[None]:
    with SqliteStore(path, family=YAMF) as store:
        yield from deeds(store)


def check(store: SqliteStore, path: Path) -> None:
    """Everything present verifies, and its numbers are right."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert not database.execute("PRAGMA foreign_key_check").fetchall()
    for log in store.logs():
        rows: list[tuple[bytes, bytes | None]] = []
        for entry in store.entries(log):
            payload = store.read_payload(log, entry.seqnum, 0, entry.payload_size + 1)
            assert len(payload) == entry.payload_stored
            rows.append((entry.encoded, payload if entry.payload_complete else None))
        assert not [each for each in audit_log(log, rows, family=YAMF) if each.reasons]
        assert store.head(log) == store.newest(log)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.once
def test_a_store_killed_at_any_statement_comes_to_the_same_end(tmp_path: Path) -> None:
    twin = MemoryStore(family=YAMF)
    for _ in deeds(twin):
        pass
    assert len(twin.logs()) == 3
    assert twin.fork(key_of(BRANCH)) is not None
    seen = set()
    for point in count(0, 1 if LONG else 29):
        path = tmp_path / f"{point}.store"
        done = live_and_die(lambda path=path: live(path), point)  # type: ignore[misc]
        if done is None:
            break
        with SqliteStore(path, family=YAMF) as store:
            check(store, path)
        for _ in live(path):
            pass
        with SqliteStore(path, family=YAMF) as store:
            check(store, path)
            assert contents(store) == contents(twin)
        seen.add(done)
    assert seen >= {0, 1, 2}

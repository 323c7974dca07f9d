"""Drivers that verify signatures in threads, over TCP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from driving import DRIVERS, Drive, connected
from nacl.signing import SigningKey

import culm_io.verifiers
from culm import bamboo, p2panda
from culm.bamboo import LogAuthor
from culm.machine import Closed, Event, StoreFailed
from culm.p2panda import Author, OperationStored, Policy, SessionEnded
from culm.point2point import Role, replication
from culm.point2point.replication import EntryStored, Interest, LogSynced
from culm.pump import VerifyJob
from culm.ssb import peer
from culm.ssb.ebt import FeedExtended, StoredFeeds
from culm.ssb.store import MemoryStore as FeedMemoryStore
from culm.wire.multihash import YAMF
from culm_io.asyncio.ssb import PeerDriver

COUNT = 150


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected(1 << 16) as pair:
        yield pair


class Threads:
    """The threads that verify shares, and the number of them at work at once."""

    def __init__(self) -> None:
        self.all: set[int] = set()
        self.most = 0
        self._now: set[int] = set()

    def call(self, call: Callable[[VerifyJob], None], job: VerifyJob) -> None:
        thread = threading.get_ident()
        self._now.add(thread)
        self.all.add(thread)
        self.most = max(self.most, len(self._now))
        call(job)
        self._now.discard(thread)


@pytest.fixture
def verified_in(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads, call = Threads(), VerifyJob.__call__
    monkeypatch.setattr(VerifyJob, "__call__", lambda job: threads.call(call, job))
    return threads


def check_in_threads(threads: Threads, verifiers: int) -> None:
    assert threads.most <= verifiers
    assert bool(threads.all) is bool(verifiers)
    assert threading.get_ident() not in threads.all


def driven(drive: Drive, ends: Any, source: Any, target: Any, hear: Any, verifiers: int) -> Closed:
    """Drive two machines, each given with its store; the end of the second."""
    (sender, full), (receiver, empty) = source, target
    near, far = ends
    serving = {"perform": full.perform}
    thread = threading.Thread(target=DRIVERS["sockets"], args=(sender, far), kwargs=serving)
    thread.start()
    closed = drive(receiver, near, perform=empty.perform, on_event=hear, verifiers=verifiers)
    thread.join()
    return closed


@pytest.mark.parametrize("verifiers", [0, 2])
@pytest.mark.parametrize("drive", [pytest.param(DRIVERS[name], id=name) for name in DRIVERS])
def test_p2panda_operations_are_verified_in_threads(
    drive: Drive, verifiers: int, ends: Any, verified_in: Threads
) -> None:
    full, empty = p2panda.MemoryStore(), p2panda.MemoryStore()
    author = Author(SigningKey(bytes(32)), full)
    for number in range(COUNT):
        author.create("blob_piece_v1", {"data": b"%d" % number})
    stored: list[Event] = []

    def hear(event: Event) -> None:
        stored.extend([event] if isinstance(event, OperationStored) else [])
        if isinstance(event, SessionEnded):
            receiver.close()

    limits = p2panda.ReplicatorLimits(verifying_max=4096)
    receiver, sender = (
        p2panda.Replicator(
            local_peer=me,
            remote_peer=peer,
            limits=limits,
            policy=Policy(asks=me < peer, live=False),
        )
        for me, peer in ((b"a", b"b"), (b"b", b"a"))
    )
    for machine in (receiver, sender):
        machine.announce(["blob_piece_v1"], timestamp=1)
    closed = driven(drive, ends, (sender, full), (receiver, empty), hear, verifiers)
    assert closed == Closed()
    assert len(stored) == COUNT
    check_in_threads(verified_in, verifiers)


@pytest.mark.parametrize("verifiers", [0, 2])
@pytest.mark.parametrize("drive", [pytest.param(DRIVERS[name], id=name) for name in DRIVERS])
def test_entries_of_a_log_are_verified_in_threads(
    drive: Drive, verifiers: int, ends: Any, verified_in: Threads
) -> None:
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    full, empty = bamboo.MemoryStore(family=YAMF), bamboo.MemoryStore(family=YAMF)
    full.append(author.log, [author.publish(b"%d" % number) for number in range(COUNT)])
    stored: list[int] = []

    def hear(event: Event) -> None:
        stored.extend([event.seqnum] if isinstance(event, EntryStored) else [])
        if isinstance(event, LogSynced):
            receiver.close()

    receiver = replication.Replicator(
        role=Role.PROACTIVE,
        limits=replication.ReplicatorLimits(verifying_max=4096),
        interest=Interest(live=False, accept_new_logs=True),
    )
    sender = replication.Replicator(role=Role.REACTIVE)
    closed = driven(drive, ends, (sender, full), (receiver, empty), hear, verifiers)
    assert closed == Closed()
    assert stored == list(range(1, COUNT + 1))
    check_in_threads(verified_in, verifiers)


@pytest.mark.parametrize("name", ["sockets", "asyncio", "twisted"])  # those with a common pool
def test_without_a_thread_to_verify_in_a_connection_ends_and_says_why(
    name: str, ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ThreadPoolExecutor(2)
    pool.shutdown()  # refuses like one that cannot start threads
    monkeypatch.setattr(culm_io.verifiers, "_pool", lambda _: pool)
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    full, empty = bamboo.MemoryStore(family=YAMF), bamboo.MemoryStore(family=YAMF)
    full.append(author.log, [author.publish(b"one")])
    heard: list[Event] = []
    receiver = replication.Replicator(
        role=Role.PROACTIVE,
        limits=replication.ReplicatorLimits(verifying_max=4096),
        interest=Interest(live=False, accept_new_logs=True),
    )
    sender = replication.Replicator(role=Role.REACTIVE)
    with pytest.raises(RuntimeError, match="cannot schedule"):
        driven(DRIVERS[name], ends, (sender, full), (receiver, empty), heard.append, 2)
    assert [type(each) for each in heard[-2:]] == [StoreFailed, Closed]
    assert empty.logs() == []


@pytest.mark.parametrize("verifiers", [0, 2])
def test_messages_of_a_feed_are_verified_in_threads(verifiers: int, verified_in: Threads) -> None:
    alice, bob = (SigningKey(bytes([number]) * 32) for number in (1, 2))
    stored: list[int] = []

    async def main() -> None:
        complete = asyncio.Event()

        def hear(event: object) -> None:
            if isinstance(event, FeedExtended) and event.feed == writer.me:
                stored.extend(range(event.first, event.last + 1))
                if event.last == COUNT:
                    complete.set()

        now = asyncio.get_running_loop().time()
        limits = peer.Limits(verifying_max=4096)
        writer, reader = (
            peer.Peer(identity=key, stored=StoredFeeds(), now=now, limits=limits)
            for key in (alice, bob)
        )
        reader.follow(writer.me)
        out_of = PeerDriver(writer, FeedMemoryStore())
        into = PeerDriver(reader, FeedMemoryStore(), on_event=hear, verifiers=verifiers)
        for number in range(COUNT):
            out_of.call(writer.publish, {"type": "post", "text": f"{number}"})
        await into.dial(await out_of.listen("127.0.0.1", 0))
        await complete.wait()
        for driver in (into, out_of):
            driver.call(driver.peer.close)
            await driver.wait_closed()

    asyncio.run(main())
    assert stored == list(range(1, COUNT + 1))
    check_in_threads(verified_in, verifiers)

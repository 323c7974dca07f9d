"""Drivers that verify signatures in threads, over TCP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from driving import DRIVERS, Drive, connected
from nacl.signing import SigningKey

from culm import bamboo, p2panda
from culm.bamboo import LogAuthor
from culm.machine import Closed, Event
from culm.p2panda import Author, OperationStored, Policy, SessionEnded
from culm.point2point import Role, replication
from culm.point2point.replication import EntryStored, Interest, LogSynced
from culm.pump import VerifyJob
from culm.wire.multihash import YAMF

COUNT = 150


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected(1 << 16) as pair:
        yield pair


@pytest.fixture
def verified_in(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads in which shares are verified."""
    threads: set[int] = set()
    call = VerifyJob.__call__

    def noted(job: VerifyJob) -> None:
        threads.add(threading.get_ident())
        call(job)

    monkeypatch.setattr(VerifyJob, "__call__", noted)
    return threads


def check_in_threads(threads: set[int], verifiers: int) -> None:
    assert len(threads) <= verifiers
    assert bool(threads) is bool(verifiers)
    assert threading.get_ident() not in threads


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
    drive: Drive, verifiers: int, ends: Any, verified_in: set[int]
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
    drive: Drive, verifiers: int, ends: Any, verified_in: set[int]
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

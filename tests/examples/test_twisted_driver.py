"""The driver for Twisted: cancelled, resumed, its clock set, its threads slow."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from driving import adopt, connected, run_reactor
from nacl.signing import SigningKey
from processes import SECONDS_MAX, serving
from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from culm.bamboo import LogAuthor, LogKey, MemoryStore
from culm.machine import Closed, Effect, Event
from culm.point2point import Role
from culm.point2point.replication import (
    EntryStored,
    Interest,
    PayloadProgress,
    Replicator,
    ReplicatorLimits,
)
from culm.pump import AbortedError
from culm.wire.multihash import YAMF
from culm_io.stores.bamboo import SqliteStore
from culm_io.twisted.driver import MachineProtocol
from toy_machines import Keeper, Kept, LineReceived, Lines

KEY = SigningKey(bytes(range(32)))
LOG = LogKey(bytes(KEY.verify_key), 0)
SIZE = 20_000_000
LIMITS = ReplicatorLimits(unwritten_size_max=1 << 21)  # may be stored after a cancellation


@pytest.fixture
def reactor() -> SelectReactor:
    return SelectReactor()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected(1 << 16) as pair:
        pair[1].settimeout(SECONDS_MAX)
        yield pair


def carry(reactor: SelectReactor, connection: socket.socket, protocol: MachineProtocol) -> None:
    adopt(reactor, connection, Factory.forProtocol(lambda: protocol))


def run(reactor: SelectReactor, protocol: MachineProtocol) -> Closed:
    return run_reactor(reactor, protocol.closed)


def fetch(port: int, store: MemoryStore, until: int | None) -> tuple[int, list[Event]]:
    """Fetch until `until` bytes of the payload are stored, then be cancelled; bytes and events."""
    reactor = SelectReactor()
    events: list[Event] = []
    machine = Replicator(
        role=Role.PROACTIVE, interest=Interest(accept_new_logs=True), limits=LIMITS
    )

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, PayloadProgress) and until is not None and event.stored >= until:
            protocol.closed.cancel()
        elif isinstance(event, EntryStored) and event.payload_stored:
            machine.close()

    protocol = MachineProtocol(
        machine,
        reactor,
        in_threads=True,
        perform=store.perform,
        on_event=on_event,
    )
    connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), protocol)
    if until is None:
        assert run(reactor, protocol) == Closed()
    else:
        with pytest.raises(CancelledError):
            run(reactor, protocol)
    return protocol.pump.bytes_received, events


def test_a_payload_of_20_mb_is_resumed_after_two_cancellations(tmp_path: Path) -> None:
    author, payload = LogAuthor(KEY, family=YAMF), Random(1).randbytes(SIZE)
    with SqliteStore(tmp_path / "store", family=YAMF) as published:
        published.append(LOG, [author.publish(payload)])
    store = MemoryStore(family=YAMF)
    missing = SIZE
    with serving(tmp_path / "store") as port:
        for until in (SIZE // 4, SIZE // 2, None):
            size, events = fetch(port, store, until)
            assert size < 1.1 * missing  # no stored byte comes again
            kept = store.entry(LOG, 1)
            assert kept is not None
            missing = SIZE - kept.payload_stored
            if until is not None:
                assert until <= kept.payload_stored < SIZE
                assert not any(isinstance(event, Closed) for event in events)
    assert events[-1] == Closed()
    assert store.read_payload(LOG, 1, 0, SIZE) == payload


def test_verbs_may_be_called(reactor: SelectReactor, ends: Any) -> None:
    machine = Lines()
    protocol = MachineProtocol(machine, reactor)
    carry(reactor, ends[0], protocol)
    reactor.callWhenRunning(protocol.call, machine.say, b"hello")
    ends[1].sendall(b"bye\n")
    ends[1].shutdown(socket.SHUT_WR)
    assert run(reactor, protocol) == Closed()
    assert ends[1].makefile("rb").read() == b"hello\nbye\n"


def test_a_clock_that_is_set_tells_the_machine_nothing(reactor: SelectReactor, ends: Any) -> None:
    """An hour more on the wall clock is not an hour of silence."""
    offset = 0
    reactor.seconds = lambda: time.time() + offset
    events: list[Event] = []

    def on_event(event: Event) -> None:
        nonlocal offset
        events.append(event)
        offset = 3600
        reactor.callLater(0.05, ends[1].sendall, b"bye\n")

    protocol = MachineProtocol(Keeper(idle=600.0), reactor, perform=lambda _: 1, on_event=on_event)
    carry(reactor, ends[0], protocol)
    ends[1].sendall(b"first\n")
    assert run(reactor, protocol) == Closed()
    assert ends[1].makefile("rb").read() == b"ok\nbye\n"


@pytest.mark.parametrize("in_threads", [False, True])
def test_effects_are_answered_in_order(reactor: SelectReactor, ends: Any, in_threads: bool) -> None:
    texts = [b"%d" % number for number in range(40)]
    kept: list[bytes] = []
    threads: set[int] = set()
    events: list[Event] = []

    def keep(effect: Any) -> int:
        threads.add(threading.get_ident())
        kept.append(effect.text)
        return len(kept)

    protocol = MachineProtocol(
        Keeper(), reactor, in_threads=in_threads, perform=keep, on_event=events.append
    )
    carry(reactor, ends[0], protocol)
    ends[1].sendall(b"\n".join([*texts, b"bye", b""]))
    ends[1].shutdown(socket.SHUT_WR)
    assert run(reactor, protocol) == Closed()
    assert kept == texts
    assert [event.place for event in events if isinstance(event, Kept)] == list(range(1, 41))
    assert (threading.get_ident() in threads) is not in_threads


def test_a_store_in_a_thread_is_waited_for_after_an_abort(
    reactor: SelectReactor, ends: Any
) -> None:
    began, proceed, done = threading.Event(), threading.Event(), threading.Event()

    def keep(effect: Effect[Any]) -> int:
        began.set()
        reactor.callFromThread(protocol.abort)
        reactor.callFromThread(proceed.set)
        assert proceed.wait(SECONDS_MAX)
        done.set()
        return 1

    events: list[Event] = []
    protocol = MachineProtocol(
        Keeper(), reactor, in_threads=True, perform=keep, on_event=events.append
    )
    carry(reactor, ends[0], protocol)
    ends[1].sendall(b"first\n")
    with pytest.raises(AbortedError):
        run(reactor, protocol)
    assert done.is_set()
    assert events == [LineReceived(text=b"first")]


def test_what_a_handler_raises_ends_the_connection(reactor: SelectReactor, ends: Any) -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    protocol = MachineProtocol(Lines(), reactor, on_event=fail)
    carry(reactor, ends[0], protocol)
    ends[1].sendall(b"line\n")
    with pytest.raises(ZeroDivisionError):
        run(reactor, protocol)


def test_nothing_is_left_in_the_reactor(reactor: SelectReactor, ends: Any) -> None:
    protocol = MachineProtocol(Keeper(idle=1000.0), reactor, perform=lambda _: 1)
    carry(reactor, ends[0], protocol)
    ends[1].sendall(b"bye\n")
    assert run(reactor, protocol) == Closed()
    assert reactor.getDelayedCalls() == []

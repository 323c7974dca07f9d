"""All drivers for streams against each other, over TCP, plain and with TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import pytest
from driving import DRIVERS, Drive, Tls, connected
from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, MemoryStore
from culm.machine import Closed, Event
from culm.point2point import Role
from culm.point2point.replication import EntryStored, Interest, Replicator
from culm.pump import Timing
from culm.wire.multihash import YAMF
from toy_machines import LineReceived, Lines, ToyErrorCode

COUNT, SIZE = 4, 50_000
SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less
PATIENT = Timing(linger_s=3600, linger_after_error_s=3600)  # a slow peer is not given up

PAIRS = [
    pytest.param(DRIVERS[left], DRIVERS[right], id=f"{left}-{right}")
    for left, right in combinations_with_replacement(DRIVERS, 2)
]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def secured(request: pytest.FixtureRequest) -> tuple[Tls | None, Tls | None]:
    return (Tls(server_side=False), Tls(server_side=True)) if request.param else (None, None)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected() as pair:
        yield pair


def stored(seed: int) -> MemoryStore:
    """A store with one log of incompressible payloads."""
    author, random = LogAuthor(SigningKey(bytes([seed]) * 32), family=YAMF), Random(seed)
    store = MemoryStore(family=YAMF)
    store.append(author.log, [author.publish(random.randbytes(SIZE)) for _ in range(COUNT)])
    return store


@pytest.mark.costly
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_two_replicators_with_much_to_say_to_each_other(
    left: Drive, right: Drive, secured: Any, ends: Any
) -> None:
    """More than fits between them, both ways at once; in the end one says goodbye."""
    missing, lock = 2 * COUNT, threading.Lock()

    def side(drive: Drive, role: Role, connection: socket.socket, tls: Tls | None) -> Any:
        store = stored(role.value)
        machine = Replicator(role=role, interest=Interest(accept_new_logs=True))

        def on_event(event: Event) -> None:
            nonlocal missing
            if isinstance(event, EntryStored):
                with lock:
                    missing -= 1
                    last = missing == 0
                if last:
                    machine.close()

        closed = drive(
            machine,
            connection,
            tls,
            perform=store.perform,
            on_event=on_event,
        )
        return closed, len(store.logs())

    with ThreadPoolExecutor(2) as pool:
        sides = [
            pool.submit(side, drive, role, end, tls)
            for drive, role, end, tls in zip((left, right), Role, ends, secured, strict=True)
        ]
        assert [each.result(SECONDS_MAX) for each in sides] == [(Closed(), 2)] * 2


class Scolder(Lines):
    """Tells the peer its mistake, of course."""

    def _ended(self, error: Any) -> None:
        super()._ended(error)
        if error is not None:
            self._outbox.append(b"wrong\n")


@pytest.mark.costly
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_last_words_reach_a_peer_that_has_much_to_say(
    left: Drive, right: Drive, secured: Any, ends: Any
) -> None:
    """It breaks a rule with its first bytes, with many more on their way."""

    class Talker(Lines):
        """Ends when it is told of a mistake."""

        is_told = False

        def __init__(self) -> None:
            super().__init__()
            self._outbox.append(bytes(1_000_000))

        def _step(self) -> Event | None:
            if self.is_told:
                return Closed()
            event = super()._step()
            self.is_told = event == LineReceived(text=b"wrong")
            return event

    heard: list[Event] = []
    with ThreadPoolExecutor(2) as pool:
        brief = Timing(linger_s=0.5)  # it has heard everything it came for
        talks = pool.submit(
            left, Talker(), ends[0], secured[0], on_event=heard.append, timing=brief
        )
        scolds = pool.submit(right, Scolder(), ends[1], secured[1], timing=PATIENT)
        closed = scolds.result(SECONDS_MAX)
        talks.result(SECONDS_MAX)
    assert closed.error is not None
    assert closed.error.code is ToyErrorCode.LINE_TOO_LONG
    assert heard[0] == LineReceived(text=b"wrong")


@pytest.mark.parametrize("name", DRIVERS)
def test_a_peer_that_vanishes(name: str, secured: Any, ends: Any) -> None:
    near, far = ends
    events: list[Event] = []
    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(DRIVERS[name], Lines(), near, secured[0], on_event=events.append)
        if secured[1] is not None:
            far = secured[1].context.wrap_socket(far, server_side=True)
        far.sendall(b"hello\ncut sho")
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        while not events:
            threading.Event().wait(0.01)
        far.close()
        closed = driven.result(SECONDS_MAX)
    assert closed.error is not None
    assert closed.error.code is ToyErrorCode.CUT_SHORT
    assert events == [LineReceived(text=b"hello"), closed]

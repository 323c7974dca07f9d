from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from endless import Endless

from culm.machine import (
    Closed,
    Effect,
    Event,
    RemoteProtocolError,
    StoreFailed,
    StreamBase,
)
from culm.pump import AbortedError, Pump, Timing
from culm_io.sockets import driver as socket_driver
from toy_machines import (
    Keep,
    Keeper,
    Kept,
    Lanes,
    LineReceived,
    Lines,
    ToyErrorCode,
)

SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less


@contextmanager
def connection(peer: Callable[[socket.socket], object]) -> Iterator[socket.socket]:
    """One end of a connection; `peer` has the other one in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]

    def talk() -> None:
        with far:
            peer(far)

    thread = threading.Thread(target=talk)
    thread.start()
    yield near
    thread.join()
    assert near.fileno() == -1


def drive(machine: StreamBase, near: socket.socket, **handlers: Any) -> Closed:
    return socket_driver.run(Pump(machine, **handlers), near)


def read_all(peer: socket.socket) -> bytes:
    return b"".join(iter(lambda: peer.recv(1 << 16), b""))


def test_a_conversation_with_a_store() -> None:
    said: list[bytes] = []

    def peer(far: socket.socket) -> None:
        far.sendall(b"one\ntwo\nthree\nbye\n")
        said.append(read_all(far))

    kept: list[bytes] = []

    def perform(effect: Effect) -> int:
        assert isinstance(effect, Keep)
        kept.append(effect.text)
        return len(kept)

    events: list[Event] = []
    with connection(peer) as near:
        closed = drive(Keeper(), near, perform=perform, on_event=events.append)
    assert closed == events[-1] == Closed()
    assert kept == [b"one", b"two", b"three"]
    assert [event for event in events if isinstance(event, Kept)] == [
        Kept(text=text, place=place) for place, text in enumerate(kept, 1)
    ]
    assert said == [b"ok\n" * 3 + b"bye\n"]


@pytest.mark.parametrize("reset", [False, True])
def test_a_message_cut_short(reset: bool) -> None:
    heard = threading.Event()
    events: list[Event] = []

    def peer(far: socket.socket) -> None:
        far.sendall(b"line\ncut sho")
        assert heard.wait(SECONDS_MAX)  # unread bytes are lost with the connection
        if reset:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()

    def on_event(event: Event) -> None:
        events.append(event)
        heard.set()

    with connection(peer) as near:
        closed = drive(Lines(), near, on_event=on_event)
    assert closed.error is not None
    assert closed.error.code is ToyErrorCode.CUT_SHORT
    assert events == [LineReceived(text=b"line"), closed]


def test_time_is_told_when_it_is_due() -> None:
    def peer(far: socket.socket) -> None:
        assert far.recv(100) == b"bye\n"
        far.sendall(b"bye\n")

    started = time.monotonic()
    with connection(peer) as near:
        assert drive(Keeper(idle=0.1), near) == Closed()
    assert 0.09 < time.monotonic() - started < SECONDS_MAX


def test_a_peer_that_reads_slowly_gets_everything() -> None:
    received: list[int] = []

    def peer(far: socket.socket) -> None:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        size = 0
        while size < 1_000_000 + 2 * -(-1_000_000 // 255):
            time.sleep(0.0005)
            size += len(far.recv(20_000))
        received.append(size)
        far.close()

    machine = Lanes()
    machine.put(0, bytes(1_000_000))
    with connection(peer) as near:
        assert drive(machine, near) == Closed()
    assert received


def test_last_words_that_nobody_takes_are_given_up() -> None:
    done = threading.Event()

    def peer(far: socket.socket) -> None:
        far.shutdown(socket.SHUT_WR)
        done.wait()

    class Talker(Lines):
        """Has a lot to say at the end."""

        def _say_goodbye(self) -> None:
            self._outbox.append(bytes(30_000_000))

        def _step_eof(self) -> Event | None:
            self._say_goodbye()
            return Closed()

    with connection(peer) as near:
        assert drive(Talker(), near, timing=Timing(linger_s=0.05)) == Closed()
        done.set()


class Scolder(Lines):
    """Tells the peer its mistake."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        if error is not None:
            self._outbox.append(b"wrong\n")


def test_last_words_reach_a_peer_that_still_talks() -> None:
    """And the wait is no longer than for its end."""
    timing = Timing(linger_s=3600, linger_after_error_s=3600)
    received: list[bytes] = []

    def peer(far: socket.socket) -> None:
        far.sendall(b"line\n" + bytes(30_000_000))
        received.append(read_all(far))

    with connection(peer) as near:
        assert drive(Scolder(), near, timing=timing).error is not None
    assert received == [b"wrong\n"]


def test_a_peer_at_fault_that_goes_on_is_not_heard_for_long() -> None:
    timing = Timing(linger_s=3600, linger_after_error_s=0.05)

    def peer(far: socket.socket) -> None:
        with suppress(OSError):
            while True:
                far.sendall(bytes(100_000))

    with connection(peer) as near:
        assert drive(Scolder(), near, timing=timing).error is not None


def test_a_failure_of_the_store_is_told_to_the_machine_and_raised() -> None:
    failure = OSError("the disk is full")

    def fail(effect: Effect[Any]) -> None:
        raise failure

    events: list[Event] = []
    with (
        connection(lambda far: far.sendall(b"line\n")) as near,
        pytest.raises(OSError, match="the disk is full") as caught,
    ):
        drive(Keeper(), near, perform=fail, on_event=events.append)
    assert caught.value is failure
    failed = next(event for event in events if isinstance(event, StoreFailed))
    assert failed.error is failure
    assert isinstance(events[-1], Closed)


def test_a_failure_of_the_users_is_raised_and_the_socket_closed() -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    with (
        connection(lambda far: far.sendall(b"line\n")) as near,
        pytest.raises(ZeroDivisionError),
    ):
        drive(Lines(), near, on_event=fail)
    with (
        connection(lambda far: far.sendall(b"line\n")) as near,
        pytest.raises(TypeError, match="no performer for Keep"),
    ):
        drive(Keeper(), near)


@pytest.mark.timeout(2 * SECONDS_MAX)
def test_abort_stops_between_any_two_events() -> None:
    """Even where the machine always has one more."""
    machine = Endless()

    def on_event(event: Event) -> None:
        if machine.taken == 10:
            pump.abort()

    pump = Pump(machine, on_event=on_event)
    with connection(lambda far: far.recv(1)) as near, pytest.raises(AbortedError):
        socket_driver.run(pump, near)
    assert machine.taken == 10


@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("build", [Endless, Lines])
def test_another_thread_aborts(build: Callable[[], StreamBase]) -> None:
    """With endless events, and with none at all."""
    aborted = threading.Event()
    with connection(lambda far: far.recv(1)) as near:

        def abort() -> None:
            aborted.set()
            with suppress(OSError):  # it may be closed by now
                near.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(0.1, abort)
        timer.start()
        with pytest.raises(AbortedError):
            socket_driver.run(Pump(build()), near, aborted=aborted.is_set)
        timer.join()


def test_an_abort_is_not_taken_for_the_end_of_the_peer() -> None:
    """The other thread does it a moment before its socket is read."""
    aborted = threading.Event()

    class Interrupted(Lines):
        def read_size(self) -> int:
            aborted.set()
            near.shutdown(socket.SHUT_RDWR)
            return super().read_size()

    events: list[Event] = []
    with connection(lambda far: far.recv(1)) as near, pytest.raises(AbortedError):
        socket_driver.run(Pump(Interrupted(), on_event=events.append), near, aborted=aborted.is_set)
    assert events == []

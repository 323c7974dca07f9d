from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from driving import OwnTime, run_in_own_time
from endless import Endless
from processes import SECONDS_MAX

from culm.machine import (
    Buffer,
    Closed,
    Effect,
    Event,
    RemoteProtocolError,
    StreamBase,
    StreamMachine,
)
from culm.pump import AbortedError, Timing
from culm_io.asyncio.driver import MachineProtocol
from toy_machines import Keep, Keeper, Kept, Lanes, LineReceived, Lines, ToyErrorCode


class FakeTransport(asyncio.Transport):
    """Keeps everything written to it; with `congested`, pauses writing at the first bytes."""

    def __init__(self, protocol: MachineProtocol, *, congested: bool = False) -> None:
        super().__init__()
        self.protocol = protocol
        self.writes: list[bytes] = []
        self.reading = True
        self.closing = False
        self.congested = congested
        self.loop = asyncio.get_running_loop()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: Any) -> None:
        assert not self.closing
        self.writes.append(bytes(data))
        if self.congested:
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The peer says at once that it has nothing to add."""
        self.loop.call_soon(self.protocol.eof_received)

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def feed(self, data: bytes) -> None:
        """Bytes from the peer, as far as they are read."""
        while data and self.reading:
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)
        self.unread = data


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, SECONDS_MAX))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def connected(protocol: MachineProtocol, *, congested: bool = False) -> FakeTransport:
    transport = FakeTransport(protocol, congested=congested)
    protocol.connection_made(transport)
    return transport


class Places:
    """Performs `Keep`: numbers the lines that it keeps."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.threads: set[int] = set()

    def __call__(self, effect: Effect) -> int:
        assert isinstance(effect, Keep)
        self.threads.add(threading.get_ident())
        self.kept.append(effect.text)
        return len(self.kept)


def test_bytes_are_taken_a_little_at_a_time_and_only_while_the_peer_takes_them() -> None:
    async def main() -> None:
        machine = Lanes()
        machine.put(0, bytes(1_000_000))
        protocol = MachineProtocol(machine)
        transport = connected(protocol, congested=True)
        assert transport.high is not None
        assert transport.high <= 1 << 16
        await turns()
        assert len(transport.writes) == 1
        assert len(transport.writes[0]) <= 1 << 16
        # Later data need not queue after all earlier data.
        machine.put(1, b"urgent")
        protocol.resume_writing()
        await turns()
        assert len(transport.writes) == 2
        assert b"urgent" in transport.writes[1]
        transport.congested = False
        protocol.resume_writing()
        while sum(map(len, transport.writes)) < 1_000_006:
            await asyncio.sleep(0)
        await turns()
        assert protocol.pump.bytes_sent == sum(map(len, transport.writes))
        assert max(map(len, transport.writes)) <= 1 << 16

    run(main())


def test_others_in_the_loop_get_their_turn_between_two_writes() -> None:
    async def main() -> None:
        machine = Lanes()
        machine.put(0, bytes(1_000_000))
        transport = connected(MachineProtocol(machine))
        for count in range(1, 8):
            assert len(transport.writes) == count
            await asyncio.sleep(0)

    run(main())


def test_what_the_transport_takes_needs_no_other_turn() -> None:
    async def main() -> None:
        machine = Lanes()
        protocol = MachineProtocol(machine)
        transport = connected(protocol)
        for count in range(1, 4):
            protocol.call(machine.put, 0, b"a small piece")
            assert len(transport.writes) == count
            assert protocol.pump.bytes_sent == sum(map(len, transport.writes))

    run(main())


@pytest.mark.parametrize("congested", [False, True])
def test_a_transport_may_pause_and_resume_at_any_moment(congested: bool) -> None:
    """As TLS does: no piece is lost, and none is written twice."""

    async def written(*, disturbed: bool) -> bytes:
        machine = Lanes()
        machine.put(0, bytes(500_000))
        protocol = MachineProtocol(machine)
        transport = connected(protocol, congested=congested)
        while protocol.pump.outgoing:
            if disturbed:
                protocol.pause_writing()
                protocol.resume_writing()
            await asyncio.sleep(0)
            protocol.resume_writing()
        return b"".join(transport.writes)

    async def main() -> None:
        assert await written(disturbed=True) == await written(disturbed=False)

    run(main())


def test_the_peer_is_read_as_far_as_the_machine_wants() -> None:
    async def main() -> None:
        machine = Keeper()
        places = Places()
        protocol = MachineProtocol(machine, perform=places)
        transport = connected(protocol, congested=True)
        assert len(protocol.get_buffer(-1)) == machine.read_size() < 1 << 16
        protocol.pause_writing()
        transport.feed(b"line\n" * 2000)
        assert machine.read_size() == 0
        assert not transport.reading
        assert transport.unread
        transport.congested = False
        protocol.resume_writing()
        await turns()
        assert transport.reading
        transport.feed(transport.unread)
        while transport.unread:
            await turns()
            transport.feed(transport.unread)
        assert len(places.kept) == 2000
        assert protocol.pump.bytes_received == 10_000

    run(main())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_effects_are_answered_in_order(elsewhere: bool) -> None:
    async def main(executor: Executor | None) -> None:
        places = Places()
        events: list[Event] = []
        protocol = MachineProtocol(
            Keeper(), perform=places, executor=executor, on_event=events.append
        )
        transport = connected(protocol)
        texts = [b"%d" % number for number in range(40)]
        transport.feed(b"".join(text + b"\n" for text in texts))
        transport.feed(b"bye\n")
        closed = await protocol.wait_closed()
        assert closed == Closed()
        assert places.kept == texts
        kept = [event for event in events if isinstance(event, Kept)]
        assert kept == [Kept(text=text, place=place) for place, text in enumerate(texts, 1)]
        assert [event.text for event in events if isinstance(event, LineReceived)] == texts
        assert events[-1] == closed
        assert b"".join(transport.writes) == b"ok\n" * 40 + b"bye\n"
        assert (threading.get_ident() in places.threads) is not elsewhere

    if elsewhere:
        with ThreadPoolExecutor(4) as executor:
            run(main(executor))
    else:
        run(main(None))


def test_a_slow_store_does_not_hold_up_the_loop() -> None:
    async def main(executor: Executor) -> None:
        proceed = threading.Event()

        def perform(effect: Effect) -> int:
            assert proceed.wait(SECONDS_MAX)
            return 1

        events: list[Event] = []
        protocol = MachineProtocol(
            Keeper(), perform=perform, executor=executor, on_event=events.append
        )
        transport = connected(protocol)
        transport.feed(b"first\nsecond\n")
        await asyncio.sleep(0.02)
        assert events == [LineReceived(text=b"first"), LineReceived(text=b"second")]
        transport.feed(b"bye\n")
        proceed.set()
        assert await protocol.wait_closed() == Closed()

    with ThreadPoolExecutor(1) as executor:
        run(main(executor))


@pytest.mark.parametrize("eof_first", [False, True])
def test_the_end_of_the_stream_is_told_once(eof_first: bool) -> None:
    async def main() -> None:
        machine = Lines()
        told: list[int] = []
        receive_eof = machine.receive_eof
        machine.receive_eof = lambda: (told.append(1), receive_eof())[1]  # type: ignore[method-assign]
        protocol = MachineProtocol(machine)
        transport = connected(protocol)
        transport.feed(b"cut sho")
        if eof_first:
            assert protocol.eof_received()
        else:
            protocol.connection_lost(ConnectionResetError())
        closed = await protocol.wait_closed()
        assert closed.error is not None
        assert closed.error.code is ToyErrorCode.CUT_SHORT
        assert told == [1]

    run(main())


def test_a_machine_for_which_the_end_of_the_stream_is_no_end_is_closed() -> None:
    class Patient(Lines):
        def _step_eof(self) -> Event | None:
            return Closed() if self._closing else None

    async def main() -> None:
        protocol = MachineProtocol(Patient())
        transport = connected(protocol)
        protocol.eof_received()
        assert await protocol.wait_closed() == Closed()
        assert transport.writes == [b"bye\n"]

    run(main())


def test_time_is_told_when_it_is_due() -> None:
    async def main(loop: OwnTime) -> None:
        protocol = MachineProtocol(Keeper(idle=10), perform=Places())
        transport = connected(protocol)
        loop.now += 6
        transport.feed(b"a sign of life\n")
        loop.now += 9
        await turns()
        assert transport.writes == [b"ok\n"]
        loop.now += 1
        await turns()
        assert transport.writes == [b"ok\n", b"bye\n"]
        protocol.eof_received()
        await protocol.wait_closed()

    run_in_own_time(main)


def test_bytes_that_are_here_go_before_a_deadline_that_has_passed() -> None:
    """A peer is not silent because we are slow."""

    async def main() -> None:
        machine = Keeper(idle=0.05)
        events: list[Event] = []
        transport = connected(MachineProtocol(machine, perform=Places(), on_event=events.append))
        time.sleep(0.1)
        transport.feed(b"line\n")
        assert events == [LineReceived(text=b"line"), Kept(text=b"line", place=1)]

    run(main())


def fail(_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("culprit", ["perform", "perform elsewhere", "on_event"])
def test_a_failure_of_the_users_ends_the_connection_and_is_raised(culprit: str) -> None:
    async def main(executor: Executor) -> None:
        protocol = MachineProtocol(
            Keeper(),
            perform=Places() if culprit == "on_event" else fail,
            executor=executor if culprit == "perform elsewhere" else None,
            on_event=fail if culprit == "on_event" else None,
        )
        transport = connected(protocol)
        transport.feed(b"line\n")
        with pytest.raises(ZeroDivisionError):
            await protocol.wait_closed()
        assert transport.closing

    with ThreadPoolExecutor(1) as executor:
        run(main(executor))


def test_a_durable_machine_needs_somebody_who_performs() -> None:
    async def main() -> None:
        protocol = MachineProtocol(Keeper())
        connected(protocol).feed(b"line\n")
        with pytest.raises(TypeError, match="no performer for Keep"):
            await protocol.wait_closed()

    run(main())


def test_cancelling_aborts_the_connection_and_waits_for_the_store() -> None:
    async def main(executor: Executor) -> None:
        proceed, done = threading.Event(), threading.Event()

        def perform(effect: Effect) -> int:
            assert proceed.wait(SECONDS_MAX)
            done.set()
            return 1

        protocol = MachineProtocol(Keeper(), perform=perform, executor=executor)
        transport = connected(protocol)
        transport.feed(b"line\n")
        waiting = asyncio.create_task(protocol.wait_closed())
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.sleep(0.02)
        assert transport.closing
        assert not waiting.done()
        proceed.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert done.is_set()

    with ThreadPoolExecutor(1) as executor:
        run(main(executor))


def test_last_words_that_nobody_takes_are_given_up() -> None:
    async def main(loop: OwnTime) -> None:
        machine = Lines()
        protocol = MachineProtocol(machine, timing=Timing(linger_s=5))
        transport = connected(protocol)
        protocol.pause_writing()
        transport.feed(b"bye\n")
        loop.now += 4
        await turns()
        assert not transport.closing
        loop.now += 1
        assert await protocol.wait_closed() == Closed()
        assert transport.closing

    run_in_own_time(main)


def test_no_end_is_written_while_asyncio_writes() -> None:
    """After its last bytes it would write one itself, and could not report an error."""

    async def main() -> None:
        protocol = MachineProtocol(Lines())
        transport = connected(protocol, congested=True)
        ends: list[None] = []
        transport.write_eof = lambda: ends.append(None)  # type: ignore[method-assign]
        transport.feed(b"bye\n")
        await turns()
        protocol.resume_writing()
        assert not ends
        await turns()
        assert ends

    run(main())


def test_verbs_may_be_called_by_handlers_of_events_and_from_outside() -> None:
    async def main() -> None:
        machine = Lines()
        events: list[Event] = []

        def on_event(event: Event) -> None:
            events.append(event)
            if event == LineReceived(text=b"question"):
                protocol.call(machine.say, b"answer")
                protocol.call(machine.close)

        protocol = MachineProtocol(machine, on_event=on_event)
        transport = connected(protocol)
        protocol.call(machine.say, b"hello")
        assert transport.writes == [b"hello\n"]
        transport.feed(b"question\nmore\nbye\n")
        assert await protocol.wait_closed() == Closed()
        assert b"".join(transport.writes) == b"hello\nanswer\nbye\n"
        assert [type(event) for event in events] == [LineReceived, LineReceived, Closed]

    run(main())


CERTIFICATE = Path(__file__).with_name("localhost.pem")  # with its key


async def over_tcp(
    build: Callable[[], StreamMachine],
    client: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    **options: Any,
) -> Closed:
    """Serve one connection of `client` with a machine; its end."""
    loop = asyncio.get_running_loop()
    protocols: list[MachineProtocol] = []

    def serve() -> MachineProtocol:
        protocols.append(MachineProtocol(build(), **options))
        return protocols[-1]

    server = await loop.create_server(serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await client(reader, writer)
        finally:
            writer.close()
        return await protocols[0].wait_closed()


def test_a_conversation_over_tcp() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"line\n" * 5000 + b"bye\n")
        assert await reader.read() == b"bye\n"

    class Sink(Lines):
        pass

    async def main() -> None:
        assert await over_tcp(Sink, client) == Closed()

    run(main())


def test_a_connection_that_is_reset() -> None:
    heard = bytearray()

    class Hearing(Lines):
        def receive_data(self, data: Buffer) -> None:
            super().receive_data(data)
            heard.extend(data)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"cut sho")
        while heard != b"cut sho":
            await asyncio.sleep(0)
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def main() -> None:
        closed = await over_tcp(Hearing, client)
        assert closed.error is not None
        assert closed.error.code is ToyErrorCode.CUT_SHORT

    run(main())


def test_a_megabyte_through_a_socket_that_is_read_slowly() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = 0
        while size < 1_000_000 + 2 * -(-1_000_000 // 255):
            size += len(await reader.read(50_000))
        writer.write_eof()

    def build() -> StreamBase:
        machine = Lanes()
        machine.put(0, bytes(1_000_000))
        return machine

    async def main() -> None:
        assert await over_tcp(build, client) == Closed()

    run(main())


class Scolder(Lines):
    """Tells the peer its mistake."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        if error is not None:
            self._outbox.append(b"wrong\n")


PATIENT = Timing(linger_s=3600, linger_after_error_s=3600)


async def against(
    peer: Callable[[socket.socket], None],
    *,
    tls: bool,
    machine: StreamMachine,
    timing: Timing = PATIENT,
) -> Closed:
    """Serve `peer`, which has a blocking socket in a thread; our end."""
    loop = asyncio.get_running_loop()
    protocol = MachineProtocol(machine, timing=timing)
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)

    def talk() -> None:
        with socket.create_connection(server.sockets[0].getsockname()) as plain:
            if not tls:
                peer(plain)
                return
            trusting = ssl.create_default_context(cafile=CERTIFICATE)
            with trusting.wrap_socket(plain, server_hostname="localhost") as sealed:
                peer(sealed)

    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=context)
    async with server:
        talking = asyncio.create_task(asyncio.to_thread(talk))
        closed = await protocol.wait_closed()
        await talking
    return closed


@pytest.mark.parametrize("tls", [False, True])
def test_last_words_reach_a_peer_that_still_talks(tls: bool) -> None:
    """And the wait is no longer than for its end."""
    received: list[bytes] = []

    def peer(connection: socket.socket) -> None:
        connection.sendall(b"line\n" + bytes(30_000_000))
        received.append(connection.recv(100))

    async def main() -> None:
        closed = await against(peer, tls=tls, machine=Scolder())
        assert closed.error is not None
        assert received == [b"wrong\n"]

    run(main())


@pytest.mark.parametrize("tls", [False, True])
def test_an_orderly_end_is_not_waited_for(tls: bool) -> None:
    received: list[bytes] = []

    def peer(connection: socket.socket) -> None:
        connection.sendall(b"line\nbye\n")
        received.extend(iter(lambda: connection.recv(100), b""))

    async def main() -> None:
        assert await against(peer, tls=tls, machine=Lines()) == Closed()
        assert b"".join(received) == b"bye\n"

    run(main())


@pytest.mark.parametrize("tls", [False, True])
def test_a_peer_at_fault_that_goes_on_is_not_heard_for_long(tls: bool) -> None:
    timing = Timing(linger_s=3600, linger_after_error_s=0.05)

    def peer(connection: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection.sendall(bytes(100_000))

    async def main() -> None:
        closed = await against(peer, tls=tls, machine=Scolder(), timing=timing)
        assert closed.error is not None

    run(main())


def test_the_end_of_a_tls_stream_is_the_end_of_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def peer(connection: socket.socket) -> None:
        connection.sendall(b"line\ncut sho")
        assert isinstance(connection, ssl.SSLSocket)
        with suppress(OSError):
            connection.unwrap()

    async def main() -> None:
        closed = await against(peer, tls=True, machine=Lines())
        assert closed.error is not None
        assert closed.error.code is ToyErrorCode.CUT_SHORT

    run(main())
    assert caplog.messages == []  # asyncio warns that a TLS connection cannot be half-closed


@pytest.mark.timeout(2 * SECONDS_MAX)
def test_abort_stops_between_any_two_events() -> None:
    machine = Endless()

    async def scenario() -> None:
        def take(_: Event) -> None:
            if machine.taken == 10:
                protocol.abort()

        protocol = MachineProtocol(machine, on_event=take)
        connected(protocol)
        with pytest.raises(AbortedError):
            await protocol.wait_closed()

    run(scenario())
    assert machine.taken == 10


@pytest.mark.timeout(2 * SECONDS_MAX)
@pytest.mark.parametrize("how", ["abort", "cancel"])
def test_events_without_end_do_not_hold_up_the_loop(how: str) -> None:
    """Others have their turn, including the event that ends the connection."""

    async def scenario() -> None:
        protocol = MachineProtocol(Endless())
        connected(protocol)
        task = asyncio.create_task(protocol.wait_closed())
        await turns()
        assert not task.done()
        protocol.abort() if how == "abort" else task.cancel()
        done, _ = await asyncio.wait([task], timeout=SECONDS_MAX)
        assert done

    run(scenario())


def test_aborted_before_it_is_connected() -> None:
    async def scenario() -> None:
        protocol = MachineProtocol(Lines())
        protocol.abort()
        transport = connected(protocol)
        assert transport.closing
        with pytest.raises(AbortedError):
            await protocol.wait_closed()

    run(scenario())

"""Cancellation of each driver, above all in the middle of a send."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.abc
import pytest
import trio
from driving import adopt, connected, run_reactor
from twisted.internet.defer import CancelledError
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from culm.machine import Event
from culm.pump import AbortedError, Pump
from culm_io.anyio.driver import StreamDriver
from culm_io.asyncio.driver import MachineProtocol
from culm_io.asyncio.links import LinksDriver
from culm_io.sockets import driver as socket_driver
from culm_io.trio.driver import MachineDriver
from culm_io.trio.links import LinksDriver as TrioLinksDriver
from culm_io.twisted.driver import MachineProtocol as TwistedProtocol
from toy_links import Chat, HungUp, Said
from toy_machines import Lines

HOST = "127.0.0.1"
SIZE = 1_000_000  # more than fits between two ends
SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less


class Talker(Lines):
    """Has much to say, to a peer that takes little."""

    def __init__(self) -> None:
        super().__init__()
        self._outbox.append(bytes(SIZE))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected() as pair:
        pair[1].settimeout(SECONDS_MAX)
        yield pair


def is_stuck(pump: Pump, connection: socket.socket) -> bool:
    """Whether a send is under way that the peer does not take."""
    return len(pump.outgoing) > 0 and not select.select([], [connection], [], 0)[1]


def cancel_sockets(machine: Talker, connection: socket.socket, on_event: Any) -> None:
    """Another thread cancels, and shuts down the socket."""
    pump = Pump(machine, on_event=on_event)
    aborted = threading.Event()

    def abort() -> None:
        while not is_stuck(pump, connection):
            threading.Event().wait(0.002)
        aborted.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=abort)
    thread.start()
    try:
        with pytest.raises(AbortedError):
            socket_driver.run(pump, connection, aborted=aborted.is_set)
    finally:
        thread.join()


def cancel_asyncio(machine: Talker, connection: socket.socket, on_event: Any) -> None:
    async def main() -> None:
        protocol = MachineProtocol(machine, on_event=on_event)
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=connection)
        waiting = asyncio.create_task(protocol.wait_closed())
        await asyncio.sleep(0)  # the task begins
        while not is_stuck(protocol.pump, connection):
            await asyncio.sleep(0.002)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(AbortedError):
            protocol.pump.result()

    asyncio.run(main())


async def open_trio(machine: Talker, connection: socket.socket, on_event: Any) -> Any:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    return MachineDriver(machine, stream, on_event=on_event)


async def open_anyio(machine: Talker, connection: socket.socket, on_event: Any) -> Any:
    stream = await anyio.abc.SocketStream.from_socket(connection)
    return StreamDriver(machine, stream, on_event=on_event)


def cancel_tasks(
    backend: str, open_driver: Any, machine: Talker, connection: socket.socket, on_event: Any
) -> None:
    async def main() -> None:
        driver = await open_driver(machine, connection, on_event)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.run)
            while not is_stuck(driver.pump, connection):
                await anyio.sleep(0.002)
            tasks.cancel_scope.cancel()
        with pytest.raises(AbortedError):
            driver.pump.result()

    anyio.run(main, backend=backend)


def cancel_twisted(machine: Talker, connection: socket.socket, on_event: Any) -> None:
    reactor = SelectReactor()
    protocol = TwistedProtocol(machine, reactor, on_event=on_event)

    def look() -> None:
        if is_stuck(protocol.pump, protocol.transport.getHandle()):
            protocol.closed.cancel()
        else:
            reactor.callLater(0.002, look)

    reactor.callWhenRunning(look)
    adopt(reactor, connection, Factory.forProtocol(lambda: protocol))
    with pytest.raises(CancelledError):
        run_reactor(reactor, protocol.closed)
    with pytest.raises(AbortedError):
        protocol.pump.result()


CANCELS: dict[str, Callable[[Talker, socket.socket, Any], None]] = {
    "sockets": cancel_sockets,
    "asyncio": cancel_asyncio,
    "trio": partial(cancel_tasks, "trio", open_trio),
    "anyio": partial(cancel_tasks, "asyncio", open_anyio),
    "twisted": cancel_twisted,
}


@pytest.mark.parametrize("name", CANCELS)
def test_cancelled_in_the_middle_of_a_send(name: str, ends: Any) -> None:
    """Not one more event; the peer gets a part of the send, and then the end of the connection."""
    near, far = ends
    events: list[Event] = []
    CANCELS[name](Talker(), near, events.append)
    assert events == []
    size = 0
    with suppress(ConnectionError):
        while data := far.recv(1 << 16):
            size += len(data)
    assert 0 < size < SIZE


# Machines with several links: one connection, or all.


class Guests(Chat):
    """A chat, and the events it has given."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def has_come_to(self, count: int) -> bool:
        return len([event for event in self.events if isinstance(event, Said)]) >= count

    @property
    def has_lost(self) -> list[int]:
        return [event.link for event in self.events if isinstance(event, HungUp)]


def test_a_connection_that_is_cancelled_under_trio_ends_its_link_alone() -> None:
    """Dialled or accepted; and if everything is cancelled, there are no further events."""
    chat = Guests()
    with socket.create_server((HOST, 0)) as server:
        host, port = server.getsockname()

        async def main() -> None:
            driver = TrioLinksDriver(chat, on_event=chat.events.append)
            scopes = [trio.CancelScope() for _ in range(3)]

            async def connect(scope: trio.CancelScope) -> None:
                with scope:
                    await driver.connect(chat.accepted, host, port)

            async with trio.open_nursery() as nursery:
                tasks = await nursery.start(driver.run)
                peers = []
                for scope in scopes:
                    tasks.start_soon(connect, scope)
                    peers.append(await trio.to_thread.run_sync(lambda: server.accept()[0]))
                    peers[-1].sendall(b"hello\n")
                with trio.fail_after(SECONDS_MAX):
                    while not chat.has_come_to(3):
                        await trio.sleep(0.001)
                    scopes[1].cancel()
                    while not chat.has_lost:
                        await trio.sleep(0.001)
                    peers[2].sendall(b"again\n")
                    while not chat.has_come_to(4):
                        await trio.sleep(0.001)
                assert chat.has_lost == [2]
                assert [link.number for link in chat.links] == [1, 3]
                nursery.cancel_scope.cancel()
            for peer in peers:
                peer.close()

        trio.run(main)
    assert chat.has_lost == [2]


def test_a_server_that_is_cancelled_under_trio_ends_the_links_of_its_connections() -> None:
    chat = Guests()

    async def main() -> None:
        driver = TrioLinksDriver(chat, on_event=chat.events.append)
        async with trio.open_nursery() as nursery:
            tasks = await nursery.start(driver.run)
            scope = trio.CancelScope()

            async def serve(*, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
                with scope:
                    await driver.serve(chat.accepted, HOST, 0, task_status=task_status)

            address = await tasks.start(serve)
            with socket.create_connection(address) as peer, trio.fail_after(SECONDS_MAX):
                peer.sendall(b"hello\n")
                while not chat.has_come_to(1):
                    await trio.sleep(0.001)
                scope.cancel()
                while not chat.has_lost:
                    await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert chat.links == []


def test_a_dial_that_is_cancelled_under_asyncio_leaves_no_link() -> None:
    """The connection, once made, belongs to the machine, whichever task waited for it."""

    async def main() -> None:
        chat = Guests()
        driver = LinksDriver(chat, on_event=chat.events.append)
        address = await driver.serve(chat.accepted, HOST, 0)
        dial = partial(driver.connect, chat.accepted, *address)
        for turns in range(6):
            task = asyncio.create_task(dial())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        async with asyncio.timeout(SECONDS_MAX):
            while len(chat.links) % 2:  # each connection has two ends here
                await asyncio.sleep(0.001)
        await driver.stop()

    asyncio.run(main())

"""What waits, waits alone: one stuck connection beside healthy ones, in every driver.

A stuck peer reads nothing of many answers, stops in the middle of a line, or has the store hang.
The healthy ones have a word for a word; how many turns of the loop that takes is what it takes
without the stuck one, times a constant.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import anyio.abc
import pytest
import trio
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from culm.machine import Event
from culm.pump import AbortedError, Limits, LinkedPump
from drivers.anyio_driver import StreamDriver
from drivers.asyncio_driver import MachineProtocol
from drivers.asyncio_links import LinksDriver
from drivers.socket_links_driver import LinksLoop
from drivers.trio_driver import MachineDriver
from drivers.trio_links import LinksDriver as TrioLinksDriver
from drivers.twisted_driver import MachineProtocol as TwistedProtocol
from toy_links import Chat, Said
from toy_machines import Keep, Keeper

HOST = "127.0.0.1"
HEALTHY, ROUNDS = 3, 20
SECONDS_MAX = 60  # of a driver that hangs: none that works takes any of it

Address = tuple[str, int]
Ready = Callable[[Address, Callable[[], object]], None]  # where, and what ends it (thread-safe)


class Scene:
    """What is served with, and in how many turns."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turns = 0
        self.store_freed = threading.Event()

    def keep(self, effect: Any) -> int:
        assert isinstance(effect, Keep)
        if effect.text == b"hang":
            assert self.store_freed.wait(SECONDS_MAX)
        return 1


# One machine for each connection, all in one loop.


class CountingLoop(asyncio.SelectorEventLoop):
    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


class Turns(trio.abc.Instrument):
    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class CountingReactor(SelectReactor):
    turns = 0

    def doIteration(self, timeout: float) -> None:  # noqa: N802
        self.turns += 1
        self.doSelect(timeout)


def on_loop(scene: Scene, main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(main())
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        scene.turns = loop.turns


def serve_asyncio(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        made: list[MachineProtocol] = []

        def make() -> MachineProtocol:
            made.append(
                MachineProtocol(Keeper(), executor=pool, perform=scene.keep, limits=scene.limits)
            )
            return made[-1]

        server = await loop.create_server(make, HOST, 0)
        ready(server.sockets[0].getsockname(), partial(loop.call_soon_threadsafe, done.set))
        await done.wait()
        server.close()
        for each in made:
            each.abort()
            with suppress(AbortedError):
                await each.wait_closed()

    with ThreadPoolExecutor(HEALTHY + 1) as pool:
        on_loop(scene, main)


def serve_trio(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        async def serve(stream: trio.SocketStream) -> None:
            await MachineDriver(Keeper(), stream, perform=scene.keep, limits=scene.limits).run()

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host=HOST))
            token = trio.lowlevel.current_trio_token()
            address: Any = listeners[0].socket.getsockname()
            ready(address, partial(token.run_sync_soon, nursery.cancel_scope.cancel))

    on_trio(scene, main)


def on_trio(scene: Scene, main: Callable[[], Any]) -> None:
    turns = Turns()
    anyio.run(main, backend="trio", backend_options={"instruments": [turns]})
    scene.turns = turns.count


def serve_anyio(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        async def serve(stream: anyio.abc.SocketStream) -> None:
            await StreamDriver(Keeper(), stream, perform=scene.keep, limits=scene.limits).run()

        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=0)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            token = trio.lowlevel.current_trio_token()
            address = (HOST, listener.extra(anyio.abc.SocketAttribute.local_port))
            ready(address, partial(token.run_sync_soon, tasks.cancel_scope.cancel))

    on_trio(scene, main)


def serve_twisted(scene: Scene, ready: Ready) -> None:
    reactor = CountingReactor()

    def made() -> TwistedProtocol:
        protocol = TwistedProtocol(
            Keeper(), reactor, in_threads=True, perform=scene.keep, limits=scene.limits
        )
        protocol.closed.addErrback(lambda _: None)
        return protocol

    def end() -> None:
        port.stopListening()
        reactor.stop()

    port = reactor.listenTCP(0, Factory.forProtocol(made), interface=HOST)
    stop = partial(reactor.callFromThread, end)
    reactor.callWhenRunning(ready, (HOST, port.getHost().port), stop)
    reactor.run(installSignalHandlers=False)
    scene.turns = reactor.turns


# One machine for all connections.


class Host(Chat):
    """Says ``ok`` to each line, to the one who has said it."""

    def __init__(self) -> None:
        super().__init__(links_max=HEALTHY + 1)

    def take(self, event: Event) -> None:
        for link in self.links:
            if isinstance(event, Said) and link.number == event.link:
                link.lines.say(b"ok")
                self.stirred[link.number] = link


def serve_sockets_links(scene: Scene, ready: Ready) -> None:
    is_over = threading.Event()

    class Counting(LinksLoop):
        def _wait(self) -> None:
            scene.turns += 1
            super()._wait()
            if is_over.is_set():
                pump.abort()

    def stop() -> None:
        is_over.set()
        socket.create_connection(listening.getsockname()).close()  # so that it looks

    host = Host()
    pump = LinkedPump(host, on_event=host.take, limits=scene.limits)
    listening = socket.create_server((HOST, 0))
    loop = Counting(pump, listening, host.accepted)
    ready(listening.getsockname(), stop)
    with pytest.raises(AbortedError):
        loop.run()


def serve_asyncio_links(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        loop, done, host = asyncio.get_running_loop(), asyncio.Event(), Host()
        driver = LinksDriver(host, on_event=host.take, limits=scene.limits)
        address = await driver.serve(host.accepted, HOST, 0)
        ready(address, partial(loop.call_soon_threadsafe, done.set))
        await done.wait()
        await driver.stop()

    on_loop(scene, main)


def serve_trio_links(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        host = Host()
        driver = TrioLinksDriver(host, on_event=host.take, limits=scene.limits)
        async with trio.open_nursery() as nursery:
            tasks = await nursery.start(driver.run)
            address = await tasks.start(driver.serve, host.accepted, HOST, 0)
            token = trio.lowlevel.current_trio_token()
            ready(address, partial(token.run_sync_soon, nursery.cancel_scope.cancel))

    on_trio(scene, main)


STREAMS = {
    "asyncio": serve_asyncio,
    "trio": serve_trio,
    "anyio": serve_anyio,
    "twisted": serve_twisted,
}
LINKS = {
    "sockets, links": serve_sockets_links,
    "asyncio, links": serve_asyncio_links,
    "trio, links": serve_trio_links,
}


# The peers.


def talk(address: Address) -> int:
    """A healthy one: a word for a word, and a goodbye; how many answers it has got."""
    with socket.create_connection(address, SECONDS_MAX) as made, made.makefile("rb") as answers:
        for _ in range(ROUNDS):
            made.sendall(b"a word\n")
            assert answers.readline() == b"ok\n"
        made.sendall(b"bye\n")
        assert answers.read() == b"bye\n"
    return ROUNDS


def read_nothing(made: socket.socket) -> None:
    """Of the answers to as much as the other side takes."""
    made.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(200):
            made.sendall(b"x\n" * 1000)


STUCK: dict[str, Callable[[socket.socket], object]] = {
    "reads nothing": read_nothing,
    "stops in the middle": lambda made: made.sendall(b"half a li"),
    "has the store hang": lambda made: made.sendall(b"hang\n"),
}


@contextmanager
def beside(stuck: str | None, address: Address) -> Iterator[None]:
    if stuck is None:
        yield
        return
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(address)
        STUCK[stuck](made)
        yield


def turns_of(serve: Callable[[Scene, Ready], None], stuck: str | None, limits: Limits) -> int:
    """How many turns the loop takes until all healthy ones are done."""
    scene = Scene(limits)
    served: Future[tuple[Address, Callable[[], object]]] = Future()
    with ThreadPoolExecutor(HEALTHY + 1) as pool:
        over = pool.submit(serve, scene, lambda *where: served.set_result(where))
        address, stop = served.result(SECONDS_MAX)
        try:
            with beside(stuck, address):
                talks = [pool.submit(talk, address) for _ in range(HEALTHY)]
                assert [each.result(SECONDS_MAX) for each in talks] == [ROUNDS] * HEALTHY
        finally:
            scene.store_freed.set()
            stop()
        over.result(SECONDS_MAX)
    return scene.turns


CASES = [
    *((name, stuck) for name in STREAMS for stuck in STUCK),
    *((name, stuck) for name in LINKS for stuck in list(STUCK)[:2]),
]
LIMITS = {
    "usual": Limits(),
    "ones": Limits(piece_size_max=1, steps_max=1, linger_s=1, linger_after_error_s=1),
}


@pytest.mark.costly
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("name", "stuck"), CASES)
def test_the_healthy_take_as_many_turns_as_without_the_stuck(
    name: str, stuck: str, limits: str
) -> None:
    serve = (STREAMS | LINKS)[name]
    without = turns_of(serve, None, LIMITS[limits])
    beside_it = turns_of(serve, stuck, LIMITS[limits])
    has_much_to_do = stuck == "reads nothing" and limits == "ones"  # with bytes, one a turn
    assert has_much_to_do or beside_it <= 3 * without + 1000

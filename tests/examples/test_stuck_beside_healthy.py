"""What waits, waits alone: one stuck connection beside healthy ones, in every driver.

A stuck peer reads nothing of many answers, stops in the middle of a line, or has the store hang.
The healthy ones exchange word for word; each word waits for a constant number of turns of the loop.
A turn counts for a word that has reached the driver, and is neither at the store nor answered:
durations, and the progress of the stuck one by then, make no difference.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.abc
import pytest
import trio
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from culm.machine import Effect, Event, Ticket
from culm.pump import AbortedError, Limits, LinkedPump, Timing
from culm_io.anyio.driver import StreamDriver
from culm_io.asyncio.driver import MachineProtocol
from culm_io.asyncio.links import LinksDriver
from culm_io.sockets.links import LinksLoop
from culm_io.trio.driver import MachineDriver
from culm_io.trio.links import LinksDriver as TrioLinksDriver
from culm_io.twisted.driver import MachineProtocol as TwistedProtocol
from toy_links import Chat, Said
from toy_machines import LINE_MAX, Keep, Keeper, ToyState

R = TypeVar("R")

HOST = "127.0.0.1"
HEALTHY, ROUNDS = 3, 20
WORD, GOODBYE = b"a word", b"bye"
SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less

Address = tuple[str, int]
Ready = Callable[[Address, Callable[[], object]], None]  # where, and a way to end it (thread-safe)


class Talk:
    """A healthy one: a word for a word, and a goodbye."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._missing = 0  # bytes of the answer to a word that the driver has

    def run(self, address: Address) -> None:
        with socket.create_connection(address) as self._made:
            for _ in range(ROUNDS):
                self._have(WORD, b"ok\n")
            self._have(GOODBYE, b"bye\n")

    def _have(self, word: bytes, answer: bytes) -> None:
        self._made.sendall(word + b"\n")
        self._missing = len(answer)
        while self._missing:
            assert select.select([self._made], [], [], SECONDS_MAX)[0]
            with self._lock:
                piece = self._made.recv(self._missing)
                assert piece
                assert answer[-self._missing :].startswith(piece)
                self._missing -= len(piece)

    def waits(self) -> bool:
        """Whether the driver still has to answer."""
        with self._lock:
            return self._missing > 0 and self._missing > self._here()

    def _here(self) -> int:
        try:
            return len(self._made.recv(LINE_MAX, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0


BRIEF = Timing(linger_s=1, linger_after_error_s=1)


class Scene:
    """The peers, the server, and the turns that words have waited."""

    def __init__(self, limits: Limits) -> None:
        self.handlers: Any = {"perform": self.keep, "limits": limits, "timing": BRIEF}
        self.talks = [Talk() for _ in range(HEALTHY)]
        self.turns = 0
        self.at_store = 0
        self.store_freed = threading.Event()

    def turn(self) -> None:
        """Before each turn of the loop, in its thread."""
        if not self.at_store:
            self.turns += sum(talk.waits() for talk in self.talks)

    def keep(self, effect: Any) -> int:
        assert isinstance(effect, Keep)
        if effect.text == b"hang":
            assert self.store_freed.wait(SECONDS_MAX)
        return 1


class Watched(Keeper):
    """Its words are observed on their way to the store, and back."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(idle=2 * SECONDS_MAX)
        self._scene = scene
        self._asked: set[object] = set()

    def next_effect(self) -> Effect[Any] | None:
        effect = super().next_effect()
        if isinstance(effect, Keep) and effect.text == WORD:
            self._asked.add(effect.ticket)
            self._scene.at_store += 1
        return effect

    def complete(self, ticket: Ticket[R], result: R) -> None:
        if ticket in self._asked:
            self._asked.remove(ticket)
            self._scene.at_store -= 1
        super().complete(ticket, result)


# One machine for each connection, all in one loop


class CountingLoop(asyncio.SelectorEventLoop):
    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def _run_once(self) -> None:
        self._scene.turn()
        super()._run_once()  # type: ignore[misc]


class Turns(trio.abc.Instrument):
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def before_io_wait(self, timeout: float) -> None:
        self._scene.turn()


class CountingReactor(SelectReactor):
    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def doIteration(self, timeout: float) -> None:  # noqa: N802
        self._scene.turn()
        self.doSelect(timeout)


def without_delay(listening: socket.socket) -> None:
    """Send small pieces at once, as other drivers do, rather than wait for more."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def on_loop(scene: Scene, main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=partial(CountingLoop, scene)) as runner:
        runner.run(main())


def serve_asyncio(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        made: list[MachineProtocol] = []

        def make() -> MachineProtocol:
            made.append(MachineProtocol(Watched(scene), executor=pool, **scene.handlers))
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
            await MachineDriver(Watched(scene), stream, **scene.handlers).run()

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host=HOST))
            token = trio.lowlevel.current_trio_token()
            address: Any = listeners[0].socket.getsockname()
            ready(address, partial(token.run_sync_soon, nursery.cancel_scope.cancel))

    on_trio(scene, main)


def on_trio(scene: Scene, main: Callable[[], Any]) -> None:
    anyio.run(main, backend="trio", backend_options={"instruments": [Turns(scene)]})


def serve_anyio(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        async def serve(stream: anyio.abc.SocketStream) -> None:
            await StreamDriver(Watched(scene), stream, **scene.handlers).run()

        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=0)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            token = trio.lowlevel.current_trio_token()
            address = (HOST, listener.extra(anyio.abc.SocketAttribute.local_port))
            ready(address, partial(token.run_sync_soon, tasks.cancel_scope.cancel))

    on_trio(scene, main)


def serve_twisted(scene: Scene, ready: Ready) -> None:
    reactor = CountingReactor(scene)

    def made() -> TwistedProtocol:
        protocol = TwistedProtocol(Watched(scene), reactor, in_threads=True, **scene.handlers)
        protocol.closed.addErrback(lambda _: None)
        return protocol

    def end() -> None:
        port.stopListening()
        reactor.stop()

    port = reactor.listenTCP(0, Factory.forProtocol(made), interface=HOST)
    without_delay(port.socket)
    stop = partial(reactor.callFromThread, end)
    reactor.callWhenRunning(ready, (HOST, port.getHost().port), stop)
    reactor.run(installSignalHandlers=False)


# One machine for all connections


class Host(Chat):
    """Says ``ok`` for each line, to its sender if that is still there."""

    def __init__(self) -> None:
        super().__init__(links_max=HEALTHY + 2)

    def take(self, event: Event) -> None:
        for link in self.links:
            said_it = isinstance(event, Said) and link.number == event.link
            if said_it and link.lines.state is ToyState.OPEN:
                link.lines.say(b"ok")
                self.stirred[link.number] = link


def serve_sockets_links(scene: Scene, ready: Ready) -> None:
    is_over = threading.Event()

    class Counting(LinksLoop):
        def _wait(self) -> None:
            scene.turn()
            super()._wait()
            if is_over.is_set():
                pump.abort()

    def stop() -> None:
        is_over.set()
        waker.close()

    host = Host()
    pump = LinkedPump(host, on_event=host.take, **scene.handlers)
    with socket.create_server((HOST, 0)) as listening:
        without_delay(listening)
        waker = socket.create_connection(listening.getsockname())
        loop = Counting(pump, listening, host.accepted)
        ready(listening.getsockname(), stop)
        with pytest.raises(AbortedError):
            loop.run()


def serve_asyncio_links(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        loop, done, host = asyncio.get_running_loop(), asyncio.Event(), Host()
        driver = LinksDriver(host, on_event=host.take, **scene.handlers)
        address = await driver.serve(host.accepted, HOST, 0)
        ready(address, partial(loop.call_soon_threadsafe, done.set))
        await done.wait()
        await driver.stop()

    on_loop(scene, main)


def serve_trio_links(scene: Scene, ready: Ready) -> None:
    async def main() -> None:
        host = Host()
        driver = TrioLinksDriver(host, on_event=host.take, **scene.handlers)
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


# The peers


def read_nothing(made: socket.socket) -> None:
    """No answers, to as many questions as the other side takes."""
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
    """The turns of the loop that the words of all healthy ones wait."""
    scene = Scene(limits)
    served: Future[tuple[Address, Callable[[], object]]] = Future()
    with ThreadPoolExecutor(HEALTHY + 1) as pool:
        over = pool.submit(serve, scene, lambda *where: served.set_result(where))
        address, stop = served.result(SECONDS_MAX)
        try:
            with beside(stuck, address):
                for done in [pool.submit(talk.run, address) for talk in scene.talks]:
                    done.result()
        finally:
            scene.store_freed.set()
            stop()
        over.result(SECONDS_MAX)
    return scene.turns


CASES = [
    *((name, stuck) for name in STREAMS for stuck in [None, *STUCK]),
    *((name, stuck) for name in LINKS for stuck in [None, *STUCK][:3]),
]
LIMITS = {
    "usual": Limits(),
    "ones": Limits(piece_size_max=1, steps_max=1),
}
TURNS_MAX = {"usual": 5, "ones": 25}  # for each word, with and without a stuck one


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("name", "stuck"), CASES)
def test_the_healthy_take_as_many_turns_as_without_the_stuck(
    name: str, stuck: str | None, limits: str
) -> None:
    turns = turns_of((STREAMS | LINKS)[name], stuck, LIMITS[limits])
    assert turns <= HEALTHY * (ROUNDS + 1) * TURNS_MAX[limits]

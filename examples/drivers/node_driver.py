"""A Garlic Farm node under asyncio: its sockets, its store, its clock.

    driver = NodeDriver(node, store)
    await driver.listen("127.0.0.1", 9001)
    ...
    await driver.stop()

Bytes are given to the node, and it is drained, as soon as they come: that takes the least
time for one request.  Proposals of one turn of the loop, and whatever comes while a write
is under way or requests are unanswered, leave together: that makes the batches.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from culm.effects import Answer
from culm.garlic.events import DialWanted
from culm.garlic.link import Link
from culm.garlic.node import Node
from culm.garlic.raft import Server
from culm.garlic.store import Store
from culm.machine import Effect, Event, StoreFailed, StreamMachine

__all__ = ["NodeDriver", "address_of"]

_DIAL_TIMEOUT_S = 5.0
_UNSENT_SIZE_MAX = 1 << 18  # bytes of one connection that its transport holds


def address_of(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``; raises `ValueError`."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in {"tcp", "ssl"} or not host:
        raise ValueError(f"not an endpoint: {endpoint!r}")
    return host, int(port)


class _LinkProtocol(asyncio.Protocol):
    """One connection of the node."""

    def __init__(self, driver: NodeDriver, open_link: Callable[[], Link]) -> None:
        self._driver = driver
        self._open_link = open_link
        self._blocked = False  # the transport has enough for the moment
        self.link: Link | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_UNSENT_SIZE_MAX)
        try:
            self.link = self._open_link()
        except Exception:
            self.transport.abort()
            return
        self._driver.opened(self, self.link)

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.receive_data(data)
            self._driver.turn()
            self.read_on()

    def read_on(self) -> bool:
        """Read on if bytes are welcome, otherwise pause; whether it reads."""
        assert self.link is not None
        assert self.transport is not None
        if self.link.read_size() > 0:
            self.transport.resume_reading()
            return True
        self.transport.pause_reading()
        self._driver.paused(self.link)
        return False

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        if self.send():
            self._driver.soon()  # there is room in the node again

    def send(self) -> bool:
        """Send what the transport takes, and the end of the connection; whether it moved."""
        assert self.link is not None
        assert self.transport is not None
        moved = False
        while not self._blocked and (data := self.link.data_to_send(_UNSENT_SIZE_MAX)):
            self.transport.write(data)
            moved = True
        if self.link.closed and not self._blocked:
            self._driver.ended(self.link)
            self.transport.close()
        return moved

    def connection_lost(self, exc: Exception | None) -> None:
        if self.link is not None:
            self._driver.ended(self.link)
            if not self.link.closed:
                self.link.receive_eof()
                self._driver.soon()


class NodeDriver:
    """Runs one node.

    :param perform_in: where effects are done, so that a slow disk does not hold up the
        loop; it must do one at a time, in order.  In the loop's thread by default.
    :param handshake: makes a handshake for a connection: with the server dialled, or
        ``None`` for an accepted one.
    :param server_tls, client_tls: for TLS.
    :param on_event: gets every event of the node.
    :param on_effect: gets every effect when it has been done.
    """

    def __init__(
        self,
        node: Node,
        store: Store,
        *,
        perform_in: Executor | None = None,
        handshake: Callable[[Server | None], StreamMachine] | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_effect: Callable[[Effect[Any]], object] | None = None,
    ) -> None:
        self.node = node
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store = store
        self._executor = perform_in
        self._handshake = handshake
        self._server_tls, self._client_tls = server_tls, client_tls
        self._on_event, self._on_effect = on_event, on_effect
        self._loop = asyncio.get_running_loop()
        self._protocols: dict[int, _LinkProtocol] = {}
        self._paused: dict[int, Link] = {}  # links whose connections are not read
        self._dials: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    async def listen(self, host: str, port: int) -> None:
        """Accept connections; the node runs from now on."""
        self._server = await self._loop.create_server(
            lambda: _LinkProtocol(self, self._accept), host, port, ssl=self._server_tls
        )
        self.soon()

    async def stop(self) -> None:
        """End all connections; the node is not told anything any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._dials):
            task.cancel()
        for protocol in tuple(self._protocols.values()):
            assert protocol.transport is not None
            protocol.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _accept(self) -> Link:
        made = None if self._handshake is None else self._handshake(None)
        return self.node.accepted(handshake=made)

    def opened(self, protocol: _LinkProtocol, link: Link) -> None:
        """A connection is there."""
        self._protocols[link.number] = protocol
        self.soon()

    def ended(self, link: Link) -> None:
        """A connection is there no more."""
        self._protocols.pop(link.number, None)
        self._paused.pop(link.number, None)

    def paused(self, link: Link) -> None:
        """A connection is not read until the node wants more of it."""
        if not link.closed:
            self._paused[link.number] = link

    # The turn

    def soon(self) -> None:
        """Drain the node when this turn's other inputs have been given, too."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._scheduled = False
        self.turn()

    def turn(self) -> None:
        """Drain the node."""
        if self._stopped:
            return
        try:
            self.node.advance(self._loop.time())
            while self._round():
                pass
            self._read_on()
            self._set_timer()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._stopped = True
        if not self.failed.done():
            self.failed.set_exception(error)

    def _round(self) -> bool:
        node, moved = self.node, False
        while (event := node.next_event()) is not None:
            moved = True
            self._take_event(event)
        while (effect := node.next_effect()) is not None:
            moved = True
            self._do(effect)
            if self._executor is None:
                return True  # its completion may have made events
        for link in node.links_to_send():
            protocol = self._protocols.get(link.number)
            if protocol is not None:
                moved |= protocol.send()
        return moved

    def _read_on(self) -> None:
        for link in tuple(self._paused.values()):
            if link.closed or self._protocols[link.number].read_on():
                del self._paused[link.number]

    def _do(self, effect: Effect[Any]) -> None:
        if self._executor is None:
            self._done(Answer.of(effect, self._store.perform))
            return
        future = self._loop.run_in_executor(self._executor, Answer.of, effect, self._store.perform)
        future.add_done_callback(self._performed)

    def _performed(self, done: asyncio.Future[Answer[Any]]) -> None:
        if self._stopped:
            return
        try:
            self._done(done.result())
        except (Exception, asyncio.CancelledError) as error:  # the executor was shut down
            self._fail(error)
        self.soon()

    def _done(self, answer: Answer[Any]) -> None:
        answer.give(self.node)
        if answer.error is None and self._on_effect is not None:
            self._on_effect(answer.effect)

    def _take_event(self, event: Event) -> None:
        if isinstance(event, DialWanted):
            task = self._loop.create_task(self._dial(event.server))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        elif isinstance(event, StoreFailed):
            self._fail(event.error)
        if self._on_event is not None:
            self._on_event(event)

    async def _dial(self, server: Server) -> None:
        node = self.node

        def open_link() -> Link:
            made = None if self._handshake is None else self._handshake(server)
            return node.dialled(server.server_id, handshake=made)

        try:
            host, port = address_of(server.endpoint)
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await self._loop.create_connection(
                    lambda: _LinkProtocol(self, open_link), host, port, ssl=self._client_tls
                )
        except (OSError, ValueError, TimeoutError):
            node.dial_failed(server.server_id)
            self.soon()

    def _set_timer(self) -> None:
        deadline = self.node.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return  # deadlines move on with every word of a leader: it looks again then
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.soon()

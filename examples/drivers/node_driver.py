"""A Garlic Farm node under asyncio: its sockets, its store, its clock.

    driver = NodeDriver(node, store)
    await driver.listen("127.0.0.1", 9001)
    ...
    await driver.stop()

Proposals of one turn of the loop (`soon`), and whatever comes while a write is under way or
requests are unanswered, leave together: that makes the batches.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from culm.effects import Answer
from culm.garlic.events import DialWanted
from culm.garlic.link import Link
from culm.garlic.node import Node
from culm.garlic.raft import Server
from culm.garlic.store import Store
from culm.machine import Effect, Event, StreamMachine
from culm.pump import LinkedPump
from drivers.asyncio_parts import Alarm, LinkProtocol, Performer

__all__ = ["NodeDriver", "address_of"]

_DIAL_TIMEOUT_S = 5.0


def address_of(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``; raises `ValueError`."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in {"tcp", "ssl"} or not host:
        raise ValueError(f"not an endpoint: {endpoint!r}")
    return host, int(port)


class NodeDriver:
    """Runs one node.

    perform_in: where effects are done, one at a time and in order, so that a slow disk does
        not hold up the loop; in the loop's thread by default.
    handshake: makes a handshake for a connection: with the server dialled, or ``None`` for an
        accepted one.
    server_tls, client_tls: for TLS.
    on_event: gets every event of the node.
    on_effect: gets every effect when it has been done.
    """

    def __init__(
        self,
        node: Node,
        store: Store,
        *,
        perform_in: Executor | None = None,
        handshake: Callable[[Server | None], StreamMachine | None] = lambda server: None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        on_event: Callable[[Event], object] = lambda event: None,
        on_effect: Callable[[Effect[Any]], object] = lambda effect: None,
    ) -> None:
        self.node = node
        self._handshake, self._server_tls, self._client_tls = handshake, server_tls, client_tls
        self._on_event, self._on_effect = on_event, on_effect
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._dials: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._alarm = Alarm(self._advance)
        defer = Performer(store.perform, perform_in, self._answer).defer
        self.pump = LinkedPump(node, on_event=self._take, defer=defer, wake=self._update)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections, and say where; the node runs from now on."""
        self._server = await self._loop.create_server(
            lambda: LinkProtocol(self.pump, self._accept), host, port, ssl=self._server_tls
        )
        self._advance()
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def wait_closed(self) -> None:
        """Wait for the end of the node.  Raises what its store, or a handler, has raised."""
        await asyncio.shield(self._over)
        self.pump.result()

    async def stop(self) -> None:
        """End all connections at once; the node is not told anything any more."""
        self.pump.abort()
        for task in tuple(self._dials):
            task.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def soon(self) -> None:
        """See what verbs have brought, when this turn's other verbs have been called, too."""
        self._alarm.set(self._loop.time())

    def _accept(self) -> Link:
        return self.node.accepted(handshake=self._handshake(None))

    def _advance(self) -> None:
        self.pump.advance(self._loop.time())

    def _answer(self, answer: Answer[Any]) -> None:
        self.pump.answer(answer, self._loop.time())
        if answer.error is None:
            self._on_effect(answer.effect)

    def _take(self, event: Event) -> None:
        if isinstance(event, DialWanted):
            task = self._loop.create_task(self._dial(event.server))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        self._on_event(event)

    async def _dial(self, server: Server) -> None:
        def open_link() -> Link:
            return self.node.dialled(server.server_id, handshake=self._handshake(server))

        def connected() -> LinkProtocol:
            return LinkProtocol(self.pump, open_link)

        try:
            host, port = address_of(server.endpoint)
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await self._loop.create_connection(connected, host, port, ssl=self._client_tls)
        except (OSError, ValueError):
            self.pump.call(self._loop.time(), self.node.dial_failed, server.server_id)

    def _update(self) -> None:
        self._alarm.set(self.pump.next_deadline())
        if self.pump.over and not self._over.done():
            self._over.set_result(None)

"""A Garlic Farm node under asyncio: its sockets, its store, its clock.

    driver = NodeDriver(node, store)
    await driver.listen("127.0.0.1", 9001)
    ...
    await driver.stop()

Proposals of one turn of the loop (`soon`), and whatever comes while a write is under way or
requests are unanswered, leave together: that makes the batches.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import Executor

from culm.garlic.events import DialWanted, NodeEvent
from culm.garlic.node import Node
from culm.garlic.raft import Server
from culm.garlic.store import Store
from culm.machine import LocalProtocolError, StreamMachine
from culm_io.asyncio.links import LinksDriver
from culm_io.endpoint import address_of

__all__ = ["NodeDriver"]


class NodeDriver(LinksDriver[NodeEvent]):
    """Runs one node.

    perform_in: where effects are done, one at a time and in order, so that a slow disk does
        not hold up the loop; in the loop's thread by default.
    handshake: makes a connection's handshake from the server dialled, or ``None`` for an accepted
        one, and the time, as `culm.garlic.handshake.Credentials.handshake` does.  Without
        handshakes, servers have no `Extension`: only the leader can propose and read.
    server_tls, client_tls: for TLS.
    on_event: gets every event of the node.
    tap: gets the node, and returns a stand-in to drive (`culm.pump.engine.UserHandlers`).
    """

    def __init__(
        self,
        node: Node,
        store: Store,
        *,
        perform_in: Executor | None = None,
        handshake: Callable[[Server | None, float], StreamMachine | None] = lambda _, now: None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        on_event: Callable[[NodeEvent], object] = lambda event: None,
        tap: Callable[[Node], Node] = lambda node: node,
    ) -> None:
        self.node = node = tap(node)
        super().__init__(node, executor=perform_in, perform=store.perform, on_event=self._take)
        self._handshake, self._server_tls, self._client_tls = handshake, server_tls, client_tls
        self._on_event = on_event

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections, and say where; the node runs from now on."""
        return await self.serve(
            lambda: self.node.accepted(handshake=self._greet(None)),
            host,
            port,
            self._server_tls,
        )

    def soon(self) -> None:
        """Take up the outcomes of verbs, when this turn's other verbs have been called, too."""
        self._wake_at(self._loop.time())

    def _greet(self, server: Server | None) -> StreamMachine | None:
        return self._handshake(server, self._loop.time())

    def _take(self, event: NodeEvent) -> None:
        if isinstance(event, DialWanted):
            self.start(self._dial(event.server))
        self._on_event(event)

    async def _dial(self, server: Server) -> None:
        number = server.server_id
        try:
            host, port = address_of(server.endpoint)
            await self.connect(
                lambda: self.node.dialled(number, handshake=self._greet(server)),
                host,
                port,
                self._client_tls,
            )
        except Exception as error:  # whatever it is, the node dials again
            self.call(self.node.dial_failed, number)
            if not isinstance(error, (OSError, ValueError, OverflowError, LocalProtocolError)):
                raise

"""A Garlic Farm node under trio: its sockets, its store, its clock.

async with trio.open_nursery() as nursery:
    driver = NodeDriver(node, store)
    tasks = await nursery.start(driver.run)
    address = await tasks.start(driver.listen, "127.0.0.1", 9001)
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from trio import TASK_STATUS_IGNORED, TaskStatus, current_time

from culm.garlic.events import DialWanted, NodeEvent
from culm.garlic.node import Node
from culm.garlic.raft import Server
from culm.garlic.store import Store
from culm.machine import LocalProtocolError, StreamMachine
from culm_io.endpoint import address_of
from culm_io.trio.links import LinksDriver

__all__ = ["NodeDriver"]


class NodeDriver(LinksDriver[NodeEvent]):
    """Runs one node; effects are done in a thread, one at a time and in order.

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
        handshake: Callable[[Server | None, float], StreamMachine | None] = lambda _, now: None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        on_event: Callable[[NodeEvent], object] = lambda event: None,
        tap: Callable[[Node], Node] = lambda node: node,
    ) -> None:
        self.node = node = tap(node)
        super().__init__(node, perform=store.perform, on_event=self._take)
        self._handshake, self._server_tls, self._client_tls = handshake, server_tls, client_tls
        self._on_event = on_event

    async def listen(
        self,
        host: str,
        port: int,
        *,
        task_status: TaskStatus[tuple[str, int]] = TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections; `nursery.start` says where."""
        await self.serve(
            lambda: self.node.accepted(handshake=self._greet(None)),
            host,
            port,
            self._server_tls,
            task_status=task_status,
        )

    def _greet(self, server: Server | None) -> StreamMachine | None:
        return self._handshake(server, current_time())

    def _take(self, event: NodeEvent) -> None:
        if isinstance(event, DialWanted):
            self.start(self._dial, event.server)
        self._on_event(event)

    async def _dial(self, server: Server) -> None:
        number = server.server_id
        try:
            await self.connect(
                lambda: self.node.dialled(number, handshake=self._greet(server)),
                *address_of(server.endpoint),
                self._client_tls,
            )
        except (OSError, ValueError):
            self.call(self.node.dial_failed, number)
        except LocalProtocolError:
            return  # it is not wanted any more

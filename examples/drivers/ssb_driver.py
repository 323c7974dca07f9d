"""A peer of Secure Scuttlebutt under asyncio: its sockets, its store, its clock.

driver = PeerDriver(peer, store)
await driver.listen("127.0.0.1", 8008)
driver.keep_connected("net:other.example:8008~shs:...")
...
driver.call(peer.close)
await driver.wait_closed()
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

from nacl.public import PrivateKey

from culm.effects import Answer
from culm.machine import Event, LocalProtocolError
from culm.pump import LinkedPump
from culm.ssb.feed_id import check_feed_id
from culm.ssb.peer import Peer, PeerDisconnected, PeerLink
from culm.ssb.store import FeedStore
from drivers.asyncio_parts import Alarm, LinkProtocol, Performer

__all__ = ["Address", "PeerDriver"]

P = ParamSpec("P")
T = TypeVar("T")

_DIAL_TIMEOUT_S = 15.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 60.0
_ADDRESS = re.compile(r"net:(?P<host>.+):(?P<port>\d{1,5})~shs:(?P<key>[A-Za-z0-9+/]{43}=)")


class Address(NamedTuple):
    """Where a peer listens, and who it is."""

    host: str
    port: int
    peer: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``net:HOST:PORT~shs:KEY``, as peers write it; raises `ValueError`."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ValueError(f"not an address (net:HOST:PORT~shs:KEY): {text!r}")
        peer = f"@{found['key']}.ed25519"
        check_feed_id("key", peer)
        return cls(found["host"].strip("[]"), int(found["port"]), peer)

    def __str__(self) -> str:
        return f"net:{self.host}:{self.port}~shs:{self.peer[1:45]}"


class PeerDriver:
    """Runs one peer.

    perform_in: where effects are done, one at a time and in order, so that a slow disk does
        not hold up the loop; in the loop's thread by default.
    on_event: gets every event of the peer.
    """

    def __init__(
        self,
        peer: Peer,
        store: FeedStore,
        *,
        perform_in: Executor | None = None,
        on_event: Callable[[Event], object] = lambda event: None,
    ) -> None:
        self.peer = peer
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._kept: set[asyncio.Task[None]] = set()
        self._ends: dict[int, asyncio.Event] = {}  # of links, by number
        self._on_event = on_event
        self._server: asyncio.Server | None = None
        self._alarm = Alarm(self._advance)
        defer = Performer(store.perform, perform_in, self._answer).defer
        self.pump = LinkedPump(peer, on_event=self._take, defer=defer, wake=self._update)
        self._advance()

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the peer; what comes of it follows."""
        return self.pump.call(self._loop.time(), verb, *args, **kwargs)

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections, and say where."""
        self._server = await self._loop.create_server(
            lambda: LinkProtocol(self.pump, self._accept), host, port
        )
        address = self._server.sockets[0].getsockname()
        return Address(address[0], address[1], self.peer.me)

    async def dial(self, address: Address) -> PeerLink:
        """Connect once.  Raises `OSError`, `TimeoutError` among them, and `LocalProtocolError`."""
        opened: list[PeerLink] = []

        def open_link() -> PeerLink:
            opened.append(self.peer.dialled(address.peer, ephemeral=PrivateKey.generate()))
            return opened[0]

        async with asyncio.timeout(_DIAL_TIMEOUT_S):
            await self._loop.create_connection(
                lambda: LinkProtocol(self.pump, open_link), address.host, address.port
            )
        if not opened:
            raise ConnectionRefusedError(f"{address}: blocked, or there are too many links")
        return opened[0]

    def keep_connected(self, address: Address) -> None:
        """Connect, and do so again whenever the connection has ended: soon, and then later."""
        task = self._loop.create_task(self._keep(address))
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    async def _keep(self, address: Address) -> None:
        pause_s = _PAUSE_MIN_S
        while True:
            with suppress(OSError, LocalProtocolError):
                link = await self.dial(address)
                began = self._loop.time()
                await self._end_of(link)
                if self._loop.time() - began > _PAUSE_MAX_S:
                    pause_s = _PAUSE_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _end_of(self, link: PeerLink) -> None:
        if not link.closed:
            end = self._ends[link.number] = asyncio.Event()
            await end.wait()

    async def wait_closed(self) -> None:
        """Wait for the end of the peer.  Raises what its store, or a handler, has raised."""
        try:
            await asyncio.shield(self._over)
        finally:
            await self._stop()
        self.pump.result()

    async def _stop(self) -> None:
        for task in self._kept:
            task.cancel()
        self.pump.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _take(self, event: Event) -> None:
        if isinstance(event, PeerDisconnected) and event.link in self._ends:
            self._ends.pop(event.link).set()
        self._on_event(event)

    def _accept(self) -> PeerLink:
        return self.peer.accepted(ephemeral=PrivateKey.generate())

    def _advance(self) -> None:
        self.pump.advance(self._loop.time())

    def _answer(self, answer: Answer[Any]) -> None:
        self.pump.answer(answer, self._loop.time())

    def _update(self) -> None:
        self._alarm.set(self.pump.next_deadline())
        if self.pump.over and not self._over.done():
            self._over.set_result(None)

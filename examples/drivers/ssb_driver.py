"""A peer of Secure Scuttlebutt under asyncio: its sockets, its store, its clock.

driver = PeerDriver(peer, store)
await driver.listen("127.0.0.1", 8008)
driver.keep_connected(Address.parse("net:other.example:8008~shs:..."))
...
driver.call(peer.close)
await driver.wait_closed()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from nacl.public import PrivateKey

from culm.machine import Closed, Event, LocalProtocolError
from culm.ssb.address import Address
from culm.ssb.peer import Peer, PeerDisconnected, PeerLink
from culm.ssb.store import FeedStore
from drivers.asyncio_links import LinksDriver

__all__ = ["DialFailed", "PeerDriver"]

_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DialFailed(Event):
    """Nobody was reached at an address, or nobody who has its key.

    again_s: when it is tried again; ``None``: never.
    """

    address: Address
    error: str
    again_s: float | None


class PeerDriver(LinksDriver):
    """Runs one peer.

    perform_in: where effects are done, one at a time and in order, so that a slow disk does
        not hold up the loop; in the loop's thread by default.
    on_event: gets every event of the peer, and `DialFailed`.
    """

    def __init__(
        self,
        peer: Peer,
        store: FeedStore,
        *,
        perform_in: Executor | None = None,
        on_event: Callable[[Event], object] = lambda event: None,
    ) -> None:
        super().__init__(peer, executor=perform_in, perform=store.perform, on_event=self._take)
        self.peer = peer
        self._on_event = on_event
        self._ends: dict[int, asyncio.Future[str]] = {}  # how links have failed, by number
        self._kept: set[Address] = set()
        self.pump.advance(self._loop.time())

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections, and say where."""
        where = await self.serve(
            lambda: self.peer.accepted(ephemeral=PrivateKey.generate()), host, port
        )
        return Address(*where, self.peer.me)

    async def dial(self, address: Address) -> PeerLink:
        """Connect once.  Raises `OSError`, `TimeoutError` among them, and `LocalProtocolError`."""
        links: list[PeerLink] = []

        def open_link() -> PeerLink:
            links.append(self.peer.dialled(address.peer, ephemeral=PrivateKey.generate()))
            return links[0]

        await self.connect(open_link, address.host, address.port)
        return links[0]

    def keep_connected(self, address: Address) -> bool:
        """Connect, and do so again whenever the connection has ended: soon, and then later.

        Returns false if that is done already.
        """
        if address in self._kept:
            return False
        self._kept.add(address)
        self.start(self._keep(address))
        return True

    async def wait_closed(self) -> Closed:
        """Wait for the end of the peer.  Raises what its store, or a handler, has raised."""
        try:
            return await super().wait_closed()
        finally:
            await self.stop()

    async def _keep(self, address: Address) -> None:
        pause_s = _PAUSE_MIN_S
        try:
            while True:
                began = self._loop.time()
                try:
                    failure = await self._stay(address)
                except (OSError, LocalProtocolError) as error:
                    failure = str(error) or type(error).__name__
                if self._loop.time() - began > _PAUSE_MAX_S:
                    pause_s = _PAUSE_MIN_S
                if failure:
                    self._on_event(DialFailed(address=address, error=failure, again_s=pause_s))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        except Exception as error:
            self._kept.discard(address)
            self._on_event(DialFailed(address=address, error=repr(error), again_s=None))

    async def _stay(self, address: Address) -> str:
        """Connect, and wait for the end; returns why nobody was there, or nothing."""
        link = await self.dial(address)
        if link.closed:
            return ""
        end: asyncio.Future[str] = self._loop.create_future()
        self._ends[link.number] = end
        return await end

    def _take(self, event: Event) -> None:
        if isinstance(event, PeerDisconnected) and event.link in self._ends:
            end = self._ends.pop(event.link)
            if not end.done():
                unknown = "the other end has another key, or is of another network"
                end.set_result(unknown if event.peer is None else "")
        self._on_event(event)

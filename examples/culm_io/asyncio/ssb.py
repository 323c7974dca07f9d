"""A peer of Secure Scuttlebutt under asyncio: its sockets, its store, its clock.

driver = PeerDriver(peer, store)
await driver.listen("127.0.0.1", 8008)
driver.keep_connected(Address.parse("net:other.example:8008~shs:..."))
...
driver.call(peer.close)
await driver.wait_closed()
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from nacl.public import PrivateKey

from culm.machine import Closed
from culm.ssb.address import Address
from culm.ssb.peer import Peer, PeerDisconnected, PeerEvent, PeerLink
from culm.ssb.store import FeedStore
from culm_io.asyncio.links import LinksDriver
from culm_io.asyncio.ssb_dialling import DialFailed, Redialling

__all__ = ["DialFailed", "PeerDriver"]


class PeerDriver(LinksDriver[PeerEvent]):
    """Runs one peer.

    perform_in: where effects are done, one at a time and in order, so that a slow disk does
        not hold up the loop; in the loop's thread by default.
    verifiers: the number of threads that verify signatures, if the peer leaves that to its driver.
    on_event: gets every event of the peer, and `DialFailed`.
    tap: gets the peer, and returns a stand-in to drive (`culm.pump.engine.UserHandlers`).
    """

    def __init__(
        self,
        peer: Peer,
        store: FeedStore,
        *,
        perform_in: Executor | None = None,
        verifiers: int = 0,
        on_event: Callable[[PeerEvent | DialFailed], object] = lambda event: None,
        tap: Callable[[Peer], Peer] = lambda peer: peer,
    ) -> None:
        self.peer = peer = tap(peer)
        super().__init__(
            peer,
            executor=perform_in,
            verifiers=verifiers,
            perform=store.perform,
            on_event=self._take,
        )
        self._on_event = on_event
        self._again = Redialling(self.dial, on_event)
        self.pump.advance(self._loop.time())

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections; returns our address."""
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
        """Connect, and again after each end of the connection: soon at first, then later.

        Returns false for an address that is kept already.
        """
        new = self._again.add(address)
        if new:
            self.start(self._again.keep(address))
        return new

    async def wait_closed(self) -> Closed:
        """Wait for the end of the peer.  Raises the error of its store or of a handler."""
        try:
            return await super().wait_closed()
        finally:
            await self.stop()

    def _take(self, event: PeerEvent) -> None:
        if isinstance(event, PeerDisconnected):
            self._again.disconnected(event)
        self._on_event(event)

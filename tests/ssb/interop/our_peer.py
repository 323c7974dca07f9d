"""A whole peer of ours on real sockets, in the thread of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from unittest.mock import patch

from interop_support import JsPeer, until
from nacl.signing import SigningKey

from culm.machine import Event
from culm.ssb.address import Address
from culm.ssb.ebt import Replicator
from culm.ssb.messages import ClassicMessage
from culm.ssb.peer import Peer, PeerLink
from culm.ssb.store import MemoryStore
from culm_io.asyncio.ssb import PeerDriver

T = TypeVar("T")


class OurPeer:
    """Listens from the beginning; time passes in `turn` alone."""

    def __init__(
        self, key: SigningKey, *, network: bytes, store: MemoryStore | None = None, **options: Any
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.events: list[Event] = []
        self.notes: list[Mapping[str, int]] = []
        """The notes of peers."""
        self._loop = asyncio.new_event_loop()
        self._stopped = False
        self.driver, self.port = self._run(self._begin(key, network, options))
        self.peer = self.driver.peer
        self.id = self.peer.me

    async def _begin(
        self, key: SigningKey, network: bytes, options: dict[str, Any]
    ) -> tuple[PeerDriver, int]:
        now = asyncio.get_running_loop().time()
        noted = self.notes

        class Noting(Replicator):
            def receive_notes(self, session: int, notes: Mapping[str, int]) -> None:
                noted.append(dict(notes))
                super().receive_notes(session, notes)

        with patch("culm.ssb.peer.peer.Replicator", Noting):
            peer = Peer(
                identity=key,
                stored=self.store.load(),
                now=now,
                epoch=time.time() - now,
                network=network,
                **options,
            )
        driver = PeerDriver(peer, self.store, on_event=self.events.append)
        return driver, (await driver.listen("127.0.0.1", 0)).port

    def _run(self, what: Any) -> Any:
        return self._loop.run_until_complete(what)

    def turn(self) -> None:
        self._run(asyncio.sleep(0.01))

    def call(self, verb: Callable[..., T], *args: Any) -> T:
        async def do() -> T:
            return self.driver.call(verb, *args)

        found: T = self._run(do())
        return found

    def dial(self, other: JsPeer) -> PeerLink:
        address = Address("127.0.0.1", other.port, other.id)
        link: PeerLink = self._run(self.driver.dial(address))
        return link

    def publish(self, *contents: Any) -> list[ClassicMessage]:
        """Returns once they are stored."""
        made = [self.call(self.peer.publish, content) for content in contents]
        until(lambda: self.peer.clock[self.id] == made[-1].sequence, self.turn)
        return made

    def stop(self) -> None:
        """At once, without a goodbye."""
        if not self._stopped:
            self._stopped = True
            self._run(self.driver.stop())
            self.turn()
            self._loop.close()

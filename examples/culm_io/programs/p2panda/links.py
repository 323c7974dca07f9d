"""The peers of a p2panda node: who they are, which of them have a place, and news for them."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from culm.machine import Effect, Event
from culm.measures import Measure, measures
from culm.p2panda import (
    OperationLeftOut,
    OperationStored,
    Policy,
    Replicator,
    SessionEnded,
    SessionLive,
    SessionState,
)
from culm.pump import AbortedError
from culm_io.asyncio.driver import MachineProtocol
from culm_io.programs.captures import Captures
from culm_io.programs.numbers import Metrics
from culm_io.programs.p2panda.dial import Door, dial
from culm_io.programs.places import Places
from culm_io.programs.tables import Teller
from culm_io.stores.files import is_held
from culm_io.stores.p2panda import OperationSqliteStore

__all__ = ["ADDRESS_MAX", "PEERS_MAX", "Node", "Peer"]

PEERS_MAX = 256  # places for peers that come to us
ADDRESS_MAX = 64  # of these, for one address
PAUSE_S = 0.1  # before another connection is accepted, when one could not be
WATCH_S = 0.25  # between two looks at places, or for operations of another process
HELD_S = 1.0  # the store by another process, and we look whether to go on waiting
AWAY_MIN_S, AWAY_MAX_S = 1.0, 60.0  # before we go again to a node that we have lost: doubled
STALL_S = 1.0  # without a byte, and a peer makes way for another one
WORK_STALL_S = 15.0  # the same for one with which we are at work


class Peer(MachineProtocol):
    """A connection with another node.

    asks: whether we have gone there, and it is we who want something.
    """

    def __init__(
        self,
        replicator: Replicator,
        door: Door,
        *,
        asks: bool,
        perform: Callable[[Effect[Any]], object],
        executor: ThreadPoolExecutor,
        hear: Callable[[Peer, Event], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(
            replicator,
            perform=perform,
            executor=executor,
            on_event=metrics.counted(partial(hear, self)),
        )
        self.replicator = replicator
        self.name = door.there
        self.address = door.address
        self.asks = asks
        self.leaving = False
        self.had_session = False  # one that has ended well, or has become live
        self._moved_at = self._loop.time()

    def buffer_updated(self, nbytes: int) -> None:
        self._moved_at = self._loop.time()
        super().buffer_updated(nbytes)

    def resume_writing(self) -> None:
        self._moved_at = self._loop.time()
        super().resume_writing()

    def rank(self) -> tuple[bool, float] | None:
        """The lowest goes first: those that are not live, and of these the longest silent."""
        states = {session.state for session in self.replicator.connection.sessions}
        at_work = bool(states - {SessionState.LIVE})
        stalls_at = self._moved_at + (WORK_STALL_S if at_work else STALL_S)
        is_live = bool(states) and not at_work
        return (is_live, self._moved_at) if self._loop.time() >= stalls_at else None

    def make_way(self) -> None:
        """Leave at once: another peer needs the place."""
        self.leaving = True
        self.abort()

    def part(self) -> None:
        """Say goodbye."""
        self.call(self.replicator.close)


class Newcomer:
    """A connection that waits for its place."""

    def __init__(self, door: Door, welcome: Callable[[Door], Peer]) -> None:
        self.address = door.address
        self.come_in = partial(welcome, door)
        self.turn_away = door.transport.abort


class Node:
    """Replicators between one store and its peers.

    returns: whether we go again to a node that we have lost, or could not reach.
    patience_s: how long a peer to which we go may take until there is a session.
    peers_max, address_max: places for peers that come to us, and how many for one address.
    captures: where connections are recorded.
    metrics: what counts events.
    """

    def __init__(
        self,
        store: OperationSqliteStore,
        schema_ids: list[str],
        *,
        live: bool,
        returns: bool,
        patience_s: float,
        peers_max: int,
        address_max: int,
        captures: Captures,
        metrics: Metrics,
        tell: Teller,
    ) -> None:
        self.failed = False
        self._store = store
        store.wait_for_others(HELD_S)
        self._schema_ids = schema_ids
        self._live = live
        self._returns = returns
        self._patience_s = patience_s
        self._captures = captures
        self._metrics = metrics
        self._tell = tell
        self._places: Places[Peer] = Places(clients_max=peers_max, address_max=address_max)
        self._peers: set[Peer] = set()  # those to which we have gone as well
        self._dialling: set[asyncio.Task[None]] = set()
        self._left = False
        self._news: set[Peer] = set()  # those that have brought operations which the others lack
        self._executor = ThreadPoolExecutor(1)  # which the store belongs to

    # Connections.

    async def serve(self, listening: socket.socket) -> None:
        """Accept peers for ever; raises the store's errors."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_for_places())

            def welcome(door: Door) -> Peer:
                peer = self._welcome(door, asks=False)
                tasks.create_task(self._follow(peer))
                return peer

            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                    _, door = await loop.connect_accepted_socket(Door, connection)
                except OSError:  # it is gone, or there are too many files
                    await asyncio.sleep(PAUSE_S)
                    continue
                self._places.arrive(Newcomer(door, welcome), loop.time())

    async def _look_for_places(self) -> None:
        while True:
            self._places.look(asyncio.get_running_loop().time())
            await asyncio.sleep(WATCH_S)

    async def go_to(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Go to all of these at once, until all are done with; raises the store's errors."""
        async with asyncio.TaskGroup() as tasks:
            for host, port in addresses:
                tasks.create_task(self._go_to(host, port))

    async def _go_to(self, host: str, port: int) -> None:
        pause_s = AWAY_MIN_S
        while True:
            peer = await self._dialled(host, port)
            if peer is not None:
                await self._follow(peer)
            if not self._returns or self._left:
                return
            if peer is not None and peer.had_session:
                pause_s = AWAY_MIN_S
            with self._interruptible():
                await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AWAY_MAX_S)

    async def _dialled(self, host: str, port: int) -> Peer | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        with self._interruptible():
            try:
                door = await dial(host, port, until=until)
            except OSError as error:
                self._tell("unreachable", peer=f"{host}:{port}", error=str(error))
                self.failed = True
                return None
        peer = self._welcome(door, asks=True)
        loop.call_at(until, self._lose_patience, peer)
        return peer

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let `leave` cancel this task meanwhile."""
        this = asyncio.current_task()
        assert this is not None
        self._dialling.add(this)
        try:
            yield
        finally:
            self._dialling.remove(this)

    def _welcome(self, door: Door, *, asks: bool) -> Peer:
        """Begin to replicate."""
        tape = self._captures.tape("p2panda-replicator", session=f"with {door.there}")
        replicator = tape.make(
            Replicator,
            local_peer=door.here.encode(),
            remote_peer=door.there.encode(),
            policy=Policy(asks=asks, live=self._live),
        )
        replicator.announce(self._schema_ids, timestamp=int(time.time()))
        peer = Peer(
            replicator,
            door,
            asks=asks,
            perform=self._perform,
            executor=self._executor,
            hear=self._hear,
            metrics=self._metrics,
        )
        self._peers.add(peer)
        door.open(peer)
        return peer

    async def _follow(self, peer: Peer) -> None:
        """Wait for the end of a connection, and tell it."""
        try:
            error: Exception | None = (await peer.wait_closed()).error
        except AbortedError as aborted:
            error = aborted
        finally:
            self._peers.discard(peer)
            self._places.clients.discard(peer)
        reason = None if error is None else str(error) or "aborted"
        if peer.asks and not (reason or peer.had_session or self._left):
            reason = "there was no session"
        self._tell("closed", peer=peer.name, error=reason)
        self.failed |= peer.asks and reason is not None

    def _perform(self, effect: Effect[Any]) -> object:
        """Do an effect, as soon as no other process holds the store: in the executor's thread.

        Other tasks that need the store wait meanwhile.  Raises the store's errors, also that it
        is held if we have been told to leave.
        """
        while True:
            try:
                return self._store.perform(effect)
            except sqlite3.OperationalError as error:
                if self._left or not is_held(error):
                    raise

    def _lose_patience(self, peer: Peer) -> None:
        """A peer to which we have gone says nothing, or wants nothing of ours."""
        waits = not (peer.had_session or peer.replicator.connection.sessions)
        if waits and peer in self._peers:
            self._tell("unanswered", peer=peer.name)
            self.failed = True
            peer.part()

    def numbers(self) -> Iterator[Measure]:
        """Those of all peers."""
        yield from measures(self._places)
        for peer in self._peers:
            yield from measures(peer.replicator)
            for session in peer.replicator.connection.sessions:
                yield Measure("sessions_count", 1, (("state", session.state.name),))

    def leave(self) -> None:
        """Say goodbye to all, and dial no more."""
        self._left = True
        self._places.close()
        for task in self._dialling:
            task.cancel()
        for peer in list(self._peers):
            peer.part()

    def close(self) -> None:
        """Wait until no work is under way in the store, which may be closed then."""
        self._executor.shutdown()

    # News.

    async def watch(self) -> None:
        """Pass on the operations that other processes write into the store, for ever."""
        loop = asyncio.get_running_loop()
        seen = None
        while True:
            with suppress(sqlite3.Error):  # it is tried again
                found = await loop.run_in_executor(self._executor, self._position)
                if seen is not None and found != seen:
                    self._tell_news(set())
                seen = found
            await asyncio.sleep(WATCH_S)

    def _position(self) -> int:
        return self._store.position

    def _hear(self, peer: Peer, event: Event) -> None:
        tell = self._tell
        match event:
            case OperationStored():
                tell("stored", document=event.document_id.hex(), operation=event.operation_id.hex())
                if not self._news:
                    asyncio.get_running_loop().call_soon(self._pass_on)
                self._news.add(peer)
            case OperationLeftOut():
                log = f"{event.log.author.hex()}/{event.log.log_id}"
                tell("left out", log=log, seqnum=event.seqnum, reason=event.reason.name)
            case SessionLive():
                tell("live")
                peer.had_session = True
            case SessionEnded():
                tell("session ended", error=event.error and str(event.error))
                peer.had_session |= event.error is None
                self.failed |= peer.asks and event.error is not None
                if peer.asks and not self._live:  # otherwise there will be another one
                    asyncio.get_running_loop().call_soon(self._part, peer)

    def _pass_on(self) -> None:
        """Let each peer know of operations that others have brought."""
        news, self._news = self._news, set()
        self._tell_news(news)

    def _tell_news(self, brought_by: set[Peer]) -> None:
        for peer in list(self._peers):
            if brought_by != {peer}:
                peer.call(peer.replicator.stored)

    def _part(self, peer: Peer) -> None:
        if peer in self._peers:
            peer.part()

"""Serving: each client gets the logs of our store, and new entries as they come."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from culm.bamboo import LogKey, LogStore
from culm.measures import Measure, measures
from culm.point2point import Limits, Request, RequestState, Role, State
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits
from culm.pump import AbortedError
from culm_io.asyncio.driver import MachineProtocol
from culm_io.asyncio.listening import listen
from culm_io.programs.captures import Captures, Tape
from culm_io.programs.numbers import Metrics
from culm_io.programs.places import Places

__all__ = ["Bounds", "numbers_of", "serve_logs"]

_PIECE_MIN = 1 << 12
_REQUEST_SIZE = 1 << 11  # the cost of a request, about
# How long clients may take to answer our goodbye, in seconds.
_PATIENCE_S = 2.0
# How long one that says nothing, or takes nothing of the data that waits for it, is excused.
_STALL_S = 1.0
_INTEREST: Final = Interest(live=True, accept_new_logs=False, offer_stored=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on all clients together.  Sizes in bytes, times in seconds.

    clients_max, address_max
        Connections at once, in all and from one address.  If there is no room for another one,
        the one for which nothing has moved for longest has to go; if something has for all of
        them, the newcomer waits.
    memory_max
        For data read, received and held for clients: each has its share of it.
    idle_max_s
        How long a client may leave all offers unanswered, and take nothing of the data it has
        asked for.  One that has answered, and waits for new entries, may stay: it follows.
    """

    clients_max: int = 64
    address_max: int = 16
    memory_max: int = 1 << 28
    idle_max_s: float = 600.0

    def limits(self) -> ReplicatorLimits:
        """Those of one client, which take about its share at worst."""
        share = self.memory_max // self.clients_max
        piece = max(_PIECE_MIN, min(1 << 18, share // 16))
        part = max(piece, share // 10)
        return ReplicatorLimits(
            read_ahead_size_max=2 * part,
            batch_size_max=part,
            unwritten_size_max=part,
            payload_inline_max=piece,
            connection=Limits(
                data_window_max=part,
                packet_size_max=piece,
                unsent_size_max=piece,
                requests_max=max(8, min(256, part // _REQUEST_SIZE)),
                compression_window_max=min(1 << 16, piece),
            ),
        )


async def serve_logs(
    store: LogStore,
    host: str,
    port: int,
    *,
    bounds: Bounds,
    changed: Callable[[], list[LogKey]],
    poll_s: float,
    captures: Captures,
    metrics: Metrics,
    on_listening: Callable[[str, int], object],
    on_left: Callable[[str, str], object],
) -> None:
    """Serve until SIGINT or SIGTERM.

    `changed` tells which logs of the store others have changed; it is asked every `poll_s`
    seconds.  `captures` records connections, `metrics` tells of them.  `on_listening` is told
    where; `on_left` who has left, and why.  Raises `OSError` if the address is not to be had, and
    the errors of `changed`.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with ThreadPoolExecutor(1, "store") as executor:
        limits = bounds.limits()
        places: Places[_Client] = Places(
            clients_max=bounds.clients_max, address_max=bounds.address_max
        )

        def came_in(transport: asyncio.Transport) -> _Client:
            tape = captures.tape(
                "point2point-replicator", session=f"with {_peer_of(transport)}", role="REACTIVE"
            )
            client = _Client(store, executor, limits, bounds.idle_max_s, tape, metrics)
            client.task = loop.create_task(client.follow(on_left))
            client.task.add_done_callback(lambda _: places.clients.discard(client))
            return client

        server = await listen(
            partial(loop.create_server, partial(_Door, places, came_in), host, port)
        )
        address = server.sockets[0].getsockname()
        on_listening(address[0], address[1])

        async def watch() -> None:
            while not stop.is_set():
                for log in await loop.run_in_executor(executor, changed):
                    for client in list(places.clients):
                        client.tell(log)
                for client in list(places.clients):
                    client.leave_if_idle()
                places.look(loop.time())
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), poll_s)

        def numbers() -> Iterator[Measure]:
            yield from measures(places)
            for client in places.clients:
                yield from numbers_of(client.replicator)

        try:
            async with metrics.served("directory", numbers):
                await watch()
        finally:
            server.close()
            places.close()
            await _say_goodbye(list(places.clients))


async def _say_goodbye(clients: list[_Client]) -> None:
    tasks = [client.task for client in clients]
    for client in clients:
        client.protocol.call(client.replicator.close)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Client:
    """One connection."""

    task: asyncio.Task[None]

    def __init__(
        self,
        store: LogStore,
        executor: ThreadPoolExecutor,
        limits: ReplicatorLimits,
        idle_max_s: float,
        tape: Tape,
        metrics: Metrics,
    ) -> None:
        self.replicator = tape.make(
            Replicator, role=Role.REACTIVE, family=store.family, interest=_INTEREST, limits=limits
        )
        self.protocol = MachineProtocol(
            self.replicator,
            perform=store.perform,
            executor=executor,
            on_event=metrics.counted(lambda event: None),
        )
        self._loop = asyncio.get_running_loop()
        self._idle_max_s = idle_max_s
        self._moved_at = self._loop.time()
        self._left_size = 0  # bytes of data that the client has taken
        self._leaves_at: float | None = None  # if need be, without its goodbye

    @property
    def address(self) -> str:
        """Where it comes from."""
        return _address_of(self.protocol.transport)

    def idle_since(self) -> float | None:
        """Since when nothing has moved; ``None``: something does, or has a moment ago."""
        now, connection = self._loop.time(), self.replicator.connection
        asks = any(map(_is_asked, connection.requests.values()))
        if asks and (self._has_taken_more() or not self._owed_size()):
            self._moved_at = now
            return None
        patience_s = min(_STALL_S, self._idle_max_s)
        return self._moved_at if now >= self._moved_at + patience_s else None

    def _has_taken_more(self) -> bool:
        """Whether data has left since this was asked last.

        Bytes in the transport have not, though no connection can take them back.
        """
        left = self.replicator.connection.taken_size - self._unwritten_size()
        more, self._left_size = left > self._left_size, max(left, self._left_size)
        return more

    def _owed_size(self) -> int:
        """How many bytes wait for the client to take them."""
        return self.replicator.connection.unsent_size + self._unwritten_size()

    def _unwritten_size(self) -> int:
        transport = self.protocol.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def follows(self) -> bool:
        """Whether it has answered all that it was offered, and more may be: it waits for that."""
        connection = self.replicator.connection
        answered = not connection.requests and connection.proposal_credit > 0
        return connection.state is State.ESTABLISHED and answered

    def rank(self) -> tuple[bool, float] | None:
        """Who of the idle ones has to go first: who has not even answered, and for longest."""
        since = self.idle_since()
        return None if since is None else (self.follows, since)

    @property
    def leaving(self) -> bool:
        """Whether it has been told to go."""
        return self._leaves_at is not None

    def leave_if_idle(self) -> None:
        """Say goodbye to a client that has moved nothing for too long."""
        now, since = self._loop.time(), self.idle_since()
        if self._leaves_at is not None:
            if now >= self._leaves_at:
                self.protocol.abort()
        elif since is not None and now >= since + self._idle_max_s and not self.follows:
            self._leaves_at = now + _PATIENCE_S
            self.protocol.call(self.replicator.close)

    def make_way(self) -> None:
        """Leave at once: another client needs the room."""
        self._leaves_at = self._loop.time()
        self.protocol.abort()

    def tell(self, log: LogKey) -> None:
        """Others have changed a log."""
        if self.replicator.state in (State.SETUP, State.ESTABLISHED):
            self.protocol.call(self.replicator.stored, log)

    async def follow(self, on_left: Callable[[str, str], object]) -> None:
        """Wait for the end of the connection."""
        try:
            reason = str((await self.protocol.wait_closed()).error or "in good order")
        except AbortedError:
            reason = "aborted"
        except Exception as error:  # the store has failed: that ends this client, not all
            reason = f"{type(error).__name__}: {error}"
        on_left(_peer_of(self.protocol.transport), reason)


def numbers_of(replicator: Replicator) -> list[Measure]:
    """Those of a replicator and its connection, which have their state in common."""
    own = (each for each in measures(replicator) if each.name != "state")
    return [*measures(replicator.connection), *own]


def _is_asked(request: Request) -> bool:
    """Whether the client wants it, rather than being offered it."""
    return not request.ours or request.state is RequestState.CONFIRMED


def _peer_of(transport: asyncio.BaseTransport | None) -> str:
    peer = None if transport is None else transport.get_extra_info("peername")
    return "{}:{}".format(*peer) if peer else "somebody"


def _address_of(transport: asyncio.BaseTransport | None) -> str:
    peer = None if transport is None else transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


class _Door(asyncio.Protocol):
    """A connection that waits for its place; nothing is read from it before."""

    transport: asyncio.Transport

    def __init__(
        self, places: Places[_Client], came_in: Callable[[asyncio.Transport], _Client]
    ) -> None:
        self._places = places
        self._came_in = came_in

    @property
    def address(self) -> str:
        """Where it comes from."""
        return _address_of(self.transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()
        self._places.arrive(self, asyncio.get_running_loop().time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.leave(self)

    def come_in(self) -> _Client:
        """Have a place."""
        client = self._came_in(self.transport)
        self.transport.set_protocol(client.protocol)
        client.protocol.connection_made(self.transport)
        return client

    def turn_away(self) -> None:
        """Have none."""
        self.transport.abort()

"""Serving: whoever connects gets the logs of our store, and what comes to be in them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from culm.bamboo import LogKey, LogStore
from culm.bamboo.effects import perform
from culm.point2point import Interest, Limits, Replicator, ReplicatorLimits, Role, State
from drivers.asyncio_driver import MachineProtocol

__all__ = ["serve_logs"]

# How long clients may take to answer our goodbye, in seconds.
_PATIENCE_S = 2.0
_INTEREST: Final = Interest(live=True, accept_new_logs=False, offer_stored=True)
_LIMITS: Final = ReplicatorLimits(connection=Limits())


async def serve_logs(
    store: LogStore,
    host: str,
    port: int,
    *,
    clients_max: int,
    changed: Callable[[], list[LogKey]],
    poll_s: float,
    on_listening: Callable[[str, int], object],
    on_left: Callable[[str, str], object],
) -> None:
    """Serve until SIGINT or SIGTERM.

    `changed` tells which logs of the store others have changed; it is asked every `poll_s`
    seconds.  `on_listening` is told where; `on_left` who has left, and why.  Further clients
    than `clients_max` are turned away.  Raises `OSError` if the address is not to be had, and
    what `changed` raises.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with ThreadPoolExecutor(1, "store") as executor:
        clients: set[_Client] = set()

        def connected() -> asyncio.BaseProtocol:
            if len(clients) >= clients_max:
                return _TurnAway()
            client = _Client(store, executor)
            clients.add(client)
            client.task = loop.create_task(client.follow(on_left))
            client.task.add_done_callback(lambda _: clients.discard(client))
            return client.protocol

        server = await loop.create_server(connected, host, port)
        address = server.sockets[0].getsockname()
        on_listening(address[0], address[1])

        async def watch() -> None:
            while not stop.is_set():
                for log in await loop.run_in_executor(executor, changed):
                    for client in list(clients):
                        client.tell(log)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), poll_s)

        try:
            await watch()
        finally:
            server.close()
            await _say_goodbye(clients)


async def _say_goodbye(clients: set[_Client]) -> None:
    tasks = [client.task for client in clients]
    for client in list(clients):
        client.protocol.call(client.replicator.close)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _TurnAway(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _Client:
    """One connection."""

    task: asyncio.Task[None]

    def __init__(self, store: LogStore, executor: ThreadPoolExecutor) -> None:
        self.replicator = Replicator(
            role=Role.REACTIVE, family=store.family, interest=_INTEREST, limits=_LIMITS
        )
        self.protocol = MachineProtocol(
            self.replicator,
            perform=lambda effect: perform(effect, store),
            executor=executor,
        )

    def tell(self, log: LogKey) -> None:
        """Others have changed a log."""
        if self.replicator.state in (State.SETUP, State.ESTABLISHED):
            self.protocol.call(self.replicator.stored, log)

    async def follow(self, on_left: Callable[[str, str], object]) -> None:
        """Wait for the end of the connection."""
        try:
            reason = str((await self.protocol.wait_closed()).error or "in good order")
        except Exception as error:  # the store has failed: that ends this client, not all
            reason = f"{type(error).__name__}: {error}"
        transport = self.protocol.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        on_left("{}:{}".format(*peer) if peer else "somebody", reason)

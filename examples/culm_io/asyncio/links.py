"""Any machine with several links under asyncio: its server, its connections, its clock."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, Unpack, cast

from culm.machine import E_co, Link, LinkedMachine, LocalProtocolError
from culm.pump import LinkedPump, LinkPump, UserHandlers
from culm_io.asyncio.connection import ConnectionProtocol
from culm_io.asyncio.pump import PumpDriver

__all__ = ["LinkProtocol", "LinksDriver"]

_DIAL_TIMEOUT_S = 15.0


class LinkProtocol(ConnectionProtocol[LinkPump]):
    """One connection; `open_link` is the machine's verb."""

    def __init__(self, machine: LinkedPump, open_link: Callable[[], Link]) -> None:
        super().__init__()
        self._machine, self._open_link = machine, open_link
        self.refusal: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self._open(self.transport, half_close=self.transport.can_write_eof())
        if self.refusal is None:
            self.carry()

    def _open(self, transport: asyncio.Transport, *, half_close: bool) -> None:
        now = self._loop.time()
        try:
            link = self._machine.call(now, self._open_link)
        except Exception as refusal:  # there are too many, it has ended, or its maker is at fault
            self.refusal = refusal
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            if not isinstance(refusal, LocalProtocolError):
                raise
        else:
            self.pump = self._machine.attach(link, now, wake=self.carry, half_close=half_close)


class TlsLinkProtocol(LinkProtocol):
    """An accepted connection with TLS: it has its link while TLS begins.

    So whoever connects and does not go on is a stranger to the machine, one of a few.
    """

    def __init__(
        self, machine: LinkedPump, open_link: Callable[[], Link], tls: ssl.SSLContext
    ) -> None:
        super().__init__(machine, open_link)
        self._tls = tls
        self._bare: asyncio.Transport | None = None  # until TLS has begun
        self._begins: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        bare = cast(asyncio.Transport, transport)
        bare.pause_reading()  # what comes is for TLS
        self._open(bare, half_close=False)
        if self.refusal is None:
            self._bare = bare
            self._begins = self._loop.create_task(self._begin(bare))
            self.carry()

    async def _begin(self, bare: asyncio.Transport) -> None:
        try:
            secured = await self._loop.start_tls(bare, self, self._tls, server_side=True)
        except OSError:  # it has gone, does not speak TLS, or has taken too long
            self.connection_lost(None)
            return
        if secured is not None:
            self._bare = None
            ConnectionProtocol.connection_made(self, secured)
            self.carry()

    def carry(self) -> None:
        if self._bare is None:
            super().carry()
        elif self.pump.hung_up:
            self._bare.abort()

    def eof_received(self) -> bool:
        if self._bare is None:
            return super().eof_received()
        self.pump.receive_eof(self._loop.time())
        return False


class LinksDriver(PumpDriver[LinkedPump[E_co]], Generic[E_co]):
    """Drives `machine`; see `UserHandlers` for what else it takes.

    executor: where effects are done; in the loop's thread by default.
    """

    def __init__(
        self,
        machine: LinkedMachine[E_co],
        *,
        executor: Executor | None = None,
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        super().__init__(executor)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.pump = LinkedPump(machine, in_jobs=executor is not None, wake=self.update, **handlers)

    async def serve(
        self, open_link: Callable[[], Link], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections, and say where; the machine runs from now on."""

        accepted: Callable[[], LinkProtocol] = partial(LinkProtocol, self.pump, open_link)
        # Other loops, such as uvloop's, read on before TLS can begin.
        if tls is not None and isinstance(self._loop, asyncio.BaseEventLoop):
            accepted, tls = partial(TlsLinkProtocol, self.pump, open_link, tls), None
        self._server = await self._loop.create_server(accepted, host, port, ssl=tls)
        self.pump.advance(self._loop.time())
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def connect(
        self, open_link: Callable[[], Link], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect.  Raises `OSError`, `TimeoutError` among them, and what `open_link` raises."""
        async with asyncio.timeout(_DIAL_TIMEOUT_S):
            _, protocol = await self._loop.create_connection(
                lambda: LinkProtocol(self.pump, open_link), host, port, ssl=tls
            )
        if protocol.refusal is not None:
            raise protocol.refusal

    def start(self, task: Coroutine[Any, Any, None]) -> None:
        """Do something on the side, until `stop`."""
        started = self._loop.create_task(task)
        self._tasks.add(started)
        started.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End all connections at once; the machine is not told anything any more."""
        self.abort()
        for task in tuple(self._tasks):
            task.cancel()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

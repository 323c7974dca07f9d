"""Any machine with several links under asyncio: its server, its connections, its clock."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, Unpack

from culm.machine import E_co, Link, LinkedMachine
from culm.pump import LinkedPump, UserHandlers
from culm_io.asyncio.link import LinkProtocol, TlsLinkProtocol
from culm_io.asyncio.listening import listen
from culm_io.asyncio.pump import PumpDriver

__all__ = ["LinksDriver"]

_DIAL_TIMEOUT_S = 15.0


class LinksDriver(PumpDriver[LinkedPump[E_co]], Generic[E_co]):
    """Drives `machine`; see `UserHandlers` for further arguments.

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
        make = partial(self._loop.create_server, accepted, host, port, ssl=tls)
        self._server = await listen(make)
        self.pump.advance(self._loop.time())
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def connect(
        self, open_link: Callable[[], Link], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect.  Raises `OSError`, `TimeoutError` among them, and the errors of `open_link`."""
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

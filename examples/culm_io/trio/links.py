"""Any machine with several links under trio: its listeners, its connections, its clock."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, Unpack

import trio
from trio import TASK_STATUS_IGNORED, TaskStatus, current_time
from trio.abc import HalfCloseableStream, Stream

from culm.machine import Closed, E_co, Link, LinkedMachine, LocalProtocolError
from culm.pump import LinkedPump, UserHandlers
from culm_io.trio.connection import carry
from culm_io.trio.pump import PumpDriver

__all__ = ["LinksDriver"]

_DIAL_TIMEOUT_S = 15.0


class LinksDriver(PumpDriver[LinkedPump[E_co]], Generic[E_co]):
    """Drives `machine`, its store in a thread; see `UserHandlers` for further arguments.

    start: does something on the side, from `run` until its end: ``start(function, *arguments)``.
    """

    start: Callable[..., None]

    def __init__(
        self, machine: LinkedMachine[E_co], **handlers: Unpack[UserHandlers[E_co]]
    ) -> None:
        super().__init__()
        self.pump = LinkedPump(machine, in_jobs=True, wake=self.news.unpark_all, **handlers)

    async def run(self, *, task_status: TaskStatus[trio.Nursery] = TASK_STATUS_IGNORED) -> Closed:
        """Drive until the machine has ended; its last event.  Cancelling it ends all at once.

        `nursery.start` gives the nursery for `serve` and `connect`: they end when this ends.
        """
        async with trio.open_nursery() as nursery:
            self.start = nursery.start_soon
            task_status.started(nursery)
            self.start_work(nursery)
            self.pump.advance(current_time())
            await self.keep_time()
            nursery.cancel_scope.cancel()
        return self.pump.result()

    async def serve(
        self,
        open_link: Callable[[], Link],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        task_status: TaskStatus[tuple[str, int]] = TASK_STATUS_IGNORED,
    ) -> None:
        """Accept connections; `nursery.start` says where."""
        listeners = await trio.open_tcp_listeners(port, host=host)
        async with trio.open_nursery() as nursery:
            task_status.started(listeners[0].socket.getsockname()[:2])
            await trio.serve_listeners(
                partial(self._accepted, open_link, tls), listeners, handler_nursery=nursery
            )

    async def connect(
        self, open_link: Callable[[], Link], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect, and carry until it is over.  Raises `OSError`, and `LocalProtocolError`."""
        try:
            with trio.fail_after(_DIAL_TIMEOUT_S):
                stream = await trio.open_tcp_stream(host, port)
        except trio.TooSlowError as error:
            raise TimeoutError from error
        secured = stream if tls is None else trio.SSLStream(stream, tls, server_hostname=host)
        await self._carry(open_link, secured)

    async def _accepted(
        self, open_link: Callable[[], Link], tls: ssl.SSLContext | None, stream: Stream
    ) -> None:
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_side=True)
        with suppress(LocalProtocolError):
            await self._carry(open_link, stream)

    async def _carry(self, open_link: Callable[[], Link], stream: Stream) -> None:
        now, news = current_time(), trio.lowlevel.ParkingLot()
        try:
            link = self.pump.call(now, open_link)
        except LocalProtocolError:  # there are too many, or the machine has ended
            await trio.aclose_forcefully(stream)
            raise
        half_close = isinstance(stream, HalfCloseableStream)
        pump = self.pump.attach(link, now, wake=news.unpark_all, half_close=half_close)
        await carry(pump, stream, news)

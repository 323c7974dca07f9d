"""Any stream machine under anyio: on asyncio, uvloop or trio, with or without TLS.

stream = await anyio.connect_tcp(host, port)
closed = await StreamDriver(machine, stream, on_event=print).run()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, Unpack

import anyio.abc
from anyio.streams.tls import TLSStream

from culm.machine import Closed, StreamMachine
from culm.pump import ConnectionState, Pump, UserHandlers

__all__ = ["StreamDriver"]

T = TypeVar("T")


class StreamDriver:
    """Drives `machine` over `stream`, its store in a thread; see `UserHandlers` for the rest."""

    def __init__(
        self, machine: StreamMachine, stream: anyio.abc.ByteStream, **handlers: Unpack[UserHandlers]
    ) -> None:
        self._stream = stream
        self._news = anyio.Event()
        self.pump = Pump(machine, in_jobs=True, wake=self._tell, **handlers)

    def call(self, verb: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Call a verb of the machine, from any task; what comes of it follows."""
        return self.pump.call(anyio.current_time(), verb, *args, **kwargs)

    async def run(self) -> Closed:
        """Drive until all is done; the machine's last event, or raises what a handler has raised.

        Cancelling it aborts the connection; a thread at work in the store is waited for.
        """
        pump, tls = self.pump, isinstance(self._stream, TLSStream)
        try:
            async with anyio.create_task_group() as tasks:
                pump.connection_made(anyio.current_time(), half_close=not tls)
                for task in (self._read, self._write, self._work):
                    tasks.start_soon(task)
                try:
                    await self._keep_time()
                finally:
                    pump.abort()  # not one more event, whatever the store says
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(1 if pump.state is ConnectionState.HUNG_UP else 0):
                await self._stream.aclose()  # so long may a peer take to say the end of TLS
        return pump.result()

    async def _keep_time(self) -> None:
        while not self.pump.over:
            deadline = self.pump.next_deadline()
            with anyio.CancelScope(deadline=math.inf if deadline is None else deadline) as waiting:
                await self._news.wait()
            if waiting.cancelled_caught:
                self.pump.advance(anyio.current_time())

    async def _read(self) -> None:
        while True:
            while not (size := self.pump.read_size()):
                await self._news.wait()
            try:
                self.pump.receive_data(await self._stream.receive(size), anyio.current_time())
            except anyio.EndOfStream:
                self.pump.receive_eof(anyio.current_time())
            except anyio.BrokenResourceError:
                self.pump.connection_lost(anyio.current_time())

    async def _write(self) -> None:
        while True:
            try:
                if self.pump.outgoing:
                    await self._stream.send(bytes(self.pump.outgoing))
                    self.pump.sent(len(self.pump.outgoing), anyio.current_time())
                elif self.pump.eof_to_send:
                    await self._stream.send_eof()
                    self.pump.eof_sent(anyio.current_time())
                else:
                    await self._news.wait()
            except anyio.BrokenResourceError:
                self.pump.send_failed(anyio.current_time())

    async def _work(self) -> None:
        while True:
            while (job := self.pump.next_job()) is None:
                await self._news.wait()
            self.pump.finish(await anyio.to_thread.run_sync(job), anyio.current_time())

    def _tell(self) -> None:  # whoever waits looks again
        self._news, news = anyio.Event(), self._news
        news.set()

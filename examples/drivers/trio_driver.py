"""Any stream machine under trio, with or without TLS.

stream = await trio.open_tcp_stream(host, port)
closed = await MachineDriver(machine, stream, on_event=print).run()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, Unpack

import trio
from trio import current_time
from trio.abc import HalfCloseableStream, Stream

from culm.machine import Closed, StreamMachine
from culm.pump import ConnectionState, Pump, UserHandlers

__all__ = ["MachineDriver"]

T = TypeVar("T")


class MachineDriver:
    """Drives `machine` over `stream`, its store in a thread; see `UserHandlers` for the rest."""

    def __init__(
        self, machine: StreamMachine, stream: Stream, **handlers: Unpack[UserHandlers]
    ) -> None:
        self._stream = stream
        self._waiting = trio.lowlevel.ParkingLot()
        self.pump = Pump(machine, in_jobs=True, wake=self._waiting.unpark_all, **handlers)

    def call(self, verb: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Call a verb of the machine, from any task; what comes of it follows."""
        return self.pump.call(current_time(), verb, *args, **kwargs)

    async def run(self) -> Closed:
        """Drive until all is done; the machine's last event, or raises what a handler has raised.

        Cancelling it aborts the connection; a thread at work in the store is waited for.
        """
        pump, half_close = self.pump, isinstance(self._stream, HalfCloseableStream)
        try:
            async with trio.open_nursery() as nursery:
                pump.connection_made(current_time(), half_close=half_close)
                for task in (self._read, self._write, self._work):
                    nursery.start_soon(task)
                try:
                    await self._keep_time()
                finally:
                    pump.abort()  # not one more event, whatever the store says
                    nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(1 if pump.state is ConnectionState.HUNG_UP else 0):
                await self._stream.aclose()  # so long may a peer take to say the end of TLS
        return pump.result()

    async def _keep_time(self) -> None:
        while not self.pump.over:
            deadline = self.pump.next_deadline()
            with trio.move_on_at(math.inf if deadline is None else deadline) as waiting:
                await self._waiting.park()
            if waiting.cancelled_caught:
                self.pump.advance(current_time())

    async def _read(self) -> None:
        while True:
            while not (size := self.pump.read_size()):
                await self._waiting.park()
            try:
                data = await self._stream.receive_some(size)
            except trio.BrokenResourceError:
                self.pump.connection_lost(current_time())
                continue
            now = current_time()
            self.pump.receive_data(data, now) if data else self.pump.receive_eof(now)

    async def _write(self) -> None:
        while True:
            try:
                if self.pump.outgoing:
                    await self._stream.send_all(self.pump.outgoing)
                    self.pump.sent(len(self.pump.outgoing), current_time())
                elif isinstance(self._stream, HalfCloseableStream) and self.pump.eof_to_send:
                    await self._stream.send_eof()
                    self.pump.eof_sent(current_time())
                else:
                    await self._waiting.park()
            except trio.BrokenResourceError:
                self.pump.send_failed(current_time())

    async def _work(self) -> None:
        while True:
            while (job := self.pump.next_job()) is None:
                await self._waiting.park()
            self.pump.finish(await trio.to_thread.run_sync(job), current_time())

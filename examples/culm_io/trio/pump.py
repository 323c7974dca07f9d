"""What drivers for trio have in common: time, work, and the bytes of a connection."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import trio
from trio import current_time
from trio.abc import HalfCloseableStream, Stream
from trio.lowlevel import ParkingLot, cancel_shielded_checkpoint

from culm.pump import ConnectionState, Engine, StreamPump

__all__ = ["PumpDriver", "carry"]

Pump_co = TypeVar("Pump_co", bound=Engine[Any, Any], covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class PumpDriver(Generic[Pump_co]):
    """Tells a pump the time, and has its jobs done in threads; `news` wakes whoever waits."""

    pump: Pump_co

    def __init__(self) -> None:
        self.news = ParkingLot()

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine, from any task; what comes of it follows."""
        return self.pump.call(current_time(), verb, *args, **kwargs)

    async def work(self) -> None:
        """Do the pump's jobs, one after the other, without end."""
        while True:
            while (job := self.pump.next_job()) is None:
                await self.news.park()
            self.pump.finish(await trio.to_thread.run_sync(job), current_time())

    async def keep_time(self) -> None:
        """Tell the time until the pump is over; if it is cancelled before, that is the end."""
        try:
            while not self.pump.over:
                deadline = self.pump.next_deadline()
                with trio.move_on_at(math.inf if deadline is None else deadline) as waiting:
                    await self.news.park()
                if waiting.cancelled_caught:
                    self.pump.advance(current_time())
        finally:
            self.pump.abort()  # not one more event, whatever the store says


async def carry(pump: StreamPump, stream: Stream, news: ParkingLot) -> None:
    """Carry bytes until the connection has hung up, and close `stream`; `news`: of `pump`."""
    try:
        async with trio.open_nursery() as nursery:
            for task in (_read, _write):
                nursery.start_soon(task, pump, stream, news)
            while not pump.hung_up:
                await news.park()
            nursery.cancel_scope.cancel()
    finally:
        if not pump.hung_up:  # cancelled
            await cancel_shielded_checkpoint()  # if all is cancelled, the pump is told that first
            pump.connection_lost(current_time())
        with trio.move_on_after(1 if pump.state is ConnectionState.HUNG_UP else 0):
            await stream.aclose()  # so long may a peer take to say the end of TLS


async def _read(pump: StreamPump, stream: Stream, news: ParkingLot) -> None:
    while True:
        while not (size := pump.read_size()):
            await news.park()
        try:
            data = await stream.receive_some(size)
        except trio.BrokenResourceError:
            pump.connection_lost(current_time())
            continue
        pump.receive_data(data, current_time()) if data else pump.receive_eof(current_time())


async def _write(pump: StreamPump, stream: Stream, news: ParkingLot) -> None:
    while True:
        try:
            if piece := pump.outgoing:
                await stream.send_all(piece)
                pump.sent(len(piece), current_time())
            elif isinstance(stream, HalfCloseableStream) and pump.eof_to_send:
                await stream.send_eof()
                pump.eof_sent(current_time())
            else:
                await news.park()
        except trio.BrokenResourceError:
            pump.send_failed(current_time())

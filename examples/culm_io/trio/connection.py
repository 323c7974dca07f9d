"""The bytes of one connection under trio, with or without TLS."""

from __future__ import annotations

import trio
from trio import current_time
from trio.abc import HalfCloseableStream, Stream
from trio.lowlevel import ParkingLot, cancel_shielded_checkpoint

from culm.pump import ConnectionState, StreamPump

__all__ = ["carry"]


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

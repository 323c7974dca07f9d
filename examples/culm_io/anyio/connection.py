"""The bytes of one connection under anyio, with or without TLS."""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio import current_time
from anyio.abc import ByteStream

from culm.pump import ConnectionState, StreamPump

__all__ = ["News", "carry"]


class News:
    """Wakes the waiting tasks, as often as there is any."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def tell(self) -> None:
        self._event.set()
        self._event = anyio.Event()


async def carry(pump: StreamPump, stream: ByteStream, news: News) -> None:
    """Carry bytes until the connection has hung up, and close `stream`; `news`: of `pump`."""
    try:
        async with anyio.create_task_group() as tasks:
            for task in (_read, _write):
                tasks.start_soon(task, pump, stream, news)
            while not pump.hung_up:
                await news.wait()
            tasks.cancel_scope.cancel()
    finally:
        wait = 1 if pump.state is ConnectionState.HUNG_UP else 0
        with anyio.move_on_after(wait), suppress(anyio.BrokenResourceError):
            await stream.aclose()  # so long may a peer take to say the end of TLS


async def _read(pump: StreamPump, stream: ByteStream, news: News) -> None:
    while True:
        while not (size := pump.read_size()):
            await news.wait()
        try:
            pump.receive_data(await stream.receive(size), current_time())
        except anyio.EndOfStream:
            pump.receive_eof(current_time())
        except anyio.BrokenResourceError:
            pump.connection_lost(current_time())


async def _write(pump: StreamPump, stream: ByteStream, news: News) -> None:
    while True:
        try:
            if piece := pump.outgoing:
                await stream.send(bytes(piece))
                pump.sent(len(piece), current_time())
            elif pump.eof_to_send:
                await stream.send_eof()
                pump.eof_sent(current_time())
            else:
                await news.wait()
        except anyio.BrokenResourceError:
            pump.send_failed(current_time())

"""One connection under asyncio, with or without TLS: that of a pump, or of one of its links."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Generic, TypeVar, cast

from culm.pump import ConnectionState, StreamPump

__all__ = ["ConnectionProtocol"]

Stream_co = TypeVar("Stream_co", bound=StreamPump, covariant=True)

_BUFFER_SIZE = 1 << 16


class ConnectionProtocol(asyncio.BufferedProtocol, Generic[Stream_co]):
    """Carries the bytes of `pump`."""

    pump: Stream_co

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._congested = False  # the transport still holds bytes
        self._written = False  # it has the outgoing bytes
        self._yields = False  # others have their turn before the next piece

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1)  # bytes that it holds have not been sent

    def get_buffer(self, sizehint: int) -> memoryview:
        size = self.pump.read_size()
        return self._buffer if size >= _BUFFER_SIZE else self._buffer[: max(1, size)]

    def buffer_updated(self, nbytes: int) -> None:
        self.pump.receive_data(self._buffer[:nbytes], self._loop.time())

    def eof_received(self) -> bool:
        self.pump.receive_eof(self._loop.time())
        assert self.transport is not None
        return self.transport.can_write_eof()  # TLS ends both directions at once

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.pump.connection_lost(self._loop.time())

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self._loop.call_soon(self._sent)  # an end that asyncio writes here by itself might fail

    def carry(self) -> None:
        """Carry out the pump's requests."""
        pump, transport = self.pump, self.transport
        if transport is None or transport.is_closing():
            return
        if pump.hung_up:
            transport.abort() if pump.state is ConnectionState.CUT_OFF else transport.close()
            return
        if pump.outgoing and not (self._written or self._yields):
            self._written = True
            transport.write(pump.outgoing)
            self._sent()
        if pump.eof_to_send:
            with suppress(OSError):  # the connection is gone, which will be told
                transport.write_eof()
            pump.eof_sent(self._loop.time())
        if pump.read_size():
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _sent(self) -> None:
        """Count the piece as sent, unless the transport holds it; the next one waits for a turn."""
        if self._written and not self._congested:
            self._written, self._yields = False, True
            self.pump.sent(len(self.pump.outgoing), self._loop.time())
            if self.pump.outgoing:
                self._loop.call_soon(self._go_on)
            else:
                self._yields = False

    def _go_on(self) -> None:
        self._yields = False
        self.carry()

"""The connections of a machine with several links under asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from culm.machine import Link, LocalProtocolError
from culm.pump import LinkedPump, LinkPump
from culm_io.asyncio.connection import ConnectionProtocol

__all__ = ["LinkProtocol", "TlsLinkProtocol"]


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

    So a client that connects and does not go on is a stranger to the machine, one of a few.
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
        bare.pause_reading()  # the bytes are for TLS
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

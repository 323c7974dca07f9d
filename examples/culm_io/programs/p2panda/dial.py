"""Ways to another p2panda node: a connection of which nothing is read until it has a use."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

__all__ = ["Door", "dial"]

# Who is gone without a word is noticed after some three minutes (seconds, and a number).
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 6}


class Door(asyncio.Protocol):
    """A connection before anybody has come in."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()
        connection = transport.get_extra_info("socket")
        with suppress(OSError):  # it is gone already, which will be told
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    @property
    def here(self) -> str:
        """Our end of it, as ``HOST:PORT``."""
        return self._name("sockname")

    @property
    def there(self) -> str:
        """The other end."""
        return self._name("peername")

    @property
    def address(self) -> str:
        """Where it comes from, without a port."""
        return self.there.rpartition(":")[0]

    def open(self, protocol: asyncio.BufferedProtocol) -> None:
        """Let `protocol` have the connection."""
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)

    def _name(self, end: str) -> str:
        found = self.transport.get_extra_info(end)
        return f"{found[0]}:{found[1]}" if found else f"gone:{end}"


async def dial(host: str, port: int, *, until: float) -> Door:
    """Connect before that time of the loop; raises `OSError`.

    Each address of the host has its share of the time.
    """
    loop = asyncio.get_running_loop()
    failed: OSError = TimeoutError("no answer in time")
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            addresses = await _resolve(host, port)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                async with asyncio.timeout((until - loop.time()) / left):
                    return (await loop.create_connection(Door, *address))[1]
            except TimeoutError:
                continue
            except OSError as error:
                failed = error
    raise failed


async def _resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
    """The addresses of a host.

    The thread that asks for them does not hold up the end of the program.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def settle(addresses: Sequence[tuple[str, int]], error: OSError | None) -> None:
        if not found.done():
            found.set_exception(error) if error else found.set_result(addresses)

    def look() -> None:
        addresses: list[tuple[str, int]] = []
        error: OSError | None = None
        try:
            for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                addresses.append((str(address[0]), port))
        except (OSError, UnicodeError) as reason:
            error = OSError(str(reason))
        with suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(settle, addresses, error)

    threading.Thread(target=look, daemon=True).start()
    result: Sequence[tuple[str, int]] = await found
    return result

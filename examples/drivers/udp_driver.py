"""Any machine over datagrams under asyncio, on one UDP socket: an Oxen node, for example.

driver = UdpDriver(node, address_of=book.get, name_of=names.get, on_event=print)
await loop.create_datagram_endpoint(lambda: driver, local_addr=(host, port))
driver.call(node.join, b"server 2")
closed = await driver.wait_closed()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar, cast

from culm.machine import Closed, DatagramMachine, Event
from culm.pump import DatagramPump
from drivers.asyncio_parts import Alarm

__all__ = ["UdpDriver"]

Address = tuple[Any, ...]  # as sockets have it
P = ParamSpec("P")
T = TypeVar("T")


class UdpDriver(asyncio.DatagramProtocol):
    """Drives `machine`, which has names for its peers.

    address_of: where the peer of that name is; ``None``: nobody knows, and what is for it is
        lost.
    name_of: who is at that address; ``None``: somebody to whom nobody listens.
    on_event: gets every event.
    """

    def __init__(
        self,
        machine: DatagramMachine,
        *,
        address_of: Callable[[Hashable], Address | None],
        name_of: Callable[[Address], Hashable | None],
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self._address_of, self._name_of = address_of, name_of
        self._transport: asyncio.DatagramTransport | None = None
        self._congested = False
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._alarm = Alarm(lambda: self.pump.advance(self._loop.time()))
        self.pump = DatagramPump(machine, on_event=on_event, wake=self._update)

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine; what comes of it follows."""
        return self.pump.call(self._loop.time(), verb, *args, **kwargs)

    async def wait_closed(self) -> Closed:
        """Wait for the machine's last event, and close the socket.

        Cancelling it, or a handler that raises, ends all at once.
        """
        try:
            await asyncio.shield(self._over)
        finally:
            self.pump.abort()
            if self._transport is not None:
                self._transport.close()
        return self.pump.result()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.pump.advance(self._loop.time())

    def datagram_received(self, data: bytes, addr: Address) -> None:
        name = self._name_of(addr)
        if name is not None:
            self.pump.receive_datagram(data, self._loop.time(), source=name)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there: to the machine that is a datagram lost."""

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self._update()

    def _update(self) -> None:
        while not self._congested and self._transport is not None:
            datagram = self.pump.next_datagram(self._loop.time())
            if datagram is None:
                break
            address = self._address_of(datagram[0])
            if address is not None:
                self._transport.sendto(datagram[1], address)
        self._alarm.set(self.pump.next_deadline())
        if self.pump.over and not self._over.done():
            self._over.set_result(None)

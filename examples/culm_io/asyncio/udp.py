"""Any machine over datagrams under asyncio, on one UDP socket: an Oxen node, for example.

driver = UdpDriver(node, address_of=book.get, name_of=names.get, on_event=print)
await loop.create_datagram_endpoint(lambda: driver, local_addr=(host, port))
driver.call(node.join, b"server 2")
closed = await driver.wait_closed()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Unpack, cast

from culm.machine import A, Closed, DatagramMachine, E_co
from culm.pump import DatagramPump, UserHandlers
from culm_io.asyncio.pump import PumpDriver

__all__ = ["UdpDriver"]

Address = tuple[Any, ...]  # as sockets have it
_READ_SIZE = 1 << 16  # asyncio's 256 KiB may be fetched from the system for each datagram


class UdpDriver(asyncio.DatagramProtocol, PumpDriver[DatagramPump[E_co, A]], Generic[E_co, A]):
    """Drives `machine`, which has names for its peers; see `UserHandlers` for further arguments.

    address_of: where the peer of that name is, which another peer may have told; ``None``: nowhere.
    name_of: the name of the peer at that address; ``None``: a stranger, who is ignored.
    """

    def __init__(
        self,
        machine: DatagramMachine[E_co, A],
        *,
        address_of: Callable[[A], Address | None],
        name_of: Callable[[Address], A | None],
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        PumpDriver.__init__(self)
        self._address_of, self._name_of = address_of, name_of
        self._transport: asyncio.DatagramTransport | None = None
        self._congested = False
        self.pump = DatagramPump(machine, wake=self.update, **handlers)

    async def wait_closed(self) -> Closed:
        """Wait for the machine's last event, and close the socket.  Cancelling it ends all at once.

        Raises the error of a handler, of `address_of` or of `name_of`, or of the lost socket.
        """
        try:
            return await super().wait_closed()
        finally:
            if self._transport is not None:
                self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        reader: Any = transport
        if hasattr(reader, "max_size"):
            reader.max_size = _READ_SIZE
        self.pump.advance(self._loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.abort(exc)  # nothing goes or comes any more

    def datagram_received(self, data: bytes, addr: Address) -> None:
        try:
            name = self._name_of(addr)
        except Exception as error:
            self.abort(error)
            return
        if name is not None:
            self.pump.receive_datagram(data, self._loop.time(), source=name)

    def error_received(self, exc: Exception) -> None:
        """There is no listener: to the machine that is a datagram lost."""

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self.update()

    def update(self) -> None:
        """Carry out the pump's requests."""
        while not self._congested and self._transport is not None:
            datagram = self.pump.next_datagram(self._loop.time())
            if datagram is None:
                break
            try:
                address = self._address_of(datagram[0])
                if address is not None:
                    self._transport.sendto(datagram[1], address)
            except Exception as error:  # else the timer would not be set again
                self.abort(error)
        super().update()

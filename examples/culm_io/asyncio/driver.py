"""Any stream machine under asyncio, with or without TLS.

A program connects, and waits for the end::

    transport, protocol = await loop.create_connection(
        lambda: MachineProtocol(machine, on_event=print), host, port
    )
    closed = await protocol.wait_closed()
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Generic, Unpack

from culm.machine import E_co, StreamMachine
from culm.pump import Pump, UserHandlers
from culm_io.asyncio.connection import ConnectionProtocol
from culm_io.asyncio.pump import PumpDriver

__all__ = ["MachineProtocol"]


class MachineProtocol(ConnectionProtocol[Pump[E_co]], PumpDriver[Pump[E_co]], Generic[E_co]):
    """Drives `machine` over one connection; see `UserHandlers` for further arguments.

    executor: where effects are done, one at a time and in order, so that a slow disk does not
        hold up the loop; in the loop's thread by default.
    """

    def __init__(
        self,
        machine: StreamMachine[E_co],
        *,
        executor: Executor | None = None,
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        ConnectionProtocol.__init__(self)
        PumpDriver.__init__(self, executor)
        elsewhere = executor is not None
        self.pump = Pump(machine, in_jobs=elsewhere, wake=self.update, **handlers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.pump.connection_made(self._loop.time(), half_close=self.transport.can_write_eof())

    def update(self) -> None:
        """Carry out the pump's requests."""
        self.carry()
        super().update()

    def _is_over(self) -> bool:
        return self.pump.over and (self.lost or self.transport is None)

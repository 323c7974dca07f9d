"""Any stream machine under Twisted, with or without TLS.

endpoint = HostnameEndpoint(reactor, host, port)
protocol = await connectProtocol(endpoint, MachineProtocol(machine, reactor, on_event=print))
closed = await protocol.closed

`reactor.seconds()` is the wall clock, which may be set: the pump is told `time.monotonic`.  A clock
that is set back also delays the reactor's own timers, unless ``reactor.seconds = time.monotonic``
is said before the first of them is started.
"""

from __future__ import annotations

from time import monotonic
from typing import Generic, Unpack

from twisted.internet.base import ReactorBase

from culm.machine import E_co, StreamMachine
from culm.pump import Pump, UserHandlers
from culm_io.twisted.connection import ConnectionProtocol
from culm_io.twisted.pump import PumpDriver

__all__ = ["MachineProtocol"]


class MachineProtocol(ConnectionProtocol[Pump[E_co]], PumpDriver[Pump[E_co]], Generic[E_co]):
    """Drives `machine` over one connection; see `UserHandlers` for further arguments.

    in_threads: whether effects are done in the reactor's threads, one at a time and in order, so
        that a slow disk does not hold up the reactor; at once by default.
    """

    def __init__(
        self,
        machine: StreamMachine[E_co],
        reactor: ReactorBase,
        *,
        in_threads: bool = False,
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        ConnectionProtocol.__init__(self, reactor)
        PumpDriver.__init__(self, reactor)
        self.pump = Pump(machine, in_jobs=in_threads, wake=self.update, **handlers)

    def connectionMade(self) -> None:
        super().connectionMade()
        self.pump.connection_made(monotonic(), half_close=self.half_close)

    def update(self) -> None:
        """Carry out the pump's requests."""
        self.carry()
        super().update()

    def _is_over(self) -> bool:
        return self.pump.over and not self.connected

"""Any stream machine under asyncio, with or without TLS.

transport, protocol = await loop.create_connection(
    lambda: MachineProtocol(machine, on_event=print), host, port
)
closed = await protocol.wait_closed()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from culm.effects import Answer
from culm.machine import Closed, Effect, Event, StreamMachine
from culm.pump import Limits, Pump
from drivers.asyncio_parts import Alarm, ConnectionProtocol, Performer

__all__ = ["MachineProtocol"]

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_LIMITS = Limits()


class MachineProtocol(ConnectionProtocol[Pump]):
    """Drives `machine` over one connection.

    perform: does what an effect asks and returns the answer, in the loop's thread or in
        `executor`, one call at a time and in the order of the effects.
    on_event: gets every event.

    What `perform` raises is told to the machine, which says goodbye where it can; what
    `on_event` raises aborts the connection.  `wait_closed` raises either.
    """

    def __init__(
        self,
        machine: StreamMachine,
        *,
        perform: Callable[[Effect[Any]], object] | None = None,
        executor: Executor | None = None,
        on_event: Callable[[Event], object] | None = None,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        super().__init__()
        performer = None if perform is None else Performer(perform, executor, self._answer)
        self._alarm = Alarm(lambda: self.pump.advance(self._loop.time()))
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.pump = Pump(
            machine,
            on_event=on_event,
            defer=None if performer is None else performer.defer,
            wake=self.update,
            limits=limits,
        )

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine; what comes of it follows."""
        return self.pump.call(self._loop.time(), verb, *args, **kwargs)

    async def wait_closed(self) -> Closed:
        """Wait until machine, connection and store are done; the machine's last event.

        Cancelling it aborts the connection.
        """
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([self._over])  # a thread may still be at work in the store
            raise
        return self.pump.result()

    def abort(self) -> None:
        """End the connection at once: `wait_closed` raises `AbortedError`."""
        self.pump.abort()

    def _answer(self, answer: Answer[Any]) -> None:
        self.pump.answer(answer, self._loop.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.pump.connection_made(self._loop.time(), half_close=self.transport.can_write_eof())

    def update(self) -> None:
        super().update()
        self._alarm.set(self.pump.next_deadline())
        if self.pump.over and (self.lost or self.transport is None) and not self._over.done():
            self._over.set_result(None)

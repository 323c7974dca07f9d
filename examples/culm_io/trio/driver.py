"""Any stream machine under trio, with or without TLS.

stream = await trio.open_tcp_stream(host, port)
closed = await MachineDriver(machine, stream, on_event=print).run()
"""

from __future__ import annotations

from typing import Generic, Unpack

import trio
from trio import current_time
from trio.abc import HalfCloseableStream, Stream

from culm.machine import Closed, E_co, StreamMachine
from culm.pump import Pump, UserHandlers
from culm_io.trio.connection import carry
from culm_io.trio.pump import PumpDriver

__all__ = ["MachineDriver"]


class MachineDriver(PumpDriver[Pump[E_co]], Generic[E_co]):
    """Drives `machine` over `stream`, its store in a thread; see `UserHandlers` for the rest."""

    def __init__(
        self,
        machine: StreamMachine[E_co],
        stream: Stream,
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        super().__init__()
        self._stream = stream
        self.pump = Pump(machine, in_jobs=True, wake=self.news.unpark_all, **handlers)

    async def run(self) -> Closed:
        """Drive until all is done; the machine's last event, or raises a handler's error.

        Cancelling it aborts the connection; a thread at work in the store is waited for.
        """
        half_close = isinstance(self._stream, HalfCloseableStream)
        self.pump.connection_made(current_time(), half_close=half_close)
        async with trio.open_nursery() as nursery:
            self.start_work(nursery)
            nursery.start_soon(carry, self.pump, self._stream, self.news)
            await self.keep_time()
            nursery.cancel_scope.cancel()
        return self.pump.result()

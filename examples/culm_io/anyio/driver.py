"""Any stream machine under anyio: on asyncio, uvloop or trio, with or without TLS.

stream = await anyio.connect_tcp(host, port)
closed = await StreamDriver(machine, stream, on_event=print).run()
"""

from __future__ import annotations

from typing import Generic, Unpack

import anyio
from anyio import current_time
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from culm.machine import Closed, E_co, StreamMachine
from culm.pump import Pump, UserHandlers
from culm_io.anyio.connection import carry
from culm_io.anyio.pump import PumpDriver

__all__ = ["StreamDriver"]


class StreamDriver(PumpDriver[Pump[E_co]], Generic[E_co]):
    """Drives `machine` over `stream`, its store in a thread; see `UserHandlers` for the rest."""

    def __init__(
        self,
        machine: StreamMachine[E_co],
        stream: ByteStream,
        **handlers: Unpack[UserHandlers[E_co]],
    ) -> None:
        super().__init__()
        self._stream = stream
        self.pump = Pump(machine, in_jobs=True, wake=self.news.tell, **handlers)

    async def run(self) -> Closed:
        """Drive until all is done; the machine's last event, or raises a handler's error.

        Cancelling it aborts the connection; a thread at work in the store is waited for.
        """
        half_close = not isinstance(self._stream, TLSStream)
        self.pump.connection_made(current_time(), half_close=half_close)
        async with anyio.create_task_group() as tasks:
            self.start_work(tasks)
            tasks.start_soon(carry, self.pump, self._stream, self.news)
            await self.keep_time()
            tasks.cancel_scope.cancel()
        return self.pump.result()

"""Any stream machine under trio, with or without TLS.

stream = await trio.open_tcp_stream(host, port)
closed = await MachineDriver(machine, stream, on_event=print).run()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import trio

from culm.effects import Answer
from culm.machine import Closed, Effect, Event, StreamMachine
from culm.pump import ConnectionState, Limits, Pump

__all__ = ["MachineDriver"]

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_LIMITS = Limits()
_GOODBYE_MAX_S = 1.0  # for which we wait for a peer's end of TLS


class MachineDriver:
    """Drives `machine` over `stream`.

    perform: does what an effect asks and returns the answer: in a thread, one call at a time
        and in the order of the effects.
    on_event: gets every event.
    """

    def __init__(
        self,
        machine: StreamMachine,
        stream: trio.abc.Stream,
        *,
        perform: Callable[[Effect[Any]], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        self._stream = stream
        self._perform = perform
        self._effects: list[Effect[Any]] = []
        self._changed = trio.Event()
        self.pump = Pump(
            machine,
            on_event=on_event,
            defer=None if perform is None else self._effects.append,
            wake=self._wake,
            limits=limits,
        )

    def call(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine, from any task; what comes of it follows."""
        return self.pump.call(trio.current_time(), verb, *args, **kwargs)

    async def run(self) -> Closed:
        """Drive until machine, connection and store are done; the machine's last event.

        Raises what `perform` or `on_event` has raised.  If it is cancelled, the connection is
        aborted, and a thread that is still at work in the store is waited for.
        """
        pump, half = self.pump, isinstance(self._stream, trio.abc.HalfCloseableStream)
        try:
            async with trio.open_nursery() as nursery:
                pump.connection_made(trio.current_time(), half_close=half)
                for task in (self._read, self._write, self._answer):
                    nursery.start_soon(task)
                try:
                    await self._keep_time()
                finally:
                    orderly = pump.state is ConnectionState.HUNG_UP
                    pump.abort()  # if it is not over: not one more event, whatever the store says
                    nursery.cancel_scope.cancel()
            if orderly:
                with trio.move_on_after(_GOODBYE_MAX_S):
                    await self._stream.aclose()
        finally:
            await trio.aclose_forcefully(self._stream)
        return pump.result()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _keep_time(self) -> None:
        while not self.pump.over:
            deadline = self.pump.next_deadline()
            with trio.move_on_at(math.inf if deadline is None else deadline) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught:
                self.pump.advance(trio.current_time())

    async def _read(self) -> None:
        while True:
            size = self.pump.read_size()
            if not size:
                await self._changed.wait()
                continue
            try:
                data = await self._stream.receive_some(size)
            except trio.BrokenResourceError:
                self.pump.connection_lost(trio.current_time())
                continue
            if data:
                self.pump.receive_data(data, trio.current_time())
            else:
                self.pump.receive_eof(trio.current_time())

    async def _write(self) -> None:
        pump = self.pump
        while True:
            try:
                if pump.outgoing:
                    await self._stream.send_all(pump.outgoing)
                    pump.sent(len(pump.outgoing), trio.current_time())
                elif pump.eof_to_send:
                    assert isinstance(self._stream, trio.abc.HalfCloseableStream)
                    await self._stream.send_eof()
                    pump.eof_sent(trio.current_time())
                else:
                    await self._changed.wait()
            except trio.BrokenResourceError:
                pump.send_failed(trio.current_time())

    async def _answer(self) -> None:
        while True:
            while not self._effects:
                await self._changed.wait()
            effects = self._effects.copy()
            self._effects.clear()
            for answer in await trio.to_thread.run_sync(self._perform_all, effects):
                self.pump.answer(answer, trio.current_time())

    def _perform_all(self, effects: list[Effect[Any]]) -> list[Answer[Any]]:
        assert self._perform is not None
        return [Answer.of(effect, self._perform) for effect in effects]

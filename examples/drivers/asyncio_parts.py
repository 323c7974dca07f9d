"""What drivers for asyncio have in common: a connection, an alarm clock, and work elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Generic, TypeVar, cast

from culm.effects import Answer
from culm.machine import Effect, Link, LocalProtocolError
from culm.pump import ConnectionState, LinkedPump, LinkPump, StreamPump

__all__ = ["Alarm", "ConnectionProtocol", "LinkProtocol", "Performer"]

A = TypeVar("A", bound=StreamPump)

_BUFFER_SIZE = 1 << 16


class _Turn(Enum):
    """Whose turn it is to do something about what is to be sent."""

    OURS = auto()
    TRANSPORTS = auto()  # it has what is outgoing
    OTHERS = auto()  # there is more, but first others in the loop


class ConnectionProtocol(asyncio.BufferedProtocol, Generic[A]):
    """Carries the bytes of a pump, or of one of its links, over one connection."""

    pump: A

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._turn = _Turn.OURS
        self._congested = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=1)  # what it holds has not been sent

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[: max(1, self.pump.read_size())]

    def buffer_updated(self, nbytes: int) -> None:
        self.pump.receive_data(self._buffer[:nbytes], self._loop.time())

    def eof_received(self) -> bool:
        self.pump.receive_eof(self._loop.time())
        assert self.transport is not None
        return self.transport.can_write_eof()  # TLS ends both directions at once

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.pump.connection_lost(self._loop.time())

    def pause_writing(self) -> None:
        self._congested = True

    def resume_writing(self) -> None:
        self._congested = False
        self._sent()

    def update(self) -> None:
        """Do what the pump asks for."""
        pump, transport = self.pump, self.transport
        if transport is None or transport.is_closing():
            return
        if pump.hung_up:
            transport.abort() if pump.state is ConnectionState.CUT_OFF else transport.close()
            return
        if pump.outgoing and self._turn is _Turn.OURS:
            self._turn = _Turn.TRANSPORTS
            transport.write(pump.outgoing)
            if not self._congested:
                self._sent()
        if pump.eof_to_send:
            with suppress(OSError):  # the connection is gone, which will be told
                transport.write_eof()
            pump.eof_sent(self._loop.time())
        if pump.read_size():
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _sent(self) -> None:
        if self._turn is _Turn.TRANSPORTS:
            self._turn = _Turn.OTHERS
            self.pump.sent(len(self.pump.outgoing), self._loop.time())
            if self.pump.outgoing:
                self._loop.call_soon(self._send_more)
            else:
                self._turn = _Turn.OURS

    def _send_more(self) -> None:
        self._turn = _Turn.OURS
        self.update()


class LinkProtocol(ConnectionProtocol[LinkPump]):
    """One connection of a machine with several links; `open_link` is the machine's verb."""

    def __init__(self, machine: LinkedPump, open_link: Callable[[], Link]) -> None:
        super().__init__()
        self._machine, self._open_link = machine, open_link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        try:
            link = self._machine.call(self._loop.time(), self._open_link)
        except LocalProtocolError:  # there are too many, or the machine has ended
            transport.set_protocol(asyncio.Protocol())
            self.transport.abort()
            return
        half_close = self.transport.can_write_eof()
        self.pump = self._machine.attach(link, wake=self.update, half_close=half_close)
        self.update()


class Alarm:
    """Calls `ring` at the latest when a deadline comes."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, deadline: float | None) -> None:
        if self._timer is not None and (deadline is None or self._timer.when() > deadline):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline is not None:
            self._timer = self._loop.call_at(deadline, self._go_off)

    def _go_off(self) -> None:  # perhaps too early: who is woken up sets it again
        self._timer = None
        self._ring()


class Performer:
    """Has effects done in `executor`, so that a slow disk does not hold up the loop.

    They are done in order, one at a time; `give` gets the answers.  Without an executor they
    are done at once.
    """

    def __init__(
        self,
        perform: Callable[[Effect[Any]], object],
        executor: Executor | None,
        give: Callable[[Answer[Any]], object],
    ) -> None:
        self._perform, self._executor, self._give = perform, executor, give
        self._effects: list[Effect[Any]] = []
        self._task: asyncio.Task[None] | None = None

    def defer(self, effect: Effect[Any]) -> None:
        if self._executor is None:
            self._give(Answer.of(effect, self._perform))
            return
        self._effects.append(effect)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._effects:
            effects, self._effects = self._effects, []
            try:
                answers = await loop.run_in_executor(self._executor, self._perform_all, effects)
            except (RuntimeError, asyncio.CancelledError) as error:  # the executor was shut down
                failure = RuntimeError(f"the store is gone: {error}")
                answers = [Answer(effect, None, failure) for effect in effects]
            for answer in answers:
                self._give(answer)
        self._task = None

    def _perform_all(self, effects: list[Effect[Any]]) -> list[Answer[Any]]:
        return [Answer.of(effect, self._perform) for effect in effects]

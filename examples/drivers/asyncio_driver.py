"""Any stream machine under asyncio.

`MachineProtocol` is an asyncio protocol: give it to ``loop.create_connection`` or
``loop.create_server`` (with or without TLS), then wait for the end::

    transport, protocol = await loop.create_connection(
        lambda: MachineProtocol(machine, on_event=print), host, port
    )
    closed = await protocol.wait_closed()

It does what every driver does: one input, then drain, that is events until ``None``, then
effects, then bytes, then the deadline.  It adds what asyncio asks for: the peer is read
as far as the machine wants, bytes are taken from the machine as the peer takes them, and
nobody keeps the loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from enum import IntEnum
from typing import Any, cast

from culm.effects import Answer
from culm.machine import (
    Closed,
    Durable,
    Effect,
    Event,
    RemoteProtocolError,
    StoreFailed,
    StreamMachine,
    Timed,
)

__all__ = ["DriverErrorCode", "MachineProtocol"]

# Bytes read or taken at a time.  What has been taken is beyond the machine's reach: the
# less waits in the transport, the sooner the next important thing is on its way.
_SIZE_MAX = 1 << 16
# Steps of a machine in a row: after so many it is the turn of others in the loop.
_STEPS_MAX = 1000
# How long after its end a connection waits for the peer to take our last words and to end its own
# half, in seconds; after an error of the peer's there are few words, and it may go on for ever.
_LINGER_S = 5.0
_LINGER_AFTER_ERROR_S = 1.0


class DriverErrorCode(IntEnum):
    """Why a connection has ended, if that is no doing of its machine."""

    ABORTED = 1


class MachineProtocol(asyncio.BufferedProtocol):
    """Drives `machine` over one connection.

    perform: does what an effect asks and returns the answer; for a machine that is
    `Durable`.  It is called in the order of the effects: in the loop's thread or, so that
    a slow disk does not hold up the loop, in `executor`, one call at a time.

    on_event: gets every event.

    What `perform` raises is told to the machine (`Durable.fail`), which says goodbye where it
    can; what `on_event` raises aborts the connection.  `wait_closed` raises either.
    """

    def __init__(
        self,
        machine: StreamMachine,
        *,
        perform: Callable[[Effect[Any]], object] | None = None,
        executor: Executor | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.bytes_received = 0
        self.bytes_sent = 0
        self._machine = machine
        self._timed = machine if isinstance(machine, Timed) else None
        self._durable = machine if isinstance(machine, Durable) else None
        self._perform = perform
        self._executor = executor
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_SIZE_MAX)
        self._outcome: Closed | Exception | None = None
        self._aborted = False
        self._store_error: Exception | None = None  # with which the machine's store has failed
        self._lost = False  # the transport is gone
        self._eof = False
        self._goodbye = False
        self._hung_up = False  # our half of the connection is ended
        self._may_write = True
        self._draining = False
        self._again: asyncio.Handle | None = None  # there may be more bytes
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._effects: list[Effect[Any]] = []  # that wait for the executor
        self._performing = False
        self._over: asyncio.Future[Closed] = self._loop.create_future()

    # For the user.

    def call(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a verb of the machine: it is an input as any other, and is followed by a drain."""
        result = verb(*args, **kwargs)
        self._drain()
        return result

    async def wait_closed(self) -> Closed:
        """Wait until machine, connection and store are done; the machine's last event.

        Cancelling it aborts the connection.  Raises what `perform` or `on_event` raised.
        """
        try:
            return await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([self._over])  # a thread may still be at work in the store
            raise

    def abort(self) -> None:
        """End the connection at once: not one more event is taken.

        If the machine has not ended, `wait_closed` says ``ABORTED``.
        """
        self._aborted = True
        if self.transport is not None:
            self.transport.abort()

    # Inputs.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_SIZE_MAX)
        if self._aborted:
            self.transport.abort()
        self._tell_time()
        self._drain()

    def get_buffer(self, sizehint: int) -> memoryview:
        size = _SIZE_MAX if self._closed else self._machine.read_size()
        return memoryview(self._buffer)[: max(1, size)]

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_received += nbytes
        if self._closed:
            return  # after the end, bytes are read for the peer's sake
        self._input(self._machine.receive_data, memoryview(self._buffer)[:nbytes])

    def eof_received(self) -> bool:
        self._receive_eof()
        # We may still have something to say; but TLS ends both directions at once.
        return self.transport is not None and self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._receive_eof()
        self._end_if_done()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._drain()

    def _receive_eof(self) -> None:
        if not self._eof:
            self._eof = True
            self._input(self._machine.receive_eof)

    def _input(self, method: Callable[..., object], *args: object) -> None:
        self._tell_time(early=True)
        method(*args)
        self._drain()

    def _tell_time(self, *, early: bool = False) -> None:
        """Tell the time, so that what the machine measures from its next input on is exact.

        `early`: only if nothing is due yet.  Else the timer does it, after the bytes that
        are here: a peer is not silent because we are slow.
        """
        if self._timed is not None:
            now, deadline = self._loop.time(), self._timed.next_deadline()
            if not early or deadline is None or now < deadline:
                self._timed.advance(now)
                self._drain()

    # The drain.

    def _drain(self) -> None:
        if self._draining or isinstance(self._outcome, Exception):
            return  # a handler of events may call verbs: what comes of it is drained below
        self._draining = True
        try:
            for _ in range(_STEPS_MAX):
                if self._aborted:
                    break
                if not (self._take_event() or self._take_effects() or self._take_bytes()):
                    self._set_timer()
                    break
            else:
                self._go_on_later()
        except Exception as error:  # of `on_event`
            self._fail(error)
        finally:
            self._draining = False
        self._end_if_done()

    def _take_event(self) -> bool:
        event = self._machine.next_event()
        if event is None:
            return False
        if isinstance(event, Closed):
            self._outcome = event
        elif isinstance(event, StoreFailed):
            self._store_error = event.error
        if self._on_event is not None:
            self._on_event(event)
        return True

    def _take_effects(self) -> bool:
        """Answer one effect, or hand all there are to the executor; whether one was answered."""
        durable = self._durable
        if durable is None or (effect := durable.next_effect()) is None:
            return False
        if self._perform is None:
            raise TypeError(f"nobody performs {type(effect).__name__}")
        if self._executor is None:
            Answer.of(effect, self._perform).give(durable)
            return True
        self._effects.append(effect)
        self._effects += iter(durable.next_effect, None)
        self._perform_elsewhere()
        return False

    def _perform_elsewhere(self) -> None:
        if not self._performing and self._effects:
            effects, self._effects = self._effects, []
            self._performing = True
            work = self._loop.run_in_executor(self._executor, self._perform_all, effects)
            work.add_done_callback(self._performed)

    def _perform_all(self, effects: list[Effect[Any]]) -> list[Answer[Any]]:
        assert self._perform is not None
        return [Answer.of(effect, self._perform) for effect in effects]

    def _performed(self, done: asyncio.Future[list[Answer[Any]]]) -> None:
        self._performing = False
        try:
            answers = done.result()
            self._perform_elsewhere()
            for answer in answers:
                answer.give(cast(Durable, self._durable))
                self._drain()
        except asyncio.CancelledError:
            self._fail(RuntimeError("the executor was shut down"))
        except Exception as error:
            self._fail(error)
        self._end_if_done()

    def _take_bytes(self) -> bool:
        """Write what the peer can take; whether that gave the store something to do."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        data = self._machine.data_to_send(_SIZE_MAX) if self._may_write else b""
        if data:
            self.bytes_sent += len(data)
            transport.write(data)
            # There may be more; but first it is the turn of others in the loop.
            self._go_on_later()
        if self._closed or self._machine.read_size():
            transport.resume_reading()
        else:
            transport.pause_reading()
        return self._take_effects()

    def _go_on_later(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._drain_again)

    def _drain_again(self) -> None:
        self._again = None
        self._drain()

    def _set_timer(self) -> None:
        deadline = None if self._timed is None else self._timed.next_deadline()
        if deadline is None or (self._timer is not None and self._timer.when() <= deadline):
            return  # a timer that goes off too early sets the next one
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._tell_time()

    # The end.

    @property
    def _closed(self) -> bool:
        """Whether the machine has ended."""
        return isinstance(self._outcome, Closed)

    def _fail(self, error: Exception) -> None:
        self._outcome = error
        self._effects.clear()
        self.abort()

    def _end_if_done(self) -> None:
        busy = self._performing or self._effects or self._again is not None
        if self._aborted and self._outcome is None and self._lost:
            self._outcome = Closed(error=RemoteProtocolError(DriverErrorCode.ABORTED))
        if self._outcome is None:
            if self._lost and not busy and not self._goodbye:
                self._goodbye = True  # to this machine, an end of the stream is no end
                self.call(self._machine.close)
            return
        if self._linger is None:
            erred = isinstance(self._outcome, Closed) and self._outcome.error is not None
            seconds = _LINGER_AFTER_ERROR_S if erred else _LINGER_S
            self._linger = self._loop.call_later(seconds, self.abort)
        if self.transport is not None and not busy and self._may_write:
            self._hang_up(self.transport)
        if self._lost and not busy and not self._over.done():
            self._linger.cancel()
            if self._timer is not None:
                self._timer.cancel()
            error = self._store_error or self._outcome
            if isinstance(error, Closed):
                self._over.set_result(error)
            else:
                self._over.set_exception(error)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        """Our last words are said: let the peer know, and read on until it has ended, too.

        To close a socket with unread bytes resets the connection, and what the peer has not
        read yet is lost.  TLS can end both directions only: that is done at once after an
        orderly end, when the peer has nothing more to say, and else when it has hung up.
        """
        end = self._outcome
        orderly = not isinstance(end, Closed) or end.error is None
        if self._eof or (orderly and not transport.can_write_eof()):
            transport.close()
        elif transport.can_write_eof() and not self._hung_up:
            self._hung_up = True
            try:
                transport.write_eof()
            except OSError:  # the connection is gone
                transport.abort()

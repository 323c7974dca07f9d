"""Any stream machine on a plain socket, in a loop that blocks.

For programs with one thread a connection, and to read: this is all that driving takes.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from culm.machine import Closed, Durable, Effect, Event, StreamMachine, Timed

__all__ = ["run"]

_SIZE_MAX = 1 << 16
# How long a peer may leave our last words untaken, in seconds.
_LINGER_S = 5.0


def run(
    machine: StreamMachine,
    connection: socket.socket,
    *,
    perform: Callable[[Effect[Any]], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Closed:
    """Drive `machine` over a connected socket until its end, and close the socket.

    `perform` does what an effect asks and returns the answer, for a machine that is
    `Durable`; `on_event` gets every event.  Returns the last one.
    """
    with connection:
        connection.setblocking(False)
        return _SocketDriver(machine, connection, perform, on_event).run()


class _SocketDriver:
    def __init__(
        self,
        machine: StreamMachine,
        connection: socket.socket,
        perform: Callable[[Effect[Any]], object] | None,
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self._machine = machine
        self._timed = machine if isinstance(machine, Timed) else None
        self._durable = machine if isinstance(machine, Durable) else None
        self._connection = connection
        self._perform = perform
        self._on_event = on_event
        self._outgoing = memoryview(b"")
        self._eof = False
        self._lost = False
        self._closed: Closed | None = None
        self._give_up_at: float | None = None

    def run(self) -> Closed:
        while True:
            self._drain()
            if self._timed is not None:
                self._timed.advance(time.monotonic())
                self._drain()
            if self._closed is not None and self._is_over():
                return self._closed
            self._wait()

    def _drain(self) -> None:
        """Events until ``None``, then effects, then bytes, until there is nothing left."""
        while True:
            while (event := self._machine.next_event()) is not None:
                if isinstance(event, Closed):
                    self._closed = event
                if self._on_event is not None:
                    self._on_event(event)
            if self._answer_effect():
                continue
            if self._outgoing and not self._lost:
                return  # the peer has to take these first
            self._outgoing = memoryview(self._machine.data_to_send(_SIZE_MAX))
            if not self._answer_effect():  # the machine may have looked for bytes in the store
                return

    def _answer_effect(self) -> bool:
        if self._durable is None or (effect := self._durable.next_effect()) is None:
            return False
        if self._perform is None:
            raise TypeError(f"nobody performs {type(effect).__name__}")
        self._durable.complete(effect.ticket, self._perform(effect))
        return True

    def _wait(self) -> None:
        """Wait for the peer or for the deadline, and move bytes."""
        connection, machine = self._connection, self._machine
        if self._lost:
            machine.close()  # to this machine, an end of the stream is no end
            return
        reads = not self._eof and machine.read_size() > 0
        deadline = self._give_up_at
        if deadline is None and self._timed is not None:
            deadline = self._timed.next_deadline()
        readable, writable, _ = select.select(
            [connection] if reads else [],
            [connection] if self._outgoing else [],
            [],
            None if deadline is None else max(0.0, deadline - time.monotonic()),
        )
        try:
            if writable:
                self._outgoing = self._outgoing[connection.send(self._outgoing) :]
            if readable:
                data = connection.recv(min(_SIZE_MAX, machine.read_size()))
                if data:
                    machine.receive_data(data)
                else:
                    self._receive_eof()
        except BlockingIOError:
            pass  # select was too hopeful
        except OSError:
            self._lost = True
            self._receive_eof()

    def _receive_eof(self) -> None:
        if not self._eof:
            self._eof = True
            self._machine.receive_eof()

    def _is_over(self) -> bool:
        """Whether our last words are gone, or nobody wants to have them."""
        now = time.monotonic()
        if self._give_up_at is None:
            self._give_up_at = now + _LINGER_S
        return self._lost or not self._outgoing or now >= self._give_up_at

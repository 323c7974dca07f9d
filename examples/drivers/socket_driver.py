"""Any stream machine on a plain socket, in a loop that blocks.

For programs with one thread a connection, and to read: this is all that driving takes.
The page on driving explains it line by line.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from culm.effects import Answer
from culm.machine import Closed, Durable, Effect, Event, StoreFailed, StreamMachine, Timed

__all__ = ["run"]

PIECE_SIZE = 1 << 16  # the most that is read at a time, and that we hold of what is to be sent
LINGER_S = 5.0  # how long we wait, after the end, for a peer to take our last words and to hang up
LINGER_AFTER_ERROR_S = 1.0  # the same after an error of the peer's, which may go on for ever


def run(
    machine: StreamMachine,
    connection: socket.socket,
    *,
    perform: Callable[[Effect[Any]], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
    aborted: Callable[[], bool] = lambda: False,
) -> Closed:
    """Drive `machine` over a connected socket until its end, and close the socket.

    `perform` does what an effect asks and returns the answer, for a machine that is
    `Durable`; what it raises is told to the machine, and raised here when the connection
    has ended.  `on_event` gets every event.  Returns the last one.

    Once `aborted` says so, not one more event is taken: `ConnectionAbortedError`.  Another
    thread that wants this at once shuts down the socket, too, which ends the waiting.
    """
    with connection, selectors.DefaultSelector() as selector:
        connection.setblocking(False)
        return _Loop(machine, connection, selector, perform, on_event, aborted).run()


class _Loop:
    def __init__(
        self,
        machine: StreamMachine,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        perform: Callable[[Effect[Any]], object] | None,
        on_event: Callable[[Event], object] | None,
        aborted: Callable[[], bool],
    ) -> None:
        self.machine, self.connection, self.selector = machine, connection, selector
        self.timed = machine if isinstance(machine, Timed) else None
        self.durable = machine if isinstance(machine, Durable) else None
        self.perform, self.on_event, self.aborted = perform, on_event, aborted
        self.reads = self.writes = True  # the directions of the connection that are open
        self.outgoing = memoryview(b"")  # taken from the machine, and not yet by the peer
        self.closed: Closed | None = None
        self.store_error: Exception | None = None  # with which the machine's store has failed

    def run(self) -> Closed:
        if self.timed is not None:
            self.timed.advance(time.monotonic())
        self.drain()
        while self.closed is None:
            self.turn()
            if not self.reads and not self.outgoing:
                self.machine.close()  # all is said on both sides, and this machine waits for more
                self.drain()
        self.linger(LINGER_S if self.closed.error is None else LINGER_AFTER_ERROR_S)
        if self.store_error is not None:
            raise self.store_error
        return self.closed

    def turn(self) -> None:
        """Wait for the peer or for the deadline; an input, then drain."""
        deadline = None if self.timed is None else self.timed.next_deadline()
        ready = self.wait(deadline)
        now = time.monotonic()
        due = deadline is not None and now >= deadline
        if self.timed is not None and not due:
            self.timed.advance(now)  # what is measured from the next input on is exact
            self.drain()
        self.move(ready)
        if self.timed is not None and due:
            self.timed.advance(now)  # bytes that are here go before a deadline that has passed
            self.drain()

    def drain(self) -> None:
        """Events, effects and one piece of bytes, until a round brings nothing."""
        while True:
            while (event := self.next_event()) is not None:
                if isinstance(event, Closed):
                    self.closed = event
                elif isinstance(event, StoreFailed):
                    self.store_error = event.error
                if self.on_event is not None:
                    self.on_event(event)
            if self.durable is not None and (effect := self.durable.next_effect()) is not None:
                if self.perform is None:
                    raise TypeError(f"nobody performs {type(effect).__name__}")
                Answer.of(effect, self.perform).give(self.durable)
            elif self.outgoing:
                return  # the peer has to take these first
            elif not (data := self.machine.data_to_send(PIECE_SIZE)):
                return
            elif self.writes:
                self.outgoing = memoryview(data)

    def next_event(self) -> Event | None:
        """The next event, unless that would be one too many."""
        if self.aborted():
            raise ConnectionAbortedError
        return self.machine.next_event()

    def wait(self, until: float | None) -> int:
        """Wait until the peer sends what we want, takes what we hold, or it is `until`."""
        wants_bytes = self.closed is not None or self.machine.read_size() > 0
        wanted = EVENT_READ if self.reads and wants_bytes else 0
        if self.outgoing:
            wanted |= EVENT_WRITE
        if wanted:
            self.selector.register(self.connection, wanted)
        timeout = None if until is None else max(0.0, until - time.monotonic())
        ready = self.selector.select(timeout)
        if wanted:
            self.selector.unregister(self.connection)
        return ready[0][1] if ready else 0

    def move(self, ready: int) -> None:
        """Read and write as far as the connection is `ready`, and drain after each."""
        if ready & EVENT_READ:
            self.read()
            self.drain()
        if ready & EVENT_WRITE:
            self.write()
            self.drain()

    def read(self) -> None:
        size = PIECE_SIZE if self.closed is not None else self.machine.read_size()
        try:
            data = self.connection.recv(min(PIECE_SIZE, size))
        except BlockingIOError:
            return  # the selector was too hopeful
        except OSError:
            data, self.writes, self.outgoing = b"", False, memoryview(b"")  # reset
        if not data:
            self.reads = False
        if self.closed is not None:
            return  # after the end, bytes are read for the peer's sake
        if data:
            self.machine.receive_data(data)
        else:
            self.machine.receive_eof()

    def write(self) -> None:
        try:
            self.outgoing = self.outgoing[self.connection.send(self.outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self.writes, self.outgoing = False, memoryview(b"")
            self.machine.close()  # the peer takes nothing any more

    def linger(self, seconds: float) -> None:
        """Say our last words and that they were the last; read until the peer says so, too.

        To close a socket with unread bytes resets the connection, and what the peer has not
        read yet is lost.
        """
        give_up_at = time.monotonic() + seconds
        while (self.reads or self.writes) and time.monotonic() < give_up_at:
            if self.writes and not self.outgoing:
                self.writes = False
                try:
                    self.connection.shutdown(socket.SHUT_WR)
                except OSError:
                    return  # the connection is gone
            else:
                self.move(self.wait(give_up_at))

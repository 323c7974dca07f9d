"""The base of all replicators, which stand on another machine and on a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from culm.buffer import Buffer, check_buffer
from culm.effects import StoreWork
from culm.machine import Closed, Effect, Event, StreamMachine, Ticket

R = TypeVar("R")
M = TypeVar("M", bound=StreamMachine)
V = TypeVar("V", bound=Event)
F = TypeVar("F", bound=Effect[Any])


class DurableBase(StreamMachine[V | Closed], ABC, Generic[M, V, F]):
    """Drives a wire machine, `connection`, over a store that it reaches through effects.

    No byte is read while the store is behind, and the end of the connection is not reported
    until everything received is in the store.  If the store fails, the connection is given up.

    ``V`` and ``F`` are the unions of the events and of the effects that a subclass gives.

    A subclass says when the store is behind, and takes the connection's events (`_handle`).
    """

    def __init__(self, connection: M, *, work: StoreWork) -> None:
        self.connection = connection
        self._work = work
        self._next_told = cast("Callable[[], V | None]", work.next_event)
        self._closed: Closed | None = None  # of the connection, before it has come out
        self._ended = False

    @abstractmethod
    def _store_is_behind(self) -> bool:
        """Whether the store has to catch up before more is read."""

    @abstractmethod
    def _handle(self, event: Event) -> None:
        """Take an event of the connection, `Closed` included, which is the last."""

    def _at_rest(self) -> V | Closed | None:
        """The event due once the store has caught up and the connection has no more events."""
        return None

    def _over(self) -> None:
        """Release resources; called just before `Closed` is returned."""

    # Bytes.

    def receive_data(self, data: Buffer) -> None:
        check_buffer(data)
        self.connection.receive_data(b"" if self._work.has_failed else data)

    def receive_eof(self) -> None:
        self.connection.receive_eof()

    def read_size(self) -> int:
        """The bytes welcome now; 0 while the store is behind."""
        reads = self._closed is None and not self._store_is_behind()
        return self.connection.read_size() if reads else 0

    @property
    def trailing_data(self) -> bytes:
        return self.connection.trailing_data if self._ended else b""

    # Effects.

    def next_effect(self) -> F | None:
        """Take the next piece of work for the store."""
        return cast("F | None", self._work.next_effect())

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect; see `Durable.complete`."""
        self._work.complete(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """The store failed to do an effect: the connection is given up, with a goodbye.

        Received data that is not in the store is dropped; see `Durable.fail`.
        """
        self._work.fail(ticket, error)
        self._closed = self._closed or Closed()
        self.connection.close()

    # Events.

    def next_event(self) -> V | Closed | None:
        while not self._ended:
            event = self._next_told()
            if event is not None:
                return event
            if self._closed is not None:
                return self._finish()
            below = None if self._store_is_behind() else self.connection.next_event()
            if below is None:
                return self._at_rest()
            if isinstance(below, Closed):
                self._closed = below
            self._handle(below)
        return None

    def _finish(self) -> Closed | None:
        """End as soon as all received data is in the store."""
        if not self._work.all_told or self._work.unwritten_size:
            return None
        self._ended = True
        self._work.stop()  # answers that still come are of no use
        self._over()
        return self._closed

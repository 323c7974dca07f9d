"""The two combinators: `over` puts one machine inside another, `then` one after another."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from culm.buffer import Buffer, ReceiveBuffer
from culm.machine import Closed, Conduit, DataReceived, Event, StreamMachine

__all__ = ["over", "then"]


def over(lower: Conduit, upper: StreamMachine) -> StreamMachine:
    """Let `upper`'s bytes ride inside `lower`.

    Events of both come out in the order in which they happened; `DataReceived` of the
    lower machine goes up instead.  ``state`` is the upper machine's.  When the lower
    machine ends, the upper one sees the end of its stream; when the upper one ends,
    the lower one says goodbye.  One `Closed` comes out, with the error of whichever
    failed first.
    """
    return _Over(lower, upper)


def then(first: StreamMachine, build: Callable[[Event], StreamMachine | None]) -> StreamMachine:
    """Let another machine follow `first` on the same bytes.

    `build` is asked for every event of `first`; the machine it returns (the last one,
    if several) takes over as soon as `first` has closed without an error, and starts
    with `first`'s trailing data.  That `Closed` does not come out.  If there is no
    successor, or `first` failed, its `Closed` is the end.
    """
    return _Then(first, build)


class _Over:
    def __init__(self, lower: Conduit, upper: StreamMachine) -> None:
        self._lower = lower
        self._upper = upper
        self._lower_closed: Closed | None = None
        self._ended = False

    @property
    def state(self) -> Enum:
        return self._upper.state

    def next_event(self) -> Event | None:
        while not self._ended:
            event = self._upper.next_event()
            self._carry_down()
            if isinstance(event, Closed):
                self._ended = True
                self._lower.close()
                if self._lower_closed is not None and self._lower_closed.error is not None:
                    return self._lower_closed
                return event
            if event is not None:
                return event
            # Nothing left to do above: let the lower machine move one step, unless the
            # upper one asks for a pause.
            if self._lower_closed is not None or self._upper.read_size() == 0:
                return None
            event = self._lower.next_event()
            if isinstance(event, DataReceived):
                self._upper.receive_data(event.data)
            elif isinstance(event, Closed):
                self._lower_closed = event
                self._upper.receive_eof()
            else:
                return event
        return None

    def _carry_down(self) -> None:
        if self._lower_closed is None:
            data = self._upper.data_to_send()
            if data:
                self._lower.send_data(data)

    def receive_data(self, data: Buffer) -> None:
        self._lower.receive_data(data)

    def receive_eof(self) -> None:
        self._lower.receive_eof()

    def read_size(self) -> int:
        return self._lower.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        if not self._ended:
            self._carry_down()
        return self._lower.data_to_send(size_max)

    @property
    def trailing_data(self) -> bytes:
        return self._lower.trailing_data if self._ended else b""

    def close(self) -> None:
        self._upper.close()
        self._carry_down()


class _Then:
    def __init__(
        self, first: StreamMachine, build: Callable[[Event], StreamMachine | None]
    ) -> None:
        self._current = first
        self._build: Callable[[Event], StreamMachine | None] | None = build
        self._successor: StreamMachine | None = None
        self._earlier_output = ReceiveBuffer()
        self._eof = False
        self._closing = False

    @property
    def state(self) -> Enum:
        return self._current.state

    def next_event(self) -> Event | None:
        event = self._current.next_event()
        if self._build is None or event is None:
            return event
        successor = self._build(event)
        if successor is not None:
            self._successor = successor
        if not isinstance(event, Closed):
            return event
        self._build = None
        if event.error is not None or self._successor is None or self._closing:
            return event
        self._hand_over(self._successor)
        return self._current.next_event()

    def _hand_over(self, successor: StreamMachine) -> None:
        first, self._current = self._current, successor
        self._earlier_output.append(first.data_to_send())
        successor.receive_data(first.trailing_data)
        if self._eof:
            successor.receive_eof()

    def receive_data(self, data: Buffer) -> None:
        self._current.receive_data(data)

    def receive_eof(self) -> None:
        self._eof = True
        self._current.receive_eof()

    def read_size(self) -> int:
        return self._current.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        if not len(self._earlier_output):
            return self._current.data_to_send(size_max)
        size = len(self._earlier_output) if size_max is None else size_max
        earlier = self._earlier_output.take(size)
        rest = None if size_max is None else size_max - len(earlier)
        return earlier + self._current.data_to_send(rest)

    @property
    def trailing_data(self) -> bytes:
        return self._current.trailing_data

    def close(self) -> None:
        self._closing = True
        self._current.close()

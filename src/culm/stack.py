"""The two combinators: `over` puts one machine inside another, `then` one after another.

Both give a stream machine that has the time and the effects of its parts: its deadline is
the earliest of theirs, and it numbers their effects anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar

from culm.buffer import Buffer, check_buffer
from culm.effects import Tickets
from culm.machine import (
    Closed,
    Conduit,
    ContractErrorCode,
    DataReceived,
    Durable,
    Effect,
    Event,
    LocalProtocolError,
    Machine,
    RemoteProtocolError,
    StoreFailed,
    StreamMachine,
    Ticket,
    Timed,
    check_time,
)
from culm.timers import earliest

R = TypeVar("R")

# Bytes that go down at a time: the upper machine may still reorder the rest, and the lower one's
# memory does not fill up.
_CARRY_SIZE = 65536


class Stacked(StreamMachine, Timed, Durable, Protocol):
    """The machine that a combinator returns; it has time and effects if a part has them."""


def over(lower: Conduit, upper: StreamMachine) -> Stacked:
    """Let `upper`'s bytes ride inside `lower`.

    Events of both come out in the order in which they happened; `DataReceived` of the
    lower machine goes up instead.  ``state`` is the upper machine's.  When the lower
    machine ends, the upper one sees the end of its stream and is closed; when the upper
    one ends, the lower one says goodbye, and data that it still receives is dropped.  One
    `Closed` comes out: at once, with its error, if the upper machine failed first; otherwise
    when both have ended, with the lower one's error rather than the upper one's.

    Raises `TypeError` if an argument is not such a machine, or both are the same.
    """
    if not _is_machine(lower, Conduit):
        raise TypeError(f"{lower!r} is no conduit")
    if not _is_machine(upper, StreamMachine):
        raise TypeError(f"{upper!r} is no stream machine")
    if lower is upper:
        raise TypeError("a machine cannot be over itself")
    return _Over(lower, upper)


def then(first: StreamMachine, build: Callable[[Event], StreamMachine | None]) -> Stacked:
    """Let another machine follow `first` on the same bytes.

    `build` is asked for every event of `first`; the machine it returns (the last one,
    if several) takes over as soon as `first` has closed without an error, and starts
    with `first`'s trailing data and the time that `first` was told last.  That `Closed`
    does not come out.  If there is no successor, if `first` failed or if the user has
    closed it, its `Closed` is the end.

    ``next_event`` passes on an exception of `build`, and raises `TypeError` if the machine that
    it returns cannot follow: nothing has changed then, and `build` is asked for that event again.

    Raises `TypeError` if `first` is not a stream machine, or `build` cannot be called.
    """
    if not _is_machine(first, StreamMachine):
        raise TypeError(f"{first!r} is no stream machine")
    if not callable(build):
        raise TypeError(f"{build!r} builds nothing")
    return _Then(first, build)


def _is_machine(value: object, kind: type[Any]) -> bool:
    """Whether it is a machine; a class of machines has the methods, too, but is none."""
    return isinstance(value, kind) and not isinstance(value, type)


class _OfParts:
    """A machine of several parts: their time and their effects are its own."""

    def __init__(self) -> None:
        self._timed: list[Timed] = []
        self._durable: list[Durable] = []
        self._tickets: Tickets[tuple[Durable, Effect[Any]], Effect[Any]] = Tickets()
        self._failures: list[tuple[Effect[Any], StoreFailed]] = []  # by the parts' effects
        self._now: float | None = None

    def _add(self, part: Machine) -> None:
        if isinstance(part, Timed):
            self._timed.append(part)
            if self._now is not None:
                part.advance(self._now)
        if isinstance(part, Durable):
            self._durable.append(part)

    def next_deadline(self) -> float | None:
        return earliest(*(part.next_deadline() for part in self._timed))

    def advance(self, now: float) -> None:
        check_time(now, self._now)
        for part in self._timed:
            part.advance(now)
        self._now = now

    def next_effect(self) -> Effect[Any] | None:
        for part in self._durable:
            effect = part.next_effect()
            if effect is not None:
                return self._tickets.hand_out(partial(replace, effect), (part, effect))
        return None

    def complete(self, ticket: Ticket[R], result: R) -> None:
        part, effect = self._tickets.check(ticket, result)
        part.complete(effect.ticket, result)  # it may refuse a result that the effect accepts
        self._tickets.answered(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        failure, (part, effect) = self._tickets.failed(ticket, error)
        self._failures.append((effect, failure))
        part.fail(effect.ticket, error)

    def _event_of(self, part: Machine) -> Event | None:
        """The next event of `part`, with its effects numbered as they were handed out here."""
        event = part.next_event()
        if isinstance(event, StoreFailed):
            return next(failure for effect, failure in self._failures if effect is event.effect)
        return event


class _Over(_OfParts):
    def __init__(self, lower: Conduit, upper: StreamMachine) -> None:
        super().__init__()
        self._lower = lower
        self._upper = upper
        self._lower_closed: Closed | None = None
        self._upper_closed: Closed | None = None
        self._closed: Closed | None = None
        self._eof = False
        self._add(lower)
        self._add(upper)

    @property
    def state(self) -> Enum:
        return self._upper.state

    def next_event(self) -> Event | None:
        while self._closed is None:
            event = self._step_upper() if self._upper_closed is None else None
            if event is not None:
                return event
            if self._lower_closed is not None and self._upper_closed is not None:
                return self._end(self._lower_closed.error or self._upper_closed.error)
            if self._lower_closed is not None or self._pauses():
                return None
            # Nothing is left to do above: let the lower machine go one step further.
            event = self._event_of(self._lower)
            if isinstance(event, DataReceived):
                if self._upper_closed is None:
                    self._upper.receive_data(event.data)
            elif isinstance(event, Closed):
                self._lower_closed = event
                self._upper.receive_eof()
            else:
                return event
        return None

    def _step_upper(self) -> Event | None:
        event = self._event_of(self._upper)
        if event is None and self._lower_closed is not None:
            # It has seen all there was, and nothing that it says can be sent any more.
            self._upper.close()
            event = self._event_of(self._upper)
        if not isinstance(event, Closed):
            return event
        self._upper_closed = event
        if self._lower_closed is None:
            while data := self._upper.data_to_send(_CARRY_SIZE):
                self._lower.send_data(data)
            self._lower.close()
            if event.error is not None:
                return self._end(event.error)
        return None

    def _end(self, error: RemoteProtocolError | None) -> Closed:
        self._closed = Closed(error=error)
        return self._closed

    def _pauses(self) -> bool:
        return self._upper_closed is None and self._upper.read_size() == 0

    def receive_data(self, data: Buffer) -> None:
        if self._eof:
            raise LocalProtocolError(ContractErrorCode.DATA_AFTER_EOF)
        check_buffer(data)
        if self._closed is None or self._closed.error is None:
            self._lower.receive_data(data)

    def receive_eof(self) -> None:
        self._eof = True
        self._lower.receive_eof()

    def read_size(self) -> int:
        return self._lower.read_size() if self._closed is None else 0

    def data_to_send(self, size_max: int | None = None) -> bytes:
        pieces = [self._lower.data_to_send(size_max)]
        size = len(pieces[0])
        while self._lower_closed is None and self._upper_closed is None:
            wanted = None if size_max is None else size_max - size
            if wanted == 0:
                break
            data = self._upper.data_to_send(_CARRY_SIZE)
            if not data:
                break
            self._lower.send_data(data)
            pieces.append(self._lower.data_to_send(wanted))
            size += len(pieces[-1])
        return b"".join(pieces)

    @property
    def trailing_data(self) -> bytes:
        ended = self._closed is not None and self._closed.error is None
        return self._lower.trailing_data if ended else b""

    def close(self) -> None:
        self._upper.close()

    def next_deadline(self) -> float | None:
        return super().next_deadline() if self._closed is None else None


class _Then(_OfParts):
    def __init__(
        self, first: StreamMachine, build: Callable[[Event], StreamMachine | None]
    ) -> None:
        super().__init__()
        self._first: StreamMachine | None = None  # once it is over, while it has bytes to send
        self._current = first
        self._build: Callable[[Event], StreamMachine | None] | None = build
        self._event: Event | None = None  # of the first machine, while `build` is asked for it
        self._successor: StreamMachine | None = None
        self._eof = False
        self._closing = False
        self._add(first)

    @property
    def state(self) -> Enum:
        return self._current.state

    def next_event(self) -> Event | None:
        if self._build is None:
            return self._event_of(self._current)
        if self._event is None:
            self._event = self._event_of(self._current)
        if self._event is None:
            return None
        self._ask(self._build, self._event)
        event, self._event = self._event, None
        if not isinstance(event, Closed):
            return event
        self._build = None
        if event.error is not None or self._successor is None or self._closing:
            return event
        self._hand_over(self._successor)
        return self._event_of(self._current)

    def _ask(self, build: Callable[[Event], StreamMachine | None], event: Event) -> None:
        successor = build(event)
        if successor is None:
            return
        if not _is_machine(successor, StreamMachine):
            raise TypeError(f"{successor!r} is no stream machine")
        if successor is self._current:
            raise TypeError("a machine cannot follow itself")
        self._successor = successor

    def _hand_over(self, successor: StreamMachine) -> None:
        self._first, self._current = self._current, successor
        self._add(successor)
        successor.receive_data(self._first.trailing_data)
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
        if self._first is None:
            return self._current.data_to_send(size_max)
        pieces: list[bytes] = []
        left = size_max
        while piece := self._first.data_to_send(left):
            pieces.append(piece)
            left = None if left is None else left - len(piece)
        if left != 0:
            self._first = None
            pieces.append(self._current.data_to_send(left))
        return b"".join(pieces)

    @property
    def trailing_data(self) -> bytes:
        return self._current.trailing_data

    def close(self) -> None:
        self._closing = True
        self._current.close()

"""The contract that every machine of culm keeps.

One input, then drain: events until ``None``, then effects, then bytes, and so on until
a round brings nothing; then the deadline.  (Taking bytes makes room: a machine that
reads from a store as far as its peer can take it may have effects again.)  A machine
moves one step when an event is taken, so ``state`` is always the state as of the event
last returned, and a fault in a later frame never swallows an earlier event.

This module holds the vocabulary (events, effects, errors), the protocols by which a
driver sees a machine, and `StreamBase`, the common part of all stream machines.  It imports
nothing of culm but `culm.buffer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeGuard, TypeVar, runtime_checkable

from culm.buffer import Buffer, Outbox, ReceiveBuffer, check_buffer, check_size_max

__all__ = [
    "Buffer",
    "Closed",
    "Conduit",
    "ContractErrorCode",
    "DataReceived",
    "DatagramMachine",
    "Durable",
    "Effect",
    "Event",
    "Link",
    "LinkedMachine",
    "LocalProtocolError",
    "Machine",
    "ProtocolError",
    "ProtocolErrorCode",
    "RemoteProtocolError",
    "StoreFailed",
    "StreamBase",
    "StreamMachine",
    "Ticket",
    "Timed",
    "check_time",
]

R = TypeVar("R")

_TIME_MAX = 2.0**40

STAND_IN = "machine_behind"
"""The attribute by which stand-ins for machines and their handles are known (`culm.capture`)."""


class ProtocolErrorCode(IntEnum):
    """The kind of enum that every protocol's error codes are: the type of `ProtocolError.code`."""


class ContractErrorCode(ProtocolErrorCode):
    """Codes for breaking the contract of this module rather than a protocol's rule."""

    DATA_AFTER_EOF = 1
    UNKNOWN_TICKET = 2
    TIME_WENT_BACK = 3
    ALREADY_CLOSED = 4
    WRONG_RESULT = 5  # an answer that does not answer that effect
    NOT_A_TIME = 6  # NaN, an infinity, or beyond 2^40 seconds


class ProtocolError(Exception):
    """A broken rule, told apart by `code`, a member of the protocol's own enum.

    Errors compare by class, code and message, so that events which carry them
    compare by value.
    """

    def __init__(self, code: ProtocolErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        name = self.code.name.lower().replace("_", " ")
        return f"{name}: {self.message}" if self.message else name

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, ProtocolError)
        return (type(self.code), self.code, self.message) == (
            type(other.code),
            other.code,
            other.message,
        )

    def __hash__(self) -> int:
        return hash((type(self), self.code, self.message))


class LocalProtocolError(ProtocolError):
    """Raised: the caller broke a rule.  Nothing has changed."""


class RemoteProtocolError(ProtocolError):
    """Never raised to the caller: the peer broke a rule.  Carried by `Closed`."""

    def detached(self) -> RemoteProtocolError:
        """The error without its cause and traceback, which would keep frames alive."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that the peer, the clock or the store did.  Compared by value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(Event):
    """The last event, always and exactly once, whatever the end was."""

    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReceived(Event):
    """Bytes that a `Conduit` has carried up for the layer above."""

    data: bytes


class Ticket(int, Generic[R]):
    """The number of an effect that is answered with an ``R``.

    The parameter is for type checkers alone: with it, they reject ``complete(effect.ticket,
    result)`` where `result` does not answer that effect.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Generic[R]):
    """Work for the user's store, answered with an ``R`` or with the reason why there is none.

    That is ``complete(ticket, result)``, or ``fail(ticket, error)`` if the store could not
    do it.
    """

    ticket: Ticket[R]

    def accepts(self, result: object) -> TypeGuard[R]:
        """Whether `result` is an answer to this effect, as far as can be seen at once.

        The answer to an effect without a result is ``None``.
        """
        return result is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed(Event):
    """The store could not carry out an effect (`Durable.fail`).

    Nothing that depended on it leaves or counts as stored.

    error: the store's error; compared by identity, as exceptions are.
    """

    effect: Effect[Any]
    error: Exception


# The events of a machine, as a union, and the addresses of its peers.  Without parameters a machine
# gives any events, to any addresses: to say so takes a default, which Python 3.11 does not know.
if TYPE_CHECKING:
    import typing_extensions as ahead

    E_co = ahead.TypeVar("E_co", bound=Event, covariant=True, default=Event)
    A = ahead.TypeVar("A", bound=Hashable, default=Any)
else:
    E_co = TypeVar("E_co", bound=Event, covariant=True)
    A = TypeVar("A", bound=Hashable)


@runtime_checkable
class Machine(Protocol[E_co]):
    """The calls that a driver may make to any machine."""

    @property
    def state(self) -> Enum:
        """The state as of the last event that was returned."""
        ...

    def next_event(self) -> E_co | None:
        """Go one step further and return its event, or ``None``.  Never raises."""
        ...

    def close(self) -> None:
        """Say goodbye in an orderly way; `Closed` follows.  A second call has no effect."""
        ...


@runtime_checkable
class StreamMachine(Machine[E_co], Protocol[E_co]):
    """A machine over an ordered, reliable stream of bytes."""

    def receive_data(self, data: Buffer) -> None:
        """Buffer bytes from the peer.  Every chunking gives the same events.

        Raises `LocalProtocolError` (``DATA_AFTER_EOF``) after `receive_eof`.
        """
        ...

    def receive_eof(self) -> None:
        """The peer sends no more.  A message that is cut short leads to ``Closed(error)``.

        A second call has no effect.
        """
        ...

    def read_size(self) -> int:
        """How many bytes are welcome now; 0 means that reading should stop for the moment."""
        ...

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """Take at most `size_max` bytes for the peer (by default all that there are).

        A piece is empty only if nothing is left, or if `size_max` is 0, which takes nothing and
        changes nothing.  If `size_max` is given, it may be smaller although more is left: large
        bytes leave by themselves, as they are.  Raises `TypeError` or `ValueError` if that is not
        a size; nothing is taken then.
        """
        ...

    @property
    def trailing_data(self) -> bytes:
        """The bytes after this machine's end; empty before it and after an error."""
        ...


@runtime_checkable
class Conduit(StreamMachine[E_co], Protocol[E_co]):
    """A stream machine that carries bytes for a layer above it.

    Its data comes out as `DataReceived`, in whole units of its protocol, so that chunking does
    not show.
    """

    def send_data(self, data: Buffer) -> None:
        """Carry `data` to the peer's upper layer.

        Accepts it at any time until `close` is called or `Closed` is taken; a conduit that is
        not ready yet keeps it until it is.
        """
        ...


@runtime_checkable
class DatagramMachine(Machine[E_co], Protocol[E_co, A]):
    """A machine over datagrams that may be lost, duplicated and reordered."""

    def receive_datagram(self, data: Buffer, *, source: A) -> None:
        """Take in one datagram that came from the address `source`."""
        ...

    def datagrams_to_send(self) -> Sequence[tuple[A, bytes]]:
        """Take the datagrams to send, each with its destination."""
        ...


@runtime_checkable
class Link(Protocol):
    """One connection of a `LinkedMachine`: fed and emptied as a stream machine is.

    Its events are the machine's: they come out of the machine's `next_event`, in the machine's
    order.
    """

    @property
    def number(self) -> int:
        """The number of this link in the machine's events; it is never used again."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the machine is done with it: send the rest, then close the connection."""
        ...

    def receive_data(self, data: Buffer) -> None:
        """See `StreamMachine.receive_data`; no effect once the link is closed."""
        ...

    def receive_eof(self) -> None:
        """See `StreamMachine.receive_eof`."""
        ...

    def read_size(self) -> int:
        """See `StreamMachine.read_size`."""
        ...

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """See `StreamMachine.data_to_send`."""
        ...

    def close(self) -> None:
        """Give the connection up; the machine reports its end.  A second call has no effect."""
        ...


@runtime_checkable
class LinkedMachine(Machine[E_co], Protocol[E_co]):
    """Several links in one machine: a Raft node, a peer of many.

    A verb of the machine opens a link and returns it, when a connection has been accepted or
    made.  A driver gives one link's bytes, then drains the machine: events, effects, then the
    bytes of every link in `links_to_send`, in rounds until one brings nothing; then the
    deadline.  All links have ended before `Closed` comes.
    """

    @property
    def links(self) -> Sequence[Link]:
        """The links that have not ended, oldest first."""
        ...

    def links_to_send(self) -> Sequence[Link]:
        """Take the links that may have bytes to send, or have ended, since they were last taken.

        A driver that leaves bytes in a link, because its peer does not read, has to come back to
        that link itself.
        """
        ...


@runtime_checkable
class Timed(Protocol):
    """A machine for which time is an input (monotonic seconds)."""

    def next_deadline(self) -> float | None:
        """When `advance` is due at the latest; a pure query."""
        ...

    def advance(self, now: float) -> None:
        """Tell the time.

        Raises `LocalProtocolError`: ``TIME_WENT_BACK``, and ``NOT_A_TIME`` for NaN,
        infinities and times beyond 2^40 seconds.
        """
        ...


def check_time(now: float, last: float | None) -> None:
    """Raise `LocalProtocolError` unless the time `now` may follow `last`, if there is one.

    From 2^40 seconds on a float cannot tell milliseconds apart, so later times are refused.
    """
    if not -_TIME_MAX <= now <= _TIME_MAX:
        raise LocalProtocolError(ContractErrorCode.NOT_A_TIME, f"{now}")
    if last is not None and now < last:
        raise LocalProtocolError(ContractErrorCode.TIME_WENT_BACK, f"{now} after {last}")


@runtime_checkable
class Durable(Protocol):
    """A machine that leaves reading and writing to the user's store."""

    def next_effect(self) -> Effect[Any] | None:
        """Take the next piece of work for the store."""
        ...

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer the effect of that ticket.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET`` for a ticket not handed out or
        already answered, ``WRONG_RESULT`` if `result` does not answer that effect; the ticket
        stays open then.
        """
        ...

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """The store failed to do the effect, or did only part of it.

        Nothing that depended on it ever leaves or counts as stored; `StoreFailed` says
        so, and the machine's page says whether the machine ends or stays usable.  Raises
        `LocalProtocolError` as `complete` does (``WRONG_RESULT`` if `error` is not an exception).
        """
        ...


if TYPE_CHECKING:
    # By name, not only by its methods: mypy then tells a driver the events of a machine.
    class _StreamOf(StreamMachine[E_co], Protocol[E_co]): ...
else:

    class _StreamOf(Generic[E_co]):
        """The properties of a protocol would be in the way of attributes."""


class StreamBase(_StreamOf[E_co], ABC):
    """The base of stream machines: buffering, a single end, trailing data.

    ``E_co`` is the union of the events that a subclass gives, `Closed` included: it lets type
    checkers see whether a ``match`` has a case for each.

    A subclass provides `_step`, which reads from ``self._inbox`` and writes to
    ``self._outbox``, and handles the end of the stream (`_step_eof`) and how to say goodbye
    (`_goodbye`).  Its `state` is a property.
    """

    def __init__(self, *, receive_max: int) -> None:
        self._inbox = ReceiveBuffer()
        self._outbox = Outbox()
        self._receive_max = receive_max
        self._eof = False
        self._closing = False
        self._closed: Closed | None = None

    @abstractmethod
    def _step(self) -> E_co | Closed | None:
        """Take one step; ``None`` if nothing can happen before there is more input.

        Returning `Closed` ends the machine.  Raise `RemoteProtocolError` when the
        peer broke a rule.
        """

    @abstractmethod
    def _step_eof(self) -> E_co | Closed | None:
        """Handle the end of the stream when `_step` has nothing left to do.

        Return `Closed`, raise `RemoteProtocolError`, or return another event if one is
        still owed; ``None`` if the machine waits for something other than the peer.
        """

    @abstractmethod
    def _goodbye(self) -> None:
        """Write the orderly goodbye; `_step` returns `Closed` when it is due."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        """Release all memory; called just before `Closed` is returned."""

    def next_event(self) -> E_co | None:
        if self._closed is not None:
            return None
        try:
            event = self._step()
            if event is None and self._eof:
                event = self._step_eof()
        except RemoteProtocolError as error:
            event = Closed(error=error.detached())
        if isinstance(event, Closed):
            self._closed = event
            if event.error is not None:
                self._inbox.clear()
            self._ended(event.error)
        return event  # type: ignore[return-value]  # the union has `Closed`

    def receive_data(self, data: Buffer) -> None:
        if self._eof:
            raise LocalProtocolError(ContractErrorCode.DATA_AFTER_EOF)
        check_buffer(data)
        if self._closed is None or self._closed.error is None:
            self._inbox.append(data)

    def receive_eof(self) -> None:
        self._eof = True

    def read_size(self) -> int:
        if self._eof or self._closed is not None:
            return 0
        return max(0, self._receive_max - self._inbox.size)

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        return self._outbox.take_part(size_max)

    @property
    def trailing_data(self) -> bytes:
        return self._inbox.peek(self._inbox.size) if self._closed is not None else b""

    def close(self) -> None:
        if not self._closing and self._closed is None:
            self._closing = True
            self._goodbye()

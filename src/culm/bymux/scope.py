"""The scope of a packet: a stream, or the connection as a whole.

The fourth bit of the header makes the difference; Ping, Pong, Close and StopRead mean
the same on either side of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, TypeAlias

from culm.bymux.errors import ErrorCode
from culm.bymux.events import (
    CloseReceived,
    ConnectionEvent,
    CreationCredit,
    PingReceived,
    PongReceived,
    StopReadReceived,
)
from culm.bymux.initial import InitialState
from culm.bymux.packets import UINT64_MAX, PacketType
from culm.bymux.scheduler import Scheduler
from culm.bymux.states import ANSWERS, GLOBAL_RULES, HalfState, Rules
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError

_PlainEvent: TypeAlias = PingReceived | PongReceived | CloseReceived | StopReadReceived

_PLAIN_EVENTS: Final[Mapping[PacketType, type[_PlainEvent]]] = {
    PacketType.PING: PingReceived,
    PacketType.PONG: PongReceived,
    PacketType.CLOSE: CloseReceived,
    PacketType.STOP_READ: StopReadReceived,
}


class Scope(ABC):
    """The Close and StopRead of both endpoints, and the packets that they forbid."""

    __slots__ = ("_rules", "_scheduler", "local", "remote", "stream_id")

    def __init__(self, stream_id: int | None, rules: Rules, scheduler: Scheduler) -> None:
        self.stream_id = stream_id
        self.local = HalfState.OPEN
        self.remote = HalfState.OPEN
        self._rules = rules
        self._scheduler = scheduler

    @property
    def ended(self) -> bool:
        return self.local is self.remote is HalfState.ENDED

    def __str__(self) -> str:
        return "connection" if self.stream_id is None else f"stream {self.stream_id}"

    def refuse(self, code: ErrorCode, message: str = "") -> LocalProtocolError:
        """The error for something that the caller must not do here."""
        return LocalProtocolError(code, message or str(self))

    def blame(self, code: ErrorCode, message: str = "") -> RemoteProtocolError:
        """The error for something that the peer must not do here."""
        return RemoteProtocolError(code, message or str(self))

    def permit(self, packet_type: PacketType) -> HalfState:
        """Return our half's state after sending a packet of that type.

        Raises `LocalProtocolError` if the rules forbid sending one, or the connection has
        ended.
        """
        if self._scheduler.closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED, str(self))
        outcome = self._outcome(packet_type)
        if isinstance(outcome, ErrorCode):
            raise self.refuse(outcome)
        return outcome

    def may_send(self, packet_type: PacketType) -> bool:
        return not (self._scheduler.closed or isinstance(self._outcome(packet_type), ErrorCode))

    def send(self, packet_type: PacketType) -> None:
        """Let a Ping, Pong, Close or StopRead become due; from then on it counts as sent.

        Raises `LocalProtocolError` like `permit`.
        """
        self.local = self.permit(packet_type)
        self._scheduler.owe(self, packet_type)

    @property
    def ping_waits(self) -> bool:
        return self._scheduler.owes(self, PacketType.PING)

    def end(self) -> None:
        """Send Close and StopRead, unless they have been sent."""
        for packet_type in (PacketType.CLOSE, PacketType.STOP_READ):
            if self.may_send(packet_type):
                self.send(packet_type)

    def receive(self, packet_type: PacketType, amount: int | None) -> ConnectionEvent | None:
        """Check the peer's packet against the rules, take it in, and answer it.

        Raises `RemoteProtocolError`.
        """
        outcome = self._rules[self.remote][packet_type]
        if isinstance(outcome, ErrorCode):
            raise self.blame(outcome)
        self.remote = outcome
        event = self._take_in(packet_type, amount)
        answer = ANSWERS.get(packet_type)
        if answer is not None and self.may_send(answer):
            self.send(answer)
        return event

    def _outcome(self, packet_type: PacketType) -> HalfState | ErrorCode:
        """The rules' verdict on our sending a packet of that type now."""
        return self._rules[self.local][packet_type]

    def _take_in(self, packet_type: PacketType, amount: int | None) -> ConnectionEvent | None:
        """Apply an allowed packet, apart from changing the remote half."""
        if amount is None:
            return _PLAIN_EVENTS[packet_type](stream_id=self.stream_id)
        if packet_type is PacketType.CREDIT:
            return self._take_credit(amount)
        self._take_write(amount)
        return None

    @abstractmethod
    def _take_credit(self, amount: int) -> ConnectionEvent | None:
        """Add the peer's Credit to ours.  Raises `RemoteProtocolError`."""

    @abstractmethod
    def _take_write(self, amount: int) -> None:
        """Check a Write (a creation) against the peer's credit.

        Raises `RemoteProtocolError`.
        """


class GlobalScope(Scope):
    """The connection as a whole: who may still create how many streams."""

    __slots__ = ("local_credit", "remote_credit")

    def __init__(self, scheduler: Scheduler, *, initial: InitialState) -> None:
        super().__init__(None, GLOBAL_RULES, scheduler)
        self.local_credit = initial.local_creation_credit
        self.remote_credit = initial.remote_creation_credit
        if initial.creation_closed:
            self.local = self.remote = HalfState.ENDED

    @property
    def settled(self) -> bool:
        """Whether neither endpoint creates streams any more; the peer may still owe a StopRead."""
        return bool(self.local & self.remote & HalfState.CLOSED)

    def grant(self, count: int) -> None:
        """Let the peer create `count` streams more.  Raises `LocalProtocolError`."""
        self.permit(PacketType.CREDIT)
        if self.remote_credit + count > UINT64_MAX:
            raise self.refuse(ErrorCode.GLOBAL_CREDIT_OVERFLOW)
        self.remote_credit += count
        self._scheduler.owe(self, PacketType.CREDIT, count)

    def _take_credit(self, amount: int) -> ConnectionEvent | None:
        if self.local_credit + amount > UINT64_MAX:
            raise self.blame(ErrorCode.GLOBAL_CREDIT_OVERFLOW)
        self.local_credit += amount
        return CreationCredit(amount=amount) if amount else None

    def permit_creation(self) -> None:
        """Raise `LocalProtocolError` unless we may create a stream."""
        self.permit(PacketType.WRITE)
        if not self.local_credit:
            raise self.refuse(ErrorCode.CREATION_WITHOUT_CREDIT)

    def create(self, stream: Scope) -> None:
        """Let the creation of `stream` become due, for which `permit_creation` must hold."""
        self.local_credit -= 1
        self._scheduler.owe(stream, PacketType.WRITE)

    def _take_write(self, amount: int) -> None:
        if not self.remote_credit:
            raise self.blame(ErrorCode.CREATION_WITHOUT_CREDIT, f"stream {amount}")
        self.remote_credit -= 1

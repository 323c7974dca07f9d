"""HTTP/1.1 as a machine: h11 knows the protocol, this gives it culm's contract.

Two things are added.  A limit that no chunking changes: h11's own bites only while a message is
incomplete, so here h11 never gets more bytes of a message than the limit allows.  And refusals
that change nothing: an h11 connection that has refused to send something is of no further use,
so a copy is asked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any

import h11

from culm.arguments import check_numbers
from culm.machine import (
    Buffer,
    Closed,
    ContractErrorCode,
    Event,
    LocalProtocolError,
    ProtocolErrorCode,
    RemoteProtocolError,
    StreamBase,
)

__all__ = [
    "Connection",
    "ConnectionEvent",
    "ErrorCode",
    "Limits",
    "Requested",
    "Responded",
    "Role",
    "State",
]

Headers = Sequence[tuple[str, str]]

_PIECE_SIZE_MAX = 1024  # bytes given to h11 at a time, and perhaps given back
_OVER = {h11.MUST_CLOSE, h11.CLOSED}


class Role(Enum):
    CLIENT = 1
    SERVER = 2


class State(Enum):
    IDLE = 1
    BUSY = 2  # a request has not been answered yet
    CLOSED = 3


class ErrorCode(ProtocolErrorCode):
    """A server tells the peer's errors as statuses of HTTP."""

    OUT_OF_TURN = 1  # a request before the last is answered, or an answer to none
    NOT_HTTP = 2  # the bytes to send
    CUT_SHORT = 3
    MALFORMED = 400
    TOO_LARGE = 413
    NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Event):
    """The peer has sent a whole request; the next one comes when this is answered."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded(Event):
    """The peer has answered our request."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


ConnectionEvent = Requested | Responded | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a connection takes in.

    message_max
        Bytes of one message with its head, its body and all framing; about three times as much is
        kept in memory.
    """

    message_max: int = 1 << 20

    def __post_init__(self) -> None:
        check_numbers(self, low=1)


class Connection(StreamBase[ConnectionEvent]):
    """One end of a connection, which carries requests and their answers by turns."""

    def __init__(self, *, role: Role, limits: Limits | None = None) -> None:
        self.role = role
        self.limits = limits or Limits()
        self._state = State.IDLE
        super().__init__(receive_max=self.limits.message_max)
        self._h11 = h11.Connection(
            h11.CLIENT if role is Role.CLIENT else h11.SERVER,
            max_incomplete_event_size=self.limits.message_max,
        )
        self._given = 0  # bytes of the message under way that h11 has
        self._head: Any = None
        self._body = bytearray()

    @property
    def state(self) -> State:
        return self._state

    def request(
        self, method: str, target: str, *, headers: Headers = (), body: Buffer = b""
    ) -> None:
        """Ask something; a header ``Host`` is required.

        Raises `LocalProtocolError`: ``OUT_OF_TURN``, ``NOT_HTTP``, ``ALREADY_CLOSED``.
        """
        self._check_turn(self.role is Role.CLIENT and self._state is State.IDLE)
        length = [("Content-Length", str(len(body)))] if body else []
        self._send(
            lambda: h11.Request(method=method, target=target, headers=[*headers, *length]), body
        )
        self._state = State.BUSY

    def respond(self, status: int, *, headers: Headers = (), body: Buffer = b"") -> None:
        """Answer the request.  Raises as `request` does."""
        self._check_turn(self._owes_answer)
        length = ("Content-Length", str(len(body)))
        self._send(lambda: h11.Response(status_code=status, headers=[*headers, length]), body)
        self._state = State.IDLE
        self._start_next_cycle()

    @property
    def _owes_answer(self) -> bool:
        return self.role is Role.SERVER and self._state is State.BUSY

    def _check_turn(self, is_ours: bool) -> None:
        if self._closing or self._closed is not None or self._is_over():
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if not is_ours:
            raise LocalProtocolError(ErrorCode.OUT_OF_TURN)

    def _send(self, make_head: Any, body: Buffer) -> None:
        trial = deepcopy(self._h11)
        try:
            parts = [make_head(), h11.Data(data=bytes(memoryview(body))), h11.EndOfMessage()]
            sent = [trial.send(part) or b"" for part in parts]
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise LocalProtocolError(ErrorCode.NOT_HTTP, str(error)) from None
        self._h11 = trial
        for data in sent:
            self._outbox.append(data)

    def _start_next_cycle(self) -> None:
        if self._h11.our_state is self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()

    def _is_over(self) -> bool:
        """Whether HTTP ends here: by ``Connection: close``, or as another protocol follows."""
        if h11.SWITCHED_PROTOCOL in self._h11.states.values():
            return True
        return self._state is State.IDLE and self._h11.our_state in _OVER

    def _step(self) -> Requested | Responded | Closed | None:
        while not (self._closing or self._is_over()):
            if self._owes_answer:
                return None
            match self._next():
                case h11.Request() | h11.Response() as head:
                    if self.role is Role.CLIENT and self._state is State.IDLE:
                        raise RemoteProtocolError(ErrorCode.OUT_OF_TURN)
                    self._head = head
                    if self._h11.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        self._outbox.append(self._h11.send(go_on))
                case h11.InformationalResponse():
                    pass
                case h11.Data(data=data):
                    self._body += data
                case h11.EndOfMessage():
                    return self._message()
                case h11.ConnectionClosed():
                    return Closed()
                case _:  # h11 needs more
                    if not self._give():
                        return None
        return Closed()

    def _next(self) -> Any:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            _, has_ended = self._h11.trailing_data
            code = ErrorCode.CUT_SHORT if has_ended else ErrorCode.MALFORMED
            if error.error_status_hint == ErrorCode.NOT_IMPLEMENTED:
                code = ErrorCode.NOT_IMPLEMENTED
            raise RemoteProtocolError(code) from None

    def _give(self) -> bool:
        """Give h11 more of the message, if there is more."""
        room = self.limits.message_max - self._given
        if not room:
            raise RemoteProtocolError(ErrorCode.TOO_LARGE)
        data = self._inbox.take(min(room, _PIECE_SIZE_MAX))
        if data:  # to h11, none is the end of the stream
            self._h11.receive_data(data)
            self._given += len(data)
        return bool(data)

    def _message(self) -> Requested | Responded:
        head, body = self._head, bytes(self._body)
        self._head, self._body = None, bytearray()
        self._given = len(self._h11.trailing_data[0])
        headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
        if isinstance(head, h11.Response):
            self._state = State.IDLE
            self._start_next_cycle()
            return Responded(status=head.status_code, headers=headers, body=body)
        self._state = State.BUSY
        return Requested(
            method=head.method.decode(), target=head.target.decode(), headers=headers, body=body
        )

    def _step_eof(self) -> Requested | Responded | Closed | None:
        if self._owes_answer:
            return None
        self._h11.receive_data(b"")
        return self._step()

    def _goodbye(self) -> None:
        """HTTP has none."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        if error is None:
            rest = self._inbox.take(self._inbox.size)
            self._inbox.append(self._h11.trailing_data[0] + rest)
        elif self._h11.our_state in {h11.IDLE, h11.SEND_RESPONSE} and self.role is Role.SERVER:
            status = error.code if error.code >= 400 else ErrorCode.MALFORMED
            headers = [("Content-Length", "0"), ("Connection", "close")]
            self._outbox.append(self._h11.send(h11.Response(status_code=status, headers=headers)))
        self._state = State.CLOSED
        self._head, self._body = None, bytearray()

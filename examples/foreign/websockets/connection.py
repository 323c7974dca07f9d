"""The server's end of a WebSocket (RFC 6455) as a machine: wsproto knows the protocol.

wsproto gives a message in the pieces in which its bytes came.  Here it gets the head of the
handshake, and then each frame, only when all of it is there, and a frame that claims too much
is refused at its claim: so no chunking makes a difference.  (The client's end needs random masks,
which wsproto draws itself; a machine would have to be given them.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import wsproto.utilities
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Request,
    TextMessage,
)

from culm.arguments import check_numbers, check_text
from culm.machine import (
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
    "Opened",
    "Received",
    "State",
]

_FRAME_HEADER_MAX = 14
_ENDS_OF_HEAD = b"\n\r\n", b"\n\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class State(Enum):
    CONNECTING = 1
    OPEN = 2
    CLOSED = 3


class ErrorCode(ProtocolErrorCode):
    """The codes that RFC 6455, 7.4.1 gives to errors, and codes for the other errors."""

    NOT_OPEN = 1  # something was sent before the handshake
    NO_HANDSHAKE = 2
    CUT_SHORT = 3
    PROTOCOL_ERROR = 1002
    NOT_TEXT = 1007
    TOO_LARGE = 1009


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Event):
    """The handshake is done: the client wanted `target`."""

    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Event):
    """A whole message, text or bytes."""

    data: str | bytes


ConnectionEvent = Opened | Received | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a connection takes in, and has to say by itself.

    head_max
        Bytes of the handshake's head.
    message_max
        Bytes of a message; three times as many are in memory.
    pongs_max
        Bytes that wait to be sent when the next frame is read, as the peer does not read our pongs.
    """

    head_max: int = 8192
    message_max: int = 1 << 20
    pongs_max: int = 4096

    def __post_init__(self) -> None:
        check_numbers(self, low=1)


class Connection(StreamBase[ConnectionEvent]):
    """The server's end: the handshake is accepted, pings and the goodbye are answered."""

    def __init__(self, *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._state = State.CONNECTING
        most = max(self.limits.head_max, self.limits.message_max + _FRAME_HEADER_MAX)
        super().__init__(receive_max=most)
        self._ws = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self._message = bytearray()  # the one under way; of text, its UTF-8

    @property
    def state(self) -> State:
        return self._state

    def send(self, data: str | bytes) -> None:
        """Send a message of text or bytes.

        Raises `LocalProtocolError`: ``NOT_OPEN`` before the handshake, ``ALREADY_CLOSED``.
        """
        message: TextMessage | BytesMessage
        if isinstance(data, str):
            check_text("data", data)
            message = TextMessage(data=data)
        else:
            message = BytesMessage(data=bytes(memoryview(data)))
        if self._closing or self._state is State.CLOSED:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if self._state is State.CONNECTING:
            raise LocalProtocolError(ErrorCode.NOT_OPEN)
        self._outbox.append(self._ws.send(message))

    def _step(self) -> Opened | Received | Closed | None:
        if self._state is State.CONNECTING:
            return self._shake_hands()
        while not self._is_congested and (frame := self._take_frame()):
            self._ws.receive_data(frame)
            for event in self._ws.events():
                if (happened := self._on(event)) is not None:
                    return happened
        return None

    @property
    def _is_congested(self) -> bool:
        return self._outbox.size > self.limits.pongs_max

    def _shake_hands(self) -> Opened | Closed | None:
        if self._closing:
            return Closed()
        ends = [
            at + len(end)
            for end in _ENDS_OF_HEAD
            if (at := self._inbox.find(end, 0, self.limits.head_max)) >= 0
        ]
        if not ends:
            if self._inbox.size >= self.limits.head_max:
                raise RemoteProtocolError(ErrorCode.TOO_LARGE)
            return None
        try:
            self._ws.receive_data(self._inbox.take(min(ends)))
            (request,) = self._ws.events()
        except (wsproto.utilities.RemoteProtocolError, ValueError):  # the latter for names
            raise RemoteProtocolError(ErrorCode.NO_HANDSHAKE) from None
        assert isinstance(request, Request)
        self._outbox.append(self._ws.send(AcceptConnection()))
        self._state = State.OPEN
        return Opened(target=request.target)

    def _take_frame(self) -> bytes | None:
        """The next frame, once all of it is there."""
        head = self._inbox.peek(_FRAME_HEADER_MAX)
        if len(head) < 2:
            return None
        short, extra = head[1] & 0x7F, {126: 2, 127: 8}.get(head[1] & 0x7F, 0)
        if len(head) < 2 + extra:
            return None
        size = int.from_bytes(head[2 : 2 + extra], "big") if extra else short
        if len(self._message) + size > self.limits.message_max:
            raise RemoteProtocolError(ErrorCode.TOO_LARGE)
        end = 2 + extra + (4 if head[1] & 0x80 else 0) + size
        return self._inbox.take(end) if len(self._inbox) >= end else None

    def _on(self, event: wsproto.events.Event) -> Received | Closed | None:
        match event:
            case TextMessage() | BytesMessage():
                return self._on_part(event)
            case Ping():
                if not self._closing:
                    self._outbox.append(self._ws.send(event.response()))
            case CloseConnection():
                return self._on_close(event)
        return None

    def _on_part(self, event: TextMessage | BytesMessage) -> Received | None:
        is_text = isinstance(event, TextMessage)
        self._message += event.data.encode() if isinstance(event, TextMessage) else event.data
        if not event.message_finished:
            return None
        data, self._message = bytes(self._message), bytearray()
        return Received(data=data.decode() if is_text else data)

    def _on_close(self, event: CloseConnection) -> Closed:
        if self._ws.state is ConnectionState.REMOTE_CLOSING:
            self._outbox.append(self._ws.send(event.response()))
            return Closed()
        if self._ws.state is ConnectionState.CLOSED:
            return Closed()
        code = ErrorCode.NOT_TEXT if event.code == 1007 else ErrorCode.PROTOCOL_ERROR
        raise RemoteProtocolError(code, event.reason or "")

    def _step_eof(self) -> Closed | None:
        if self._is_congested:
            return None  # there may be frames to read
        if self._state is State.CONNECTING and not len(self._inbox):
            return Closed()
        raise RemoteProtocolError(ErrorCode.CUT_SHORT)  # a WebSocket ends with a goodbye

    def _goodbye(self) -> None:
        if self._state is State.OPEN:
            self._outbox.append(self._ws.send(CloseConnection(code=1000)))

    def _ended(self, error: RemoteProtocolError | None) -> None:
        if error is not None and self._state is State.CONNECTING:
            self._outbox.append(_BAD_REQUEST)
        elif error is not None and self._ws.state is ConnectionState.OPEN:
            code = max(error.code, ErrorCode.PROTOCOL_ERROR)
            self._outbox.append(self._ws.send(CloseConnection(code=code)))
        self._state = State.CLOSED
        self._message.clear()

"""One connection of frames: the dialler asks, the listener answers, in order."""

from __future__ import annotations

from collections import deque
from typing import Final

from culm.arguments import check_type
from culm.garlic.errors import ErrorCode
from culm.garlic.events import ConnectionEvent, RequestReceived, ResponseReceived
from culm.garlic.limits import Limits
from culm.garlic.messages import (
    REQUEST_HEADER_SIZE,
    RESPONSE_OF,
    RESPONSE_SIZE,
    MessageType,
    RequestFrame,
    ResponseFrame,
    is_request,
    message_type,
)
from culm.garlic.states import ConnectionRole, ConnectionState
from culm.machine import (
    Closed,
    ContractErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    StreamBase,
)

_DEFAULT_LIMITS: Final = Limits()


class Connection(StreamBase[ConnectionEvent]):
    """A stream machine of Garlic Farm's frames.

    role
        Dialler or listener.
    limits
        Bounds on frames, and on unanswered requests.

    Worst-case memory: one frame of ``limits.log_size_max`` being received, and
    ``limits.unanswered_max`` requests.
    """

    def __init__(self, *, role: ConnectionRole, limits: Limits = _DEFAULT_LIMITS) -> None:
        check_type("role", role, ConnectionRole)
        check_type("limits", limits, Limits)
        super().__init__(receive_max=REQUEST_HEADER_SIZE + limits.log_size_max)
        self._role = role
        self._limits = limits
        self._unanswered: deque[RequestFrame] = deque()
        self._was_full = False  # and not all answers have been taken since

    @property
    def role(self) -> ConnectionRole:
        return self._role

    @property
    def state(self) -> ConnectionState:
        if self._closed is not None:
            return ConnectionState.CLOSED
        return ConnectionState.CLOSING if self._closing else ConnectionState.OPEN

    @property
    def oldest(self) -> RequestFrame | None:
        """The request that the next response belongs to."""
        return self._unanswered[0] if self._unanswered else None

    @property
    def unanswered(self) -> int:
        """Requests that have no response yet."""
        return len(self._unanswered)

    @property
    def partial(self) -> bool:
        """Whether bytes have arrived that no event has reported yet."""
        return self._inbox.size > 0

    @property
    def unsent_size(self) -> int:
        """The number of bytes that `data_to_send` has not returned yet."""
        return self._outbox.size

    @property
    def full(self) -> bool:
        """Whether a listener reads no request before all answers have been taken.

        It waits for all of them so that its reading does not depend on the pieces in which they
        are taken.
        """
        untaken = (self._outbox.size + RESPONSE_SIZE - 1) // RESPONSE_SIZE
        return self._was_full or len(self._unanswered) + untaken >= self._limits.unanswered_max

    def data_to_send(self, size_max: int | None = None) -> bytes:
        full = self._outbox.size > 0 and self._role is ConnectionRole.LISTENER and self.full
        data = super().data_to_send(size_max)
        self._was_full = full and self._outbox.size > 0
        return data

    def send_request(self, request: RequestFrame) -> None:
        """Queue a request.

        Raises `LocalProtocolError`: ``WRONG_STATE`` for a listener or a response's type;
        ``LOG_TOO_LARGE``; ``QUEUE_FULL``; ``ALREADY_CLOSED``.
        """
        check_type("request", request, RequestFrame)
        if self._role is not ConnectionRole.DIALLER or not is_request(request.type):
            raise LocalProtocolError(ErrorCode.WRONG_STATE, "only diallers ask")
        if self._closing or self._closed is not None:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if len(request.log) > self._limits.log_size_max:
            raise LocalProtocolError(ErrorCode.LOG_TOO_LARGE)
        if len(self._unanswered) >= self._limits.unanswered_max:
            raise LocalProtocolError(ErrorCode.QUEUE_FULL)
        self._outbox.append(request.encode())
        self._unanswered.append(request)

    def send_response(self, response: ResponseFrame) -> None:
        """Answer the oldest unanswered request.

        Raises `LocalProtocolError`: ``WRONG_STATE`` if none is unanswered or the type is not
        that request's, ``ALREADY_CLOSED``.
        """
        check_type("response", response, ResponseFrame)
        check_type("type of the response", response.type, MessageType)
        if self._closed is not None:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if self._role is not ConnectionRole.LISTENER or not self._unanswered:
            raise LocalProtocolError(ErrorCode.WRONG_STATE, "nothing to answer")
        if response.type is not RESPONSE_OF[self._unanswered[0].type]:
            raise LocalProtocolError(ErrorCode.WRONG_STATE, f"{response.type.name} answers")
        encoded = response.encode()
        self._unanswered.popleft()
        self._outbox.append(encoded)

    def _step(self) -> ConnectionEvent | None:
        if self._closing:
            return Closed()
        if self._role is ConnectionRole.LISTENER:
            return self._read_request()
        return self._read_response()

    def _read_request(self) -> ConnectionEvent | None:
        inbox = self._inbox
        if not inbox.size or self.full:
            return None
        kind = message_type(inbox[0])
        if not is_request(kind):
            raise RemoteProtocolError(ErrorCode.RESPONSE_AS_REQUEST, kind.name)
        if inbox.size < REQUEST_HEADER_SIZE:
            return None
        header = inbox.peek(REQUEST_HEADER_SIZE)
        log_size = RequestFrame.log_size(header, self._limits)
        if inbox.size < REQUEST_HEADER_SIZE + log_size:
            return None
        inbox.consume(REQUEST_HEADER_SIZE)
        request = RequestFrame.decode(header, inbox.take(log_size), self._limits)
        self._unanswered.append(request)
        return RequestReceived(request=request)

    def _read_response(self) -> ConnectionEvent | None:
        inbox = self._inbox
        if not inbox.size:
            return None
        kind: MessageType = message_type(inbox[0])
        if not self._unanswered or kind is not RESPONSE_OF[self._unanswered[0].type]:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_RESPONSE, kind.name)
        if inbox.size < RESPONSE_SIZE:
            return None
        response = ResponseFrame.decode(inbox.take(RESPONSE_SIZE), self._limits)
        return ResponseReceived(request=self._unanswered.popleft(), response=response)

    def _step_eof(self) -> ConnectionEvent | None:
        listens = self._role is ConnectionRole.LISTENER
        if len(self._inbox) and listens and self.full:
            return None  # whole requests may still be read once answers have gone out
        if len(self._inbox):
            raise RemoteProtocolError(ErrorCode.TRUNCATED, "the stream ends inside a frame")
        return Closed()

    def _goodbye(self) -> None:
        """Frames have no goodbye: the end of the stream is the goodbye."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._unanswered.clear()

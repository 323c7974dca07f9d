"""The machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from culm.arguments import check_type
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError, StreamBase
from culm.ssb.muxrpc.calls import (
    GOODBYE,
    HEADER_SIZE,
    Call,
    CallTable,
    Header,
    PacketSender,
    peek_header,
    take_value,
)
from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.events import (
    CallEnded,
    CallReceived,
    ConnectionEvent,
    ReplyReceived,
    ValueReceived,
)
from culm.ssb.muxrpc.limits import Limits
from culm.ssb.muxrpc.manifest import Manifest
from culm.ssb.muxrpc.requests import (
    BodyType,
    CallError,
    CallType,
    MalformedRequestError,
    Request,
    check_name,
    encode_echo,
    read_error,
    read_request,
)
from culm.ssb.muxrpc.states import CallState, Packet, State
from culm.ssb.v8json import JsonValue

_DEFAULT_LIMITS: Final = Limits()
_NOTHING: Final = Manifest()

_PACKETS: Final = {
    (False, False): Packet.REPLY,
    (False, True): Packet.FAILURE,
    (True, False): Packet.VALUE,
    (True, True): Packet.END,
}
_LAST_PACKETS: Final = frozenset({Packet.END, Packet.FAILURE})
_HEARING: Final = (CallState.RECEIVING, CallState.EXCHANGING)


class Connection(StreamBase[ConnectionEvent]):
    """Calls in both directions over one ordered, reliable byte stream.

    manifest
        The methods that the peer may call; all others are refused, without ending the connection.
    limits
        Bounds on the memory that the peer may make us use.

    Values are passed on as received: a body is not parsed before the event's `read`.

    `close` ends all streams with an error, as other peers do, and says goodbye; whatever the peer
    still sends is dropped until it says goodbye, too, or its bytes end.  If they end without a
    goodbye, that is an error, ``TRUNCATED``, unless we have said goodbye.
    """

    def __init__(self, *, manifest: Manifest = _NOTHING, limits: Limits = _DEFAULT_LIMITS) -> None:
        check_type("manifest", manifest, Manifest)
        check_type("limits", limits, Limits)
        super().__init__(receive_max=HEADER_SIZE + limits.body_size_max)
        self._manifest = manifest
        self._limits = limits
        self._sender = PacketSender(self._outbox)
        self._table = CallTable(self._sender, limits)

    @property
    def state(self) -> State:
        if self._closed is not None:
            return State.CLOSED if self._closed.error is None else State.FAILED
        return State.CLOSING if self._closing else State.OPEN

    @property
    def calls(self) -> Mapping[int, Call]:
        """The open calls, by number."""
        return MappingProxyType(self._table.calls)

    def call(self, number: int) -> Call:
        """An open call; raises `LocalProtocolError` (``UNKNOWN_CALL``)."""
        call = self._table.calls.get(number)
        if call is None:
            raise LocalProtocolError(ErrorCode.UNKNOWN_CALL, f"call {number}")
        return call

    def make_call(self, name: Sequence[str], call_type: CallType, *args: JsonValue) -> Call:
        """Call a method of the peer's, for example ``["ebt", "replicate"]``.

        `ReplyReceived` or `CallEnded` answers an async call; all others are streams, which end with
        `CallEnded`.

        Raises `LocalProtocolError` (``ALREADY_CLOSED``, ``NUMBERS_EXHAUSTED``), `TypeError` and
        `ValueError` for invalid names and arguments.
        """
        check_type("call_type", call_type, CallType)
        return self._table.make(Request(check_name(name), list(args), call_type))

    @property
    def is_full(self) -> bool:
        """Whether one more call of the peer would be refused: it has `Limits.calls_max`."""
        return self._table.is_full and not self._sender.closed

    def take_value(self, number: int) -> tuple[bytes, BodyType] | None:
        """The content of the next `ValueReceived`, if it is next: a fast path for many values.

        Returns body and type of a complete value in the stream of that call, if it is the next
        packet; otherwise ``None``, and `next_event` gives the next event, if any.
        """
        call = self._table.calls.get(number)
        if call is None or call.state not in _HEARING:
            return None
        return take_value(self._inbox, -number, self._limits.body_size_max)

    @property
    def send_size(self) -> int:
        """The bytes for which there is room now; 0: wait until some have been taken.

        It is a hint: larger values are accepted, too.
        """
        if self._sender.closed:
            return 0
        return max(0, self._limits.unsent_size_max - self.unsent_size)

    @property
    def unsent_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._outbox.size

    @property
    def half_sent_size(self) -> int:
        """Bytes of a packet that has come in part."""
        return self._inbox.size

    @property
    def is_held_up(self) -> bool:
        """Whether packets that have come wait until the peer takes answers."""
        return bool(self._inbox.size) and not self._answers_room

    @property
    def _answers_room(self) -> int:
        """Bytes of answers for which there is room."""
        if self._sender.answers > self._limits.answers_max:
            return 0
        return max(0, self._limits.answers_size_max - self._sender.answers_size)

    def read_size(self) -> int:
        return min(self._answers_room, super().read_size())

    def data_to_send(self, size_max: int | None = None) -> bytes:
        data = super().data_to_send(size_max)
        self._sender.taken(len(data))
        return data

    def _goodbye(self) -> None:
        self._table.end_all()
        self._sender.say_goodbye()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._sender.close()
        self._table.clear()

    def _step_eof(self) -> ConnectionEvent | None:
        if self._inbox.size:
            raise RemoteProtocolError(ErrorCode.TRUNCATED, "within a packet")
        if not self._closing:
            raise RemoteProtocolError(ErrorCode.TRUNCATED, "no goodbye")
        return Closed()

    def _step(self) -> ConnectionEvent | None:
        if self._table.given_up and not self._closing:
            return CallEnded(number=self._table.given_up.popleft())
        while (header := peek_header(self._inbox)) is not None:
            if self._sender.answers and not (self._answers_room or self._eof or self._closing):
                return None  # a small packet may have a large answer
            if not header.size and self._inbox.peek(HEADER_SIZE) == GOODBYE:
                self._inbox.consume(HEADER_SIZE)
                if not self._closing:
                    self._sender.say_goodbye()
                return Closed()
            self._check_size(header)
            if self._inbox.size < HEADER_SIZE + header.size:
                return None
            self._inbox.consume(HEADER_SIZE)
            body = self._inbox.take(header.size)
            if not self._closing:
                event = self._receive(header, body)
                if event is not None:
                    return event
        return None

    def _check_size(self, header: Header) -> None:
        """Raise `RemoteProtocolError` if the packet declares too large a body."""
        control = header.end or (header.number >= 0 and -header.number not in self._table.calls)
        size_max = self._limits.body_size_max
        if control and not self._table.is_refused(-header.number):
            size_max = min(size_max, self._limits.control_size_max)
        if header.size > size_max:
            raise RemoteProtocolError(ErrorCode.BODY_TOO_LARGE, f"{header.size} bytes")

    def _receive(self, header: Header, body: bytes) -> ConnectionEvent | None:
        packet = _PACKETS[header.stream, header.end]
        number = -header.number  # as in our packets
        if not number:
            return None  # a packet of no call, as JavaScript peers once sent them
        call = self._table.calls.get(number)
        if call is None:
            return self._receive_unknown(number, packet, header.type, body)
        was_ending = call.state is CallState.ENDING
        self._table.receive(call, packet)
        if packet in _LAST_PACKETS:
            return self._receive_last(call, packet, header.type, body, answered=was_ending)
        if was_ending:
            return None
        kind = ReplyReceived if packet is Packet.REPLY else ValueReceived
        return kind(number=number, body=body, type=BodyType(header.type))

    def _receive_last(
        self, call: Call, packet: Packet, body_type: int, body: bytes, *, answered: bool
    ) -> ConnectionEvent:
        error = read_error(body, body_type)
        if call.type is CallType.ASYNC:
            error = error or CallError("no reason given", "")
        elif not answered:
            self._sender.send(
                call.number, Packet.END, encode_echo(error), BodyType.JSON, answer=True
            )
        return CallEnded(number=call.number, failure=error)

    def _receive_unknown(
        self, number: int, packet: Packet, body_type: int, body: bytes
    ) -> ConnectionEvent | None:
        """Take a packet that belongs to no open call."""
        if number > 0:
            if not self._table.was_made(number):
                raise RemoteProtocolError(ErrorCode.UNKNOWN_CALL, f"call {number}")
            return None
        if self._table.is_refused(number):
            self._table.receive_refused(number, packet)
            return None
        if packet in _LAST_PACKETS:
            return None
        return self._receive_request(number, body_type, body, stream=packet is Packet.VALUE)

    def _receive_request(
        self, number: int, body_type: int, body: bytes, *, stream: bool
    ) -> ConnectionEvent | None:
        try:
            request = read_request(body, body_type, stream=stream)
        except MalformedRequestError as error:
            self._table.refuse(number, str(error), stream=stream)
            return None
        why = self._manifest.refusal(request.name, request.type)
        if why is None and not self._table.accept(number, request):
            why = "too many calls"
        if why is not None:
            self._table.refuse(number, why, stream=stream)
            return None
        return CallReceived(number=number, name=request.name, args=request.args, type=request.type)

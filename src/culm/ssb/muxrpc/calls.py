"""The open calls, and the packets sent in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from culm.arguments import check_type
from culm.buffer import NOTHING, Buffer, Outbox, Queue, ReceiveBuffer
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.limits import Limits
from culm.ssb.muxrpc.requests import (
    BodyType,
    CallError,
    CallType,
    Request,
    encode_end,
    encode_error,
    encode_request,
)
from culm.ssb.muxrpc.states import FIRST_STATES, OUR_RULES, PEER_RULES, CallState, Packet
from culm.ssb.v8json import JsonValue, stringify

HEADER_SIZE: Final = 9
GOODBYE: Final = bytes(HEADER_SIZE)
NUMBER_MAX: Final = 2**31 - 1
"""The last number that a request can have."""
BODY_SIZE_MAX: Final = 2**32 - 1

_LAYOUT: Final = Struct(">BIi")
_STREAM_FLAG: Final = 8
_END_FLAG: Final = 4
_TYPE_BITS: Final = 3


class Header(NamedTuple):
    """The header of a packet.

    number: the number of the request: positive if the sender has made it, negative in answers.
    type: the type of the body; 3 is invalid.
    """

    stream: bool
    end: bool
    type: int
    size: int
    number: int


def flags_of(flags: int) -> tuple[bool, bool, int]:
    """The first byte of a header: ``stream``, ``end`` and ``type``."""
    return bool(flags & _STREAM_FLAG), bool(flags & _END_FLAG), flags & _TYPE_BITS


_FLAGS: Final = tuple(map(flags_of, range(256)))
#: The body's type in packets with these flags that carry a value in a stream; ``None``: others.
_VALUE_TYPES: Final[tuple[BodyType | None, ...]] = tuple(
    BodyType(body_type) if stream and not end and body_type != _TYPE_BITS else None
    for stream, end, body_type in _FLAGS
)


def peek_header(inbox: ReceiveBuffer) -> Header | None:
    """The header at the beginning of `inbox`, ``None`` if it is incomplete.

    Raises `RemoteProtocolError` (``BAD_BODY_TYPE``).
    """
    if inbox.size < HEADER_SIZE:
        return None
    flags: int
    flags, size, number = _LAYOUT.unpack(inbox.peek(HEADER_SIZE))
    stream, end, body_type = _FLAGS[flags]
    if body_type == _TYPE_BITS:
        raise RemoteProtocolError(ErrorCode.BAD_BODY_TYPE, f"flags {flags:#04x}")
    return Header(stream, end, body_type, size, number)


def take_value(inbox: ReceiveBuffer, number: int, size_max: int) -> tuple[bytes, BodyType] | None:
    """Take the packet at the beginning of `inbox` if it is a complete value in that stream.

    number: the request's number in the packet.
    size_max: the greatest size of the body.
    """
    if inbox.size < HEADER_SIZE:
        return None
    flags: int
    flags, size, packet_number = _LAYOUT.unpack(inbox.peek(HEADER_SIZE))
    body_type = _VALUE_TYPES[flags]
    if body_type is None or packet_number != number or size > size_max:
        return None
    if inbox.size < HEADER_SIZE + size:
        return None
    body = inbox.peek(size, HEADER_SIZE)
    inbox.consume(HEADER_SIZE + size)
    return body, body_type


def encode_header(
    number: int, size: int, body_type: BodyType, *, stream: bool, end: bool = False
) -> bytes:
    """The header of a packet whose body has `size` bytes."""
    flags = body_type | (_STREAM_FLAG if stream else 0) | (_END_FLAG if end else 0)
    return _LAYOUT.pack(flags, size, number)


_STREAMING: Final = frozenset({CallState.SENDING, CallState.RECEIVING, CallState.EXCHANGING})
_STREAM_PACKETS: Final = frozenset({Packet.VALUE, Packet.END})
_LAST_PACKETS: Final = frozenset({Packet.END, Packet.FAILURE})
_PARENT_ENDED: Final = encode_error(CallError("unexpected end of parent stream"))


class PacketSender:
    """Writes packets, and counts the answers that the peer has not taken yet.

    answers, answers_size: their number, and their bytes.
    """

    __slots__ = ("_ends", "_outbox", "_taken_size", "_written_size", "answers_size", "closed")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._written_size = 0
        self._taken_size = 0
        # Answers: positions of their ends, and sizes.
        self._ends: deque[tuple[int, int]] = NOTHING
        self.answers_size = 0
        self.closed = False
        """Whether nothing more can be sent."""

    @property
    def answers(self) -> int:
        return len(self._ends)

    def send(
        self, number: int, packet: Packet, body: bytes, body_type: BodyType, *, answer: bool
    ) -> None:
        """Write a packet; `answer`: whether the peer has caused it."""
        size = len(body)
        header = encode_header(
            number, size, body_type, stream=packet in _STREAM_PACKETS, end=packet in _LAST_PACKETS
        )
        self._outbox.append(header)
        self._outbox.append(body)
        self._written_size += HEADER_SIZE + size
        if answer:
            if not self._ends:
                self._ends = deque()
            self._ends.append((self._written_size, HEADER_SIZE + size))
            self.answers_size += HEADER_SIZE + size

    def say_goodbye(self) -> None:
        self._outbox.append(GOODBYE)
        self.close()

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True

    def taken(self, size: int) -> None:
        """Note that the next `size` bytes are on their way."""
        self._taken_size += size
        ends = self._ends
        while ends and ends[0][0] <= self._taken_size:
            self.answers_size -= ends.popleft()[1]
            if not ends:
                self._ends = NOTHING


class CallTable:
    """The open calls by number, and those that were refused.

    given_up: calls that we have ended, and whose end by the peer we no longer await.
    """

    __slots__ = (
        "_calls",
        "_ended",
        "_last_number",
        "_limits",
        "_refused",
        "_theirs",
        "given_up",
        "sender",
    )

    def __init__(self, sender: PacketSender, limits: Limits) -> None:
        self.sender: Final = sender
        self._limits = limits
        self._calls: dict[int, Call] = {}
        self._refused: dict[int, None] = {}  # calls of the peer that owe an end, oldest first
        self._last_number = 0  # of ours
        self._theirs = 0  # calls of the peer among _calls
        # Those that we have ended, oldest first: of ours, and of the peer.
        self._ended: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self.given_up: Queue[int] = Queue()

    @property
    def calls(self) -> Mapping[int, Call]:
        return self._calls

    def make(self, request: Request) -> Call:
        """Send a request of ours.

        Raises `LocalProtocolError`: ``ALREADY_CLOSED``, ``NUMBERS_EXHAUSTED``.
        """
        body = encode_request(request)
        if self.sender.closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if self._last_number == NUMBER_MAX:
            raise LocalProtocolError(ErrorCode.NUMBERS_EXHAUSTED)
        self._last_number += 1
        call = Call(self, self._last_number, request)
        packet = Packet.REPLY if request.type is CallType.ASYNC else Packet.VALUE
        self.sender.send(call.number, packet, body, BodyType.JSON, answer=False)
        self._calls[call.number] = call
        return call

    def accept(self, number: int, request: Request) -> bool:
        """Take a request of the peer's, unless too many are open.

        number: negative, as in our answers.
        """
        if self.is_full:
            return False
        self._calls[number] = Call(self, number, request)
        self._theirs += 1
        return True

    @property
    def is_full(self) -> bool:
        """Whether one more call of the peer would be refused."""
        return self._theirs - len(self._ended[True]) >= self._limits.calls_max

    def refuse(self, number: int, why: str, *, stream: bool) -> None:
        """Answer a request of the peer's with an error, and remember a stream until its end."""
        body = encode_error(CallError(why))
        packet = Packet.END if stream else Packet.FAILURE
        self.sender.send(number, packet, body, BodyType.JSON, answer=True)
        if stream:
            self._drop_packets(number)

    def _drop_packets(self, number: int) -> None:
        """Drop further packets of a call; of too many calls the oldest are forgotten."""
        self._refused[number] = None
        if len(self._refused) > self._limits.unanswered_max:
            del self._refused[next(iter(self._refused))]

    def was_made(self, number: int) -> bool:
        """Whether the call `number` of ours has ever been made."""
        return number <= self._last_number

    def receive(self, call: Call, packet: Packet) -> None:
        """Apply a packet of the peer to its call, which may then be over.

        Raises `RemoteProtocolError`.
        """
        was_ending = call.state is CallState.ENDING
        call.receive(packet)
        if call.state is CallState.OVER:
            del self._calls[call.number]
            self._theirs -= call.number < 0
            if was_ending:
                del self._ended[call.number < 0][call.number]

    def is_refused(self, number: int) -> bool:
        """Whether the peer owes the end of a refused call."""
        return number in self._refused

    def receive_refused(self, number: int, packet: Packet) -> None:
        """Take a packet in a call that was refused."""
        if packet is Packet.END:
            self._refused.pop(number, None)

    def note_end(self, call: Call) -> None:
        """Note that we have ended a call: it is over, or the peer owes its end."""
        if call.state is CallState.OVER:
            del self._calls[call.number]
            self._theirs -= call.number < 0
            return
        ended = self._ended[call.number < 0]
        ended[call.number] = None
        if len(ended) > self._limits.unanswered_max and not self.sender.closed:
            self._give_up(next(iter(ended)))

    def _give_up(self, number: int) -> None:
        """Count a call that we have ended as over, although the peer has not answered."""
        del self._ended[number < 0][number]
        self._calls.pop(number).give_up()
        if number < 0:
            self._theirs -= 1
            self._drop_packets(number)
        self.given_up.append(number)

    def end_all(self) -> None:
        """End all streams, as peers do before their goodbye."""
        for call in list(self._calls.values()):
            if call.state in _STREAMING:
                call.send_packet(Packet.END, _PARENT_ENDED)

    def clear(self) -> None:
        self._calls.clear()
        self._refused.clear()
        self._ended = ({}, {})
        self.given_up.clear()
        self._theirs = 0


class Call:
    """One call of a `Connection`, as long as it lasts and after that.

    number: its number in events: positive if it is ours, negative if it is the peer's.

    Every method raises `LocalProtocolError`, and changes nothing, if the rules of the call forbid
    it (the code tells why), or if nothing more can be sent (``ContractErrorCode.ALREADY_CLOSED``).
    """

    __slots__ = ("_table", "name", "number", "state", "type")

    def __init__(self, table: CallTable, number: int, request: Request) -> None:
        self._table = table
        self.number = number
        self.name = request.name
        self.type = request.type
        self.state = FIRST_STATES[request.type][number < 0]

    def __repr__(self) -> str:
        return f"<Call {self.number} {'.'.join(self.name)} {self.state.name}>"

    def __str__(self) -> str:
        return f"call {self.number} of {'.'.join(self.name)}"

    @property
    def may_send(self) -> bool:
        """Whether a value may be sent now.

        It may not once the peer has ended the call, or said goodbye, even if no event has told so
        yet.
        """
        return not self._table.sender.closed and OUR_RULES[self.state][Packet.VALUE] is self.state

    def send(self, value: JsonValue) -> None:
        """Send a value in a stream, as JSON; a str is sent as text.

        Raises `LocalProtocolError`: ``EMPTY_BODY`` for an empty text, which peers take for a
        goodbye, ``UNEXPECTED_VALUE`` where only the peer sends, ``WRONG_PACKET`` in an async
        call, ``CALL_ENDED``; `TypeError` and `ValueError` for values that JSON does not have.
        """
        self.send_packet(Packet.VALUE, *_encode(value))

    def send_body(self, body: Buffer, body_type: BodyType = BodyType.JSON) -> None:
        """Send an encoded value, or bytes (``BodyType.BINARY``); see `send`."""
        self.send_packet(Packet.VALUE, _check_body(body, body_type), body_type)

    def reply(self, value: JsonValue) -> None:
        """Answer an async call of the peer, which ends it; see `send`."""
        self.send_packet(Packet.REPLY, *_encode(value))

    def reply_body(self, body: Buffer, body_type: BodyType = BodyType.JSON) -> None:
        """Answer with an encoded value, or bytes; see `send_body`."""
        self.send_packet(Packet.REPLY, _check_body(body, body_type), body_type)

    def end(self) -> None:
        """End a stream, after all values sent before.

        `CallEnded` follows when the peer has ended it, too; anything it sends until then is
        dropped.
        """
        self.send_packet(Packet.END, encode_end(None))

    def fail(self, error: CallError | str) -> None:
        """End a stream, or answer an async call, with an error."""
        if isinstance(error, str):
            error = CallError(error)
        check_type("error", error, CallError)
        packet = Packet.FAILURE if self.type is CallType.ASYNC else Packet.END
        self.send_packet(packet, encode_error(error))

    # For the connection

    def send_packet(self, packet: Packet, body: bytes, body_type: BodyType = BodyType.JSON) -> None:
        if self._table.sender.closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED, str(self))
        state = OUR_RULES[self.state][packet]
        if isinstance(state, ErrorCode):
            raise LocalProtocolError(state, str(self))
        if not body:
            raise LocalProtocolError(ErrorCode.EMPTY_BODY, str(self))
        answer = self.number < 0 and packet is not Packet.VALUE
        self._table.sender.send(self.number, packet, body, body_type, answer=answer)
        if state is not self.state:
            self.state = state
            self._table.note_end(self)

    def receive(self, packet: Packet) -> None:
        """Raises `RemoteProtocolError` for a packet that the peer may not send now."""
        outcome = PEER_RULES[self.state][packet]
        if isinstance(outcome, ErrorCode):
            raise RemoteProtocolError(outcome, str(self))
        self.state = outcome

    def give_up(self) -> None:
        """Await the peer's answer to our end no longer."""
        self.state = CallState.OVER


def _encode(value: JsonValue) -> tuple[bytes, BodyType]:
    if isinstance(value, str):
        return _encode_text(value), BodyType.TEXT
    return stringify(value).encode(), BodyType.JSON


def _encode_text(value: str) -> bytes:
    """Encode as UTF-8; half a surrogate pair becomes U+FFFD, as in Node.js."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _check_body(body: Buffer, body_type: BodyType) -> bytes:
    check_type("body_type", body_type, BodyType)
    data = body if isinstance(body, bytes) else memoryview(body).tobytes()
    if len(data) > BODY_SIZE_MAX:
        raise ValueError(f"a body has at most {BODY_SIZE_MAX} bytes")
    return data

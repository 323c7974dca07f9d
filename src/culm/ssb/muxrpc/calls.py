"""The open calls, and the packets sent in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from culm.buffer import Outbox
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.limits import Limits
from culm.ssb.muxrpc.packets import GOODBYE, HEADER_SIZE, NUMBER_MAX, BodyType, encode_header
from culm.ssb.muxrpc.requests import CallError, CallType, Request, encode_error, encode_request
from culm.ssb.muxrpc.states import FIRST_STATES, OUR_RULES, PEER_RULES, CallState, Packet

__all__ = ["CallScope", "CallTable", "Sender"]

_STREAMING: Final = frozenset({CallState.SENDING, CallState.RECEIVING, CallState.EXCHANGING})
_STREAM_PACKETS: Final = frozenset({Packet.VALUE, Packet.END})
_LAST_PACKETS: Final = frozenset({Packet.END, Packet.FAILURE})
_PARENT_ENDED: Final = encode_error(CallError("unexpected end of parent stream"))


class Sender:
    """Writes packets, and counts the answers that the peer has not taken yet.

    answers, answers_size: their number, and their bytes.
    """

    __slots__ = ("_ends", "_outbox", "_taken_size", "_written_size", "answers_size", "closed")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._written_size = 0
        self._taken_size = 0
        self._ends: deque[tuple[int, int]] = deque()  # answers: positions of their ends, and sizes
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
            number,
            size,
            body_type,
            stream=packet in _STREAM_PACKETS,
            end=packet in _LAST_PACKETS,
        )
        self._outbox.append(header)
        self._outbox.append(body)
        self._written_size += HEADER_SIZE + size
        if answer:
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


class CallTable:
    """The open calls by number, and those that were refused.

    given_up: calls of the peer that we have ended, and whose end we no longer await.
    """

    __slots__ = (
        "_ended",
        "_last_number",
        "_limits",
        "_refused",
        "_scopes",
        "_theirs",
        "given_up",
        "sender",
    )

    def __init__(self, sender: Sender, limits: Limits) -> None:
        self.sender: Final = sender
        self._limits = limits
        self._scopes: dict[int, CallScope] = {}
        self._refused: dict[int, None] = {}  # calls of the peer that owe an end, oldest first
        self._last_number = 0  # of ours
        self._theirs = 0  # calls of the peer among _scopes
        self._ended: dict[int, None] = {}  # those of them that we have ended, oldest first
        self.given_up: deque[int] = deque()

    @property
    def scopes(self) -> Mapping[int, CallScope]:
        return self._scopes

    def make(self, request: Request) -> CallScope:
        """Send a request of ours.

        Raises `LocalProtocolError`: ``ALREADY_CLOSED``, ``NUMBERS_EXHAUSTED``.
        """
        body = encode_request(request)
        if self.sender.closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if self._last_number == NUMBER_MAX:
            raise LocalProtocolError(ErrorCode.NUMBERS_EXHAUSTED)
        self._last_number += 1
        scope = CallScope(self, self._last_number, request)
        packet = Packet.REPLY if request.type is CallType.ASYNC else Packet.VALUE
        self.sender.send(scope.number, packet, body, BodyType.JSON, answer=False)
        self._scopes[scope.number] = scope
        return scope

    def accept(self, number: int, request: Request) -> bool:
        """Take a request of the peer's, unless too many are open.

        number: negative, as in our answers.
        """
        if self.is_full:
            return False
        self._scopes[number] = CallScope(self, number, request)
        self._theirs += 1
        return True

    @property
    def is_full(self) -> bool:
        """Whether one more call of the peer would be refused."""
        return self._theirs - len(self._ended) >= self._limits.calls_max

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

    def receive(self, scope: CallScope, packet: Packet) -> None:
        """Apply a packet of the peer to its call, which may then be over.

        Raises `RemoteProtocolError`.
        """
        was_ending = scope.state is CallState.ENDING
        if scope.receive(packet):
            del self._scopes[scope.number]
            if scope.number < 0:
                self._theirs -= 1
                if was_ending:
                    del self._ended[scope.number]

    def is_refused(self, number: int) -> bool:
        """Whether the peer owes the end of a refused call."""
        return number in self._refused

    def receive_refused(self, number: int, packet: Packet) -> None:
        """Take a packet in a call that was refused."""
        if packet is Packet.END:
            self._refused.pop(number, None)

    def note_end(self, scope: CallScope) -> None:
        """Note that we have ended a call: it is over, or the peer owes its end."""
        if scope.state is CallState.OVER:
            del self._scopes[scope.number]
            self._theirs -= scope.number < 0
        elif scope.number < 0:
            self._ended[scope.number] = None
            if len(self._ended) > self._limits.unanswered_max and not self.sender.closed:
                self._give_up(next(iter(self._ended)))

    def _give_up(self, number: int) -> None:
        """Count a call that we have ended as over, although the peer has not answered."""
        del self._ended[number]
        self._scopes.pop(number).give_up()
        self._theirs -= 1
        self._drop_packets(number)
        self.given_up.append(number)

    def end_all(self) -> None:
        """End all streams, as peers do before their goodbye."""
        for scope in list(self._scopes.values()):
            if scope.state in _STREAMING:
                scope.send(Packet.END, _PARENT_ENDED)

    def clear(self) -> None:
        self._scopes.clear()
        self._refused.clear()
        self._ended.clear()
        self.given_up.clear()
        self._theirs = 0


class CallScope:
    """The state of a call; its methods are explained at `culm.ssb.muxrpc.handles.Call`."""

    __slots__ = ("_table", "name", "number", "state", "type")

    def __init__(self, table: CallTable, number: int, request: Request) -> None:
        self._table = table
        self.number = number
        self.name = request.name
        self.type = request.type
        self.state = FIRST_STATES[request.type][number < 0]

    def permit(self, packet: Packet) -> CallState:
        """The state after we have sent a packet.  Raises `LocalProtocolError`."""
        if self._table.sender.closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED, str(self))
        outcome = OUR_RULES[self.state][packet]
        if isinstance(outcome, ErrorCode):
            raise LocalProtocolError(outcome, str(self))
        return outcome

    def send(self, packet: Packet, body: bytes, body_type: BodyType = BodyType.JSON) -> None:
        """Raises `LocalProtocolError`."""
        state = self.permit(packet)
        if not body:
            raise LocalProtocolError(ErrorCode.EMPTY_BODY, str(self))
        answer = self.number < 0 and packet is not Packet.VALUE
        self._table.sender.send(self.number, packet, body, body_type, answer=answer)
        if state is not self.state:
            self.state = state
            self._table.note_end(self)

    def receive(self, packet: Packet) -> bool:
        """Whether a packet of the peer ends the call.  Raises `RemoteProtocolError`."""
        outcome = PEER_RULES[self.state][packet]
        if isinstance(outcome, ErrorCode):
            raise RemoteProtocolError(outcome, str(self))
        self.state = outcome
        return outcome is CallState.OVER

    def give_up(self) -> None:
        """Await the peer's answer to our end no longer."""
        self.state = CallState.OVER

    def __str__(self) -> str:
        return f"call {self.number} of {'.'.join(self.name)}"

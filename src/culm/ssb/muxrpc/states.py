"""The packets that either side may send in a call: the rules as tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.requests import CallType


class State(Enum):
    """The state of a connection."""

    OPEN = "open"
    CLOSING = "closing"
    """We have said goodbye; the peer has not."""
    CLOSED = "closed"
    """Ended without an error."""
    FAILED = "failed"
    """Ended because the peer broke a rule."""


class CallState(Enum):
    """The packets that are due in a call."""

    AWAITED = "awaited"
    """The peer's reply to an async call of ours."""
    OWED = "owed"
    """Our reply to an async call of the peer's."""
    SENDING = "sending"
    """We may send values."""
    RECEIVING = "receiving"
    """The peer may send values."""
    EXCHANGING = "exchanging"
    """Both sides may send values."""
    ENDING = "ending"
    """We have ended it; packets of the peer are dropped until it answers."""
    OVER = "over"


class Packet(Enum):
    """The role of a packet in a call."""

    VALUE = "value"  # in a stream
    END = "end"  # of a stream, with or without an error
    REPLY = "reply"  # to an async call
    FAILURE = "failure"  # of an async call


FIRST_STATES: Final[Mapping[CallType, tuple[CallState, CallState]]] = {
    CallType.ASYNC: (CallState.AWAITED, CallState.OWED),
    CallType.SOURCE: (CallState.RECEIVING, CallState.SENDING),
    CallType.SINK: (CallState.SENDING, CallState.RECEIVING),
    CallType.DUPLEX: (CallState.EXCHANGING, CallState.EXCHANGING),
}
"""The first state of a call, by its type: for the side that makes it, and for the other one."""

Rules = Mapping[CallState, Mapping[Packet, CallState | ErrorCode]]
"""State -> packet -> the next state, or the rule broken."""

_VALUE, _END, _REPLY, _FAILURE = Packet
_AWAITED, _OWED, _SENDING, _RECEIVING, _EXCHANGING, _ENDING, _OVER = CallState
_WRONG = {_REPLY: ErrorCode.WRONG_PACKET, _FAILURE: ErrorCode.WRONG_PACKET}

PEER_RULES: Final[Rules] = {
    _AWAITED: {
        _VALUE: ErrorCode.WRONG_PACKET,
        _END: _OVER,  # a peer may take the call that it refuses for a stream
        _REPLY: _OVER,
        _FAILURE: _OVER,
    },
    _OWED: {
        _VALUE: ErrorCode.WRONG_PACKET,
        _END: ErrorCode.WRONG_PACKET,
        _REPLY: ErrorCode.WRONG_PACKET,
        _FAILURE: ErrorCode.WRONG_PACKET,
    },
    _SENDING: {_VALUE: ErrorCode.UNEXPECTED_VALUE, _END: _OVER, **_WRONG},
    _RECEIVING: {_VALUE: _RECEIVING, _END: _OVER, **_WRONG},
    _EXCHANGING: {_VALUE: _EXCHANGING, _END: _OVER, **_WRONG},
    _ENDING: {_VALUE: _ENDING, _END: _OVER, **_WRONG},
}
"""The packets that the peer may send in a call that is not over."""

OUR_RULES: Final[Rules] = {
    _AWAITED: dict.fromkeys(Packet, ErrorCode.WRONG_PACKET),
    _OWED: {
        _VALUE: ErrorCode.WRONG_PACKET,
        _END: ErrorCode.WRONG_PACKET,
        _REPLY: _OVER,
        _FAILURE: _OVER,
    },
    _SENDING: {_VALUE: _SENDING, _END: _ENDING, **_WRONG},
    _RECEIVING: {_VALUE: ErrorCode.UNEXPECTED_VALUE, _END: _ENDING, **_WRONG},
    _EXCHANGING: {_VALUE: _EXCHANGING, _END: _ENDING, **_WRONG},
    _ENDING: dict.fromkeys(Packet, ErrorCode.CALL_ENDED),
    _OVER: dict.fromkeys(Packet, ErrorCode.CALL_ENDED),
}
"""The packets that we may send in a call."""

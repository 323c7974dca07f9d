"""Who may send what in a call: the rules as tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from culm.ssb.muxrpc.errors import ErrorCode
from culm.ssb.muxrpc.requests import CallType

__all__ = [
    "FIRST_STATES",
    "OUR_RULES",
    "PEER_RULES",
    "CallState",
    "Packet",
    "State",
]


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
    """What is due in a call."""

    AWAITED = "awaited"
    """Of the peer: the reply to an async call of ours."""
    OWED = "owed"
    """Of us: the reply to an async call of the peer's."""
    SENDING = "sending"
    """We may send values."""
    RECEIVING = "receiving"
    """The peer may."""
    EXCHANGING = "exchanging"
    """Both may."""
    ENDING = "ending"
    """We have ended it; the peer has not answered.  What it sends until then is dropped."""
    OVER = "over"


class Packet(Enum):
    """What a packet does in a call."""

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
"""How a call of a type begins for who has made it, and for who was called."""

Rules = Mapping[CallState, Mapping[Packet, CallState | ErrorCode]]
"""State -> packet -> the next state, or the rule broken."""

_VALUE, _END, _REPLY, _FAILURE = Packet
_AWAITED, _OWED, _SENDING, _RECEIVING, _EXCHANGING, _ENDING, _OVER = CallState
_WRONG = {_REPLY: ErrorCode.WRONG_PACKET, _FAILURE: ErrorCode.WRONG_PACKET}

PEER_RULES: Final[Rules] = {
    _AWAITED: {
        _VALUE: ErrorCode.WRONG_PACKET,
        _END: _OVER,  # a peer may think that what it refuses is a stream
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
"""What the peer may send in a call that is not over."""

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
"""What we may send in a call."""

"""The rules of Close and StopRead as tables: who may send what.

One table serves both directions.  Looked up with what we have sent, it says what we may send;
looked up with what the peer has sent, it says what the peer may send.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from culm.bymux.errors import ErrorCode
from culm.bymux.packets import PacketType


class Role(IntEnum):
    """Which endpoint we are; the value is the last bit of the ids that it creates."""

    PROACTIVE = 0
    REACTIVE = 1

    @property
    def peer(self) -> Role:
        return Role(1 - self)


class State(Enum):
    """The state of a connection."""

    OPEN = "open"
    """Streams may still be created by one side at least."""
    SETTLED = "settled"
    """No stream will be created any more, as both sides have sent Close; those alive go on."""
    CLOSING = "closing"
    """`Connection.close` was called; the peer has not answered everything."""
    CLOSED = "closed"
    """Ended without an error."""
    FAILED = "failed"
    """Ended because the peer broke a rule."""


class HalfState(IntEnum):
    """The Close and StopRead that one endpoint has sent, for a stream or globally."""

    OPEN = 0
    CLOSED = 1
    """Close: it writes (creates) no more."""
    STOPPED = 2
    """StopRead: it grants no more credit."""
    ENDED = 3
    """Both."""


class StreamState(NamedTuple):
    """The two halves of a stream; it has ended when both have."""

    local: HalfState
    remote: HalfState

    @property
    def ended(self) -> bool:
        return self.local is self.remote is HalfState.ENDED


Rules = Mapping[HalfState, Mapping[PacketType, HalfState | ErrorCode]]
"""State of the sender's half -> packet type -> its next state, or the rule broken."""

_CREDIT, _WRITE, _PING, _PONG, _CLOSE, _STOP_READ = PacketType
_OPEN, _CLOSED, _STOPPED, _ENDED = HalfState

STREAM_RULES: Final[Rules] = {
    _OPEN: {
        _CREDIT: _OPEN,
        _WRITE: _OPEN,
        _PING: _OPEN,
        _PONG: _OPEN,
        _CLOSE: _CLOSED,
        _STOP_READ: _STOPPED,
    },
    _CLOSED: {
        _CREDIT: _CLOSED,
        _WRITE: ErrorCode.WRITE_AFTER_CLOSE,
        _PING: _CLOSED,
        _PONG: _CLOSED,
        _CLOSE: ErrorCode.SECOND_CLOSE,
        _STOP_READ: _ENDED,
    },
    _STOPPED: {
        _CREDIT: ErrorCode.CREDIT_AFTER_STOP_READ,
        _WRITE: _STOPPED,
        _PING: _STOPPED,
        _PONG: _STOPPED,
        _CLOSE: _ENDED,
        _STOP_READ: ErrorCode.SECOND_STOP_READ,
    },
    _ENDED: {
        _CREDIT: ErrorCode.CREDIT_AFTER_STOP_READ,
        _WRITE: ErrorCode.WRITE_AFTER_CLOSE,
        _PING: ErrorCode.PING_AFTER_END,
        _PONG: ErrorCode.PONG_AFTER_END,
        _CLOSE: ErrorCode.SECOND_CLOSE,
        _STOP_READ: ErrorCode.SECOND_STOP_READ,
    },
}
"""Packets that apply to one stream."""

_GLOBAL_FORMS: Final = {
    ErrorCode.CREDIT_AFTER_STOP_READ: ErrorCode.GLOBAL_CREDIT_AFTER_STOP_READ,
    ErrorCode.WRITE_AFTER_CLOSE: ErrorCode.CREATION_AFTER_CLOSE,
    ErrorCode.PING_AFTER_END: ErrorCode.GLOBAL_PING_AFTER_END,
    ErrorCode.PONG_AFTER_END: ErrorCode.GLOBAL_PONG_AFTER_END,
    ErrorCode.SECOND_CLOSE: ErrorCode.GLOBAL_SECOND_CLOSE,
    ErrorCode.SECOND_STOP_READ: ErrorCode.GLOBAL_SECOND_STOP_READ,
}

GLOBAL_RULES: Final[Rules] = {
    half: {
        packet_type: _GLOBAL_FORMS[outcome] if isinstance(outcome, ErrorCode) else outcome
        for packet_type, outcome in row.items()
    }
    for half, row in STREAM_RULES.items()
}
"""Global packets: the same rules, each broken in its global form."""

ANSWERS: Final[Mapping[PacketType, PacketType]] = {
    _PING: _PONG,
    _CLOSE: _STOP_READ,
    _STOP_READ: _CLOSE,
}
"""The answer to a packet, unless the rules forbid sending it (any more)."""

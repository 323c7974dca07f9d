"""Error codes, one for each rule that can be broken, and the life of a request as a table.

A request ends when four messages have been exchanged: a cancel on the control channel
and a marker on the data channel, each by both endpoints.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum

from culm.machine import ProtocolError, ProtocolErrorCode
from culm.wire.errors import DecodeError, Truncated


class ErrorCode(ProtocolErrorCode):
    """Which rule was broken.

    The same code is raised (`LocalProtocolError`) when the caller is about to break a
    rule, and carried by ``Closed`` (`RemoteProtocolError`) when the peer broke it.
    """

    # The connection
    MUX_VIOLATION = 2  # the multiplexer below failed; its error is in the message
    UNEXPECTED_EOF = 3
    PEER_SILENT = 4
    PEER_STALLED = 5

    # The control channel
    UNUSED_CONTROL_BYTE = 20
    CREDIT_OVERFLOW = 21
    NO_CREDIT = 22
    WRONG_ID_PARITY = 23
    ID_IN_USE = 24
    UNKNOWN_REQUEST = 25
    REQUEST_CANCELLED = 26
    CONFIRMATION_WITHOUT_EAGERNESS = 27
    END_BEFORE_START = 28
    UPPER_CERTPOOL_BEFORE_END = 29
    LOWER_CERTPOOL_AFTER_START = 30
    LOWER_CERTPOOL_NOT_IN_POOL = 31
    SIZE_MIN_DECREASED = 32
    SIZE_MAX_INCREASED = 33
    ZERO_SEQNUM = 34
    SPARSE_WITHOUT_END = 35
    BAD_HASH = 36
    BOGUS_PROOF = 37
    BAD_CANCEL_CONFIRMATION = 38
    NOT_CONFIRMED = 39
    SPARSE_END_FIXED = 40
    TOO_MANY_ADJUSTMENTS = 41
    ALREADY_CONFIRMED = 42

    # The data channel
    UNUSED_DATA_BYTE = 60
    SWITCH_TO_UNKNOWN_REQUEST = 61
    NO_CURRENT_REQUEST = 62
    ALREADY_MARKED_CANCELLED = 63
    PIECE_OUT_OF_TURN = 64
    PAST_END = 65
    PAYLOAD_SIZE_EXCEEDED = 66
    EAGERNESS_VIOLATED = 67
    SKIP_DISPROVED = 68
    PAYLOAD_MANDATORY = 69
    COMPRESSION_WINDOW = 70
    BAD_COMPRESSION = 71
    NON_CANONICAL = 72
    BACKLINK_MISSING = 73
    BACKLINK_REDUNDANT = 74
    INVALID_DATA = 75
    APOLOGY_IN_SAFE_MODE = 76
    APOLOGY_FOR_VALID_DATA = 77
    SECOND_APOLOGY = 78
    APOLOGY_OWED = 79
    CATCH_UP_ONLY = 80
    UNWANTED_PAYLOAD = 81
    EMPTY_PACKET = 82
    AFTER_END_OF_LOG = 83
    UNKNOWN_PAYLOAD_SIZE = 84
    INFLATION = 85


class Violation(ProtocolError):
    """A rule of the protocol is broken; the caller knows by which side."""

    code: ErrorCode


@contextmanager
def decoding(code: ErrorCode) -> Generator[None]:
    """Bytes that nothing can complete break the rule of that code; `Truncated` passes through."""
    try:
        yield
    except Truncated:
        raise
    except DecodeError as error:
        raise Violation(code, str(error)) from None


# States.


class State(Enum):
    """Where a connection stands."""

    SETUP = "waiting for the peer's setup"
    ESTABLISHED = "established"
    CLOSING = "closing"
    CLOSED = "closed"


class RequestState(Enum):
    """The state of a request, as far as the control channel is concerned."""

    PROPOSED_BY_US = "proposed by us"
    PROPOSED_BY_PEER = "proposed by peer"
    CONFIRMED = "confirmed"
    CANCELLING = "cancelling"  # we have cancelled, the peer has not
    CANCELLED = "cancelled"  # both have; markers may still be due
    ENDED = "ended"

    __hash__ = object.__hash__  # looked up for every packet: quicker than by name


class Input(Enum):
    """Inputs to the life of a request."""

    CONFIRM = "we confirm"
    ADJUST = "we adjust"
    CANCEL = "we cancel"
    SEND = "we send data"
    PEER_ADJUST = "peer adjusts"
    PEER_CANCEL = "peer cancels"
    PEER_CONFIRM_CANCEL = "peer confirms a cancel"
    PEER_DATA = "peer sends data"
    DROP = "dropped by the overlap rule"
    END = "all four messages exchanged"

    __hash__ = object.__hash__  # see `RequestState`


_S, _I, _E = RequestState, Input, ErrorCode

_OURS = (_I.CONFIRM, _I.ADJUST, _I.CANCEL, _I.SEND)
_PEERS = (_I.PEER_ADJUST, _I.PEER_CANCEL, _I.PEER_CONFIRM_CANCEL, _I.PEER_DATA)

# Cancelling it, as long as neither side has.
_CANCELS: dict[Input, RequestState | ErrorCode] = {
    _I.CANCEL: _S.CANCELLING,
    _I.PEER_CANCEL: _S.CANCELLED,
    _I.PEER_CONFIRM_CANCEL: _E.BAD_CANCEL_CONFIRMATION,
}

TRANSITIONS: dict[RequestState, dict[Input, RequestState | ErrorCode]] = {
    _S.PROPOSED_BY_US: {
        **_CANCELS,
        _I.CONFIRM: _E.UNKNOWN_REQUEST,
        _I.ADJUST: _S.PROPOSED_BY_US,
        _I.SEND: _E.NOT_CONFIRMED,
        _I.PEER_ADJUST: _S.CONFIRMED,
        _I.PEER_DATA: _S.PROPOSED_BY_US,  # data overtook the confirmation
        _I.DROP: _S.ENDED,
    },
    _S.PROPOSED_BY_PEER: {
        **_CANCELS,
        _I.CONFIRM: _S.CONFIRMED,
        _I.ADJUST: _E.NOT_CONFIRMED,
        _I.SEND: _E.NOT_CONFIRMED,
        _I.PEER_ADJUST: _S.PROPOSED_BY_PEER,
        _I.PEER_DATA: _E.NOT_CONFIRMED,
        _I.DROP: _S.ENDED,
    },
    _S.CONFIRMED: {
        **_CANCELS,
        _I.CONFIRM: _E.ALREADY_CONFIRMED,
        _I.ADJUST: _S.CONFIRMED,
        _I.SEND: _S.CONFIRMED,
        _I.PEER_ADJUST: _S.CONFIRMED,
        _I.PEER_DATA: _S.CONFIRMED,
    },
    _S.CANCELLING: {
        **dict.fromkeys(_OURS, _E.REQUEST_CANCELLED),
        _I.PEER_ADJUST: _S.CANCELLING,  # it crossed our cancel
        _I.PEER_CANCEL: _S.CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _S.CANCELLED,
        _I.PEER_DATA: _S.CANCELLING,
        _I.DROP: _S.ENDED,
    },
    _S.CANCELLED: {
        **dict.fromkeys((*_OURS, *_PEERS), _E.REQUEST_CANCELLED),
        _I.PEER_DATA: _S.CANCELLED,
        _I.END: _S.ENDED,
    },
    _S.ENDED: dict.fromkeys((*_OURS, *_PEERS), _E.UNKNOWN_REQUEST),
}


def after(state: RequestState, input: Input) -> RequestState:
    """The state that follows; raises `Violation` where the table has an error."""
    outcome = TRANSITIONS[state][input]
    if isinstance(outcome, ErrorCode):
        raise Violation(outcome, f"{input.value}: request is {state.value}")
    return outcome

"""The life of a request, as a table.

A request ends when four messages have been exchanged: a cancel on the control channel
and a marker on the data channel, each by both endpoints.
"""

from __future__ import annotations

from enum import Enum

from culm.point2point.errors import ErrorCode, Violation


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

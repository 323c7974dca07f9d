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

TRANSITIONS: dict[RequestState, dict[Input, RequestState | ErrorCode]] = {
    _S.PROPOSED_BY_US: {
        _I.CONFIRM: _E.UNKNOWN_REQUEST,
        _I.ADJUST: _S.PROPOSED_BY_US,
        _I.CANCEL: _S.CANCELLING,
        _I.SEND: _E.NOT_CONFIRMED,
        _I.PEER_ADJUST: _S.CONFIRMED,
        _I.PEER_CANCEL: _S.CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _E.BAD_CANCEL_CONFIRMATION,
        _I.PEER_DATA: _S.PROPOSED_BY_US,  # data overtook the confirmation
        _I.DROP: _S.ENDED,
    },
    _S.PROPOSED_BY_PEER: {
        _I.CONFIRM: _S.CONFIRMED,
        _I.ADJUST: _E.NOT_CONFIRMED,
        _I.CANCEL: _S.CANCELLING,
        _I.SEND: _E.NOT_CONFIRMED,
        _I.PEER_ADJUST: _S.PROPOSED_BY_PEER,
        _I.PEER_CANCEL: _S.CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _E.BAD_CANCEL_CONFIRMATION,
        _I.PEER_DATA: _E.NOT_CONFIRMED,
        _I.DROP: _S.ENDED,
    },
    _S.CONFIRMED: {
        _I.CONFIRM: _E.ALREADY_CONFIRMED,
        _I.ADJUST: _S.CONFIRMED,
        _I.CANCEL: _S.CANCELLING,
        _I.SEND: _S.CONFIRMED,
        _I.PEER_ADJUST: _S.CONFIRMED,
        _I.PEER_CANCEL: _S.CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _E.BAD_CANCEL_CONFIRMATION,
        _I.PEER_DATA: _S.CONFIRMED,
    },
    _S.CANCELLING: {
        _I.CONFIRM: _E.REQUEST_CANCELLED,
        _I.ADJUST: _E.REQUEST_CANCELLED,
        _I.CANCEL: _E.REQUEST_CANCELLED,
        _I.SEND: _E.REQUEST_CANCELLED,
        _I.PEER_ADJUST: _S.CANCELLING,  # it crossed our cancel
        _I.PEER_CANCEL: _S.CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _S.CANCELLED,
        _I.PEER_DATA: _S.CANCELLING,
        _I.DROP: _S.ENDED,
    },
    _S.CANCELLED: {
        _I.CONFIRM: _E.REQUEST_CANCELLED,
        _I.ADJUST: _E.REQUEST_CANCELLED,
        _I.CANCEL: _E.REQUEST_CANCELLED,
        _I.SEND: _E.REQUEST_CANCELLED,
        _I.PEER_ADJUST: _E.REQUEST_CANCELLED,
        _I.PEER_CANCEL: _E.REQUEST_CANCELLED,
        _I.PEER_CONFIRM_CANCEL: _E.REQUEST_CANCELLED,
        _I.PEER_DATA: _S.CANCELLED,
        _I.END: _S.ENDED,
    },
    _S.ENDED: {
        input: _E.UNKNOWN_REQUEST for input in _I if input is not _I.DROP and input is not _I.END
    },
}


def after(state: RequestState, input: Input) -> RequestState:
    """The state that follows; raises `Violation` where the table has an error."""
    outcome = TRANSITIONS[state][input]
    if isinstance(outcome, ErrorCode):
        raise Violation(outcome, f"{input.value}: request is {state.value}")
    return outcome

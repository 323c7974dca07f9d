"""Every state of a request with every possible input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from p2p_support import (
    Raw,
    adjust,
    cancel,
    entry,
    marker,
    metadata,
    proposal,
    propose,
    refuses,
    switch,
)

from culm.point2point import EVERYTHING, CancelReason, ErrorCode, Request, RequestState
from culm.point2point.errors import Violation
from culm.point2point.states import TRANSITIONS, Input, after

S, I = RequestState, Input  # noqa: E741
LOCAL = [I.CONFIRM, I.ADJUST, I.CANCEL, I.SEND]
REMOTE = [I.PEER_ADJUST, I.PEER_CANCEL, I.PEER_CONFIRM_CANCEL, I.PEER_DATA]


def reach(state: RequestState) -> tuple[Raw, Request]:
    """A request in that state; ours wherever there is a choice."""
    peer = Raw()
    if state is S.PROPOSED_BY_PEER:
        peer.control(propose(1))
        return peer, peer.connection.request(1)
    request = peer.connection.propose(proposal())
    if state is not S.PROPOSED_BY_US:
        peer.control(adjust(0, "all"))
    if state in (S.CANCELLING, S.ENDED):
        request.cancel(CancelReason.DO_NOT_RETRY)
    if state in (S.CANCELLED, S.ENDED):
        peer.control(cancel(0))
    if state is S.ENDED:
        peer.data(marker(0))
    assert request.state is state
    assert peer.code is None
    return peer, request


def verb(request: Request, input: Input) -> Callable[[], object]:
    return {
        I.CONFIRM: lambda: request.confirm(EVERYTHING),
        I.ADJUST: lambda: request.adjust(size_max=9),
        I.CANCEL: lambda: request.cancel(CancelReason.DO_NOT_RETRY),
        I.SEND: lambda: request.send_metadata(entry(1)),
    }[input]


def packets(request_id: int, input: Input) -> tuple[bytes, bytes]:
    """The peer's bytes on the control and on the data channel."""
    return {
        I.PEER_ADJUST: (adjust(request_id, "all"), b""),
        I.PEER_CANCEL: (cancel(request_id), b""),
        I.PEER_CONFIRM_CANCEL: (cancel(request_id, 131), b""),
        I.PEER_DATA: (b"", switch(request_id) + metadata(entry(1))),
    }[input]


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(S)
    for state, row in TRANSITIONS.items():
        assert {*LOCAL, *REMOTE} <= set(row)
        for input, outcome in row.items():
            if isinstance(outcome, ErrorCode):
                with pytest.raises(Violation) as caught:
                    after(state, input)
                assert caught.value.code is outcome
            else:
                assert after(state, input) is outcome


@pytest.mark.parametrize("input", LOCAL)
@pytest.mark.parametrize("state", list(S))
def test_what_we_do(state: RequestState, input: Input) -> None:
    peer, request = reach(state)
    outcome = TRANSITIONS[state][input]
    if isinstance(outcome, ErrorCode):
        refuses(peer.connection, outcome, verb(request, input))
    else:
        verb(request, input)()
        assert request.state is outcome


@pytest.mark.parametrize("input", REMOTE)
@pytest.mark.parametrize("state", list(S))
def test_what_the_peer_does(state: RequestState, input: Input) -> None:
    peer, request = reach(state)
    outcome = TRANSITIONS[state][input]
    if state is S.ENDED and input is I.PEER_DATA:
        outcome = ErrorCode.SWITCH_TO_UNKNOWN_REQUEST  # the first thing wrong
    control, data = packets(request.request_id, input)
    peer.control(control)
    peer.data(data)
    if isinstance(outcome, ErrorCode):
        assert peer.code is outcome
    else:
        assert peer.code is None
        assert request.state is outcome


@pytest.mark.parametrize("state", list(S))
def test_what_the_overlap_rule_does(state: RequestState) -> None:
    """It may drop exactly those requests that the other endpoint has not answered."""
    peer, request = reach(state)
    droppable = {S.PROPOSED_BY_US, S.PROPOSED_BY_PEER}
    assert (I.DROP in TRANSITIONS[state]) == (state in droppable | {S.CANCELLING})
    if state is S.PROPOSED_BY_PEER:
        peer.connection.propose(proposal())
    else:
        peer.control(propose(1))
    assert (request.state is S.ENDED) == (state in {S.PROPOSED_BY_PEER, S.ENDED})
    assert peer.code is None


def test_a_cancelled_proposal_that_was_not_answered_is_dropped() -> None:
    peer = Raw()
    request = peer.connection.propose(proposal(9))
    request.cancel(CancelReason.DO_NOT_RETRY)
    peer.control(propose(1, 3))
    assert request.state is S.ENDED
    assert peer.code is None


def test_markers_end_what_both_have_cancelled() -> None:
    ends = {state for state, row in TRANSITIONS.items() if I.END in row}
    assert ends == {S.CANCELLED}
    peer, request = reach(S.CANCELLED)
    peer.data(marker(0))
    assert request.state is S.ENDED

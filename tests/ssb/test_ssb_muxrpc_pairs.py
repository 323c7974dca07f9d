"""Every state of a call with every packet, from either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ssb_support import converse, events

from culm.machine import LocalProtocolError, RemoteProtocolError
from culm.ssb.muxrpc import (
    BodyType,
    Call,
    CallState,
    CallType,
    Closed,
    Connection,
    ErrorCode,
    Manifest,
    State,
)
from culm.ssb.muxrpc.calls import encode_header
from culm.ssb.muxrpc.states import FIRST_STATES, OUR_RULES, PEER_RULES, Packet

METHODS = Manifest({call_type.value: call_type for call_type in CallType})
FLAGS = {
    Packet.VALUE: {"stream": True, "end": False},
    Packet.END: {"stream": True, "end": True},
    Packet.REPLY: {"stream": False, "end": False},
    Packet.FAILURE: {"stream": False, "end": True},
}
ALIVE = [state for state in CallState if state is not CallState.OVER]

CALLS = [(call_type, is_ours) for call_type in CallType for is_ours in (True, False)]


def first_state(call_type: CallType, *, is_ours: bool) -> CallState:
    return FIRST_STATES[call_type][0 if is_ours else 1]


def opened(call_type: CallType, *, is_ours: bool) -> tuple[Connection, Connection, Call]:
    """We, the peer, and our handle on a call that one of us has made."""
    us, peer = Connection(manifest=METHODS), Connection(manifest=METHODS)
    caller = us if is_ours else peer
    caller.make_call([call_type.value], call_type)
    converse(us, peer)
    return us, peer, us.call(1 if is_ours else -1)


def in_state(
    state: CallState, call_type: CallType, *, is_ours: bool
) -> tuple[Connection, Connection, Call] | None:
    """The same in that state, if possible for such a call; the peer has not heard of an end."""
    us, peer, call = opened(call_type, is_ours=is_ours)
    if state is CallState.ENDING and call_type is not CallType.ASYNC:
        call.end()
        us.data_to_send()
    return (us, peer, call) if call.state is state else None


def verbs(call: Call) -> dict[Packet, Callable[[], Any]]:
    return {
        Packet.VALUE: lambda: call.send(1),
        Packet.END: call.end,
        Packet.REPLY: lambda: call.reply(1),
        Packet.FAILURE: lambda: call.fail("no"),
    }


def test_tables_have_every_pair() -> None:
    for rules, states in ((PEER_RULES, ALIVE), (OUR_RULES, CallState)):
        assert list(rules) == list(states)
        assert all(set(row) == set(Packet) for row in rules.values())


def test_who_may_send_values() -> None:
    """The names of the types say it."""
    sending = {CallType.SOURCE: {False}, CallType.SINK: {True}, CallType.DUPLEX: {True, False}}
    for call_type, is_ours in CALLS:
        state = first_state(call_type, is_ours=is_ours)
        may_send = is_ours in sending.get(call_type, ())
        may_receive = (not is_ours) in sending.get(call_type, ())
        assert (OUR_RULES[state][Packet.VALUE] is state) is may_send
        assert (PEER_RULES[state][Packet.VALUE] is state) is may_receive


@pytest.mark.parametrize("packet", Packet, ids=lambda packet: packet.name)
@pytest.mark.parametrize("state", ALIVE, ids=lambda state: state.name)
@pytest.mark.parametrize(("call_type", "is_ours"), CALLS)
def test_a_packet_of_the_peer(
    call_type: CallType, is_ours: bool, state: CallState, packet: Packet
) -> None:
    made = in_state(state, call_type, is_ours=is_ours)
    if made is None:
        assert first_state(call_type, is_ours=is_ours) is not state
        return
    us, _, call = made
    outcome = PEER_RULES[state][packet]
    body = b"true"
    us.receive_data(encode_header(-call.number, 4, BodyType.JSON, **FLAGS[packet]) + body)
    happened = events(us)
    if isinstance(outcome, ErrorCode):
        assert isinstance(happened[0], Closed)
        assert isinstance(happened[0].error, RemoteProtocolError)
        assert happened[0].error.code is outcome
        assert us.state is State.FAILED
    else:
        assert call.state is outcome
        assert (call.number in us.calls) is (outcome is not CallState.OVER)
        assert len(happened) == (state is not CallState.ENDING or packet is Packet.END)
        answered = packet is Packet.END and state not in (CallState.AWAITED, CallState.ENDING)
        assert bool(us.data_to_send()) is answered


@pytest.mark.parametrize("packet", Packet, ids=lambda packet: packet.name)
@pytest.mark.parametrize("state", CallState, ids=lambda state: state.name)
@pytest.mark.parametrize(("call_type", "is_ours"), CALLS)
def test_a_verb_of_ours(
    call_type: CallType, is_ours: bool, state: CallState, packet: Packet
) -> None:
    if state is CallState.OVER:
        us, peer, call = opened(call_type, is_ours=is_ours)
        peer_call = peer.call(-call.number)
        if call_type is CallType.ASYNC:
            (call if not is_ours else peer_call).reply(0)
        else:
            peer_call.end()
        converse(us, peer)
    else:
        made = in_state(state, call_type, is_ours=is_ours)
        if made is None:
            return
        us, _, call = made
    if packet is Packet.FAILURE and call_type is not CallType.ASYNC:
        return  # there is no verb for it: `fail` ends a stream
    outcome = OUR_RULES[state][packet]
    if isinstance(outcome, ErrorCode):
        with pytest.raises(LocalProtocolError) as caught:
            verbs(call)[packet]()
        assert caught.value.code is outcome
        assert call.state is state
        assert us.data_to_send() == b""
    else:
        verbs(call)[packet]()
        assert call.state is outcome
        assert us.data_to_send() != b""
        assert (call.number in us.calls) is (outcome is not CallState.OVER)

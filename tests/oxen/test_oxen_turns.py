"""Large messages that wait for a place: the messages about that, on both sides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oxen_large import (
    ALONE,
    FIRST,
    LAST,
    LIMITS,
    P,
    Q,
    R,
    acknowledge,
    begun,
    full,
    joined,
    let_in,
    one,
)
from oxen_support import ME, Table

from culm.machine import LocalProtocolError
from culm.oxen import (
    Delivered,
    FailReason,
    MessageReceived,
    PeerUnreachable,
    SendFailed,
    SendResumed,
    SendWaiting,
    Timing,
    Writable,
)
from culm.oxen.messages import (
    MessageAck,
    MessageData,
    Piece,
    Synchronize,
    Turn,
    read_message,
)


def test_one_that_finds_no_place_is_told_to_wait_and_then_to_come() -> None:
    """A new message has its turn after all waiting ones; the others' messages need no place."""
    table = full()
    assert not begun(table)
    table.tell_message(Q, one(1, FIRST, b"x"))
    assert table.messages(Q)[-1] == Turn(b"1", 1, False)
    table.tell_message(P, one(3, FIRST, b"next"))
    assert table.messages(P) == [Turn(b"1", 3, False)]
    table.tell_message(P, one(2, LAST, b"b"))
    assert table.messages(Q) == [Turn(b"1", 1, True)]
    id = table.tell_message(P, one(3, FIRST, b"next"))
    assert id not in table.acknowledged()
    assert begun(table)
    table.tell_message(Q, one(2, LAST, b"y"))
    assert table.messages(P) == [Turn(b"1", 3, True)]


@pytest.mark.parametrize("ends", ["forgotten", "restarted"])
def test_one_that_is_gone_is_not_told_that_there_is_a_place(ends: str) -> None:
    table = full()
    if ends == "forgotten":
        table.node.forget(Q)
    else:
        table.insist(Q, Synchronize(2**50, 2**50))
    table.said()
    table.tell_message(P, one(2, LAST, b"b"))
    assert not any(isinstance(message, Turn) for message in table.messages(Q))


def test_a_stream_keeps_its_place_while_nobody_waits() -> None:
    table = full()
    table.wait(100.0, alive=(P, Q))  # without asking again it has no turn any more
    id = table.tell_message(P, one(3, FIRST, b"next"))
    assert id in table.acknowledged()
    assert not begun(table)
    table.tell_message(P, one(2, LAST, b"b"))
    assert not begun(table)
    table.tell_message(P, one(4, LAST, b"d"))
    assert begun(table)
    data = [event.data for event in table.events() if isinstance(event, MessageReceived)]
    assert data == [b"ab", b"nextd"]


def test_who_does_not_come_loses_its_turn_to_the_next() -> None:
    table = full(Timing(redelivery_max_s=1.0))
    let_in(table, R, 0)
    table.tell_message(R, one(1, FIRST, b"r"))
    table.said()
    table.tell_message(P, one(2, LAST, b"b"))
    assert [type(message) for message in table.messages(Q)] == [Turn]
    table.wait(3.5, alive=(P, Q, R))
    id = table.tell_message(R, one(1, FIRST, b"r"))
    assert id not in table.acknowledged()
    table.wait(3.0, alive=(P, Q, R))
    assert Turn(b"1", 1, True) in table.messages(R)
    id = table.tell_message(R, one(1, FIRST, b"r"))
    assert id in table.acknowledged()


def test_what_waits_asks_again_ever_more_rarely() -> None:
    """Its first piece alone, until the peer says that it may come."""
    table = joined()
    number = table.node.send_in_order(P, bytes(3 * (ALONE - 1)))
    table.drain()
    start = answer_pieces(table, [])
    table.tell_message(P, Turn(b"1", start, False), id=0)
    assert table.events() == [SendWaiting(peer=P, message=number)]
    asked: list[float] = []
    while len(asked) < 15:
        table.wait(0.1, alive=(P, Q))
        sent = answer_pieces(table, asked)
        if sent:
            assert sent == start
            table.tell_message(P, Turn(b"1", start, False), id=0)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] < pauses[1]
    longest = pauses[4:]  # `redelivery_max_s`, give or take a fifth
    assert 3.9 < min(longest) < 4.8
    assert 5.2 < max(longest) < 6.2
    assert table.events() == []
    table.tell_message(P, Turn(b"1", start, True), id=0)
    (body,) = [body for body in table.bodies(MessageData, P) if b"m" in body.d]
    table.tell(P, MessageAck(ME, P, body.id))
    assert table.events() == [
        SendResumed(peer=P, message=number),
        Delivered(peer=P, message=number),
    ]


def answer_pieces(table: Table, asked: list[float]) -> int:
    """Acknowledge all pieces but the first; returns its number, or 0 if there is none."""
    found = 0
    for body in table.bodies(MessageData, P):
        message = read_message(body.d)
        assert isinstance(message, Piece)
        if message.position is FIRST:
            found = message.sequence
            if table.now not in asked:
                asked.append(table.now)
        else:
            table.tell(P, MessageAck(ME, P, body.id))
    return found


def test_what_fails_while_it_waits_is_said_to_fail() -> None:
    table = joined()
    number = table.node.send_in_order(P, bytes(3 * (ALONE - 1)))
    table.drain()
    table.tell_message(P, Turn(b"1", answer_pieces(table, []), False), id=0)
    table.wait(100.0, alive=(Q,))
    assert table.events() == [
        SendWaiting(peer=P, message=number),
        SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE),
        PeerUnreachable(peer=P),
    ]


@pytest.mark.parametrize("sequence", [0, 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("kind", [b"1", b"b"])
@pytest.mark.parametrize("has_come", [False, True])
def test_turns_that_nobody_asked_for_have_no_effect(
    sequence: int, kind: bytes, has_come: bool
) -> None:
    table = joined()
    number = table.node.send_in_order(P, bytes(3 * (ALONE - 1)))
    table.drain()
    first = read_message(table.bodies(MessageData, P)[0].d)
    assert isinstance(first, Piece)
    for each in (sequence, first.sequence + 1, first.sequence if kind == b"b" else sequence):
        table.tell_message(P, Turn(kind, each, has_come), id=0)
    assert table.events() == []
    assert table.node.peers()[P].queued == 3
    table.wait(3.0, alive=(P, Q))
    acknowledge(table, P)
    assert table.events() == [Delivered(peer=P, message=number)]


#: The actions of the node, its peer and the clock, each as a name and arguments.
KINDS = st.sampled_from([b"1", b"b"])
STEPS = st.one_of(
    st.tuples(st.just("say"), KINDS, st.sampled_from([1, ALONE + 1, 3 * ALONE])),
    st.tuples(st.just("turn"), KINDS, st.integers(0, 6), st.booleans()),
    st.tuples(st.just("answer"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 2.0])),
)


@example([("say", b"1", 3 * ALONE), ("say", b"1", ALONE + 1), ("turn", b"1", 4, False)])
@given(st.lists(STEPS, max_size=30))
def test_all_is_delivered_in_the_end_whatever_a_peer_has_said_of_turns(
    steps: list[tuple[Any, ...]],
) -> None:
    """About messages still to be sent, under way, or arrived, and about any of their pieces.

    In the example it has no place for one not yet begun.
    """
    table = Table(limits=replace(LIMITS, window_max=3, queue_max=99))
    let_in(table, P, 5_000)
    first = {b"1": table.starts[P].one + 1, b"b": table.starts[P].broadcast + 1}
    say = {b"1": partial(table.node.send_in_order, P), b"b": table.node.broadcast_in_order}
    sent: list[int] = []
    unanswered: list[MessageData] = []
    for step in [*steps, ("answer", 999)]:
        match step:
            case "say", kind, size:
                sent.append(say[kind](bytes(size)))
                table.drain()
            case "turn", kind, ahead, has_come:
                table.tell_message(P, Turn(kind, first[kind] + ahead, has_come), id=0)
            case "wait", seconds:
                table.wait(seconds, alive=(P,))
            case _, count:
                for body in unanswered[:count]:
                    table.tell(P, MessageAck(ME, P, body.id))
                del unanswered[:count]
        unanswered += table.bodies(MessageData, P)
    for _ in range(len(sent) + 1):
        table.wait(7.0, alive=(P,))  # longer than any pause
        acknowledge(table, P)
    assert table.node.peers()[P].queued == 0
    events = table.events()
    assert sorted(each.message for each in events if isinstance(each, Delivered)) == sent
    assert not any(isinstance(each, SendFailed) for each in events)


def test_what_waits_for_a_place_leaves_room_for_others() -> None:
    """A full queue belongs to its stream alone, and only broadcasts of that stream fail."""
    table = joined()
    large = table.node.broadcast_in_order(bytes(9 * (ALONE - 1)))
    table.drain()
    body, *others = table.bodies(MessageData, P)
    with pytest.raises(LocalProtocolError):
        table.node.send(P, b"no room")
    table.tell_message(P, Turn(b"b", body.d[b"s"], False), id=0)
    assert table.events()[1:] == [SendWaiting(peer=P, message=large)]
    for other in others:
        table.tell(P, MessageAck(ME, P, other.id))
    assert table.events() == [Writable(peer=P)]
    table.node.send(P, b"datagram")
    table.node.send_in_order(P, b"in order")
    small = []
    for _ in range(10):
        small.append(table.node.broadcast_in_order(b"small"))
        table.drain()
        for body in table.bodies(MessageData, Q):
            table.tell(Q, MessageAck(ME, Q, body.id))
    failed = [event for event in table.events() if isinstance(event, SendFailed)]
    missed = [event.message for event in failed if event.peer == P]
    assert missed == small[LIMITS.queue_max - 1 :]  # the first piece waits before them

"""Sentences of the specification that hide in the clauses of others."""

from __future__ import annotations

from random import Random

import pytest
from oxen_support import EPOCH, ME, Table

from culm.machine import Closed, ContractErrorCode, LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    Dialect,
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerState,
    State,
    Timing,
)
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    MessageAck,
    MessageData,
    OneToOne,
    Synchronize,
    read_message,
)

A, B, P = b"A", b"B", b"P"


def received(peer: bytes, data: bytes, delivery: Delivery) -> MessageReceived:
    return MessageReceived(peer=peer, data=data, delivery=delivery)


def test_a_started_cluster_is_one_of_one() -> None:
    table = Table()
    assert table.node.state is State.ACTIVE
    assert table.node.peers() == {}
    assert table.node.contacts() == {ME: {}}
    table.node.broadcast(b"to nobody")
    table.node.broadcast_in_order(b"to nobody")
    table.wait(30.0)
    assert table.events() == []
    assert table.said() == []
    table.node.leave()
    table.drain()
    assert table.events() == [Closed()]


def test_datagrams_come_in_any_order_and_perhaps_twice() -> None:
    table = Table()
    table.join(P)
    table.events()
    for data, id in ((b"2", 2), (b"1", 1), (b"2", 2)):
        table.tell_message(P, Datagram(data), id=id)
    assert table.events() == [received(P, data, Delivery.DATAGRAM) for data in (b"2", b"1", b"2")]
    assert table.acknowledged() == [2, 1, 2]


def test_our_acknowledgement_names_whose_message_it_was() -> None:
    """And returns the way the message came."""
    table = Table()
    for sid in (A, P):
        table.join(sid)
    table.tell(P, MessageData(ME, A, 9999, b"by way of P"))
    assert [(to, p.body) for to, p in table.sent if isinstance(p.body, MessageAck)] == [
        (P, MessageAck(to=A, fr=ME, id=9999))
    ]


def test_a_node_that_leaves_sends_nothing_more() -> None:
    table = Table()
    table.join(P)
    table.node.leave()
    table.drain()
    (last,) = table.bodies(MessageData)
    assert isinstance(read_message(last.d), Finalize)
    for send in (
        lambda: table.node.send(P, b"x"),
        lambda: table.node.send_in_order(P, b"x"),
        lambda: table.node.broadcast(b"x"),
        lambda: table.node.broadcast_in_order(b"x"),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            send()
        assert caught.value.code is ContractErrorCode.ALREADY_CLOSED
    table.wait(10.0, alive=(P,))
    assert {body.id for body in table.bodies(MessageData)} == {last.id}


def test_a_new_message_does_not_wait_for_an_old_one_to_be_due() -> None:
    """The old one comes every five seconds by now."""
    table = Table()
    table.join(P)
    table.node.send(P, b"old")
    table.wait(30.0, alive=(P,))
    while not any(body.d == b"old" for body in table.bodies(MessageData)):
        table.wait(0.1, alive=(P,))
    table.node.send(P, b"new")
    table.drain()
    assert [body.d for body in table.bodies(MessageData)] == [b"new"]


def test_one_stream_does_not_wait_for_the_other() -> None:
    table = Table()
    table.join(A, broadcast=10, one=20)
    table.events()
    table.tell_message(A, Broadcast(12, b"early"))
    table.tell_message(A, OneToOne(21, b"in time"))
    table.tell_message(A, OneToOne(23, b"early, too"))
    assert table.events() == [received(A, b"in time", Delivery.IN_ORDER)]
    assert table.node.peers()[A].early == 2
    table.tell_message(A, Broadcast(11, b"late"))
    assert table.events() == [
        received(A, data, Delivery.IN_ORDER_BROADCAST) for data in (b"late", b"early")
    ]
    assert table.node.peers()[A].early == 1


def test_numbers_of_the_upper_end_are_in_order() -> None:
    """64 bits with a sign hold them; one more is malformed, and does not wrap around."""
    table = Table()
    table.join(A, broadcast=2**63 - 3, one=2**63 - 3)
    table.events()
    for number in (2**63 - 1, 2**63 - 2):
        table.tell_message(A, OneToOne(number, b"%d" % number))
    table.tell_message(A, OneToOne(0, b"round"))
    assert table.events() == [
        received(A, b"%d" % number, Delivery.IN_ORDER) for number in (2**63 - 2, 2**63 - 1)
    ]


def test_who_is_learned_of_from_gossip_is_synchronized_with() -> None:
    """From rows and from columns; joined once that is done both ways."""
    table = Table()
    table.join(A)
    table.events()
    table.said()
    table.gossip(A, A={b"col": table.now}, row={b"A": table.now}, dead={b"A": table.now - 50})
    asked = {
        body.to: body
        for body in table.bodies(MessageData)
        if isinstance(read_message(body.d), Synchronize)
    }
    assert set(asked) == {b"col", b"row"}
    table.tell(A, MessageAck(ME, b"col", asked[b"col"].id))
    assert table.events() == []
    assert table.node.peers()[b"col"].state is PeerState.SYNCHRONIZING
    table.tell_message(b"row", Synchronize(0, 0))
    assert table.events() == []
    table.tell_message(b"col", Synchronize(0, 0))
    again = [body for body in table.bodies(MessageData) if body.to == b"col"]
    table.tell(b"col", MessageAck(ME, b"col", again[-1].id))
    assert table.events() == [PeerJoined(peer=b"col")]


def two(dialects: tuple[Dialect, Dialect]) -> dict[bytes, Node]:
    nodes = {
        sid: Node(me=sid, rng=Random(index), epoch=EPOCH, dialect=dialect)
        for index, (sid, dialect) in enumerate(zip((A, B), dialects, strict=True))
    }
    for node in nodes.values():
        node.advance(1.0)
    nodes[A].start()
    nodes[B].join(A)
    return nodes


def settle(nodes: dict[bytes, Node]) -> list[tuple[bytes, object]]:
    events: list[tuple[bytes, object]] = []
    busy = True
    while busy:
        busy = False
        for sid, node in nodes.items():
            while (event := node.next_event()) is not None:
                events.append((sid, event))
            for to, data in node.datagrams_to_send():
                assert isinstance(to, bytes)
                nodes[to].receive_datagram(data, source=sid)
                busy = True
    return events


@pytest.mark.parametrize("dialect", list(Dialect))
def test_two_nodes_speak_the_flat_dialect(dialect: Dialect) -> None:
    nodes = two((dialect, dialect))
    assert settle(nodes) == [(A, PeerJoined(peer=B)), (B, PeerJoined(peer=A))]
    nodes[A].send_in_order(B, b"one")
    nodes[A].broadcast_in_order(b"all")
    nodes[A].send(B, b"plain")
    got = [event for _, event in settle(nodes) if isinstance(event, MessageReceived)]
    assert sorted(event.data for event in got) == [b"all", b"one", b"plain"]
    nodes[B].leave()
    assert settle(nodes) == [(A, PeerLeft(peer=B, reason=LeaveReason.FINALIZED)), (B, Closed())]


def test_dialects_do_not_mix() -> None:
    nodes = two((Dialect.KEYED, Dialect.FLAT))
    assert settle(nodes) == []
    assert {view.state for node in nodes.values() for view in node.peers().values()} <= {
        PeerState.SYNCHRONIZING
    }
    assert nodes[B].peers()[A].queued == 1


def test_two_that_leave_at_once_deliver_what_they_announced() -> None:
    nodes = two((Dialect.KEYED, Dialect.KEYED))
    settle(nodes)
    for one, other in ((A, B), (B, A)):
        nodes[one].send_in_order(other, b"last of " + one)
        nodes[one].leave()
    events = settle(nodes)
    for one, other in ((A, B), (B, A)):
        mine = [event for sid, event in events if sid == one]
        assert received(other, b"last of " + other, Delivery.IN_ORDER) in mine
        assert mine[-1] == Closed()


def test_who_leaves_waits_for_acknowledgements_of_one_that_leaves_too() -> None:
    """It has finalized, and all its messages have come: yet ours may still be on their way."""
    table = Table()
    table.join(P, broadcast=0, one=0)
    table.events()
    table.node.send_in_order(P, b"last")
    table.node.leave()
    table.drain()
    last, goodbye = table.bodies(MessageData)
    assert isinstance(read_message(goodbye.d), Finalize)
    table.tell_message(P, Finalize(0, 0))
    assert table.events() == []
    table.tell(P, MessageAck(ME, P, goodbye.id))
    assert table.events() == []
    assert table.node.state is State.LEAVING
    table.tell(P, MessageAck(ME, P, last.id))
    assert table.events() == [
        Delivered(peer=P, message=1),
        PeerLeft(peer=P, reason=LeaveReason.FINALIZED),
        Closed(),
    ]


def test_a_given_up_peer_is_looked_for_and_then_forgotten() -> None:
    table = Table(timing=Timing(forget_s=600.0))
    table.join(P)
    table.wait(81.0)
    table.said()
    table.wait(595.0)
    assert [parcel for parcel in table.said(P) if parcel.ka is not None]
    assert P in table.node.peers()
    table.events()
    table.wait(10.0)
    assert table.events() == [PeerForgotten(peer=P)]
    assert P not in table.node.peers()
    assert P not in table.node.contacts()
    table.said()
    table.wait(30.0)
    assert table.said(P) == []


def test_who_is_out_of_reach_is_asked_ever_more_rarely() -> None:
    """But never more rarely than every `seek_max_s`."""
    table = Table()
    table.join(P)
    table.wait(100.0)
    asked = []
    for _ in range(3):
        table.said()
        table.wait(1200.0)
        asked.append(sum(parcel.ka is not None for parcel in table.said(P)))
    assert 15 <= asked[0] <= 30  # at 12 s, and later at 150 s
    assert all(5 <= count <= 6 for count in asked[1:])


def test_a_sign_of_one_that_was_given_up_is_asked_about_at_once() -> None:
    """It may be looking for us, as rarely as we look for it."""
    table = Table()
    table.join(P)
    table.wait(4000.0)
    assert table.node.peers()[P].state is PeerState.GIVEN_UP
    table.said()
    table.tell(P, ka=5)
    (answer,) = table.said(P)
    assert answer.kk == 5
    assert answer.ka is not None
    table.tell(P, kk=answer.ka)
    table.wait(1.1)
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING


def test_who_left_is_remembered_for_as_long_as_it_may_ask() -> None:
    """But no longer, and no more of them than peers."""
    table = Table(limits=Limits(peers_max=3, candidates_max=3))
    for index in range(5):
        sid = b"x%d" % index
        table.join(sid, one=5)
        table.tell_message(sid, Finalize(0, 5), id=index)
    assert len(table.node.contacts()) == 1 + 3
    table.said()
    table.wait(70.0)
    table.said()
    for index in range(5):
        table.tell_message(b"x%d" % index, Finalize(0, 5), id=index)
    assert table.acknowledged() == [2, 3, 4]
    table.wait(91.0)  # including those taken for new because of that
    assert table.node.contacts() == {ME: {}}


def test_who_left_and_comes_back_stays() -> None:
    table = Table()
    table.join(P, one=5)
    table.tell_message(P, Finalize(0, 5))
    table.events()
    table.join(P, one=2**50)
    assert table.events() == [PeerJoined(peer=P)]
    table.wait(120.0, alive=(P,))
    assert table.events() == []
    assert table.node.contacts()[ME][P] > table.node.unix_time - 10


@pytest.mark.parametrize("name", Timing.__dataclass_fields__)
def test_a_node_comes_to_rest_however_short_its_times_are(name: str) -> None:
    """No clock distinguishes such times, and yet the driver gets its turn."""
    for seed in range(8):
        node = Node(me=ME, rng=Random(seed), epoch=0.0, timing=Timing(**{name: 5e-324}))
        now = 1e9
        node.advance(now)
        node.join(P)
        for _ in range(50):
            while node.next_event() is not None:
                node.datagrams_to_send()
            deadline = node.next_deadline()
            assert deadline is not None
            assert deadline > now
            now = deadline
            node.advance(now)


@pytest.mark.parametrize("epoch", [float("nan"), float("inf"), -float("inf"), 1e18, -1e12])
def test_an_epoch_is_a_time(epoch: float) -> None:
    with pytest.raises(ValueError, match="epoch"):
        Node(me=ME, rng=Random(0), epoch=epoch)

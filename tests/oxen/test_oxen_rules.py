"""One test for each sentence of the specification that says what a node does.

The sentence stands in the test's docstring; the sections are those of the specification.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from oxen_support import EPOCH, ME, Table

from culm.machine import LocalProtocolError
from culm.oxen import (
    Delivery,
    DropReason,
    ErrorCode,
    FailReason,
    LeaveReason,
    MessageReceived,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    SendFailed,
    State,
    Timing,
)
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    Gossip,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
)

A, B, P, Q = b"A", b"B", b"P", b"Q"


@pytest.fixture
def table() -> Table:
    return Table()


def received(peer: bytes, data: bytes, delivery: Delivery) -> MessageReceived:
    return MessageReceived(peer=peer, data=data, delivery=delivery)


# -- High-level API ------------------------------------------------------------------------


def test_a_message_has_arrived(table: Table) -> None:
    table.join(P)
    table.events()
    table.tell_message(P, Datagram(b"hello"))
    assert table.events() == [received(P, b"hello", Delivery.DATAGRAM)]


def test_a_fresh_node_has_joined_the_cluster(table: Table) -> None:
    table.join(P)
    assert table.events() == [PeerJoined(peer=P)]


def test_a_node_is_voluntarily_leaving_the_cluster(table: Table) -> None:
    table.join(P, broadcast=5, one=7)
    table.events()
    table.tell_message(P, Finalize(5, 7))
    assert table.events() == [PeerLeft(peer=P, reason=LeaveReason.FINALIZED)]
    assert P not in table.node.peers()


def test_we_give_up_and_a_node_is_not_usefully_reachable(table: Table) -> None:
    table.join(P)
    table.events()
    table.wait(79.0)
    assert table.events() == []
    table.wait(2.0)
    assert table.events() == [PeerUnreachable(peer=P)]
    assert table.node.peers()[P].state is PeerState.GIVEN_UP


def test_a_previously_unreachable_node_is_now_reachable(table: Table) -> None:
    table.join(P)
    table.wait(90.0)
    table.events()
    table.contact(P)
    table.wait(1.0)
    table.accept(P, P)
    assert table.events() == [PeerReachable(peer=P)]


def test_join_a_cluster_asking_some_server_for_help(table: Table) -> None:
    table.node.join(P)
    table.drain()
    (to, parcel) = table.sent[0]
    assert to == P
    assert isinstance(parcel.body, MessageData)
    assert parcel.ka is not None


def test_a_server_asked_for_help_that_never_answers_is_unreachable(table: Table) -> None:
    table.node.join(P)
    table.wait(79.0)
    assert table.events() == []
    table.wait(3.0)
    assert table.events() == [PeerUnreachable(peer=P)]
    assert table.node.peers() == {}


def test_who_asks_again_does_not_wait_in_vain_for_one_that_forgets_it(table: Table) -> None:
    """Ours gets lost for long; then its user asks again: without our acknowledgement it goes on.

    Had it that, it would wait in vain once it is forgotten: nothing is sent again on either side.
    """
    asked = table.tell_message(P, Synchronize(0, 5))
    assert asked in table.acknowledged()
    table.wait(75.0)
    asked_again = table.tell_message(P, Synchronize(0, 5))
    assert asked_again not in table.acknowledged()
    table.wait(6.0)
    assert P not in table.node.peers()
    table.join(P, one=5)
    assert table.events() == [PeerJoined(peer=P)]


def test_who_asks_no_more_is_forgotten(table: Table) -> None:
    table.tell_message(P, Synchronize(0, 5))
    (ours,) = set(table.messages(P))
    assert isinstance(ours, Synchronize)
    table.wait(75.0)
    table.tell_message(P, Synchronize(0, 5, known=ours.one))
    table.wait(79.0)
    assert P in table.node.peers()
    table.wait(2.0)
    assert P not in table.node.peers()
    assert table.events() == []


def test_leave_the_cluster(table: Table) -> None:
    start = table.join(P)
    table.node.send_in_order(P, b"last")
    table.node.leave()
    table.drain()
    assert table.messages() == [
        OneToOne(start.one + 1, b"last"),
        Finalize(start.broadcast, start.one + 1),
    ]
    assert table.node.state is State.LEAVING


@pytest.mark.parametrize("acknowledged", [True, False])
def test_deliver_and_broadcast_a_datagram(table: Table, acknowledged: bool) -> None:
    for sid in (P, Q):
        table.join(sid)
    table.node.send(P, b"one", acknowledged=acknowledged)
    table.node.broadcast(b"all", acknowledged=acknowledged)
    table.drain()
    found = [(body.to, body.d, body.id is not None) for body in table.bodies(MessageData)]
    assert found == [
        (P, b"one", acknowledged),
        (P, b"all", acknowledged),
        (Q, b"all", acknowledged),
    ]


def test_deliver_in_order_datagrams_to_one_and_to_all(table: Table) -> None:
    starts = {sid: table.join(sid) for sid in (P, Q)}
    table.node.send_in_order(P, b"x")
    table.node.broadcast_in_order(b"y")
    table.node.send_in_order(P, b"z")
    table.drain()
    sent = list(table.sent)
    assert [m for m in table.messages(P) if isinstance(m, OneToOne)] == [
        OneToOne(starts[P].one + 1, b"x"),
        OneToOne(starts[P].one + 2, b"z"),
    ]
    table.sent = sent
    assert table.messages(Q) == [Broadcast(starts[Q].broadcast + 1, b"y")]


# -- Concepts ------------------------------------------------------------------------------


def test_oxen_assigns_each_outgoing_message_an_id(table: Table) -> None:
    table.join(P)
    for _ in range(16):
        table.node.send(P, b"same")
    table.drain()
    ids = [body.id for body in table.bodies(MessageData)]
    assert len(set(ids)) == 16
    assert all(0 <= id < 2**32 for id in ids)


def test_an_id_that_is_in_use_is_not_given_again(table: Table) -> None:
    table.join(P)
    table.dice.script.extend([5, 5, 5, 6, 5, 7])
    for data in (b"x", b"y", b"z"):
        table.node.send(P, data)
    table.drain()
    assert [(body.id, body.d) for body in table.bodies(MessageData)] == [
        (5, b"x"),
        (6, b"y"),
        (7, b"z"),
    ]


def test_upon_receiving_a_message_even_again_an_acknowledgement_is_sent(table: Table) -> None:
    table.join(P, one=9)
    table.events()
    for _ in range(3):
        table.tell_message(P, OneToOne(10, b"x"), id=77)
    assert table.acknowledged() == [77, 77, 77]
    assert table.events() == [received(P, b"x", Delivery.IN_ORDER)]
    for _ in range(2):
        table.tell_message(P, Datagram(b"y"), id=78)
    assert table.acknowledged() == [78, 78]


def test_if_no_acknowledgement_has_been_received_the_message_is_resent(table: Table) -> None:
    table.join(P)
    table.node.send(P, b"x")
    times = []
    for _ in range(600):
        table.wait(0.1, alive=(P,))
        if any(body.d == b"x" for body in table.bodies(MessageData, P)):
            times.append(table.now)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == pytest.approx(1.1, abs=0.01)
    # With a round trip of no time at all: a probe, the shortest time, and then it doubles.
    assert gaps[0] == pytest.approx(0.2, abs=0.11)
    assert gaps[1] == pytest.approx(0.4, abs=0.2)
    assert gaps[2] == pytest.approx(0.8, rel=0.4)
    assert gaps[3] == pytest.approx(1.6, rel=0.3)
    assert gaps[4] == pytest.approx(3.2, rel=0.3)
    assert all(3.9 < gap < 6.2 for gap in gaps[5:])
    assert len(gaps) > 8
    assert len({round(gap, 1) for gap in gaps[5:]}) > 3  # jitter


def test_an_acknowledged_message_is_not_resent(table: Table) -> None:
    table.join(P)
    table.node.send(P, b"x")
    table.drain()
    (body,) = table.bodies(MessageData)
    table.tell(P, MessageAck(ME, P, body.id))
    table.wait(30.0, alive=(P,))
    assert table.messages() == []


def test_random_portions_of_this_table_are_sent_periodically_to_random_peers(table: Table) -> None:
    for sid in (A, B, P):
        table.join(sid)
    table.wait(60.0, alive=(A, B, P))
    told = [(to, parcel.body) for to, parcel in table.sent if isinstance(parcel.body, Gossip)]
    assert 55 <= len(told) <= 65
    assert {to for to, _ in told} == {A, B, P}
    assert all(ME in gossip.rows for _, gossip in told)
    assert len({tuple(gossip.columns) for _, gossip in told}) > 6


def test_the_contact_is_the_time_the_parcel_was_first_sent(table: Table) -> None:
    """If sent at times 1 and 2 and acknowledged at 3 and 4, time 1 is the contact time."""
    table.join(P)
    joined = table.node.contacts()[ME][P]
    table.wait(7.0)
    asked = [parcel.ka for parcel in table.said(P) if parcel.ka is not None]
    assert len(asked) >= 2
    table.wait(0.5)
    table.tell(P, kk=asked[0])
    first = table.node.contacts()[ME][P]
    assert joined < first <= EPOCH + 7.0
    table.tell(P, kk=asked[1])
    assert first < table.node.contacts()[ME][P] <= table.node.unix_time - 0.5
    again = table.node.contacts()[ME][P]
    table.tell(P, kk=asked[0])  # answered already
    assert table.node.contacts()[ME][P] == again
    assert table.node.dropped[DropReason.STRAY_KEEPALIVE] == 1


def test_contacts_are_kept_up_to_date_by_periodically_sending_no_op_messages() -> None:
    table = Table(timing=Timing(gossip_s=1000.0))  # gossip would ask in passing
    table.join(P)
    table.wait(4.5)
    assert not [p for p in table.said(P) if p.body is None and p.ka is not None]
    table.wait(120.0, alive=(P,))
    ages = table.node.unix_time - table.node.contacts()[ME][P]
    assert ages < 6.5
    assert [p for p in table.said(P) if p.body is None and p.ka is not None]


def test_a_link_is_possibly_unusable_above_a_threshold(table: Table) -> None:
    table.join(P)
    table.wait(19.5)
    assert table.node.peers()[P].usable
    table.wait(1.0)
    assert not table.node.peers()[P].usable


def test_only_when_all_links_are_unusable_the_server_is_unreachable(table: Table) -> None:
    for sid in (P, Q):
        table.join(sid)
    table.events()
    for _ in range(20):
        table.wait(10.0, alive=(Q,))
        table.gossip(Q, Q={P: table.now})
    assert not table.node.peers()[P].usable
    assert table.node.peers()[P].reachable
    assert table.events() == []
    table.wait(81.0, alive=(Q,))
    assert table.events() == [PeerUnreachable(peer=P)]


# -- Handling failure ------------------------------------------------------------------------


def test_around_an_unusable_link_the_shortest_path_is_taken(table: Table) -> None:
    for sid in (A, B, P, Q):
        table.join(sid)
    table.wait(30.0, alive=(A, B, P))
    # Q is two links from A and from B, one from P.
    table.gossip(A, A={P: table.now}, B={P: table.now}, P={Q: table.now})
    table.said()
    table.node.send(Q, b"x")
    table.drain()
    (parcel,) = [parcel for parcel in table.said(P) if isinstance(parcel.body, MessageData)]
    assert parcel.body is not None
    assert parcel.body[:2] == (Q, ME)


def test_without_a_known_path_some_maybe_usable_local_link_is_tried(table: Table) -> None:
    for sid in (A, Q):
        table.join(sid)
    table.wait(30.0, alive=(A,))
    table.said()
    table.node.send(Q, b"x")
    hops = set()
    for _ in range(10):
        table.wait(1.0, alive=(A,))
        hops |= {to for to, p in table.sent if isinstance(p.body, MessageData) and p.body.d == b"x"}
        table.said()
    assert hops == {A, Q}


def test_the_receiving_node_repeats_the_process(table: Table) -> None:
    for sid in (A, P):
        table.join(sid)
    table.tell(A, MessageData(P, A, 9999, b"data"))
    assert table.bodies(MessageData, P) == [MessageData(P, A, 9999, b"data")]
    assert table.events() == [PeerJoined(peer=A), PeerJoined(peer=P)]


def test_a_forwarded_parcel_never_returns_to_where_it_came_from(table: Table) -> None:
    for sid in (A, P, Q):
        table.join(sid)
    table.wait(30.0, alive=(A,))
    table.gossip(A, A={Q: table.now})
    table.said()
    table.tell(A, MessageData(Q, P, 1, b"data"))
    assert not any(to == A for to, _ in table.sent)


def test_what_goes_in_circles_is_cut(table: Table) -> None:
    for sid in (A, P):
        table.join(sid)
    for _ in range(5):
        table.tell(A, MessageData(P, A, 9999, b"data"))
    assert len(table.bodies(MessageData, P)) == 1
    assert table.node.dropped[DropReason.FORWARDED_BEFORE] == 4
    table.wait(0.81, alive=(A, P))
    table.said()
    table.tell(A, MessageData(P, A, 9999, b"data"))
    assert len(table.bodies(MessageData, P)) == 1


def test_giving_up_clears_all_outstanding_messages_to_that_node(table: Table) -> None:
    table.join(P)
    numbers = [table.node.send(P, b"x"), table.node.send_in_order(P, b"y")]
    numbers.append(table.node.broadcast_in_order(b"z"))
    table.events()
    table.wait(81.0)
    failed = [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE) for number in numbers
    ]
    assert table.events() == [*failed, PeerUnreachable(peer=P)]
    table.said()
    table.wait(30.0)
    assert table.messages() == []


def test_future_messages_to_a_given_up_node_are_refused(table: Table) -> None:
    table.join(P)
    table.wait(81.0)
    for send in (table.node.send, table.node.send_in_order):
        with pytest.raises(LocalProtocolError) as caught:
            send(P, b"x")
        assert caught.value.code is ErrorCode.NOT_JOINED
    table.node.broadcast_in_order(b"to nobody")
    table.said()
    table.wait(5.0)
    assert table.messages() == []


def test_messages_from_a_given_up_node_are_dropped_until_it_is_reachable(table: Table) -> None:
    """We will receive a message from P, a server we considered dead!  We simply drop it."""
    for sid in (P, Q):
        table.join(sid)
    table.wait(81.0, alive=(Q,))
    table.events()
    table.said()
    table.tell_message(P, OneToOne(1, b"from the dead"), source=Q)
    assert table.events() == []
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.GIVEN_UP] == 1
    # However, new information from peers may reveal that P is reachable again.
    table.gossip(Q, Q={P: table.now})
    table.wait(1.1, alive=(Q,))
    table.accept(P, Q)
    table.tell_message(P, OneToOne(1, b"from the dead"), source=Q)
    assert table.events() == [
        PeerReachable(peer=P),
        received(P, b"from the dead", Delivery.IN_ORDER),
    ]


def test_nothing_to_or_from_a_given_up_node_is_forwarded(table: Table) -> None:
    for sid in (A, B, P):
        table.join(sid)
    table.wait(81.0, alive=(A, B))
    table.said()
    table.tell(A, MessageData(P, A, 1, b"to"))
    table.tell(A, MessageData(B, P, 2, b"from"))
    assert table.bodies(MessageData) == []


def test_a_peer_that_did_not_give_up_on_us_misses_nothing_but_what_failed(table: Table) -> None:
    """Its numbers go on; ours go on after those that were cleared."""
    start = table.join(P, one=100)
    table.node.send_in_order(P, b"in vain")
    table.wait(81.0)
    table.events()
    table.contact(P)
    table.wait(1.0)
    again = table.accept(P, P)
    assert again == Synchronize(start.broadcast, start.one + 1, known=100)
    table.node.send_in_order(P, b"next")
    table.drain()
    assert table.messages() == [OneToOne(start.one + 2, b"next")]
    table.tell_message(P, OneToOne(101, b"kept"))
    assert received(P, b"kept", Delivery.IN_ORDER) in table.events()


def test_what_waited_when_both_gave_up_is_delivered_when_both_are_back(table: Table) -> None:
    """It was acknowledged: P's user was told that the missing ones failed, not this one."""
    ours = table.join(P, broadcast=50, one=100).one
    table.tell_message(P, Synchronize(50, 100, known=ours))
    table.said()
    for held in (OneToOne(102, b"102"), OneToOne(104, b"104"), Broadcast(52, b"52")):
        table.tell_message(P, held)
    assert len(table.acknowledged()) == 3
    table.wait(81.0)
    table.events()
    table.contact(P)
    table.wait(1.0)
    # P has given up 101, 103 and 51, and goes on.  A late duplicate changes nothing.
    for start in (Synchronize(52, 104, known=ours), Synchronize(51, 101, known=ours)):
        table.tell_message(P, start)
    assert table.events() == []
    table.accept(P, P)
    assert table.events() == [
        PeerReachable(peer=P),
        received(P, b"52", Delivery.IN_ORDER_BROADCAST),
        received(P, b"102", Delivery.IN_ORDER),
        received(P, b"104", Delivery.IN_ORDER),
    ]
    table.tell_message(P, OneToOne(105, b"105"))
    table.tell_message(P, Synchronize(52, 104))
    assert table.events() == [received(P, b"105", Delivery.IN_ORDER)]


# -- Parcel schema ---------------------------------------------------------------------------


def test_any_node_can_send_a_parcel_to_any_other_node_at_any_time(table: Table) -> None:
    table.tell(b"stranger", ka=123)
    assert table.sent == [(b"stranger", Parcel(kk=123))]


def test_if_id_is_omitted_no_acknowledgement_is_requested(table: Table) -> None:
    table.join(P)
    table.events()
    table.tell(P, MessageData(ME, P, None, b"x"))
    assert table.events() == [received(P, b"x", Delivery.DATAGRAM)]
    assert table.bodies(MessageAck) == []


def test_forwarding_of_acknowledgements_is_implied(table: Table) -> None:
    for sid in (A, B):
        table.join(sid)
    table.tell(B, MessageAck(A, B, 5))
    assert table.bodies(MessageAck, A) == [MessageAck(A, B, 5)]


def test_the_example_of_gossip_is_that_fragment_of_the_table(table: Table) -> None:
    table = Table(timing=Timing(usable_s=1e9, give_up_s=1e9))
    for sid in (b"AAA", b"BBB", b"CCC", b"DDD", b"EEE"):
        table.join(sid)
    encoded = (
        b"d2:lcd2:lcd3:AAAli5ei3ei1ei9ee3:BBBli6ei7ei7ei8ee3:DDDli9ei8ei1ei6eee"
        b"1:pl3:AAA3:BBB3:CCC3:EEEeee"
    )
    table.node.receive_datagram(encoded, source=b"AAA")
    table.drain()
    contacts = table.node.contacts()
    # AAA's contact with itself, which the example has, does not exist.
    assert contacts[b"AAA"] == {b"BBB": 3, b"CCC": 1, b"EEE": 9}
    assert contacts[b"BBB"] == {b"AAA": 6, b"CCC": 7, b"EEE": 8}
    assert contacts[b"CCC"] == {}
    assert contacts[b"DDD"] == {b"AAA": 9, b"BBB": 8, b"CCC": 1, b"EEE": 6}
    assert contacts[b"EEE"] == {}


def test_keepalives_are_the_only_way_to_update_the_last_contact_table(table: Table) -> None:
    table.join(P, one=1)
    before = table.node.contacts()
    table.now += 3.0
    table.node.advance(table.now)
    table.node.send(P, b"x")
    table.drain()
    (body,) = table.bodies(MessageData, P)
    table.tell(P, MessageAck(ME, P, body.id))
    table.tell_message(P, OneToOne(2, b"y"))
    table.tell(P, ka=1)
    assert table.node.contacts() == before


def test_a_parcel_answers_asks_and_carries_at_once() -> None:
    table = Table(timing=Timing(gossip_s=1000.0))
    table.join(P)
    table.wait(3.0)
    table.said()
    table.node.receive_datagram(b"d2:kai5ee", source=P)
    while table.node.next_event() is not None:
        pass
    table.node.send(P, b"x")
    table.drain()
    (parcel,) = table.said(P)
    assert parcel.kk == 5
    assert parcel.ka is not None
    assert isinstance(parcel.body, MessageData)


def test_forwarding_loses_none_of_equal_messages_without_acknowledgement(table: Table) -> None:
    """They have no ID by which one could be told from the next."""
    for sid in (A, P):
        table.join(sid)
    for number in range(100):
        table.tell(A, MessageData(P, A, None, b"%d" % (number // 2)))
    sent = [body.d for body in table.bodies(MessageData, P)]
    assert sent == [b"%d" % (number // 2) for number in range(100)]

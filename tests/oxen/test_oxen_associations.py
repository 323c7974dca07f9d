"""The life of an association: synchronization, goodbyes, restarts; one test a sentence."""

from __future__ import annotations

import pytest
from oxen_support import ME, Table

from culm.machine import Closed, LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    DropReason,
    FailReason,
    LeaveReason,
    Limits,
    MessageReceived,
    PeerJoined,
    PeerLeft,
    PeerState,
    PeerUnreachable,
    SendFailed,
    State,
    Timing,
    Writable,
)
from culm.oxen.incoming import RESTART_GAP
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    decode_parcel,
    read_message,
)

A, P = b"A", b"P"


@pytest.fixture
def table() -> Table:
    return Table()


def received(peer: bytes, data: bytes, delivery: Delivery) -> MessageReceived:
    return MessageReceived(peer=peer, data=data, delivery=delivery)


@pytest.mark.parametrize("message", [Datagram(b"x"), OneToOne(1, b"x"), Broadcast(1, b"x")])
def test_messages_received_before_synchronization_are_errors(
    table: Table, message: Datagram | OneToOne | Broadcast
) -> None:
    table.tell_message(P, message)
    assert table.events() == []
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.NOT_SYNCHRONIZED] == 1


def test_synchronization_messages_received_after_any_regular_message_are_errors(
    table: Table,
) -> None:
    """Except for redeliveries of the first, and for a sender that has started anew."""
    table.join(P, one=2**40)
    table.tell_message(P, OneToOne(2**40 + 1, b"x"))
    table.events()
    table.said()
    table.tell_message(P, Synchronize(0, 2**40), id=5)  # a redelivery
    assert table.acknowledged() == [5]
    table.tell_message(P, Synchronize(0, 7))
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.STALE_SYNCHRONIZE] == 1
    table.tell_message(P, OneToOne(2**40 + 2, b"y"))
    assert table.events() == [received(P, b"y", Delivery.IN_ORDER)]


@pytest.mark.parametrize("order", [(34, 35, 36, 37), (37, 36, 35, 34), (36, 34, 37, 35)])
def test_the_numbers_are_one_less_than_the_next_message(
    table: Table, order: tuple[int, ...]
) -> None:
    """Synchronized to 35, of 34, 35, 36 and 37 only 36 and 37 are delivered."""
    table.join(A, broadcast=35, one=35)
    table.events()
    for number in order:
        table.tell_message(A, Broadcast(number, b"%d" % number))
        table.tell_message(A, OneToOne(number, b"%d" % number))
    got = table.events()
    for delivery in (Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST):
        assert [
            e.data for e in got if isinstance(e, MessageReceived) and e.delivery is delivery
        ] == [
            b"36",
            b"37",
        ]


def test_finalize_waits_for_the_messages_that_are_missing(table: Table) -> None:
    """Finalized at 97 with 94, 96 and 97 missing, it waits for these to be sent again."""
    table.join(A, broadcast=93)
    table.tell_message(A, Broadcast(95, b"95"))
    table.events()
    table.tell_message(A, Finalize(97, 0))
    assert table.events() == []
    assert table.node.peers()[A].state is PeerState.FINALIZING
    table.tell_message(A, Broadcast(97, b"97"))
    table.tell_message(A, Broadcast(94, b"94"))
    table.tell_message(A, Broadcast(96, b"96"))
    assert table.events() == [
        *(received(A, b"%d" % n, Delivery.IN_ORDER_BROADCAST) for n in (94, 95, 96, 97)),
        PeerLeft(peer=A, reason=LeaveReason.FINALIZED),
    ]


def test_finalize_waits_for_one_to_one_messages_as_well(table: Table) -> None:
    table.join(A, broadcast=7, one=93)
    table.events()
    table.tell_message(A, Finalize(8, 94))
    table.tell_message(A, Broadcast(8, b"8"))
    assert table.events() == [received(A, b"8", Delivery.IN_ORDER_BROADCAST)]
    assert table.node.peers()[A].state is PeerState.FINALIZING
    table.tell_message(A, OneToOne(94, b"94"))
    assert table.events() == [
        received(A, b"94", Delivery.IN_ORDER),
        PeerLeft(peer=A, reason=LeaveReason.FINALIZED),
    ]


def test_there_are_no_half_open_associations(table: Table) -> None:
    """The receiving node should not send any more messages either."""
    table.join(A)
    number = table.node.send_in_order(A, b"on its way")
    table.drain()
    table.events()
    table.said()
    table.tell_message(A, Finalize(1, 0))  # a broadcast is missing
    assert table.events() == [SendFailed(peer=A, message=number, reason=FailReason.PEER_LEFT)]
    with pytest.raises(LocalProtocolError):
        table.node.send(A, b"more")
    table.node.broadcast_in_order(b"more")
    table.said()
    table.wait(10.0, alive=(A,))
    assert table.messages() == []


def test_who_left_is_acknowledged_again(table: Table) -> None:
    table.join(A, one=5)
    table.tell_message(A, OneToOne(6, b"x"), id=1)
    table.tell_message(A, Finalize(0, 6), id=2)
    table.events()
    table.said()
    table.tell_message(A, Finalize(0, 6), id=2)
    table.tell_message(A, OneToOne(6, b"x"), id=1)
    table.tell_message(A, Synchronize(0, 5), id=3)
    # Messages that never came were not sent before it left.
    table.tell_message(A, OneToOne(7, b"y"), id=4)
    table.tell_message(A, Broadcast(1, b"z"), id=5)
    assert table.acknowledged() == [2, 1]
    assert table.events() == []
    assert A not in table.node.peers()


def test_a_leaving_node_closes_when_all_is_acknowledged(table: Table) -> None:
    table.join(P)
    table.node.send(P, b"x")
    table.node.leave()
    table.drain()
    for expected in (b"x", "finalize"):
        (body,) = table.bodies(MessageData)
        assert (body.d == b"x") == (expected == b"x")
        assert table.node.state is State.LEAVING
        table.tell(P, MessageAck(ME, P, body.id))
    assert table.events()[-1] == Closed()


def test_a_leaving_node_does_not_wait_for_ever(table: Table) -> None:
    table.join(P)
    number = table.node.send(P, b"x")
    table.events()
    table.node.leave()
    table.wait(20.0)
    deadline = table.node.next_deadline()
    table.node.leave()  # a second call gains no time
    assert table.node.next_deadline() == deadline
    table.wait(9.0)
    assert table.events() == []
    table.wait(1.1)
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.NODE_CLOSED),
        Closed(),
    ]
    assert table.node.next_deadline() is None
    table.node.leave()
    assert table.node.next_deadline() is None
    assert table.events() == []


# -- Restarts ----------------------------------------------------------------------------------


def test_a_peer_that_starts_anew_starts_over(table: Table) -> None:
    start = table.join(P, one=100)
    table.tell_message(P, OneToOne(102, b"held"))
    number = table.node.send_in_order(P, b"to the old one")
    table.drain()
    table.events()
    table.said()
    table.insist(P, Synchronize(2**50, 2**50))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_RESTARTED),
        PeerLeft(peer=P, reason=LeaveReason.RESTARTED),
    ]
    again = table.accept(P, P)
    assert again.broadcast == start.broadcast
    assert again.one > start.one + RESTART_GAP  # so it sees what we believe, in case that is wrong
    assert table.events() == [PeerJoined(peer=P)]
    table.tell_message(P, OneToOne(101, b"late"))
    table.tell_message(P, OneToOne(2**50 + 1, b"new"))
    assert table.events() == [received(P, b"new", Delivery.IN_ORDER)]


def test_who_starts_anew_has_an_empty_queue_of_which_nobody_is_told() -> None:
    table = Table(limits=Limits(queue_max=2))
    table.join(P)
    table.node.send_in_order(P, b"to the old one")
    table.insist(P, Synchronize(2**50, 2**50))
    table.accept(P, P)
    assert Writable(peer=P) in table.events()  # it was full, with the question whether it is there
    assert table.node.peers()[P].queued == 0
    number = table.node.send_in_order(P, b"to the new one")
    table.drain()
    (body,) = table.bodies(MessageData, P)
    table.tell(P, MessageAck(ME, P, body.id))
    assert table.events() == [Delivered(peer=P, message=number)]


@pytest.mark.parametrize("one", [7, 2**40 - 2**27, 2**40 + 2**27, 2**62])
def test_a_restart_is_noticed_soon_whatever_the_numbers_are(table: Table, one: int) -> None:
    """A clock set back in the meantime does no harm."""
    table.join(P, one=2**40)
    table.events()
    for _ in range(3):
        assert table.events() == []
        table.tell_message(P, Synchronize(0, one))
        table.wait(0.8, alive=(P,))
    assert table.events() == [PeerLeft(peer=P, reason=LeaveReason.RESTARTED)]


@pytest.mark.parametrize("one", [7, 2**40 - 2**27, 2**40 + 2**27, 2**62])
def test_who_left_joins_again_at_once_whatever_the_numbers_are(table: Table, one: int) -> None:
    """Its last words of before are still acknowledged, but only its new numbers are news."""
    table.join(P, one=2**40)
    table.tell_message(P, Finalize(0, 2**40))
    assert table.events()[-1] == PeerLeft(peer=P, reason=LeaveReason.FINALIZED)
    table.tell_message(P, Synchronize(0, 2**40))
    assert P not in table.node.peers()
    table.join(P, one=one)
    assert table.events() == [PeerJoined(peer=P)]


@pytest.mark.parametrize("step", [0, 2**40])
def test_whoever_is_asked_to_help_has_its_time_whatever_is_said_in_its_name(
    table: Table, step: int
) -> None:
    """Nor is one that hears nothing from us, and says the same again and again, waited for."""
    table.node.join(P)
    for index in range(3):
        table.tell_message(P, Synchronize(0, 7 + index * step))
        assert table.events() == []
        table.wait(27.0)
    assert table.events() == [PeerUnreachable(peer=P)]


@pytest.mark.parametrize("one", [7, 2**50])
@pytest.mark.parametrize("state", ["joined", "finalizing"])
def test_a_forged_start_changes_nothing_if_the_peer_answers(
    table: Table, one: int, state: str
) -> None:
    """Nor does an old one that arrives again and again: the peer is asked each time."""
    table.join(P, one=2**40)
    table.tell_message(P, OneToOne(2**40 + 1, b"first"))
    if state == "finalizing":
        table.tell_message(P, Finalize(0, 2**40 + 2))
    table.events()
    table.said()
    for _ in range(9):
        table.tell_message(P, Synchronize(0, one))
        for body in table.bodies(MessageData, P):
            message = read_message(body.d)
            assert isinstance(message, OneToOne)  # a duplicate, which P ignores
            table.tell(P, MessageAck(ME, P, body.id))
        table.wait(1.0, alive=(P,))
    assert table.events() == []
    assert table.node.dropped[DropReason.STALE_SYNCHRONIZE] == 9
    assert table.node.peers()[P].queued == 0
    table.tell_message(P, OneToOne(2**40 + 2, b"second"))
    assert received(P, b"second", Delivery.IN_ORDER) in table.events()


def test_one_claim_alone_is_not_believed_however_long_the_peer_is_silent(table: Table) -> None:
    table.join(P, one=2**40)
    table.events()
    table.tell_message(P, Synchronize(0, 2**50))
    table.wait(30.0, alive=(P,))
    table.tell_message(P, Synchronize(RESTART_GAP, 2**51))  # another life
    assert table.events() == []


def test_claims_that_follow_each_other_at_once_are_answered_once(table: Table) -> None:
    """One that lacks a place makes a new one of each question: the two would never be still."""
    table.join(P, one=2**40)
    table.said()
    for number in range(50):
        table.tell_message(P, Synchronize(2**41, 2**50 + number * 2 * RESTART_GAP))
    assert len(table.bodies(MessageData, P)) == 1


def test_a_claim_with_new_numbers_of_the_same_life_repeats_it(table: Table) -> None:
    """A peer that gets no answer from us forgets us, and begins again with others."""
    table.join(P, one=2**40)
    table.events()
    table.tell_message(P, Synchronize(2**41, 2**50))
    table.wait(15.0, alive=(P,))
    table.tell_message(P, Synchronize(2**41 + RESTART_GAP - 1, 2**51))
    assert PeerLeft(peer=P, reason=LeaveReason.RESTARTED) in table.events()


def test_the_challenge_is_acknowledged_by_those_only_who_have_the_association(
    table: Table,
) -> None:
    """And they pass none of it to their users."""
    table.join(P, one=2**40)
    table.events()
    table.said()
    table.tell_message(P, OneToOne(2**40, b""), id=77)
    assert (table.acknowledged(), table.events()) == ([77], [])
    other = Table(seed=2)  # has started anew, and both synchronize
    other.node.join(P)
    other.tell_message(P, Synchronize(0, 2**40))
    other.said()
    other.tell_message(P, OneToOne(2**40, b""), id=77)
    assert other.acknowledged() == []


def test_the_challenge_is_new_to_nobody_who_knows_the_association(table: Table) -> None:
    """A node may know it from an old synchronize message that was replayed, as a new life does."""
    start = table.join(P, one=2**40)
    for _ in range(3):
        table.node.send_in_order(P, b"x")
        table.drain()
        (body,) = table.bodies(MessageData, P)
        table.tell(P, MessageAck(ME, P, body.id))
    table.tell_message(P, Synchronize(0, 2**50))
    assert table.messages(P) == [OneToOne(start.one, b"")]
    other = Table(seed=2)
    other.tell_message(P, start)
    other.accept(P, P)
    other.events()
    challenge = other.tell_message(P, OneToOne(start.one, b""))
    assert (other.acknowledged(), other.events()) == ([challenge], [])


def test_finalize_waits_also_where_it_overtakes_what_makes_the_peer_join(table: Table) -> None:
    """It has joined, or it could have sent nothing: only we do not know that yet."""
    table.tell_message(P, Synchronize(0, 10))
    (ours,) = table.messages(P)
    assert isinstance(ours, Synchronize)
    table.tell_message(P, OneToOne(12, b"2"))
    for known, acknowledged in ((0, []), (ours.one - 1, []), (ours.one, [99])):
        table.tell_message(P, Finalize(0, 13, known), id=99)
        assert table.acknowledged() == acknowledged
    assert table.events() == [PeerJoined(peer=P)]
    for number in (12, 13, 11):
        table.tell_message(P, OneToOne(number, b"%d" % (number - 10)), id=number)
    assert table.acknowledged() == [12, 13, 11]
    assert table.events() == [
        *(received(P, b"%d" % n, Delivery.IN_ORDER) for n in (1, 2, 3)),
        PeerLeft(peer=P, reason=LeaveReason.FINALIZED),
    ]


def test_an_acknowledgement_from_before_the_restart_joins_nobody(table: Table) -> None:
    table.tell_message(P, Synchronize(0, 0))
    (old,) = table.bodies(MessageData)
    table.tell_message(P, Synchronize(0, 2**50))
    table.said()
    table.tell(P, MessageAck(ME, P, old.id))
    assert table.events() == []
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING


# -- Parcels on the wire -------------------------------------------------------------------------


def test_our_parcels_are_as_the_specification_writes_them() -> None:
    table = Table(timing=Timing(gossip_s=1000.0))
    table.join(P)
    table.wait(3.0)
    table.said()
    table.dice.script.extend([9999, 123])
    table.node.send(P, b"...data...")
    while table.node.next_event() is not None:
        pass
    assert table.node.datagrams_to_send() == [
        (P, b"d2:kai123e2:mdd1:d10:...data...2:fr2:ME2:idi9999e2:to1:Pee")
    ]
    assert decode_parcel(b"d2:kki123ee") == Parcel(kk=123)


def test_a_message_is_delivered_when_the_peer_acknowledges_it(table: Table) -> None:
    table.join(A)
    table.events()
    number = table.node.send_in_order(A, b"one")
    other = table.node.send(A, b"two")
    table.node.send(A, b"three", acknowledged=False)
    table.drain()
    assert table.events() == []
    first, second = (body.id for body in table.bodies(MessageData) if body.id is not None)
    table.tell(A, MessageAck(ME, A, second))
    assert table.events() == [Delivered(peer=A, message=other)]
    table.tell(A, MessageAck(ME, A, first))
    table.tell(A, MessageAck(ME, A, first))  # a duplicate
    assert table.events() == [Delivered(peer=A, message=number)]


def test_what_waits_for_an_earlier_message_is_not_delivered_yet(table: Table) -> None:
    """The peer has acknowledged it, but only its node has it."""
    table.join(A)
    table.events()
    numbers = [table.node.send_in_order(A, b"%d" % index) for index in range(3)]
    table.drain()
    ids = [body.id for body in table.bodies(MessageData)]
    for id in ids[1:]:
        table.tell(A, MessageAck(ME, A, id))
    assert table.events() == []
    table.tell(A, MessageAck(ME, A, ids[0]))
    assert table.events() == [Delivered(peer=A, message=number) for number in numbers]


def test_what_waited_at_a_peer_that_leaves_has_failed(table: Table) -> None:
    """Every message ends in one of the two events."""
    table.join(A)
    table.events()
    numbers = [table.node.send_in_order(A, b"%d" % index) for index in range(3)]
    table.drain()
    ids = [body.id for body in table.bodies(MessageData)]
    table.tell(A, MessageAck(ME, A, ids[2]))
    table.tell_message(A, Finalize(0, 0))
    assert table.events() == [
        *(SendFailed(peer=A, message=n, reason=FailReason.PEER_LEFT) for n in numbers),
        PeerLeft(peer=A, reason=LeaveReason.FINALIZED),
    ]

"""Messages larger than a datagram: in pieces, over the ordered streams."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from itertools import permutations

import pytest
from oxen_large import (
    ALONE,
    FIRST,
    LAST,
    LIMITS,
    MIDDLE,
    ONE_PLACE,
    SIZE_MAX,
    P,
    Q,
    R,
    acknowledge,
    begun,
    full,
    joined,
    let_in,
    one,
    received,
)
from oxen_simulation import EPOCH, TIMING
from oxen_support import ME, Table

from culm.machine import Closed, LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    Dialect,
    DropReason,
    ErrorCode,
    FailReason,
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerState,
    PeerUnreachable,
    SendFailed,
)
from culm.oxen.messages import (
    Broadcast,
    Finalize,
    Message,
    MessageAck,
    MessageData,
    OneToOne,
    ParcelError,
    Piece,
    Position,
    Synchronize,
    Turn,
    read_message,
    write_message,
)
from culm.oxen.pieces import cut
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network
from culm.wire import xenc

# -- the wire ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (one(7, FIRST, b"abc"), b"d1:d3:abc1:m2:1f1:si7ee"),
        (one(8, MIDDLE, b""), b"d1:d0:1:m2:1m1:si8ee"),
        (Piece(b"b", 9, LAST, b"z"), b"d1:d1:z1:m2:bl1:si9ee"),
        (Turn(b"1", 7, False), b"d1:m2:1w1:si7ee"),
        (Turn(b"b", 8, True), b"d1:m2:bc1:si8ee"),
        (Synchronize(1, 2, 65_536), b"d1:1i2e1:bi1e1:m1:s1:zi65536ee"),
        (Synchronize(1, 2), b"d1:1i2e1:bi1e1:m1:se"),
    ],
)
def test_each_message_has_one_encoding(message: Message, encoded: bytes) -> None:
    assert xenc.encode(write_message(message)) == encoded
    assert read_message(xenc.decode(encoded)) == message


@pytest.mark.parametrize(
    "encoded",
    [
        b"d1:d3:abc1:m2:1x1:si7ee",
        b"d1:d3:abc1:m3:1fm1:si7ee",
        b"d1:di1e1:m2:1f1:si7ee",
        b"d1:m2:1f1:si7ee",
        b"d1:d3:abc1:m2:1fe",
        b"d1:d3:abc1:m2:1f1:si-1ee",
        b"d1:d3:abc1:mle1:si7ee",
        b"d1:m2:1we",
        b"d1:m2:tc1:si7ee",
        b"d1:m2:1c1:si-1ee",
        b"d1:1i2e1:bi1e1:m1:s1:zi-1ee",
        b"d1:1i2e1:bi1e1:m1:s1:z1:xe",
    ],
)
def test_what_is_no_piece_is_malformed(encoded: bytes) -> None:
    with pytest.raises(ParcelError):
        read_message(xenc.decode(encoded))


def test_who_takes_no_pieces_does_not_speak_of_them() -> None:
    table = Table()
    table.tell_message(P, Synchronize(0, 0, 5_000))
    for body in table.bodies(MessageData, P):
        assert isinstance(body.d, dict)
        assert body.d.keys() == {b"m", b"1", b"b"}


@pytest.mark.parametrize("size", [ALONE + 1, 2 * (ALONE - 1), 2 * (ALONE - 1) + 1, 4_999, 5_000])
def test_a_large_message_goes_in_as_few_pieces_as_can_be(size: int) -> None:
    table = joined()
    data = bytes(range(256)) * 20
    number = table.node.send_in_order(P, data[:size])
    table.drain()
    said = acknowledge(table, P)
    pieces = [message for message in said if isinstance(message, Piece)]
    assert len(pieces) == len(said) == -(-size // (ALONE - 1))
    assert b"".join(piece.data for piece in pieces) == data[:size]
    positions = [piece.position for piece in pieces]
    assert positions == [FIRST, *[MIDDLE] * (len(pieces) - 2), LAST]
    assert table.events()[-1] == Delivered(peer=P, message=number)


def test_what_fits_into_a_datagram_goes_as_ever() -> None:
    table = joined()
    table.node.send_in_order(P, bytes(ALONE))
    table.drain()
    assert [message.data for message in table.messages(P)] == [bytes(ALONE)]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_both_dialects_carry_pieces(dialect: Dialect) -> None:
    table = Table(limits=LIMITS, dialect=dialect)
    assert let_in(table, P, 5_000).message_size_max == SIZE_MAX
    table.node.send_in_order(P, bytes(table.node.payload_size_max(Delivery.IN_ORDER) + 1))
    table.drain()
    assert len(acknowledge(table, P)) == 2
    table.tell_message(P, one(1, FIRST, b"a"))
    table.tell_message(P, one(2, LAST, b"b"))
    assert received(b"ab") in table.events()


# -- sending -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "size"), [(P, 5_001), (Q, ALONE + 1), (P, SIZE_MAX + 1)])
def test_what_the_peer_does_not_take_is_refused(to: bytes, size: int) -> None:
    table = joined()
    with pytest.raises(LocalProtocolError) as caught:
        table.node.send_in_order(to, bytes(size))
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert table.node.peers()[to].queued == 0
    assert table.node.send_in_order(to, b"small") == 1


def test_datagrams_go_in_one_piece() -> None:
    table = joined()
    for verb in (lambda data: table.node.send(P, data), table.node.broadcast):
        with pytest.raises(LocalProtocolError) as caught:
            verb(bytes(ALONE + 100))
        assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE


def test_the_last_in_the_queue_may_exceed_it_by_its_pieces() -> None:
    table = joined()
    for _ in range(LIMITS.queue_max - 1):
        table.node.send_in_order(P, b"")
    table.node.send_in_order(P, bytes(5_000))
    assert table.node.peers()[P].queued == LIMITS.queue_max - 1 + -(-5_000 // (ALONE - 1))
    with pytest.raises(LocalProtocolError) as caught:
        table.node.send_in_order(P, b"")
    assert caught.value.code is ErrorCode.QUEUE_FULL


def test_it_is_delivered_when_all_pieces_are() -> None:
    """In whatever order they are acknowledged."""
    for order in permutations(range(3)):
        table = joined()
        number = table.node.send_in_order(P, bytes(3 * (ALONE - 1)))
        table.drain()
        bodies = table.bodies(MessageData, P)
        for count, at in enumerate(order):
            assert table.events() == [], (order, count)
            table.tell(P, MessageAck(ME, P, bodies[at].id))
        assert table.events() == [Delivered(peer=P, message=number)]


@pytest.mark.parametrize("acknowledged", [[], [0], [2], [0, 2], [1, 2]])
def test_it_fails_once_if_a_piece_of_it_may_be_lost(acknowledged: list[int]) -> None:
    table = joined()
    number = table.node.send_in_order(P, bytes(3 * (ALONE - 1)))
    table.drain()
    bodies = table.bodies(MessageData, P)
    for at in acknowledged:
        table.tell(P, MessageAck(ME, P, bodies[at].id))
    table.wait(100.0, alive=(Q,))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.PEER_UNREACHABLE),
        PeerUnreachable(peer=P),
    ]


def test_a_broadcast_goes_in_pieces_to_those_who_take_it() -> None:
    table = joined()
    large = table.node.broadcast_in_order(bytes(ALONE + 1))
    small = table.node.broadcast_in_order(b"small")
    table.drain()
    assert table.events() == [SendFailed(peer=Q, message=large, reason=FailReason.TOO_LARGE)]
    sent = table.sent
    to_p = acknowledge(table, P)
    table.sent = sent
    to_q = acknowledge(table, Q)
    assert [type(message) for message in to_p] == [Piece, Piece, Broadcast]
    first, _, third = to_p
    assert isinstance(first, Piece)
    skip, whole = to_q
    assert isinstance(skip, Synchronize)
    assert skip.broadcast == first.sequence + 1
    assert whole == third == Broadcast(first.sequence + 2, b"small")
    assert table.events() == [
        Delivered(peer=P, message=large),
        Delivered(peer=P, message=small),
        Delivered(peer=Q, message=small),
    ]


def test_one_that_is_about_to_join_begins_after_it() -> None:
    table = joined()
    table.said()
    table.node.join(R)
    table.node.broadcast_in_order(b"before")
    table.node.broadcast_in_order(bytes(ALONE + 1))
    table.drain()
    table.said()
    table.tell_message(R, Synchronize(0, 0, 5_000))
    kinds = [type(message) for message in acknowledge(table, R)]
    assert kinds == [Synchronize, Synchronize]
    assert table.events()[1:] == [PeerJoined(peer=R)]
    table.node.broadcast_in_order(b"after")
    table.drain()
    assert [type(message) for message in acknowledge(table, R)] == [Broadcast]


def test_who_leaves_delivers_it_first() -> None:
    table = joined()
    number = table.node.send_in_order(P, bytes(5_000))
    table.node.leave()
    table.drain()
    sent = table.sent
    assert isinstance(acknowledge(table, P)[-1], Finalize)
    assert Delivered(peer=P, message=number) in table.events()
    table.sent = sent
    acknowledge(table, Q)
    assert table.events()[-1] == Closed()


# -- putting together --------------------------------------------------------------------------


def test_pieces_come_in_any_order_and_twice() -> None:
    for order in permutations([1, 2, 3]):
        table = joined(limits=ONE_PLACE)
        pieces = {
            1: one(1, FIRST, b"a" * 300),
            2: one(2, MIDDLE, b"b"),
            3: one(3, LAST, b"c" * 300),
        }
        for at in order:
            id = table.tell_message(P, pieces[at])
            assert table.acknowledged() == [id]
            id = table.tell_message(P, pieces[at])
            assert table.acknowledged() == [id]
        assert table.events() == [received(b"a" * 300 + b"b" + b"c" * 300)]
        assert begun(table)


def test_both_streams_have_one_of_their_own() -> None:
    table = joined()
    table.tell_message(P, one(1, FIRST, b"a"))
    table.tell_message(P, Piece(b"b", 1, FIRST, b"x"))
    table.tell_message(P, one(2, LAST, b"b"))
    table.tell_message(P, Piece(b"b", 2, LAST, b"y"))
    assert table.events() == [received(b"ab"), received(b"xy", Delivery.IN_ORDER_BROADCAST)]


def test_a_message_that_waits_behind_it_comes_after_it() -> None:
    table = joined(limits=ONE_PLACE)
    table.tell_message(P, OneToOne(3, b"after"))
    table.tell_message(P, one(2, LAST, b"b"))
    table.tell_message(P, one(1, FIRST, b"a"))
    assert table.events() == [received(b"ab"), received(b"after")]
    assert begun(table)


def test_who_has_said_nothing_of_pieces_takes_none() -> None:
    table = Table()
    table.join(P)
    table.events()
    table.tell_message(P, one(1, FIRST, b"a"))
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.MALFORMED] == 1
    table.tell_message(P, OneToOne(1, b"whole"))
    assert table.events() == [received(b"whole")]


# -- malicious peers ---------------------------------------------------------------------------


@pytest.mark.parametrize("position", [MIDDLE, LAST])
def test_a_piece_without_a_beginning_is_nothing(position: Position) -> None:
    table = joined(limits=ONE_PLACE)
    table.tell_message(P, one(1, position, b"a"))
    table.tell_message(P, one(2, LAST, b"b"))
    table.tell_message(P, OneToOne(3, b"whole"))
    assert table.events() == [received(b"whole")]
    assert table.node.dropped[DropReason.INCOMPLETE] == 2
    assert begun(table)


def test_a_beginning_begins_anew() -> None:
    table = joined()
    table.tell_message(P, one(1, FIRST, b"lost"))
    table.tell_message(P, one(2, FIRST, b"a"))
    table.tell_message(P, one(3, LAST, b"b"))
    assert table.events() == [received(b"ab")]


def test_a_whole_message_in_between_ends_it() -> None:
    table = joined(limits=ONE_PLACE)
    table.tell_message(P, one(1, FIRST, b"lost"))
    table.tell_message(P, OneToOne(2, b"whole"))
    assert begun(table)
    table.tell_message(P, one(3, LAST, b"b"))
    assert table.events() == [received(b"whole")]


def test_one_that_begins_with_too_much_keeps_no_place() -> None:
    table = Table(limits=Limits(message_size_max=10, assemblies_max=1))
    for sid in (P, Q):
        table.join(sid)
    table.tell_message(P, one(1, FIRST, bytes(11)))
    assert table.node.dropped[DropReason.INCOMPLETE] == 1
    assert begun(table)


def test_one_that_grows_beyond_what_was_said_is_nothing() -> None:
    table = joined()
    count = SIZE_MAX // 300 + 1
    table.tell_message(P, one(1, FIRST, bytes(300)))
    for number in range(2, count + 1):
        table.tell_message(P, one(number, MIDDLE, bytes(300)))
    table.tell_message(P, one(count + 1, LAST, b""))
    assert table.node.dropped[DropReason.INCOMPLETE] == 2
    table.tell_message(P, one(count + 2, FIRST, bytes(300)))
    table.tell_message(P, one(count + 3, LAST, b"fits"))
    assert table.events() == [received(bytes(300) + b"fits")]


def test_exactly_as_much_as_was_said_is_taken() -> None:
    table = joined()
    for number, (position, data) in enumerate(cut(bytes(SIZE_MAX), 300), 1):
        table.tell_message(P, one(number, position, data))
    assert table.events() == [received(bytes(SIZE_MAX))]


@pytest.mark.parametrize("number", [257, 2**62, 2**63 - 1])
def test_a_piece_far_ahead_takes_no_place(number: int) -> None:
    table = joined(limits=ONE_PLACE)
    table.tell_message(P, one(number, FIRST, b"a"))
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.BEYOND_WINDOW] == 1
    assert begun(table)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**200])
def test_numbers_beyond_all_bounds_are_malformed(number: int) -> None:
    table = joined()
    d = b"d1:d1:a1:m2:1f1:si%dee" % number
    table.node.receive_datagram(b"d2:mdd1:d%b2:fr1:P2:idi1e2:to2:MEee" % d, source=P)
    table.drain()
    assert table.said() == []
    assert table.node.dropped[DropReason.MALFORMED] == 1


def test_memory_stays_within_bounds_whatever_is_begun() -> None:
    """Empty pieces, full ones, holes, and beginnings without a continuation."""
    limits = Limits(datagram_size_max=400, message_size_max=9_000, assemblies_max=2, window_max=4)
    table = Table(limits=limits)
    for sid in (P, Q, R):
        let_in(table, sid, 0)
    pieces = [(FIRST, b""), *[(MIDDLE, b"")] * 60, *[(MIDDLE, bytes(300))] * 30]
    ahead = [len(pieces) + 2, len(pieces) + 3, len(pieces) + 4]
    tracemalloc.start()
    try:
        for number, piece in [*enumerate(pieces, 1), *((at, (FIRST, bytes(300))) for at in ahead)]:
            for sid in (P, Q, R):
                table.tell_message(sid, one(number, *piece))
            table.said()
        table.events()
        gc.collect()  # waiting garbage is not held by the node
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 * 9_000 < grown < 2 * 9_000 + 3 * 4 * 600 + 5_000
    # The third one's beginning, and those of the others' second messages while it waits.
    assert table.node.dropped[DropReason.ASSEMBLIES_LIMIT] == 1 + 2 * 3


def test_who_finds_no_place_waits_for_one() -> None:
    table = full()
    assert not begun(table)
    table.tell_message(Q, Broadcast(1, b"whole"))  # which needs no place
    table.tell_message(P, one(2, LAST, b"b"))
    assert begun(table)
    assert [event.data for event in table.events() if isinstance(event, MessageReceived)] == [
        b"whole",
        b"ab",
    ]


def test_who_leaves_in_the_middle_has_no_place_any_more() -> None:
    table = full()
    table.tell_message(P, Finalize(0, 1))
    assert table.events() == [PeerLeft(peer=P, reason=LeaveReason.FINALIZED)]
    assert begun(table)


def test_who_starts_anew_in_the_middle_has_no_place_any_more() -> None:
    table = full()
    table.insist(P, Synchronize(0, 2**50))
    assert PeerLeft(peer=P, reason=LeaveReason.RESTARTED) in table.events()
    assert begun(table)
    table.tell_message(P, one(2, LAST, b"of before"))
    assert table.events() == []


def test_who_gives_it_up_in_the_middle_has_no_place_any_more() -> None:
    """It goes on after the messages whose failure was reported to its user."""
    table = full()
    table.tell_message(P, Synchronize(0, 5, known=table.starts[P].one))
    assert begun(table)
    table.tell_message(P, one(6, LAST, b"b"))
    assert [type(event) for event in table.events()] == []


def test_who_is_forgotten_has_no_place_any_more() -> None:
    table = full()
    table.node.forget(P)
    assert begun(table)


def test_the_dead_make_room_for_the_living() -> None:
    """A peer that was given up may come back and go on, unless its place is needed."""
    table = full()
    table.wait(100.0, alive=(Q,))
    assert table.events() == [PeerUnreachable(peer=P)]
    assert table.node.peers()[P].state is PeerState.GIVEN_UP
    assert begun(table)
    assert table.events() == [PeerForgotten(peer=P)]


def test_of_several_dead_the_one_that_got_its_place_first_makes_room() -> None:
    """It was any of them, by the hashes of their names, which differ from process to process."""
    dead = [b"x%d" % number for number in range(8)]
    table = Table(limits=replace(LIMITS, assemblies_max=len(dead)))
    for sid in (*dead, Q):
        let_in(table, sid, SIZE_MAX)
    for sid in dead:
        table.tell_message(sid, one(1, FIRST, b"a"))
    table.wait(100.0, alive=(Q,))
    table.events()
    assert begun(table)
    assert table.events() == [PeerForgotten(peer=dead[0])]


def test_one_that_was_given_up_goes_on_where_it_was() -> None:
    table = full()
    table.wait(100.0, alive=(Q,))
    table.contact(P)
    table.wait(2.0, alive=(P, Q))
    table.tell_message(P, Synchronize(0, 0))
    table.accept(P, P)
    table.events()
    table.tell_message(P, one(2, LAST, b"b"))
    assert table.events() == [received(b"ab")]


# -- two real nodes ----------------------------------------------------------------------------


def pair(loss: float, *limits: Limits) -> Cluster:
    network = Network(seed=7, conditions=Conditions(loss=loss, delay_min=0.001, delay_max=0.02))
    cluster = Cluster(network)
    for sid, each in zip((P, Q), limits, strict=True):

        def build(host: Host, each: Limits = each) -> Node:
            assert isinstance(host.address, bytes)
            rng = network.random(repr(host.address))
            return Node(me=host.address, rng=rng, epoch=EPOCH, limits=each, timing=TIMING)

        cluster.add(sid, build)
    cluster[P].call("start")
    cluster[Q].call("join", sid=P)
    network.run(5.0)
    return cluster


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_half_a_mebibyte_arrives_whole_and_in_order(loss: float) -> None:
    limits = Limits(message_size_max=2**19, datagram_size_max=16_384)
    cluster = pair(loss, limits, limits)
    data = bytes(range(256)) * 2**11
    with cluster:
        for payload in (b"before", data, b"after"):
            cluster[P].call("send_in_order", to=Q, data=payload)
        cluster.network.run(60.0, done=lambda: len(told(cluster)) == 3)
    assert told(cluster) == [b"before", data, b"after"]


def told(cluster: Cluster) -> list[bytes]:
    return [event.data for _, event in cluster[Q].events if isinstance(event, MessageReceived)]


def test_a_node_without_pieces_is_sent_none() -> None:
    cluster = pair(0.0, Limits(message_size_max=2**20), Limits())
    with cluster:
        assert cluster[P].machine.peers()[Q].message_size_max == 0
        assert cluster[Q].machine.peers()[P].message_size_max == 2**20
        with pytest.raises(LocalProtocolError):
            cluster[P].call("send_in_order", to=Q, data=bytes(3_000))
        cluster[P].call("broadcast_in_order", data=bytes(3_000))
        cluster[P].call("broadcast_in_order", data=b"small")
        cluster.network.run(cluster.network.clock.now + 2.0)
    assert told(cluster) == [b"small"]
    assert cluster[Q].machine.dropped[DropReason.MALFORMED] == 0

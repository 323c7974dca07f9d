"""Attempts by peers, forgers and careless users: nothing breaks, nothing grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oxen_simulation import EPOCH as SIM_EPOCH
from oxen_simulation import LIMITS, TIMING
from oxen_support import EPOCH, ME, Table

from culm.machine import ContractErrorCode, LocalProtocolError
from culm.machines.memory import retained_size
from culm.oxen import (
    Delivery,
    Dialect,
    DropReason,
    ErrorCode,
    Limits,
    MessageReceived,
    Node,
    PeerState,
    PeerUnreachable,
    State,
)
from culm.oxen.messages import (
    Datagram,
    Gossip,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    decode_parcel,
    encode_parcel,
    write_message,
)
from culm.oxen.routing import ForwardMemory
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

A, P, Q = b"A", b"P", b"Q"
ABSURD = (2.0**62, -(2.0**62), 1e12, -1.0, 0.0, EPOCH + 1e6, EPOCH - 1e6, EPOCH)


@pytest.mark.parametrize("time", ABSURD)
@pytest.mark.parametrize("fr", [ME, P, Q, b"nobody"])
def test_a_forged_table_cannot_make_live_peers_unreachable(time: float, fr: bytes) -> None:
    """Future times are clamped; others' claims about our contacts are ignored."""
    table = Table()
    for sid in (P, Q):
        table.join(sid)
    for _ in range(40):
        table.wait(3.0, alive=(P, Q))
        table.tell(Q, Gossip({fr: [time] * 3}, [ME, P, Q]))
        own = table.node.contacts()[ME]
        assert all(table.node.unix_time - own[sid] < 20 for sid in (P, Q))
        assert all(
            at <= table.node.unix_time
            for row in table.node.contacts().values()
            for at in row.values()
        )
    views = table.node.peers()
    assert all(views[sid].usable and views[sid].state is PeerState.JOINED for sid in (P, Q))
    table.said()
    table.node.send(P, b"x")
    table.drain()
    assert [to for to, parcel in table.sent if isinstance(parcel.body, MessageData)] == [P]


def test_what_a_forger_claims_of_a_dead_peer_wears_off() -> None:
    table = Table()
    for sid in (P, Q):
        table.join(sid)
    table.tell(Q, Gossip({Q: [2.0**62]}, [P]))
    table.events()
    table.wait(85.0, alive=(Q,))
    assert table.events() == [PeerUnreachable(peer=P)]


def test_a_forger_who_attracts_a_message_gets_it_once_in_a_while_only() -> None:
    """M claims links to all nodes, and drops messages to be forwarded; others deliver."""
    network = Network(seed=5, conditions=Conditions(delay_min=0.001, delay_max=0.01))
    cluster = Cluster(network)
    names = [b"A", b"B", b"C", b"D"]

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = network.random(repr(host.address))
        return Node(me=host.address, rng=rng, epoch=SIM_EPOCH, limits=LIMITS, timing=TIMING)

    for sid in names:
        cluster.add(sid, build)
    cluster[b"A"].call("start")
    for sid in names[1:]:
        cluster[sid].call("join", sid=b"A")

    lies = encode_parcel(Parcel(body=Gossip({b"AA": [9e15] * 4}, names)))

    def forge(payload: bytes, source: object) -> None:
        """Answers keepalives and synchronizes, to be believed; forwards nothing."""
        parcel = decode_parcel(payload)
        body = parcel.body
        if parcel.ka is not None:
            network.send(b"AA", source, encode_parcel(Parcel(kk=parcel.ka)))
        if isinstance(body, MessageData) and body.to == b"AA" and body.id is not None:
            ack = MessageAck(body.fr, b"AA", body.id)
            network.send(b"AA", source, encode_parcel(Parcel(body=ack)))
        network.send(b"AA", source, lies)

    network.attach(b"AA", forge)
    for sid in names:
        hello = MessageData(sid, b"AA", 1, write_message(Synchronize(0, 2**50)))
        network.send(b"AA", sid, encode_parcel(Parcel(body=hello)))
    network.run(5.0)
    assert cluster[b"A"].machine.peers()[b"AA"].state is PeerState.JOINED
    network.cut(b"A", b"B")
    network.run(15.0)
    begin = network.clock.now
    for number in range(8):
        cluster[b"A"].call("send_in_order", to=b"B", data=b"%d" % number)
    got = cluster[b"B"].events

    def all_there() -> bool:
        return sum(isinstance(event, MessageReceived) for _, event in got) == 8

    assert network.run(begin + 6.0, done=all_there)


def parcels_in_circles() -> int:
    """The number of parcels that a message becomes when a forger claims that its way leads over
    others.

    Z is out of reach.  M tells A, B, C and D that the three others reach it.
    """
    network = Network(seed=8, conditions=Conditions(delay_min=0.001, delay_max=0.01))
    cluster = Cluster(network)
    names = [b"A", b"B", b"C", b"D", b"Z"]

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = network.random(repr(host.address))
        return Node(me=host.address, rng=rng, epoch=SIM_EPOCH, limits=LIMITS, timing=TIMING)

    for sid in names:
        cluster.add(sid, build)
    cluster[b"A"].call("start")
    for sid in names[1:]:
        cluster[sid].call("join", sid=b"A")
    network.run(5.0)
    cluster[b"A"].call("send", to=b"Z", data=b"")  # else it would soon ask whether Z is there
    network.run(5.1)
    cluster[b"Z"].crash()
    lies = encode_parcel(Parcel(body=Gossip({sid: [9e15] for sid in names[:4]}, [b"Z"])))
    under_way: Counter[bytes] = Counter()
    deliver = network.send

    def send(source: object, destination: object, payload: bytes) -> None:
        body = decode_parcel(payload).body
        if isinstance(body, MessageData) and body.to == b"Z":
            under_way[body.fr] += 1
        deliver(source, destination, payload)

    network.send = send  # type: ignore[method-assign,assignment]
    for tenth in range(100):
        for sid, neighbour in zip(names[:4], [*names[1:4], names[0]], strict=True):
            deliver(neighbour, sid, lies)  # in a known node's name: strangers are not believed
        if tenth == 40:  # the direct link counts as usable no longer
            under_way.clear()
            cluster[b"A"].call("send", to=b"Z", data=b"x")
        network.run(5.1 + tenth / 10)
    return under_way[b"A"]


def test_a_forger_cannot_send_messages_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seconds, some eight deliveries, each forwarded at most once by each of three."""
    assert parcels_in_circles() < 60
    # And without the memory of forwarded parcels it would be a storm: the test can tell.
    monkeypatch.setattr(ForwardMemory, "admit", lambda *_, **__: 0)
    assert parcels_in_circles() > 500


@given(st.lists(st.binary(max_size=80), max_size=30), st.sampled_from(Dialect))
def test_any_datagram_is_survived(datagrams: list[bytes], dialect: Dialect) -> None:
    table = Table(dialect=dialect)
    table.join(P)
    before = table.events()
    for data in datagrams:
        table.node.receive_datagram(data, source=P)
        table.drain()
    table.node.send(P, b"still here")
    table.drain()
    assert before
    assert table.node.peers()[P].state is PeerState.JOINED


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("size", [224, 1200, 65_507])
def test_the_largest_message_fits_and_one_byte_more_is_refused(
    delivery: Delivery, dialect: Dialect, size: int
) -> None:
    limits = Limits(datagram_size_max=size, sid_size_max=32)
    node = Node(me=b"m" * 32, rng=Random(1), epoch=EPOCH, limits=limits, dialect=dialect)
    node.advance(1.0)
    node.start()
    peer = b"p" * 32
    sync = MessageData(node.me, peer, 1, write_message(Synchronize(0, 0)))
    node.receive_datagram(encode_parcel(Parcel(body=sync), dialect), source=peer)
    assert node.next_event() is None
    for parcel in [decode_parcel(data, dialect) for _, data in node.datagrams_to_send()]:
        ack = None
        if isinstance(parcel.body, MessageData):
            assert parcel.body.id is not None
            ack = MessageAck(node.me, peer, parcel.body.id)
        answer = encode_parcel(Parcel(kk=parcel.ka, body=ack), dialect)
        node.receive_datagram(answer, source=peer)
    while node.next_event() is not None:
        pass
    node.datagrams_to_send()
    largest = node.payload_size_max(delivery)
    assert largest > size - 210
    send = {
        Delivery.DATAGRAM: lambda data: node.send(peer, data),
        Delivery.IN_ORDER: lambda data: node.send_in_order(peer, data),
        Delivery.IN_ORDER_BROADCAST: node.broadcast_in_order,
    }[delivery]
    with pytest.raises(LocalProtocolError) as caught:
        send(bytes(largest + 1))
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert caught.value.message == f"{largest + 1} bytes, at most {largest}"
    assert node.datagrams_to_send() == []
    send(bytes(largest))
    ((_, data),) = node.datagrams_to_send()
    assert size - 45 <= len(data) <= size


def test_a_full_queue_is_said_and_changes_nothing() -> None:
    table = Table(limits=Limits(queue_max=3))
    for sid in (P, Q):
        table.join(sid)
    for _ in range(3):
        table.node.send_in_order(P, b"x")
    table.said()
    for call in (
        lambda: table.node.send(P, b"y"),
        lambda: table.node.send_in_order(P, b"y"),
        lambda: table.node.broadcast(b"y"),
        lambda: table.node.broadcast_in_order(b"y"),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            call()
        assert caught.value.code is ErrorCode.QUEUE_FULL
        assert "P" in caught.value.message
    assert table.node.peers()[Q].queued == 0
    table.node.send(Q, b"z")
    table.node.send(P, b"unheard", acknowledged=False)


def test_who_only_wants_to_join_blocks_no_broadcast() -> None:
    """Its queue would overflow: it may begin with later messages."""
    table = Table(limits=Limits(queue_max=4))
    table.join(Q)
    table.tell_message(P, Synchronize(0, 0))
    for _ in range(9):
        table.node.broadcast_in_order(b"x")
        table.drain()
        for body in [b for b in table.bodies(MessageData, Q) if isinstance(b.d, dict)]:
            table.tell(Q, MessageAck(ME, Q, body.id))
    assert table.node.peers()[P].queued <= 4


def test_calls_at_the_wrong_time_or_with_wrong_names() -> None:
    node = Node(me=ME, rng=Random(1), epoch=EPOCH)

    def code(call: object, *args: object) -> object:
        with pytest.raises(LocalProtocolError) as caught:
            call(*args)  # type: ignore[operator]
        return caught.value.code

    assert code(node.send, P, b"x") is ErrorCode.NOT_STARTED
    assert code(node.broadcast, b"x") is ErrorCode.NOT_STARTED
    assert code(node.join, b"") is ErrorCode.BAD_SID
    assert code(node.join, ME) is ErrorCode.BAD_SID
    assert code(node.join, b"x" * 33) is ErrorCode.BAD_SID
    assert node.state is State.IDLE
    assert node.next_deadline() is None
    # Numbers are made from the time: without it two starts would look like one.
    assert code(node.start) is ErrorCode.NO_TIME
    assert code(node.join, P) is ErrorCode.NO_TIME
    assert node.state is State.IDLE
    node.advance(0.0)
    node.start()
    assert code(node.start) is ErrorCode.ALREADY_STARTED
    assert code(node.send, P, b"x") is ErrorCode.NOT_JOINED
    with pytest.raises(LocalProtocolError):
        node.receive_datagram(b"", source="text")
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(LocalProtocolError):
            node.advance(bad)
    node.leave()
    assert code(node.start) is ContractErrorCode.ALREADY_CLOSED
    assert code(node.join, P) is ContractErrorCode.ALREADY_CLOSED
    assert code(node.broadcast_in_order, b"x") is ContractErrorCode.ALREADY_CLOSED
    with pytest.raises(LocalProtocolError) as caught:
        Node(me=b"", rng=Random(1), epoch=EPOCH)
    assert caught.value.code is ErrorCode.BAD_SID


def test_servers_beyond_the_limits_are_not_known() -> None:
    table = Table(limits=Limits(peers_max=4, candidates_max=2))
    table.join(b"p")
    table.gossip(b"p", p={b"x%d" % index: table.now for index in range(9)})
    first, second = sorted(set(table.node.peers()) - {b"p"})
    assert {first, second} < {b"x%d" % index for index in range(9)}
    assert table.node.dropped[DropReason.PEERS_LIMIT] == 7
    table.node.join(b"y")  # for those that our user names, candidates that are silent make room
    table.node.join(b"z")
    assert sorted(table.node.peers()) == [b"p", b"y", b"z"]
    with pytest.raises(LocalProtocolError) as caught:
        table.node.join(second)
    assert caught.value.code is ErrorCode.PEERS_LIMIT
    table.node.join(b"y")  # already known
    table.wait(81.0, alive=(b"p",))
    assert sorted(table.node.peers()) == [b"p"]
    table.node.join(b"z")


def test_messages_beyond_the_window_are_not_acknowledged() -> None:
    table = Table(limits=Limits(window_max=4))
    table.join(P, one=10)
    table.said()
    acknowledged = [
        table.tell_message(P, OneToOne(number, b"x")) for number in (12, 13, 14, 15, 2**62)
    ]
    assert table.acknowledged() == acknowledged[:3]
    assert table.node.dropped[DropReason.BEYOND_WINDOW] == 2
    assert table.node.peers()[P].early == 3


@pytest.mark.parametrize("size", [0, 1, 39, 40, 839])
def test_an_inbox_that_is_not_looked_at_is_bounded(size: int) -> None:
    """A datagram counts with its overhead and its source's ID, so that many small ones count."""
    table = Table(limits=Limits(inbox_size_max=2000))
    for _ in range(300):
        table.node.receive_datagram(bytes(size), source=P)
    table.drain()
    kept = 2000 // (size + 160 + len(P))
    assert table.node.dropped[DropReason.INBOX_FULL] == 300 - kept
    # Taking them makes room.
    for _ in range(kept + 1):
        table.node.receive_datagram(bytes(size), source=P)
    assert table.node.dropped[DropReason.INBOX_FULL] == 301 - kept


def test_many_datagrams_of_any_size_cost_no_more_than_the_limit() -> None:
    limits = Limits()
    for size in (0, 1, 100):
        table = Table(limits=limits)
        empty = retained_size(table.node)
        for number in range(50_000):
            table.node.receive_datagram(bytes(size), source=b"%032d" % number)
        assert table.node.dropped[DropReason.INBOX_FULL] > 20_000
        assert retained_size(table.node) - empty <= limits.inbox_size_max


def test_ourselves_as_a_source_are_ignored() -> None:
    table = Table()
    table.tell(ME, ka=1)
    table.tell(P, MessageData(P, ME, 1, b"x"))
    table.tell(P, MessageAck(P, ME, 1))
    assert table.sent == []
    assert table.node.dropped == {DropReason.FROM_SELF: 3}


def test_a_datagram_that_is_too_long_is_ignored() -> None:
    table = Table(limits=replace(Limits(), datagram_size_max=300))
    table.join(P)
    table.events()
    table.tell(P, MessageData(ME, P, 1, write_message(Datagram(bytes(300)))))
    assert table.events() == []
    assert table.node.dropped == {DropReason.TOO_LARGE: 1}


def test_an_unknown_sender_of_a_regular_message_is_asked_who_it_is() -> None:
    """We may have forgotten it, while it takes us for a peer."""
    table = Table()
    table.tell_message(P, OneToOne(7, b"x"))
    ((to, parcel),) = [each for each in table.sent if isinstance(each[1].body, MessageData)]
    assert to == P
    assert isinstance(parcel.body, MessageData)
    assert parcel.body.d == {b"m": b"s", **{k: parcel.body.d[k] for k in (b"b", b"1")}}  # type: ignore[index,call-overload]


@pytest.mark.parametrize("state", [None, PeerState.SYNCHRONIZING, PeerState.GIVEN_UP])
def test_a_large_message_to_one_that_has_not_joined_is_refused_for_that(
    state: PeerState | None,
) -> None:
    table = Table(limits=Limits(message_size_max=5_000))
    if state is PeerState.GIVEN_UP:
        table.join(P)
        table.wait(90.0)
    elif state is not None:
        table.tell_message(P, Synchronize(0, 0, 2_000))
    assert (table.node.peers()[P].state if state else None) is state
    for size, code in ((4_000, ErrorCode.NOT_JOINED), (5_001, ErrorCode.PAYLOAD_TOO_LARGE)):
        with pytest.raises(LocalProtocolError) as caught:
            table.node.send_in_order(P, bytes(size))
        assert caught.value.code is code


def test_an_acknowledgement_of_nothing_is_counted_once() -> None:
    table = Table()
    for id in (1, 2):
        table.tell(P, MessageAck(ME, P, id))
    assert table.node.dropped == {DropReason.STRAY_ACKNOWLEDGE: 2}

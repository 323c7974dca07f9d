"""More large messages or servers than places: each gets in, and waits alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from oxen_support import Table, builder, joining

from culm.machine import Event, LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    ErrorCode,
    Limits,
    MessageReceived,
    PeerForgotten,
    PeerJoined,
    PeerState,
    SendFailed,
    SendResumed,
    SendWaiting,
)
from culm.oxen.messages import Synchronize
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

SIZE = 60_000


def crowd(
    size: int, limits: Limits, *, seed: int = 1, loss: float = 0.0, windows: Sequence[int] = ()
) -> Cluster:
    """`size` nodes, all joined; `windows` are the `window_max` of the first ones."""
    network = Network(seed=seed, conditions=Conditions(delay_min=0.005, delay_max=0.02))
    names = [b"N%d" % index for index in range(size)]
    smaller = [replace(limits, window_max=each) for each in windows]
    own = dict(zip(names, smaller, strict=False))
    cluster = joining(network, names, limits=limits, own=own)
    assert network.run(60.0, done=lambda: count(cluster, PeerJoined) == size * (size - 1))
    network.set_conditions(Conditions(delay_min=0.005, delay_max=0.02, loss=loss))
    return cluster


def count(cluster: Cluster, kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for host in cluster for _, event in host.events)


def told(host: Host, kind: type[Event]) -> list[Event]:
    return [event for _, event in host.events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("size", "places", "loss"),
    [(2, 1, 0.0), (2, 1, 0.05), (4, 1, 0.0), (4, 1, 0.05), (5, 4, 0.05), (9, 8, 0.0)],
)
def test_what_was_accepted_arrives_after_an_outage(size: int, places: int, loss: float) -> None:
    """Law 3: more senders than places, and none of them hears anything for three seconds."""
    limits = Limits(message_size_max=100_000, assemblies_max=places)
    cluster = crowd(size, limits, loss=loss)
    network = cluster.network
    for host in cluster:
        host.call("broadcast_in_order", data=bytes(SIZE))
        for other in cluster:
            if other is not host:
                host.call("send_in_order", to=other.address, data=bytes(SIZE))
    network.run(network.clock.now + 0.05)
    network.set_conditions(Conditions(loss=1.0))
    network.run(network.clock.now + 3.0)
    network.set_conditions(Conditions(delay_min=0.005, delay_max=0.02, loss=loss))
    expected = 2 * size * (size - 1)
    begin = network.clock.now
    network.run(begin + 300.0, done=lambda: count(cluster, Delivered) == expected)

    assert count(cluster, MessageReceived) == count(cluster, Delivered) == expected
    assert not count(cluster, SendFailed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("windows", [(1, 8), (1, 256), (2, 8, 2), (256, 2, 256)])
def test_what_was_accepted_arrives_where_windows_differ(
    windows: tuple[int, ...], seed: int
) -> None:
    """Law 3: pieces beyond the receiver's window are no reason not to send the one before them.

    They were sent again and again, and filled the sender's window; a message without a place,
    which they belong to or come after, was never sent again.
    """
    limits = Limits(message_size_max=20_000, assemblies_max=1)
    chat(crowd(len(windows), limits, seed=seed, windows=windows))


@pytest.mark.parametrize(
    ("windows", "outbox_max", "seed"),
    [
        ((1, 8), 1, 0),
        ((1, 256), 1, 0),
        ((1, 256), 3, 24),
        ((2, 8, 2), 1, 34),
        ((256, 2, 256), 1, 6),
    ],
)
def test_what_was_accepted_arrives_where_windows_differ_after_an_outage(
    windows: tuple[int, ...], outbox_max: int, seed: int
) -> None:
    """The later pieces of a message that had found a place were never sent again.

    The window, small after the outage, was full of those that came after them.
    """
    limits = Limits(message_size_max=20_000, assemblies_max=1, outbox_max=outbox_max)
    chat(crowd(len(windows), limits, seed=seed, windows=windows), outage=True)


def chat(cluster: Cluster, *, outage: bool = False) -> None:
    """Send twenty messages, large and small, to one or all; all of them arrive."""
    network = cluster.network
    rng = network.random("user")
    hosts, expected = list(cluster), 0
    for turn in range(20):
        host, size = rng.choice(hosts), rng.choice([10, 2_500])
        if rng.random() < 0.5:
            to = rng.choice([other for other in hosts if other is not host])
            host.call("send_in_order", to=to.address, data=bytes(size))
            expected += 1
        else:
            host.call("broadcast_in_order", data=bytes(size))
            expected += len(hosts) - 1
        if outage and turn == 10:
            network.run(network.clock.now + 0.05)
            network.set_conditions(Conditions(loss=1.0))
            network.run(network.clock.now + 3.0)
            network.set_conditions(Conditions(delay_min=0.005, delay_max=0.02))
        if rng.random() < 0.5:
            network.run(network.clock.now + rng.expovariate(20))
    network.run(network.clock.now + 300.0, done=lambda: count(cluster, Delivered) == expected)
    assert count(cluster, Delivered) == count(cluster, MessageReceived) == expected


@pytest.mark.parametrize("delivery", [Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST])
def test_what_has_no_place_waits_alone(delivery: Delivery) -> None:
    """Law 4: datagrams and the other stream take no longer than without it."""
    cluster = crowd(3, Limits(message_size_max=2_000_000, assemblies_max=1, window_max=64))
    network = cluster.network
    holder, sender, receiver = list(cluster)
    holder.call("send_in_order", to=receiver.address, data=bytes(1_000_000))
    network.run(network.clock.now + 0.1)
    network.partition([holder.address], [receiver.address, sender.address])
    if delivery is Delivery.IN_ORDER:
        sender.call("send_in_order", to=receiver.address, data=bytes(SIZE))
    else:
        sender.call("broadcast_in_order", data=bytes(SIZE))
    begin = network.clock.now
    for number in range(200):
        sender.call("send", to=receiver.address, data=b"datagram %d" % number)
        if delivery is Delivery.IN_ORDER:
            sender.call("broadcast_in_order", data=b"small %d" % number)
        else:
            sender.call("send_in_order", to=receiver.address, data=b"small %d" % number)

    def arrived() -> set[bytes]:
        return {event.data for event in told(receiver, MessageReceived)}  # type: ignore[attr-defined]

    network.run(begin + 10.0, done=lambda: len(arrived()) == 400)
    assert len(arrived()) == 400
    assert network.clock.now - begin < 1.0
    waiting = SendWaiting(peer=receiver.address, message=1)  # type: ignore[arg-type]
    assert told(sender, SendWaiting) == [waiting]
    network.heal()
    assert network.run(begin + 60.0, done=lambda: bool(told(sender, SendResumed)))
    assert network.run(
        begin + 60.0,
        done=lambda: Delivered(peer=receiver.address, message=1) in told(sender, Delivered),  # type: ignore[arg-type]
    )
    assert len(told(sender, SendWaiting)) == len(told(sender, SendResumed)) == 1


@pytest.mark.parametrize("keys", [[], [bytes(32)]], ids=["open", "sealed"])
@pytest.mark.parametrize("others", [1, 3])
def test_the_dead_keep_nobody_out(others: int, keys: list[bytes]) -> None:
    """Short-lived servers come and die one by one; each gets in, and so does the last."""
    network = Network(seed=7, conditions=Conditions(delay_min=0.005, delay_max=0.02))
    cluster = Cluster(network)
    limits = Limits(peers_max=others, candidates_max=1)
    build = builder(network, limits=limits, keys=keys)

    def joins(host: Host) -> bool:
        return PeerJoined(peer=host.address) in told(old, PeerJoined)  # type: ignore[arg-type]

    old = cluster.add(b"old", build)
    old.call("start")
    for number in range(3 * others):
        young = cluster.add(b"young %d" % number, build)
        young.call("join", sid=b"old")
        assert network.run(network.clock.now + 5.0, done=lambda young=young: joins(young)), number
        young.crash()
        network.run(network.clock.now + 100.0)  # it is given up
        assert len(old.machine.peers()) <= others + 1
    # The first that were given up made room for the last.
    assert [event.peer for event in told(old, PeerForgotten)] == [  # type: ignore[attr-defined]
        b"young %d" % number for number in range(2 * others)
    ]


def test_whoever_proves_nothing_takes_no_place_of_one_that_is_given_up() -> None:
    """Strangers come and go; the peer that was cut off remains known, and comes back."""
    table = Table(limits=Limits(peers_max=1, candidates_max=2))
    table.join(b"P")
    table.wait(100.0)
    assert table.node.peers()[b"P"].state is PeerState.GIVEN_UP
    for number in range(50):
        sid = b"x%d" % number
        table.tell_message(sid, Synchronize(0, number << 30))
        assert b"P" in table.node.peers()
        assert len(table.node.peers()) <= 2
        table.wait(1.0)
    assert not [event for event in table.events() if isinstance(event, PeerForgotten)]


def test_one_that_is_back_and_has_no_place_for_us_keeps_nobody_out() -> None:
    """It answers keepalives, as any server does, and our synchronize message never."""
    table = Table(limits=Limits(peers_max=1))
    table.join(b"P")
    table.wait(100.0)
    table.wait(80.0, alive=(b"P",))
    assert table.node.peers()[b"P"].state is PeerState.SYNCHRONIZING
    table.tell_message(b"Q", Synchronize(0, 7))
    assert set(table.node.peers()) == {b"P"}
    table.wait(60.0, alive=(b"P",))
    table.join(b"Q")
    assert set(table.node.peers()) == {b"Q"}
    assert PeerForgotten(peer=b"P") in table.events()


def test_several_that_are_back_and_have_no_place_for_us_keep_nobody_out() -> None:
    """Not even if they were not yet taken for absent when another one joined."""
    table = Table(limits=Limits(peers_max=2))
    for sid in (b"P", b"Q"):
        table.join(sid)
    table.wait(100.0)
    table.tell_message(b"R", Synchronize(0, 7))
    table.wait(30.0, alive=(b"P", b"Q", b"R"))
    assert {view.state for view in table.node.peers().values()} == {PeerState.SYNCHRONIZING}
    table.accept(b"R", b"R")
    assert len(table.node.peers()) == 3
    table.wait(90.0, alive=(b"P", b"Q", b"R"))
    table.join(b"S")
    assert set(table.node.peers()) == {b"R", b"S"}
    forgotten = [event for event in table.events() if isinstance(event, PeerForgotten)]
    assert len(forgotten) == 2


def test_a_candidate_that_was_never_heard_makes_room_for_one_that_speaks() -> None:
    """It may be out of reach for good, as the way to it leads over some that have given it up."""
    table = Table(limits=Limits(candidates_max=1))
    table.join(b"P")
    table.gossip(b"P", P={b"far": table.now})
    assert set(table.node.peers()) == {b"P", b"far"}
    table.tell_message(b"near", Synchronize(0, 7), source=b"P")
    assert set(table.node.peers()) == {b"P", b"near"}
    # But one that is heard makes no room, nor does one that our user has named.
    table.tell_message(b"other", Synchronize(0, 7), source=b"P")
    assert set(table.node.peers()) == {b"P", b"near"}
    table.accept(b"near", b"P")
    table.node.join(b"named")
    table.tell_message(b"other", Synchronize(0, 7), source=b"P")
    assert set(table.node.peers()) == {b"P", b"near", b"named"}


def test_it_makes_room_for_a_stranger_where_all_places_are_taken() -> None:
    """As long as it has not answered, that is for a round trip if it is there."""
    table = Table(limits=Limits(candidates_max=2, peers_max=2))
    table.join(b"P")
    table.gossip(b"P", P={b"far": table.now})
    table.tell_message(b"stranger", Synchronize(0, 7))
    assert set(table.node.peers()) == {b"P", b"stranger"}
    table.tell_message(b"near", Synchronize(0, 7), source=b"P")
    assert set(table.node.peers()) == {b"P", b"near"}
    table.tell_message(b"stranger", Synchronize(0, 7))
    assert set(table.node.peers()) == {b"P", b"near"}


def test_one_that_restarts_is_the_newest_stranger() -> None:
    """It has to prove itself anew, and has as much time for it as others."""
    table = Table(limits=Limits(candidates_max=2))
    table.join(b"P")
    table.insist(b"P", Synchronize(1 << 40, 1 << 40))
    for number in range(2):
        table.tell_message(b"x%d" % number, Synchronize(0, 7))
    assert b"P" in table.node.peers()
    table.accept(b"P", b"P")
    assert table.node.peers()[b"P"].state is PeerState.JOINED


def test_one_that_our_user_names_takes_the_place_of_one_that_was_never_heard() -> None:
    """Gossip, perhaps of made-up servers, keeps no user from joining another cluster."""
    table = Table(limits=Limits(candidates_max=1))
    table.join(b"P")
    table.gossip(b"P", P={b"far": table.now})
    table.node.join(b"named")
    assert set(table.node.peers()) == {b"P", b"named"}
    with pytest.raises(LocalProtocolError) as caught:
        table.node.join(b"another")
    assert caught.value.code is ErrorCode.PEERS_LIMIT


@pytest.mark.parametrize("delay", [0.001, 0.15])
@pytest.mark.parametrize("size", [3, 6])
def test_strangers_that_push_each_other_out_come_to_rest(size: int, delay: float) -> None:
    """Where delays are all the same, each was forgotten before its answer came, and began anew."""
    network = Network(seed=1, conditions=Conditions(delay_min=delay, delay_max=delay))
    names = [b"N%d" % index for index in range(size)]
    cluster = joining(network, names, limits=Limits(candidates_max=1))
    network.run(3.0)
    assert network.statistics().sent < 1_000
    assert network.run(30.0, done=lambda: count(cluster, PeerJoined) == size * (size - 1))


def test_candidates_take_turns() -> None:
    """Gossip names them in the order of their IDs: the first ones kept all others out."""
    table = Table(limits=Limits(candidates_max=1))
    table.join(b"P")
    asked = set()
    for _ in range(40):
        table.gossip(b"P", P=dict.fromkeys((b"far 1", b"far 2", b"far 3"), table.now))
        (candidate,) = set(table.node.peers()) - {b"P"}
        asked.add(candidate)
        table.wait(100.0, alive=(b"P",))  # it is forgotten
    assert asked == {b"far 1", b"far 2", b"far 3"}

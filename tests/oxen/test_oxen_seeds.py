"""Servers that are asked for help until they are peers, and again when they no longer are."""

from __future__ import annotations

from itertools import pairwise

from oxen_support import Table

from culm.machine import Closed
from culm.oxen import (
    Limits,
    Node,
    PeerForgotten,
    PeerJoined,
    PeerState,
    PeerUnreachable,
    Timing,
)
from culm.oxen.messages import Finalize, Synchronize
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

P, Q = b"P", b"Q"


def asked(
    table: Table, seconds: int, sid: bytes = P, *, alive: tuple[bytes, ...] = ()
) -> list[int]:
    """The seconds from now in which `sid` is asked, while those `alive` answer."""
    found: list[int] = []
    for second in range(seconds):
        table.said()
        table.wait(1.0, alive=alive)
        if any(isinstance(message, Synchronize) for message in table.messages(sid)):
            found.append(second)
    return found


def test_one_that_does_not_answer_is_asked_again_ever_more_rarely() -> None:
    table = Table()
    table.node.join(P, seed=True)
    at = asked(table, 3600)
    assert table.events() == [PeerUnreachable(peer=P)]
    attempts = [(b, b - a) for a, b in pairwise(at) if b - a > 6]
    assert len(attempts) > 8
    for missing, quiet in attempts:  # the last redelivery came up to six seconds before the pause
        pause = min(missing / 8, Timing().seek_max_s)
        assert pause - 1 <= quiet <= pause + 7
    assert attempts[-1][1] >= Timing().seek_max_s


def test_one_that_is_no_seed_is_asked_once() -> None:
    table = Table()
    table.node.join(P)
    assert max(asked(table, 600)) < 85


def test_it_joins_whenever_it_is_there() -> None:
    table = Table()
    table.node.join(P, seed=True)
    table.wait(1000.0)
    table.events()
    table.join(P)
    assert table.events() == [PeerJoined(peer=P)]
    assert table.node.peers()[P].state is PeerState.JOINED


def test_one_that_has_left_is_asked_when_its_last_words_are_over() -> None:
    table = Table()
    table.node.join(P, seed=True)
    table.drain()
    table.join(P)
    table.tell_message(P, Finalize(0, 0))
    assert P not in table.node.peers()
    first = asked(table, 300)[0]
    assert 80 <= first <= 95


def test_one_that_was_given_up_is_looked_for_without_end() -> None:
    table = Table(timing=Timing(forget_s=600.0))
    table.node.join(P, seed=True)
    table.drain()
    table.join(P)
    table.wait(3000.0)
    assert table.node.peers()[P].state is PeerState.GIVEN_UP
    assert PeerForgotten(peer=P) not in table.events()


def test_one_that_is_forgotten_is_asked_no_more() -> None:
    table = Table()
    table.node.join(P, seed=True)
    table.node.forget(P)
    table.said()
    assert asked(table, 600) == []
    table.node.join(Q, seed=True)
    table.wait(90.0)  # between two attempts
    table.node.forget(Q)
    assert asked(table, 600, Q) == []


def test_who_leaves_asks_nobody() -> None:
    table = Table()
    table.node.join(P, seed=True)
    table.wait(90.0)
    table.node.leave()
    table.drain()
    assert table.events()[-1] == Closed()
    assert asked(table, 100) == []


def test_a_seed_for_which_there_is_no_room_waits() -> None:
    table = Table(limits=Limits(peers_max=1))
    table.node.join(P, seed=True)
    table.wait(82.0)
    table.join(Q)
    assert asked(table, 600, alive=(Q,)) == []
    table.node.forget(Q)
    assert asked(table, 600) != []


def test_a_seed_is_asked_beside_one_that_is_given_up() -> None:
    """It would take over that place."""
    table = Table(limits=Limits(peers_max=1))
    table.node.join(P, seed=True)
    table.wait(82.0)
    table.join(Q)
    assert min(asked(table, 600)) >= 79


def test_seeds_that_start_in_any_order_meet() -> None:
    """Each has all others in its book; the last one comes after two minutes."""
    network = Network(seed=5, conditions=Conditions(loss=0.1, delay_max=0.05))
    cluster = Cluster(network)
    names = [b"A", b"B", b"C"]

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = network.random(f"{host.address!r} {host.incarnation}")
        return Node(me=host.address, rng=rng, epoch=1.7e9)

    for sid in names:
        cluster.add(sid, build, start=False)

    def boot(sid: bytes) -> None:
        cluster[sid].start()
        for seed in names:
            if seed != sid:
                cluster[sid].call("join", sid=seed, seed=True)

    def whole() -> bool:
        return all(
            [view.state for view in host.machine.peers().values()] == [PeerState.JOINED] * 2
            for host in cluster
        )

    with network:
        for sid in names:
            boot(sid)
            network.run(network.clock.now + 120.0)
        assert network.run(network.clock.now + 40.0, done=whole)


def test_one_that_was_given_up_is_asked_at_once_when_our_user_names_it() -> None:
    """The next question might be minutes away, and the user know that it is back."""
    table = Table()
    table.join(P)
    table.wait(2_000.0)
    assert table.events() == [PeerJoined(peer=P), PeerUnreachable(peer=P)]
    table.said()
    for _ in range(3):
        table.node.join(P)
        table.drain()
    (parcel,) = table.said(P)
    table.tell(P, kk=parcel.ka)
    table.wait(1.0)
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING

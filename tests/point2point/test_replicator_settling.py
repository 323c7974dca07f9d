"""Settled, or only seemingly so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from p2p_support import cancel, marker, propose
from replicator_raw import RawPeer
from replicator_support import (
    FETCH,
    SERVE,
    SMALL,
    World,
    key_of,
    news_of,
    same,
    settled,
    store_of,
)

from culm.point2point import Role
from culm.point2point.replication import LogOffered, Settled, Timing
from culm.point2point.replication.steps import Stage


@pytest.mark.parametrize("lacking", [1, 20, 50])
def test_nothing_has_settled_while_the_peer_is_within_a_message(lacking: int) -> None:
    """A program that fetches once would leave before it has heard of everything on offer."""
    world = World()
    ours, theirs = world.node(interest=FETCH), world.node(store_of(news_of((5, 5))), interest=SERVE)
    end, peer = ours.open(Role.PROACTIVE), theirs.open(Role.REACTIVE)
    end.drain()
    peer.machine.receive_data(bytes(end.out))
    peer.drain()
    world.run()
    words = bytes(peer.out)
    end.machine.receive_data(words[:-lacking])
    end.drain()
    world.wait(10)
    assert not settled(end)
    end.machine.receive_data(words[-lacking:])
    end.drain()
    assert end.of(LogOffered)


def test_who_has_heard_that_there_is_nothing_settles() -> None:
    world = World()
    cable = world.connect(world.node(interest=FETCH), world.node(interest=SERVE))
    world.wait(10)
    assert settled(cable.left)


def test_what_has_settled_is_told_once() -> None:
    world = World()
    cable = world.connect(world.node(interest=FETCH), world.node(interest=SERVE))
    for _ in range(3):
        world.wait(10)
        assert len(cable.left.of(Settled)) == 1


def test_the_time_at_which_it_gives_up_is_not_one_that_it_still_waits_for() -> None:
    """The peer gives no credit for the log that it is to be offered."""
    world = World()
    end = world.node(store_of(news_of((5, 5))), interest=SERVE).open(Role.REACTIVE)
    end.machine.receive_data(bytes(3))
    end.drain()
    world.run()
    for now in (0.0, 0.5, 1.0, 1.5):
        end.machine.advance(now)
        end.drain()
        deadline = end.machine.next_deadline()
        assert deadline is None or deadline > now


def test_a_wish_that_comes_when_all_has_settled_is_not_forgotten() -> None:
    """The peer's only place is that of a log which has been forgotten and taken up again since."""
    limits = replace(SMALL, connection=replace(SMALL.connection, requests_max=1))
    logs = [news_of((5, 5), seed=seed) for seed in range(1, 6)]
    world = World()
    asker = world.node(store_of(*logs), limits=replace(limits, logs_max=2))
    server = world.node(store_of(*logs), limits=limits)
    cable = world.connect(asker, server)
    world.wait(10)
    for news in logs:
        cable.left.machine.stored(key_of(news))
        cable.left.drain()
        world.wait(10)
    stages = {ours.stage for log in cable.left.machine.logs.values() for ours in log.ours.values()}
    assert Stage.QUEUED not in stages


@pytest.mark.parametrize("latency", [0.0, 0.1])
def test_quiet_of_no_length_is_quiet(latency: float) -> None:
    """Requests that end to make room do not keep the machine busy until the peer has answered."""
    logs = [news_of((5, 5), seed=seed) for seed in range(1, 6)]
    world = World(latency=latency)
    nodes = [
        world.node(store_of(*logs[:3])),
        world.node(store_of(*logs[2:]), limits=replace(SMALL, logs_max=2)),
    ]
    for node in nodes:
        node.timing = Timing(settle_s=0.0)
    cable = world.connect(*nodes)
    world.wait(10)
    assert settled(cable.left)
    assert same(*nodes)


def test_a_log_that_was_turned_away_gets_the_place_of_one_that_has_been_sent_slowly() -> None:
    """It is quiet while the peer takes a payload, and nothing more comes of it after that."""
    sent, waits = news_of((300,)), news_of((10,), log_id=1)
    peer = RawPeer(sent, waits, timing=Timing(settle_s=0.0), credit=1, data_credit=200)
    peer.machine.advance(0.0)
    assert peer.machine.connection.requests[1].proposal.log == key_of(sent)
    peer.control(propose(0, log=key_of(sent)), cancel(3, 129))
    peer.data(marker(3))
    peer.drain()
    request = peer.machine.connection.requests[0]
    for now in (1.0, 2.0, 3.0, 4.0):
        if now == 3.0:
            assert request.is_open
            peer.receive(bytes([0x00, 1, 240]) * 2)  # credit for the rest of the payload
        peer.machine.advance(now)
        peer.drain()
    assert not request.is_open


def test_questions_for_a_sign_of_life_disturb_no_quiet() -> None:
    """So a log that was turned away gets the place of another, as after any quiet."""
    sent, waits = news_of((5,)), news_of((10,), log_id=1)
    peer = RawPeer(sent, waits, timing=Timing(settle_s=5, keepalive_s=1), data_credit=200)
    peer.machine.advance(0.0)
    peer.control(propose(0, log=key_of(sent)), cancel(3, 129))
    peer.data(marker(3))
    for now in range(1, 20):
        peer.machine.advance(now)
        peer.drain()
        peer.receive(bytes([0x00, 1, 1]))  # a sign of life: credit
    assert not peer.machine.connection.requests[0].is_open

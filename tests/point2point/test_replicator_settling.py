"""Settled, or only seemingly so."""

from __future__ import annotations

import pytest
from replicator_support import FETCH, SERVE, World, news_of, settled, store_of

from culm.point2point import Role
from culm.point2point.replication import LogOffered, Settled


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

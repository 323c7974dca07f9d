"""The laws of life in random worlds; a failure names its seed."""

from __future__ import annotations

import pytest
from replicator_life import Life
from replicator_support import FETCH, KEEP, SERVE, World, key_of, news_of, settled, store_of

from culm.point2point import CancelReason
from culm.point2point.replication import LogRefused, ReplicatorLimits
from effort import seeds


def go(seed: int, *, tight: bool) -> None:
    try:
        Life(seed, tight=tight).go()
    except BaseException as error:
        error.add_note(f"Life({seed}, tight={tight})")
        raise


@pytest.mark.parametrize("seed", seeds("REPLICATOR_LIFE", 24, long=4000))
def test_stores_from_backups_converge(seed: int) -> None:
    """Each may be any earlier one, beside what the neighbours have today."""
    go(seed, tight=False)


@pytest.mark.parametrize("seed", seeds("REPLICATOR_LIFE", 6, long=2000))
def test_where_everything_has_to_wait_for_its_place_all_of_it_comes(seed: int) -> None:
    go(seed, tight=True)


NEWS = [news_of((5, 5), log_id=number) for number in range(4)]


@pytest.mark.parametrize("logs_max", [1, 2, 3])
@pytest.mark.parametrize("interest", [KEEP, FETCH], ids=["live", "once"])
def test_a_log_for_which_there_is_no_place_is_told_of(logs_max: int, interest: object) -> None:
    """Be it that the peer has it, that the user asks for it, or that the store has it."""
    world = World()
    limits = ReplicatorLimits(logs_max=logs_max)
    server = world.node(store_of(*NEWS), interest=SERVE)
    client = world.node(interest=FETCH, limits=limits)
    end = world.connect(client, server).left
    world.wait(3)
    refused = {event.log for event in end.of(LogRefused)}
    there = set(client.store.logs())
    assert settled(end)
    assert len(there) == logs_max
    assert refused == {key_of(news) for news in NEWS} - there
    assert {event.reason for event in end.of(LogRefused)} == {CancelReason.RESOURCE_LIMIT}
    # The user asks for it.
    asked = key_of(news_of((5,), log_id=9))
    end.machine.replicate(asked)
    end.drain()
    assert asked in {event.log for event in end.of(LogRefused)}
    # What is in the store, and is not offered.
    holder = world.node(store_of(*NEWS), interest=KEEP, limits=limits)
    end = world.connect(holder, world.node(interest=KEEP)).left
    world.wait(3)
    assert len(end.of(LogRefused)) == len(NEWS) - logs_max

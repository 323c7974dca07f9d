"""While the store is at work: others write, answers come in any order, bytes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from replicator_support import End, Node, World, key_of, news_of, settled, store_of

from culm.bamboo import LogKey, LogStore, MemoryStore, NewEntry
from culm.point2point import Limits
from culm.point2point.replication import ReplicatorLimits
from culm.wire.multihash import YAMF
from effort import amount


def two_nodes(
    left: LogStore, right: LogStore, rng: Random, limits: ReplicatorLimits
) -> tuple[World, Node, Node]:
    """Connected, with stores that answer in any order."""
    sizes = 5, 10, 1 << 20
    world = World(rng=rng, chunker=lambda available: rng.choice(sizes), late=True)
    nodes = world.node(left, limits=ReplicatorLimits()), world.node(right, limits=limits)
    world.connect(*nodes)
    return world, *nodes


def hear(end: End) -> None:
    """Let everything an end asks for be done at once."""
    end.drain()
    while end.effects:
        end.respond()


def heads(store: LogStore) -> dict[LogKey, int]:
    return {log: head.seqnum for log in store.logs() if (head := store.head(log)) is not None}


@pytest.mark.parametrize("seed", range(amount(45, long=3_000)))
def test_a_payload_that_is_complete_keeps_no_request_from_resting(seed: int) -> None:
    """A payload was begun; once all of it is here, the other log has its turn."""
    news, others = news_of((10,) * 8), news_of((1,) * 8, seed=2)
    log, other = key_of(news), key_of(others)
    left, right = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
    right.append(log, news)
    left.append(other, others)
    left.append(log, [news[0], NewEntry(news[1].entry)])
    left.write_payload(log, 2, 0, (news[1].payload or b"")[:5])
    limits = ReplicatorLimits(connection=Limits(requests_max=1))
    world, *_ = two_nodes(left, right, Random(seed + 30), limits)
    world.wait(40)
    assert heads(left) == heads(right) == {log: 8, other: 8}


@pytest.mark.parametrize("seed", range(amount(6, long=1_000)))
def test_what_is_read_for_a_request_that_has_ended_takes_no_room(seed: int) -> None:
    """Otherwise later reads would wait for room for ever."""
    rng = Random(seed)
    limits = ReplicatorLimits(
        read_ahead_size_max=1000, connection=Limits(requests_max=1, packet_size_max=1000)
    )
    world, left, right = two_nodes(MemoryStore(family=YAMF), MemoryStore(family=YAMF), rng, limits)
    coming = [
        list(news_of(tuple(rng.choice((0, 1, 10, 50)) for _ in range(count)), log_id=count))
        for count in (1, 20, 3)
    ]
    while coming:
        world.run(rng.randrange(12))
        right.add(rng.choice(coming).pop(0))
        coming = [each for each in coming if each]
    world.wait(300)
    assert sorted(heads(left.store).values()) == [1, 3, 20]
    assert right.end.machine.read_ahead_size == 0


def words() -> Iterator[tuple[int, str]]:
    """Stories in which a store grows (i), answers (a), and bytes of the peer come once (r)."""
    for known in (1, 2, 3):
        for length in range(2, 6):
            for grows in range(1, 1 << length):
                word = "".join("i" if grows >> at & 1 else "a" for at in range(length))
                if word.count("i") <= 3:
                    yield from ((known, f"{word[:at]}r{word[at:]}") for at in range(4))


def test_a_store_that_grows_while_a_proposal_is_made_leaves_no_proposal_unanswered() -> None:
    """Our intended proposal no longer displaces one of the peer."""
    news = news_of((1,) * 8)
    for known, word in words():
        world = World()
        nodes = [
            world.node(store_of(kept), limits=ReplicatorLimits())
            for kept in (news[:4], news[:known])
        ]
        world.connect(*nodes)
        a, b = (node.end for node in nodes)
        hear(a)
        world.deliver(b, a)
        hear(a)
        coming = list(news[known:])
        for letter in word:
            if letter == "i":
                nodes[1].add(coming.pop(0))
            elif letter == "r":
                world.deliver(a, b)
            elif b.effects:
                b.respond()
        world.wait(10)
        assert settled(b), (known, word)
        assert heads(nodes[0].store) == heads(nodes[1].store), (known, word)


def test_nothing_has_settled_while_the_peer_has_not_answered() -> None:
    """However long its answer takes: a program that fetches once would leave without anything."""
    news, world = news_of((1,) * 5), World()
    nodes = [world.node(store, limits=ReplicatorLimits()) for store in (None, store_of(news))]
    world.connect(*nodes)
    fetching, serving = (node.end for node in nodes)
    fetching.machine.replicate(key_of(news))
    hear(fetching)
    world.deliver(serving, fetching)  # the setup, and credit
    hear(fetching)
    for tenths in range(1, 100):
        world.now = tenths / 10
        fetching.machine.advance(world.now)
        hear(fetching)
    assert not settled(fetching)
    world.wait(10)
    assert heads(fetching.node.store) == {key_of(news): 5}
    assert settled(fetching)


def test_a_replicator_needs_room_for_what_a_confirmation_takes() -> None:
    with pytest.raises(ValueError, match="request_adjustments_max"):
        ReplicatorLimits(connection=Limits(request_adjustments_max=1))

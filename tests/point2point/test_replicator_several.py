"""Several connections between the same two stores, and an author that goes on meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    Node,
    World,
    key_of,
    news_of,
    same,
    store_of,
)

from culm.bamboo.effects import ReadLog
from culm.machine import Effect
from culm.point2point import Limits
from culm.point2point.replication import EntryStored, LogRefused, PayloadProgress
from culm.testing.link import random_chunks

# A payload takes many packets, few of which fit into the window.
TIGHT = replace(
    SMALL, connection=Limits(packet_size_max=48, data_window_max=100, unsent_size_max=48)
)


def between(seed: int) -> tuple[World, Node, Node]:
    """A node with entries, and one without, in a world of chance."""
    world = World(rng=Random(seed), chunker=random_chunks(Random(-seed)), capacity=200)
    author = world.node(store_of(news_of((0,))), limits=TIGHT)
    return world, author, world.node(limits=TIGHT)


def all_is_well(*nodes: Node) -> bool:
    return same(*nodes) and all(end.closed is None for node in nodes for end in node.ends)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(40))
def test_a_payload_that_comes_twice_is_not_sent_back(seed: int) -> None:
    world, author, reader = between(seed)
    author.add(*news_of((0, 900, 900))[1:])
    for _ in range(2):
        world.connect(author, reader)
        world.run(seed)
    world.wait(100)  # a replicator stuck within an entry gives up by then
    assert all_is_well(author, reader)
    for end in author.ends:
        assert not end.of(PayloadProgress)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(30))
def test_what_comes_back_to_its_author_is_told_as_it_is_stored(seed: int) -> None:
    """Its metadata may return before the author's replicators have heard of it."""
    world, author, reader = between(seed)
    for _ in range(2):
        world.connect(author, reader)
    world.run(seed)
    log = author.store.logs()[0]
    for news in news_of((0, 900, 3, 300, 0, 70))[1:]:
        author.store.append(log, [news])
        author.changed.append((None, log))
        world.run(3 * seed)
    world.wait(100)
    assert all_is_well(author, reader)
    for end in author.ends:
        assert all(event.payload_stored for event in end.of(EntryStored))


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(40))
def test_a_payload_is_sent_behind_metadata_that_the_peer_has_from_somebody_else(seed: int) -> None:
    world, author, reader = between(seed)
    for interest in (SERVE if seed % 2 else FETCH, KEEP):
        author.interest = interest
        world.connect(author, reader)
    world.run(seed)
    for news in news_of((0, 500, 900))[1:]:
        author.add(news)
        world.run(2 * seed)
    world.wait(100)
    assert all_is_well(author, reader)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("before", [0, 3])
def test_an_author_publishes_while_the_store_is_looked_at(before: int, left: bool) -> None:
    world, news = World(), news_of((9,) * 10)
    author = world.node(store_of(news[:before]) if before else None)
    reader = world.node(store_of(news[:5]))

    def respond(effect: Effect) -> object:
        head = author.store.head(key_of(news))
        if isinstance(effect, ReadLog) and (0 if head is None else head.seqnum) == before:
            author.store.append(key_of(news), news[before:])
        return author.store.perform(effect)

    author.respond = respond
    world.connect(*((author, reader) if left else (reader, author)))
    world.run(200)
    for node in (author, reader):
        assert len(node.end.of(LogRefused)) < 3, "they refuse each other again and again"
    author.tell(key_of(news), None)
    world.wait(100)
    assert all_is_well(author, reader)

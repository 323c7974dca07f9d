"""Stores that fail: nothing false is reported, the connection ends, another one gets the rest."""

from __future__ import annotations

from random import Random

import pytest
from replicator_support import (
    FETCH,
    KEEP,
    Node,
    World,
    check_store,
    key_of,
    news_of,
    same,
    store_of,
)

from culm.bamboo.effects import WriteEffect
from culm.machine import Closed, Effect, StoreFailed
from culm.point2point import ErrorCode, Mode, Setup
from culm.point2point.replication import EntryStored, ForkFound

SIZES = (10, 0, 300, 50, 64, 65, 200, 1, 2, 150)
NEWS = news_of(SIZES)
OTHER = news_of(SIZES, branch=b"other", fork_at=6)
GREEDY = Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY)
FULL = OSError("the disk is full")


class Failing:
    """Answers as the store does, until the effect with that number fails, and all after it."""

    def __init__(self, node: Node, at: int, *, kind: type[Effect] = Effect) -> None:
        self._node = node
        self._at = at
        self._kind = kind
        self.count = 0
        self.failed: Effect | None = None

    def __call__(self, effect: Effect) -> object:
        if isinstance(effect, self._kind):
            self.count += 1
        if self.count > self._at >= 0:
            self.failed = self.failed or effect
            raise FULL
        return self._node.store.perform(effect)


def transfer(seed: int, at: int, *, reads: bool) -> tuple[World, Node, Node, Failing]:
    """One node gets everything of the other; one of them has a store that fails."""
    rng = Random(seed)
    world = World(capacity=300, steps_max=20_000)
    server = world.node(store_of(NEWS), interest=KEEP)
    forked = seed % 3 == 2
    reader = world.node(store_of(OTHER[:8]) if forked else None, interest=rng.choice((KEEP, FETCH)))
    if seed % 2:
        server.setup = reader.setup = GREEDY
    failing = Failing(server if reads else reader, at)
    (server if reads else reader).respond = failing
    world.connect(*(server, reader) if seed % 4 < 2 else (reader, server))
    world.settle()
    return world, server, reader, failing


@pytest.mark.costly
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_failure_at_every_effect(seed: int, reads: bool) -> None:
    """In the store that is written to and in the one that is read."""
    *_, failing = transfer(seed, -1, reads=reads)
    assert failing.count > 5
    for at in range(failing.count):
        check(seed, at, reads=reads)


def check(seed: int, at: int, *, reads: bool) -> None:
    world, server, reader, failing = transfer(seed, at, reads=reads)
    node, other = (server, reader) if reads else (reader, server)
    assert failing.failed is not None
    end = node.end
    assert end.events[-2:] == [StoreFailed(effect=failing.failed, error=FULL), Closed()]
    assert len(end.of(StoreFailed)) == 1
    # Every report is true, and another connection brings everything lost.
    for stored in end.of(EntryStored):
        kept = node.store.entry(stored.log, stored.seqnum)
        if kept is None:  # a fork has taken it back
            assert node.store.fork(stored.log)
        else:
            assert kept.payload_complete >= stored.payload_stored
    for found in end.of(ForkFound):
        fork = node.store.fork(key_of(NEWS))
        assert fork is not None
        assert fork.seqnum <= found.proof.seqnum
    check_store(node.store)
    # The peer sees an end, orderly or in the middle of something.
    world.cut(world.cables[0])
    world.run()
    assert other.end.closed is not None
    assert other.end.code in (None, ErrorCode.UNEXPECTED_EOF)
    node.respond = lambda effect: node.store.perform(effect)
    for turn in range(2):
        world.connect(*(server, reader) if turn else (reader, server))
        world.settle()
        world.cut(world.cables[-1])
    assert same(server, reader), (at, failing.failed)
    check_store(reader.store)


def test_what_was_received_and_not_stored_is_dropped() -> None:
    world = World()
    server, reader = world.node(store_of(NEWS), interest=KEEP), world.node(interest=KEEP)
    failing = Failing(reader, 0, kind=WriteEffect)
    reader.respond = failing
    world.connect(server, reader)
    world.settle()
    machine = reader.end.machine
    assert reader.end.of(EntryStored) == []
    assert reader.store.logs() == []
    assert machine.read_size() == 0
    machine.receive_data(b"x" * 1000)  # data that was under way
    assert machine.next_event() is None
    assert machine.next_effect() is None
    assert machine.next_deadline() is None
    assert machine.trailing_data == b""


def test_answers_that_come_after_a_failure_have_no_consequences() -> None:
    world = World()
    server, reader = world.node(store_of(NEWS), interest=KEEP), world.node(interest=KEEP)
    reader.paused = True
    world.connect(server, reader)
    world.settle()
    end = reader.end
    log = end.effects.popleft()
    end.machine.complete(log.ticket, [])
    end.drain()
    world.settle()
    effects = list(end.effects)
    assert len(effects) > 0
    end.machine.fail(effects[0].ticket, FULL)
    end.drain()
    told = list(end.events)
    assert told[-1] == Closed()
    for number, effect in enumerate(effects[1:]):
        if number % 2:
            end.machine.fail(effect.ticket, FULL)
        else:
            end.machine.complete(effect.ticket, reader.store.perform(effect))
    end.drain()
    assert end.events == told

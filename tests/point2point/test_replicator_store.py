"""Stores that refuse, forget, or are slow, and bytes that change on their way."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    Node,
    World,
    check_store,
    key_of,
    news_of,
    same,
    store_of,
)

from culm.bamboo.effects import AppendEntries, ReadPayload, StoreEffect, WriteEffect, WritePayload
from culm.bamboo.records import StoreError, StoreErrorCode
from culm.machine import Effect
from culm.machines.memory import retained_size
from culm.point2point import ErrorCode, Limits, Mode, Setup
from culm.point2point.replication import Interest, ReplicatorLimits
from effort import LONG, amount

SIZES = (10, 0, 300, 50, 64, 65, 200, 1, 2, 150)
NEWS = news_of(SIZES)
OTHER = news_of(SIZES, branch=b"other", fork_at=6)
LOG = key_of(NEWS)
GREEDY = Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY)


class Refusing:
    """Answers as the store does, but refuses one write, with any of the codes for it."""

    def __init__(self, node: Node, at: int, choice: int) -> None:
        self._store = node.store
        self._at = at
        self._choice = choice
        self.count = 0
        self.refused: StoreEffect | None = None

    def __call__(self, effect: Effect) -> object:
        if isinstance(effect, WriteEffect) and effect.REFUSALS:
            self.count += 1
            if self.count == self._at:
                self.refused = effect
                codes = sorted(effect.REFUSALS)
                seqnum = getattr(effect, "seqnum", 0)
                if isinstance(effect, AppendEntries):
                    seqnum = effect.entries[-1].entry.seqnum
                return StoreError(codes[self._choice % len(codes)], effect.log, seqnum)
        return self._store.perform(effect)


def transfer(seed: int, at: int, choice: int = 0) -> tuple[World, Node, Node, Refusing]:
    rng = Random(seed)
    world = World(capacity=300, steps_max=20_000)
    server = world.node(store_of(NEWS), interest=KEEP)
    reader = world.node(interest=rng.choice((KEEP, FETCH)))
    if seed % 2:
        server.setup = reader.setup = GREEDY
    refusing = Refusing(reader, at, choice)
    reader.respond = refusing
    world.connect(*(server, reader) if seed % 4 < 2 else (reader, server))
    world.settle()
    return world, server, reader, refusing


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(4))
def test_a_refusal_at_every_write(seed: int) -> None:
    """Nothing raises or hangs; nothing false is stored; another connection gets the rest."""
    *_, refusing = transfer(seed, 0)
    writes = refusing.count
    assert writes > 1
    for at in range(1, writes + 1):
        for choice in range(4) if LONG else [at + seed]:
            refuse(seed, at, choice)


def refuse(seed: int, at: int, choice: int) -> None:
    world, server, reader, refusing = transfer(seed, at, choice)
    assert refusing.refused is not None
    check_store(reader.store)
    for end in (reader.end, server.end):
        assert end.code in (None, ErrorCode.UNEXPECTED_EOF), (at, refusing.refused)
    reader.respond = lambda effect: reader.store.perform(effect)
    for turn in range(2):
        world.cut(world.cables[0])
        world.connect(*(server, reader) if turn else (reader, server))
        world.settle()
    assert same(server, reader), (at, refusing.refused)
    check_store(reader.store)


def test_a_log_keeps_its_place_while_what_a_refusal_left_is_written() -> None:
    """Twice the store refuses the last of some entries, and is slow to write the others."""
    world, later = World(), news_of(SIZES, log_id=1)
    server = world.node(store_of(NEWS, later), interest=SERVE)
    reader = world.node(interest=FETCH, limits=replace(SMALL, logs_max=1, batch_size_max=1 << 20))
    end = world.connect(server, reader).right
    refused, kept = 0, None
    for log in (LOG, key_of(later)):
        end.machine.replicate(log)
        end.drain()
        for _ in range(1000):
            if end.effects:
                effect = end.effects.popleft()
                result: object
                if isinstance(effect, AppendEntries) and effect.log == LOG and refused < 2:
                    refused += 1
                    last = effect.entries[-1].entry.seqnum
                    result = StoreError(StoreErrorCode.CONFLICT, LOG, last)
                elif isinstance(effect, AppendEntries) and effect.log == LOG and kept is None:
                    kept = effect
                    continue
                else:
                    result = reader.store.perform(effect)
                end.answers.append((effect, result))
                end.answer(0)
            elif server.end.effects:
                server.end.respond()
            else:
                for sender, receiver in world.cables[0].directions:
                    if sender.out:
                        world.deliver(sender, receiver)
        world.now += 1
        end.machine.advance(world.now)
        end.drain()
    assert kept is not None
    end.answers.append((kept, reader.store.perform(kept)))
    end.answer(0)
    world.settle()
    assert end.code is None
    assert [entry.seqnum for entry in reader.store.entries(LOG)] == [1, 2]
    assert len(reader.store.entries(key_of(later))) == len(SIZES)


@pytest.mark.costly
@pytest.mark.parametrize("order", ["random", "last first"])
@pytest.mark.parametrize("seed", range(5))
def test_answers_in_any_order(order: str, seed: int) -> None:
    """For different logs; a store does its work for one log in order."""
    rng = Random(seed)
    logs = [news_of(SIZES, log_id=n) for n in range(4)]
    world = World(capacity=500, steps_max=50_000)
    server, reader = world.node(store_of(*logs)), world.node()
    cable = world.connect(server, reader)
    for _ in range(50_000):
        moved = False
        for end in (cable.left, cable.right):
            firsts = {getattr(e, "log", None): e for e in reversed(end.effects)}
            if firsts:
                chosen = [*firsts.values()][
                    -1 if order == "last first" else rng.randrange(len(firsts))
                ]
                end.effects.remove(chosen)
                end.machine.complete(chosen.ticket, end.node.respond(chosen))
                end.drain()
                moved = True
        for sender, receiver in cable.directions:
            if sender.out and receiver.machine.read_size():
                world.deliver(sender, receiver)
                moved = True
        if not moved:
            break
    assert same(server, reader)


# Slow stores


@pytest.mark.parametrize("size", [100_000, 1_000_000])
@pytest.mark.parametrize("greedy", [False, True])
def test_memory_is_bounded_by_the_credit_though_the_store_does_not_answer(
    size: int, greedy: bool
) -> None:
    limits = ReplicatorLimits(
        payload_inline_max=4096,
        unwritten_size_max=16_384,
        batch_size_max=8192,
        connection=Limits(
            data_window_max=16_384,
            packet_size_max=4096,
            unsent_size_max=8192,
            compression_window_max=0,
        ),
    )
    news = news_of((10, size, 10))
    world = World(steps_max=100_000, capacity=10_000)
    server, reader = world.node(store_of(news), limits=limits), world.node(limits=limits)
    if greedy:
        server.setup = reader.setup = GREEDY
    world.connect(server, reader)
    log = key_of(news)
    while not ((kept := reader.store.entry(log, 2)) and kept.payload_stored):
        world.run(1)
    reader.paused = True
    world.run()
    waiting = sum(len(e.data) for e in reader.end.effects if isinstance(e, WritePayload))
    # Received and unwritten, then the window, and one piece being put together.
    allowed = 16_384 + 16_384 + 2 * 4096
    assert waiting <= allowed
    assert retained_size(reader.end.machine) - waiting < 2 * allowed + 100_000
    assert reader.end.machine.read_size() == 0 or not server.end.out
    # The sender holds no more than its limit.
    reads = sum(e.size for e in server.end.effects if isinstance(e, ReadPayload))
    assert retained_size(server.end.machine) + reads < 8192 + 2 * 8192 + 4 * 4096 + 100_000
    reader.paused = False
    world.settle()
    assert same(server, reader)


# Every byte of a conversation


def conversation(interest: Interest, *, proactive: bool, greedy: bool) -> tuple[World, Node, Node]:
    world = World(chunker=lambda size: 1, steps_max=200_000)
    server, reader = world.node(store_of(NEWS), interest=SERVE), world.node(interest=interest)
    if greedy:
        server.setup = reader.setup = GREEDY
    world.connect(*(server, reader) if proactive else (reader, server))
    return world, server, reader


def run_bytes(world: World, count: int | None) -> int:
    """Let `count` bytes arrive, one at a time, at whichever end is next; returns their number."""
    (cable,) = world.cables
    arrived = 0
    while count is None or arrived < count:
        for end in (cable.left, cable.right):
            while end.effects:
                end.respond()
        moved = False
        for sender, receiver in cable.directions:
            if sender.out and receiver.machine.read_size() and (count is None or arrived < count):
                world.deliver(sender, receiver)
                arrived += 1
                moved = True
        if not moved:
            break
    return arrived


@pytest.mark.costly
@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("greedy", [False, True])
def test_a_connection_may_break_at_every_byte(
    interest: Interest, proactive: bool, greedy: bool
) -> None:
    world, server, reader = conversation(interest, proactive=proactive, greedy=greedy)
    total = run_bytes(world, None)
    assert same(server, reader)
    assert total > 2000
    step = 1 if LONG else 173
    for count in range(proactive + 2 * greedy, total, step):
        world, server, reader = conversation(interest, proactive=proactive, greedy=greedy)
        assert run_bytes(world, count) == count
        world.cut(world.cables[0])
        world.run()
        check_store(reader.store)
        world.connect(*(server, reader) if proactive else (reader, server))
        world.chunker = lambda size: size
        world.run()
        assert same(server, reader), count
        check_store(reader.store)


# Changed bytes


def tampered(seed: int) -> None:
    rng = Random(seed)
    world = World(rng=rng, capacity=rng.choice((200, 2000)), steps_max=60_000)
    limits = replace(
        SMALL, connection=replace(SMALL.connection, requests_max=8, compression_window_max=512)
    )
    known = rng.choice((0, 0, 3))
    nodes = [
        world.node(store_of(NEWS), limits=limits),
        world.node(store_of(NEWS[:known]) if known else None, limits=limits),
    ]
    setup: Any = GREEDY if rng.random() < 0.5 else Setup()
    for node in nodes:
        node.setup = setup
    cable = world.connect(*nodes if rng.random() < 0.5 else nodes[::-1])
    empty = retained_size(nodes[1].end.machine)
    spoil_at = {rng.randrange(6000) for _ in range(rng.randint(1, 3))}
    passed = 0
    for _ in range(3000):
        moves = list(world.moves())
        if not moves:
            break
        for end in (cable.left, cable.right):
            fresh = len(end.out)
            for at in [at for at in spoil_at if passed <= at < passed + fresh]:
                spoil_at.discard(at)
                spoil(end.out, at - passed, rng)
            passed += len(end.out) and 1
        rng.choice(moves)()
        assert retained_size(nodes[1].end.machine) - empty < 300_000
    for node in nodes:
        check_store(node.store)
        for end in node.ends:
            end.effects.clear()
    world.cut(cable)
    # The next connection is a clean one: everything comes, and nothing of it is false.
    again = world.connect(*nodes)
    world.settle()
    for node in nodes:
        check_store(node.store)
    assert again.left.closed is None
    # (Payloads may be missing: the message that one is absent comes without a proof.)
    heads = [node.store.head(LOG) for node in nodes]
    assert heads[0] == heads[1]


def spoil(out: bytearray, at: int, rng: Random) -> None:
    if not out:
        return
    at %= len(out)
    match rng.randrange(4):
        case 0:
            out[at] ^= 1 << rng.randrange(8)
        case 1:
            out[at] = rng.randrange(256)
        case 2:
            del out[at]
        case _:
            out[at:at] = rng.randbytes(rng.randint(1, 3))


@pytest.mark.parametrize("chunk", range(amount(2, long=200)))
def test_changed_bytes_make_nothing_false_stored(chunk: int) -> None:
    for seed in range(chunk * 25, chunk * 25 + 25):
        try:
            tampered(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_no_more_is_read_of_a_payload_than_there_is() -> None:
    world, news = World(), news_of((900, 65))
    author, reader = world.node(store_of(news)), world.node()
    asked: list[ReadPayload] = []

    def respond(effect: Effect) -> object:
        if isinstance(effect, ReadPayload):
            asked.append(effect)
        return author.store.perform(effect)

    author.respond = respond
    world.connect(author, reader)
    world.wait()
    assert asked
    assert same(author, reader)
    for effect in asked:
        assert effect.offset + effect.size <= news[effect.seqnum - 1].entry.payload_size

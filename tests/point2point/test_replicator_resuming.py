"""Connections that break: nothing is lost, nothing is doubled, little is sent again."""

from __future__ import annotations

from random import Random

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
    settled,
    store_of,
)

from culm.bamboo.effects import DiscardStaged
from culm.bamboo.records import NewEntry
from culm.effects import Answer
from culm.machine import Closed, Effect
from culm.point2point import ErrorCode, Role
from culm.point2point.replication import EntryStored, Interest, LogSynced, Replicator, Want

# Random payloads, which do not compress.
NEWS = news_of((40, 3000, 7, 0, 1500, 64, 65))
LOG = key_of(NEWS)
TOTAL = sum(len(new.payload or b"") for new in NEWS)


def transfer(interest: Interest, *, proactive: bool) -> tuple[World, Node, Node]:
    world = World(capacity=400, take_size=lambda: 100)
    server = world.node(store_of(NEWS), interest=SERVE)
    reader = world.node(interest=interest)
    connect(world, server, reader, proactive=proactive)
    return world, server, reader


def connect(world: World, server: Node, reader: Node, *, proactive: bool) -> None:
    world.connect(*(server, reader) if proactive else (reader, server))


def stored_size(node: Node) -> int:
    return sum(entry.payload_stored for entry in node.store.entries(LOG))


def steps_of_a_whole_transfer(interest: Interest, *, proactive: bool) -> int:
    world, server, reader = transfer(interest, proactive=proactive)
    steps = 0
    while list(world.moves()):
        world.run(1)
        steps += 1
    assert same(server, reader)
    return steps


@pytest.mark.costly
@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
def test_a_connection_may_break_anywhere(interest: Interest, proactive: bool) -> None:
    total = steps_of_a_whole_transfer(interest, proactive=proactive)
    sent_in_one_go = None
    for cut in [*range(0, total, 7), total]:
        world, server, reader = transfer(interest, proactive=proactive)
        world.run(cut)
        in_flight = sum(len(end.out) for end in server.ends)
        world.cut(world.cables[0])
        world.run()
        before = stored_size(reader)
        check_store(reader.store)
        connect(world, server, reader, proactive=proactive)
        world.settle()
        assert same(server, reader), cut
        check_store(reader.store)
        complete = [
            event.seqnum
            for end in reader.ends
            for event in end.of(EntryStored)
            if event.payload_stored
        ]
        assert sorted(complete) == list(range(1, 8)), cut
        # A single cut costs the bytes in flight and an incomplete piece, no more.
        sent = sum(end.sent_size for end in server.ends)
        if sent_in_one_go is None:
            sent_in_one_go = sent
        allowance = SMALL.payload_inline_max + in_flight + SMALL.connection.data_window_max
        assert sent <= sent_in_one_go + allowance + 700, cut
        assert server.end.sent_size <= sent_in_one_go - before + 700, cut


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(10))
def test_many_cuts_in_a_row(seed: int) -> None:
    rng = Random(seed)
    world = World(capacity=rng.choice((50, 400)), rng=rng)
    server = world.node(store_of(NEWS), interest=SERVE)
    reader = world.node(interest=rng.choice((KEEP, FETCH)))
    for _ in range(200):
        connect(world, server, reader, proactive=rng.random() < 0.5)
        world.run(rng.randint(20, 120))
        if same(server, reader):
            break
        if rng.random() < 0.5:
            # The process dies: the store's pending work is lost, too.
            for end in reader.ends:
                end.effects.clear()
        world.cut(world.cables[0])
        world.run()
        check_store(reader.store)
    world.settle()
    assert same(server, reader)
    complete = [
        event.seqnum for end in reader.ends for event in end.of(EntryStored) if event.payload_stored
    ]
    assert len(complete) == len(set(complete))


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("stored", [1, 63, 64, 2999, 3000])
def test_a_payload_goes_on_where_the_store_ends(interest: Interest, stored: int) -> None:
    """Even a payload that is all there, but was never finished."""
    payload = NEWS[1].payload
    assert payload is not None
    known = [NEWS[0], NewEntry(NEWS[1].entry, payload[:stored], staged=True)]
    world = World()
    server, reader = world.node(store_of(NEWS), interest=SERVE), world.node(store_of(known))
    reader.interest = interest
    world.connect(server, reader)
    world.settle()
    assert same(server, reader)
    assert server.end.sent_size < TOTAL - 40 - stored + 2000
    assert settled(reader.end)


@pytest.mark.parametrize("stored", [1, 64, 2000, 3000])
@pytest.mark.parametrize("interest", [KEEP, FETCH])
def test_a_wrong_beginning_is_found_out_and_fetched_again(stored: int, interest: Interest) -> None:
    """Neither side can tell who is to blame: the connection goes on."""
    known = [NEWS[0], NewEntry(NEWS[1].entry, bytes(stored), staged=True)]
    world = World()
    server, reader = world.node(store_of(NEWS), interest=SERVE), world.node(store_of(known))
    reader.interest = interest
    world.connect(server, reader)
    world.settle()
    assert reader.end.closed is None
    assert same(server, reader)
    check_store(reader.store)
    assert settled(reader.end)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("size", [10, 1000])
def test_a_payload_that_was_stored_behind_a_gap_is_not_waited_for(size: int, order: int) -> None:
    """It comes once more with its entry, and is not written: the log took it to be on its way."""
    news = news_of((5, 5, size))
    world = World()
    nodes = [world.node(store_of([news[0], news[2]])), world.node(store_of(news))]
    world.connect(*nodes[::order])
    world.settle()
    assert LogSynced(log=key_of(news), seqnum=3) in nodes[0].end.events
    assert settled(nodes[0].end)
    stored = [event.seqnum for event in nodes[0].end.of(EntryStored)]
    assert sorted({*stored}) == sorted(stored)


def test_a_payload_whose_peer_has_no_more_than_we_is_finished_by_another() -> None:
    payload = NEWS[1].payload
    assert payload is not None
    world = World()
    nodes = [
        world.node(store_of([NEWS[0], NewEntry(NEWS[1].entry, payload[:n], staged=True)]))
        for n in (2000, 500, 1000)
    ]
    for one in range(3):
        world.connect(nodes[one], nodes[one - 1])
    world.settle()
    source = world.node(store_of(NEWS))
    world.connect(source, nodes[0])
    world.settle()
    assert same(source, *nodes)


def test_the_peer_with_the_longer_beginning_does_not_leave_the_other_behind() -> None:
    payload = NEWS[1].payload
    assert payload is not None
    for sizes in ((2000, 500), (500, 2000)):
        for order in (1, -1):
            world = World()
            nodes = [
                world.node(store_of([NEWS[0], NewEntry(NEWS[1].entry, payload[:n], staged=True)]))
                for n in sizes
            ]
            world.connect(*nodes[::order])
            world.settle()
            source = world.node(store_of(NEWS))
            world.connect(nodes[0], source)
            world.settle()
            assert same(source, *nodes), (sizes, order)


@pytest.mark.parametrize("order", [1, -1])
def test_who_lacks_an_entry_and_has_later_ones_does_not_take_the_rest_of_its_payload(
    order: int,
) -> None:
    payload = NEWS[1].payload
    assert payload is not None
    world = World()
    lacking = world.node(store_of([NEWS[0], *NEWS[3:]]))
    begun = world.node(store_of([NEWS[0], NewEntry(NEWS[1].entry, payload[:500], staged=True)]))
    world.connect(*(lacking, begun)[::order])
    world.settle()
    assert [end.code for end in (lacking.end, begun.end)] == [None, None]
    assert lacking.store.entry(LOG, 2) is not None
    source = world.node(store_of(NEWS))
    world.connect(lacking, source)
    world.settle()
    assert same(source, lacking, begun)


def test_two_peers_bring_the_same_payload_at_once() -> None:
    for seed in range(20):
        world = World(rng=Random(seed), capacity=300)
        sources = [world.node(store_of(NEWS)) for _ in range(2)]
        reader = world.node()
        for source in sources:
            world.connect(source, reader)
        world.settle()
        assert same(*sources, reader)


def test_a_peer_that_vanishes_leaves_the_payload_to_the_other() -> None:
    for seed in range(20):
        world = World(rng=Random(seed), capacity=300)
        sources = [world.node(store_of(NEWS)) for _ in range(2)]
        reader = world.node()
        for source in sources:
            world.connect(source, reader)
        world.run(40 + 10 * seed)
        world.cut(world.cables[seed % 2])
        world.settle()
        assert same(*sources, reader)


def test_ranges_are_fetched_again_without_loss() -> None:
    world = World(capacity=300)
    server, reader = world.node(store_of(NEWS)), world.node(interest=Interest(live=False))
    want = Want(first=2, last=5)
    for _ in range(6):
        cable = world.connect(reader, server)
        world.run(30)
        reader.end.machine.replicate(LOG, want)
        reader.end.drain()
        world.run(150)
        world.cut(cable)
        world.run()
        check_store(reader.store)
    world.connect(reader, server)
    reader.end.machine.replicate(LOG, want)
    reader.end.drain()
    world.settle()
    complete = {e.seqnum for e in reader.store.entries(LOG) if e.payload_complete}
    assert complete >= {2, 3, 4, 5}


# Goodbyes


@pytest.mark.costly
@pytest.mark.parametrize("way", ["close left", "close right", "close both", "eof", "cut"])
def test_it_may_end_at_any_moment(way: str) -> None:
    total = steps_of_a_whole_transfer(KEEP, proactive=True)
    for cut in range(0, total, 11):
        world, server, reader = transfer(KEEP, proactive=True)
        world.run(cut)
        cable = world.cables[0]
        for end, name in ((cable.left, "left"), (cable.right, "right")):
            if way in (f"close {name}", "close both"):
                end.machine.close()
                end.drain()
        if way == "eof":
            cable.left.ended = True
        if way == "cut":
            world.cut(cable)
        world.run()
        for end in (cable.left, cable.right):
            if way == "eof" and end is cable.left:
                continue
            assert end.closed is not None, (way, cut)
            assert end.code is (None if way.startswith("close") else ErrorCode.UNEXPECTED_EOF)
            assert not end.machine.unwritten_size
        check_store(reader.store)
        connect(world, server, reader, proactive=True)
        world.settle()
        assert same(server, reader)


def test_nothing_is_lost_of_what_came_before_the_goodbye() -> None:
    world = World()
    server, reader = world.node(store_of(NEWS)), world.node()
    reader.paused = True
    world.connect(server, reader)
    reader.paused = False
    while not reader.store.entries(LOG):
        world.run(1)
    reader.paused = True
    world.run()
    reader.end.machine.close()
    reader.end.drain()
    world.run()
    assert reader.end.closed is None  # the received data is not in the store
    reader.paused = False
    world.run()
    assert reader.end.closed is not None
    stored = [event.seqnum for event in reader.end.of(EntryStored)]
    assert stored
    assert stored[-1] == reader.store.entries(LOG)[-1].seqnum


@pytest.mark.costly
@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("known", [2, len(NEWS)])
def test_what_is_staged_may_be_dropped_at_any_moment(interest: Interest, known: int) -> None:
    """By another replicator over the same store, for instance, which has found it wrong."""
    for at in range(1, 20):
        world = World(capacity=400)
        begun = NewEntry(NEWS[1].entry, (NEWS[1].payload or b"")[:1000], staged=True)
        server = world.node(store_of(NEWS[:known]), interest=SERVE)
        reader = world.node(store_of((NEWS[0], begun)), interest=interest)
        world.connect(server, reader)
        world.run(at)
        kept = reader.store.entry(LOG, 2)
        if kept is not None and not kept.payload_complete:
            reader.store.discard_payload(LOG, 2)
        world.settle()
        assert same(server, reader), at
        check_store(reader.store)


@pytest.mark.costly
@pytest.mark.parametrize("later", range(1, 4))
def test_somebody_else_may_go_on_while_what_is_begun_is_read(later: int) -> None:
    """A part read of one payload never passes for the beginning of the next one."""
    size = SMALL.payload_piece_size
    for at in range(1, 20):
        world = World(capacity=400)
        server = world.node(store_of(NEWS), interest=SERVE)
        begun = NewEntry(NEWS[1].entry, (NEWS[1].payload or b"")[:1000], staged=True)
        reader = world.node(store_of((NEWS[0], begun)), interest=KEEP)
        perform, done = reader.respond, []

        def respond(effect: Effect, perform=perform, done=done) -> object:
            done.append(type(effect))
            return perform(effect)

        reader.respond = respond
        world.connect(server, reader)
        world.run(at)
        reader.changed.append((None, LOG))  # so that it looks again
        world.run(later)
        kept = reader.store.entry(LOG, 2)
        if kept is not None and not kept.payload_complete:
            rest = (NEWS[1].payload or b"")[kept.payload_stored :]
            reader.store.write_payload(LOG, 2, kept.payload_stored, rest)
            reader.store.finish_payload(LOG, 2)
            next_begun = NewEntry(NEWS[2].entry, (NEWS[2].payload or b"")[:size], staged=True)
            reader.store.append(LOG, [next_begun])
            reader.changed.append((None, LOG))
        world.settle()
        assert same(server, reader), at
        assert DiscardStaged not in done, at
        check_store(reader.store)


def over_a_line_that_breaks(server: Node, reader: Node, *, size: int) -> None:
    """Connect, with limits as they are, until `size` bytes have come in both directions."""
    ends = [Replicator(role=role, interest=Interest(accept_new_logs=True)) for role in Role]
    stores = server.store, reader.store
    left, lines = size, [bytearray(), bytearray()]
    ended = 0
    while ended < 2:
        for machine, store, line in zip(ends, stores, lines, strict=True):
            while True:
                event, effect = machine.next_event(), machine.next_effect()
                ended += isinstance(event, Closed)
                if effect is not None:
                    Answer.of(effect, store.perform).give(machine)
                if event is None and effect is None:
                    break
            line += machine.data_to_send()
        came = False
        for machine, line in zip(reversed(ends), lines, strict=True):
            data = bytes(line[: min(left, 1460)])
            del line[: len(data)]
            left -= len(data)
            if data:
                machine.receive_data(data)
                came = True
        if not came:
            for machine in ends:
                machine.close() if left else machine.receive_eof()


@pytest.mark.parametrize(
    ("count", "entry_size", "size"),
    [(5, 500, 1500), (20, 1000, 8000), (100, 100, 4000), (2, 100_000, 30_000)],
)
def test_a_line_that_breaks_after_so_many_bytes_gets_on(
    count: int, entry_size: int, size: int
) -> None:
    """Everything that arrived whole is stored, also from a row that is sent in one Write."""
    server, reader = World().node(store_of(news_of((entry_size,) * count))), World().node()
    total = count * (entry_size + 200)
    for _ in range(3 + 2 * total // size):
        over_a_line_that_breaks(server, reader, size=size)
        check_store(reader.store)
    assert same(server, reader)

"""Two replicators, and several, with logs that are in order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    End,
    Node,
    World,
    check_store,
    key_of,
    news_of,
    same,
    settled,
    store_of,
)

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import decode
from culm.bamboo.links import certificate_pool, lower_pool, shortest_path
from culm.bamboo.records import NewEntry
from culm.bamboo.verify import LogVerifier
from culm.point2point import NOTIFY, CancelReason, Mode, Role, Setup, payloads_up_to
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    PiecesNotified,
    Replicator,
    Want,
)
from culm.testing.link import MachinePair, byte_by_byte, random_chunks, random_sizes, whole
from culm.testing.stores import contents
from culm.wire.multihash import YAMF

# Payloads that go with their entry, and payloads that are staged in pieces.
MIXED = news_of((10, 0, 300, 50, 64, 65, 700, 1, 2, 3, 4, 5, 6, 900))
LONG = news_of(tuple(range(41)))
REPETITIVE = (LogAuthor(SigningKey(bytes(32)), family=YAMF).publish(b"again " * 300),)
LOG, LONG_LOG = key_of(MIXED), key_of(LONG)


def payloads(node: Node, log: Any) -> dict[int, bool]:
    """Of the stored entries, by sequence number, whether the payload is there."""
    return {e.seqnum: e.payload_complete for e in node.store.entries(log)}


def ask(end: End, log: Any, want: Want) -> None:
    end.machine.replicate(log, want)
    end.drain()


# Whole logs


@pytest.mark.parametrize("known", [0, 1, 3, 13])
@pytest.mark.parametrize("proactive", ["publisher", "reader"])
@pytest.mark.parametrize("interest", [KEEP, FETCH])
def test_a_whole_log_travels(known: int, proactive: str, interest: Interest) -> None:
    world = World()
    publisher = world.node(store_of(MIXED), interest=SERVE)
    reader = world.node(store_of(MIXED[:known]) if known else None, interest=interest)
    world.connect(*(publisher, reader) if proactive == "publisher" else (reader, publisher))
    world.settle()
    assert same(publisher, reader)
    check_store(reader.store)
    assert settled(publisher.end)
    assert settled(reader.end)
    stored = reader.end.of(EntryStored)
    assert [e.seqnum for e in stored if e.payload_stored] == list(range(known + 1, 15))
    assert reader.end.of(LogSynced) == [LogSynced(log=LOG, seqnum=14)]
    assert reader.end.of(LogOffered) == [LogOffered(log=LOG, seqnum=14)]
    assert not reader.end.of(LogRefused)


def test_entries_are_told_when_they_are_in_the_store_in_order() -> None:
    world = World()
    publisher, reader = world.node(store_of(MIXED)), world.node()
    world.connect(publisher, reader)
    world.run(10)
    while list(world.moves()):
        world.run(1)
        for event in reader.end.of(EntryStored):
            kept = reader.store.entry(LOG, event.seqnum)
            assert kept is not None
            assert kept.payload_complete or not event.payload_stored
    seqnums = [event.seqnum for event in reader.end.of(EntryStored)]
    assert seqnums == sorted(seqnums)


@pytest.mark.parametrize("seed", range(8))
def test_modes_and_windows_change_nothing_of_what_is_stored(seed: int) -> None:
    rng = Random(seed)
    world = World(rng=rng, chunker=random_chunks(rng), capacity=500)
    nodes = world.node(store_of(MIXED, REPETITIVE)), world.node(store_of(MIXED[:6]))
    for node in nodes:
        node.setup = Setup(
            send_mode=rng.choice(list(Mode)),
            receive_mode=rng.choice(list(Mode)),
            send_window_max=rng.choice((0, 50, 1 << 16)),
            receive_window_max=rng.choice((0, 50, 1 << 16)),
        )
    world.connect(*nodes)
    world.settle()
    assert same(*nodes)


@pytest.mark.parametrize("left", [0, 5, 14])
@pytest.mark.parametrize("right", [0, 5, 14])
def test_two_live_nodes_end_up_with_the_same(left: int, right: int) -> None:
    world = World()
    nodes = [world.node(store_of(MIXED[:n]) if n else None) for n in (left, right)]
    world.connect(*nodes)
    world.settle()
    assert same(*nodes)
    assert all(settled(node.end) for node in nodes)


def test_nodes_that_have_the_same_send_no_entry() -> None:
    world = World()
    nodes = [world.node(store_of(LONG)) for _ in range(2)]
    world.connect(*nodes)
    world.settle()
    assert sum(node.end.sent_size for node in nodes) < 600


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(12))
def test_chunks_and_sizes_change_nothing_of_what_is_stored(seed: int) -> None:
    """Over the link of culm.testing, with its chunkers, delays and a small pipe."""
    rng = Random(seed)
    stores = store_of(MIXED[:4]), store_of(MIXED)
    machines = [Replicator(role=role, interest=KEEP) for role in (Role.PROACTIVE, Role.REACTIVE)]
    link = MachinePair.of_machines(
        *machines,
        respond=tuple(store.perform for store in stores),
        chunker=rng.choice((whole, byte_by_byte, random_chunks(rng))),
        sizer=rng.choice((None, random_sizes(rng))),
        latency=(rng.random() / 100, rng.random() / 100),
        capacity=rng.choice((3, 1000, 1 << 20)),
        rng=rng,
    )
    link.run(until=100)
    assert contents(stores[0]) == contents(stores[1])
    link.call("left", "close")
    link.run()
    assert link.left.events[-1] == link.right.events[-1]


# Live


def test_what_is_stored_later_is_forwarded() -> None:
    world = World()
    author, reader = world.node(), world.node()
    world.connect(author, reader)
    world.settle()
    for new in MIXED:
        author.add(new)
        world.run()
        assert same(author, reader)


def test_a_node_that_is_not_live_gets_what_there_was() -> None:
    world = World()
    author, reader = world.node(store_of(MIXED[:3])), world.node(interest=FETCH)
    world.connect(reader, author)
    world.settle()
    author.add(*MIXED[3:])
    world.settle()
    assert payloads(reader, LOG) == dict.fromkeys((1, 2, 3), True)


@pytest.mark.parametrize("shape", ["chain", "ring", "star", "mesh"])
@pytest.mark.parametrize("start", ["before", "after"])
def test_entries_reach_every_node(shape: str, start: str) -> None:
    """Several replicators over one store: what one stores, the others send on."""
    world = World(rng=Random(1), chunker=random_chunks(Random(2)))
    nodes = [world.node() for _ in range(4)]
    pairs = {
        "chain": [(0, 1), (1, 2), (2, 3)],
        "ring": [(0, 1), (1, 2), (2, 3), (3, 0)],
        "star": [(1, 0), (1, 2), (3, 1)],
        "mesh": [(a, b) for a in range(4) for b in range(a)],
    }[shape]
    if start == "before":
        nodes[0].add(*MIXED[:5])
    for one, other in pairs:
        world.connect(nodes[one], nodes[other])
    for new in MIXED[5 if start == "before" else 0 :]:
        nodes[0].add(new)
        world.run(20)
    world.settle()
    assert same(*nodes)
    for node in nodes:
        assert all(settled(end) for end in node.ends)


def test_a_payload_that_is_still_coming_in_is_forwarded_when_it_is_there() -> None:
    world = World()
    source, middle, last = (world.node() for _ in range(3))
    cable = world.connect(source, middle)
    world.connect(middle, last)
    world.settle()
    source.add(*news_of((5000,)))
    log = key_of(news_of((5000,)))
    while not middle.store.entries(log):
        world.run(1)
    world.run(20)
    assert not payloads(middle, log)[1]
    world.run()
    assert payloads(last, log) == {1: True}
    assert cable.left.closed is None


def test_several_logs_travel_at_once() -> None:
    logs = [news_of((10, 400, 3), log_id=n, seed=seed) for n in range(6) for seed in (1, 2)]
    world = World()
    one, other = world.node(store_of(*logs[:7])), world.node(store_of(*logs[5:]))
    world.connect(one, other)
    world.settle()
    assert same(one, other)
    assert one.store.logs() == sorted(key_of(news) for news in logs)


def test_more_logs_than_a_page_of_the_store_holds() -> None:
    logs = [news_of((1,), log_id=n) for n in range(1050)]
    world = World(steps_max=1_000_000)
    server = world.node(store_of(*logs), interest=SERVE)
    reader = world.node(interest=FETCH)
    world.connect(reader, server)
    world.settle()
    assert same(reader, server)


def test_unknown_logs_are_refused_unless_they_are_welcome_or_asked_for() -> None:
    world = World()
    server, reader = world.node(store_of(MIXED, news_of((1,), seed=5))), world.node(interest=SERVE)
    world.connect(reader, server)
    reader.end.machine.replicate(LOG)
    world.settle()
    assert reader.store.logs() == [LOG]
    assert server.end.of(LogRefused) == [
        LogRefused(log=key_of(news_of((1,), seed=5)), reason=CancelReason.DO_NOT_RETRY)
    ]


# Demands


def fetch_range(want: Want, known: tuple[NewEntry, ...] = ()) -> tuple[World, Node]:
    world = World()
    server = world.node(store_of(LONG), interest=SERVE)
    reader = world.node(store_of(known) if known else None, interest=Interest(live=False))
    world.connect(reader, server)
    world.run()
    ask(reader.end, LONG_LOG, want)
    world.settle()
    check_store(reader.store)
    assert settled(reader.end)
    return world, reader


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 40), (17, 20), (13, 13), (40, 40)])
def test_a_range_comes_with_its_certificate_pool(first: int, last: int) -> None:
    _, reader = fetch_range(Want(first=first, last=last))
    inside = set(range(first, last + 1))
    # The server's log ends at 41: no entries above that are available.
    pool = set(lower_pool(first)) | {n for n in certificate_pool(last) if last < n <= 41}
    found = payloads(reader, LONG_LOG)
    assert set(found) >= inside | set(lower_pool(first))
    assert set(found) <= inside | pool
    assert {n for n, there in found.items() if there} == inside
    assert LogSynced(log=LONG_LOG, seqnum=last) in reader.end.of(LogSynced)


def test_a_sparse_range_verifies_against_entry_1() -> None:
    _, reader = fetch_range(Want(first=9, last=37, sparse=True))
    path = shortest_path(37, 9)
    found = payloads(reader, LONG_LOG)
    assert {n for n, there in found.items() if there} == set(path)
    assert set(found) == set(path) | set(lower_pool(9))
    verifier = LogVerifier(LONG_LOG, family=YAMF, sparse=True)
    for kept in reader.store.entries(LONG_LOG):
        assert verifier.verify(decode(kept.encoded, family=YAMF))


def test_the_upper_certificate_pool_comes_as_far_as_the_peer_has_told_of_it() -> None:
    world = World()
    server, reader = world.node(store_of(LONG)), world.node(interest=FETCH)
    world.connect(reader, server)
    reader.end.machine.replicate(LONG_LOG, Want(first=5, last=6))
    reader.end.drain()
    world.run()
    ask(reader.end, LONG_LOG, Want(first=7, last=8))
    world.settle()
    above = {n for n in certificate_pool(8) if n > 8}
    assert above
    assert above <= set(payloads(reader, LONG_LOG))


def test_ranges_are_fetched_beside_what_is_live() -> None:
    known = [NewEntry(new.entry) for new in MIXED[:10]]
    world = World()
    server, reader = world.node(store_of(MIXED)), world.node(store_of(known))
    world.connect(server, reader)
    world.settle()
    assert not any(payloads(reader, LOG)[n] for n in range(1, 11))
    ask(reader.end, LOG, Want(first=2, last=4, payload_only=True))
    ask(reader.end, LOG, Want(first=7, last=7, payload_only=True))
    world.settle()
    there = [n for n, complete in payloads(reader, LOG).items() if complete]
    assert there == [2, 3, 4, 7, 11, 12, 13, 14]
    more = news_of((10, 0, 300, 50, 64, 65, 700, 1, 2, 3, 4, 5, 6, 900, 77))
    assert more[:14] == MIXED
    server.add(more[14])
    world.settle()
    assert payloads(reader, LOG)[15]


@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("interest", [KEEP, Interest(live=False)])
def test_missing_payloads_are_filled_in(proactive: bool, interest: Interest) -> None:
    world = World()
    server = world.node(store_of(MIXED), interest=SERVE)
    reader = world.node(store_of([NewEntry(n.entry) for n in MIXED]), interest=interest)
    world.connect(*(reader, server) if proactive else (server, reader))
    world.run()
    ask(reader.end, LOG, Want(first=1, last=14, payload_only=True))
    world.settle()
    assert same(server, reader)


def test_payloads_of_entries_that_are_not_there_cannot_be_filled_in() -> None:
    world = World()
    server, reader = world.node(store_of(MIXED)), world.node(interest=Interest(live=False))
    world.connect(reader, server)
    ask(reader.end, LOG, Want(first=3, last=4, payload_only=True))
    world.settle()
    assert reader.end.closed is None
    assert reader.end.of(LogRefused)
    assert settled(reader.end)


@pytest.mark.parametrize(
    ("want", "there"),
    [
        (Want(size_min=50), {3, 4, 5, 6, 7, 14}),
        (Want(size_max=49), {1, 2, 8, 9, 10, 11, 12, 13}),
        (Want(size_min=5, size_max=64), {1, 4, 5, 12, 13}),
        (Want(eagerness=payloads_up_to(64)), {1, 2, 4, 5, 8, 9, 10, 11, 12, 13}),
        (Want(eagerness=payloads_up_to(0)), {2}),
    ],
)
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("proactive", [True, False])
def test_payloads_are_filtered_by_size(
    want: Want, there: set[int], live: bool, proactive: bool
) -> None:
    world = World()
    server = world.node(store_of(MIXED), interest=SERVE)
    interest = Interest(live=live, accept_new_logs=True, want=want)
    reader = world.node(interest=interest)
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    found = payloads(reader, LOG)
    assert set(found) == set(range(1, 15))
    assert {n for n, complete in found.items() if complete} == there
    assert settled(reader.end)


@pytest.mark.parametrize("live", [True, False])
def test_notifications_alone_store_nothing_and_come_to_an_end(live: bool) -> None:
    world = World(steps_max=3000)
    server = world.node(store_of(MIXED), interest=SERVE)
    reader = world.node(
        interest=Interest(live=live, accept_new_logs=True, want=Want(eagerness=NOTIFY))
    )
    world.connect(reader, server)
    world.settle()
    assert reader.store.logs() == []
    assert sum(event.count for event in reader.end.of(PiecesNotified)) == 28
    assert settled(reader.end)
    if live:
        server.add(news_of((10, 0, 300, 50, 64, 65, 700, 1, 2, 3, 4, 5, 6, 900, 77))[14])
        world.settle()
        assert reader.end.of(PiecesNotified)[-1].seqnum == 15


# Missing payloads


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("deleted", [(1,), (7,), (14,), tuple(range(1, 15))])
def test_deleted_payloads_do_not_stop_metadata(
    interest: Interest, deleted: tuple[int, ...]
) -> None:
    world = World()
    server, reader = world.node(store_of(MIXED)), world.node(interest=interest)
    for seqnum in deleted:
        server.store.discard_payload(LOG, seqnum)
    world.connect(reader, server)
    world.settle()
    expected = {n: n not in deleted for n in range(1, 15)}
    assert payloads(reader, LOG) == expected
    assert settled(reader.end)


@pytest.mark.parametrize("interest", [KEEP, FETCH])
def test_a_payload_deleted_while_it_is_sent_is_left_out(interest: Interest) -> None:
    news = news_of((10, 9000, 3))
    log = key_of(news)
    world = World()
    server, reader = world.node(store_of(news), interest=SERVE), world.node(interest=interest)
    world.connect(reader, server)
    while not (kept := reader.store.entry(log, 2)) or kept.payload_stored < 500:
        world.run(1)
    server.store.discard_payload(log, 2)
    world.settle()
    assert payloads(reader, log) == {1: True, 2: False, 3: True}
    assert settled(reader.end)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("proactive", [True, False])
def test_a_mandatory_payload_that_is_not_there_ends_the_request(
    live: bool, proactive: bool
) -> None:
    world = World(steps_max=5000)
    server = world.node(store_of(MIXED), interest=SERVE)
    server.store.discard_payload(LOG, 5)
    want = Want(payload_mandatory=True)
    reader = world.node(interest=Interest(live=live, accept_new_logs=True, want=want))
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    assert payloads(reader, LOG) == dict.fromkeys(range(1, 5), True)
    refusals = [e.reason for e in (*reader.end.of(LogRefused), *server.end.of(LogRefused))]
    assert CancelReason.PAYLOAD_MISSING in refusals
    assert settled(reader.end)


def test_a_mandatory_payload_that_was_deleted_is_fetched_again() -> None:
    world = World()
    server, reader = (
        world.node(store_of(MIXED)),
        world.node(
            store_of(MIXED),
            interest=Interest(live=False, want=Want(payload_mandatory=True)),
        ),
    )
    reader.store.discard_payload(LOG, 14)
    world.connect(reader, server)
    world.settle()
    assert same(server, reader)


# The end of a log


@pytest.mark.parametrize("known", [0, 5, 8, 9])
@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("interest", [KEEP, FETCH])
def test_the_end_of_a_log_is_told(known: int, proactive: bool, interest: Interest) -> None:
    news = news_of((5, 300, 7, 1, 1, 1, 1, 1, 100), ended=True)
    log = key_of(news)
    world = World(steps_max=3000)
    server = world.node(store_of(news))
    reader = world.node(store_of(news[:known]) if known else None, interest=interest)
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    assert same(server, reader)
    assert reader.end.of(LogEnded) == [LogEnded(log=log, seqnum=9)]
    assert settled(reader.end)
    assert settled(server.end)


# Limits


def test_logs_beyond_the_limit_come_when_others_have_given_up_their_places() -> None:
    logs = [news_of((3, 200), log_id=n) for n in range(5)]
    world = World(steps_max=20_000)
    server = world.node(store_of(*logs))
    reader = world.node(limits=replace(SMALL, logs_max=3))
    world.connect(reader, server)
    world.settle()
    assert same(server, reader)
    assert not server.end.of(LogRefused)
    assert settled(server.end)
    assert settled(reader.end)


def test_proposals_wait_for_credit() -> None:
    logs = [news_of((3, 200), log_id=n) for n in range(30)]
    tight = replace(SMALL, connection=replace(SMALL.connection, requests_max=2))
    world = World()
    server = world.node(store_of(*logs), interest=SERVE, limits=tight)
    reader = world.node(interest=FETCH, limits=tight)
    world.connect(reader, server)
    world.settle()
    assert same(server, reader)
    assert settled(reader.end)


def test_two_that_have_much_to_say_do_not_wait_for_each_other() -> None:
    """Neither stops reading because the other has not read its proposals."""
    logs = [news_of((1,), log_id=n) for n in range(750)]
    roomy = replace(SMALL, connection=replace(SMALL.connection, requests_max=2000))
    world = World(capacity=1000, take_size=lambda: 1000, steps_max=1_000_000)
    one = world.node(store_of(*logs[:-50]), limits=roomy)
    other = world.node(store_of(*logs[50:]), limits=roomy)
    world.connect(one, other)
    world.settle()
    assert same(one, other)

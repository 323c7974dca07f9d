"""Parts of logs: payloads up to a size and the rest later, single entries, nothing unless asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replicator_support import (
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

from culm.bamboo.entry import LogKey
from culm.bamboo.links import lower_pool
from culm.bamboo.records import NewEntry
from culm.point2point import NOTIFY, CancelReason, payloads_up_to
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogOffered,
    LogRefused,
    LogSynced,
    Want,
)

MIXED = news_of((10, 0, 300, 50, 64, 65, 700, 1, 2, 3, 4, 5, 6, 900))
LONG = news_of(tuple(range(41)), log_id=1)
LOG, LONG_LOG = key_of(MIXED), key_of(LONG)
HEARING = Interest(live=False, accept_new_logs=True, want=None)


def complete(node: Node, log: LogKey = LOG) -> list[int]:
    """The entries whose payloads are in the store."""
    return [entry.seqnum for entry in node.store.entries(log) if entry.payload_complete]


def ask(node: Node, log: LogKey, want: Want | None) -> None:
    node.end.machine.replicate(log, want)
    node.end.drain()


# Payloads up to a size

SMALLER = Want(size_max=100, payload_mandatory=True)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("known", [0, 3, 7, 13, 14])
def test_a_last_payload_that_is_too_large_is_not_waited_for(
    live: bool, proactive: bool, known: int
) -> None:
    """Although payloads are mandatory: those of other sizes are not wanted."""
    world = World(steps_max=3000)
    server = world.node(store_of(MIXED), interest=SERVE)
    there = [NewEntry(n.entry, n.payload if n.entry.payload_size <= 100 else None) for n in MIXED]
    reader = world.node(
        store_of(there[:known]) if known else None,
        interest=Interest(live=live, accept_new_logs=True, want=SMALLER),
    )
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    assert len(reader.store.entries(LOG)) == 14
    assert complete(reader) == [1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13]
    assert reader.end.of(LogSynced) == [LogSynced(log=LOG, seqnum=14)]
    assert settled(reader.end)


def test_a_payload_that_was_begun_and_is_too_large_now_is_left_as_it_is() -> None:
    world = World()
    narrow = replace(SMALL, connection=replace(SMALL.connection, data_window_max=256))
    server = world.node(store_of(MIXED), interest=SERVE, limits=narrow)
    reader = world.node(limits=narrow)
    cable = world.connect(reader, server)
    while not (kept := reader.store.entry(LOG, 7)) or kept.payload_stored < 200:
        world.run(1)
    world.cut(cable)
    world.run()
    begun = reader.store.entry(LOG, 7)
    reader.interest = Interest(live=False, want=SMALLER)
    world.connect(reader, server)
    world.settle()
    assert reader.store.entry(LOG, 7) == begun
    assert complete(reader) == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]


@pytest.mark.parametrize("interest", [KEEP, Interest(live=False)])
def test_what_was_too_large_is_brought_by_one_range(interest: Interest) -> None:
    """Of all payloads from the first missing one to the last, only the missing ones are sent."""
    there = [NewEntry(n.entry, n.payload if n.entry.payload_size <= 100 else None) for n in MIXED]
    world = World()
    server, reader = (
        world.node(store_of(MIXED), interest=SERVE),
        world.node(store_of(there), interest=interest),
    )
    world.connect(reader, server)
    world.settle()
    ask(reader, LOG, Want(first=3, last=14, payload_only=True, size_min=300))
    world.settle()
    assert same(server, reader)
    stored = [event.seqnum for event in reader.end.of(EntryStored) if event.payload_stored]
    assert stored == [3, 7, 14]


# Ranges that break off inside a payload

BIG = news_of((40, 3000, 7, 2000))
BIG_LOG = key_of(BIG)


@pytest.mark.parametrize("stored", [1, 1234, 2999, 3000])
@pytest.mark.parametrize(
    "want",
    [
        Want(first=2, last=4, payload_only=True),
        Want(first=2, last=4),
        Want(first=2, last=4, sparse=True),
        Want(first=2, last=2, sparse=True, payload_mandatory=True),
    ],
)
def test_a_range_begins_inside_the_payload_that_was_begun(stored: int, want: Want) -> None:
    world = World()
    server = world.node(store_of(BIG), interest=SERVE)
    reader = world.node(
        store_of([NewEntry(new.entry) for new in BIG]), interest=Interest(live=False)
    )
    reader.store.write_payload(BIG_LOG, 2, 0, (BIG[1].payload or b"")[:stored])
    world.connect(reader, server)
    world.run()
    before = server.end.sent_size
    ask(reader, BIG_LOG, want)
    world.settle()
    assert 2 in complete(reader, BIG_LOG)
    check_store(reader.store)
    rest = 3000 - stored + sum(new.entry.payload_size for new in BIG[2 : want.last])
    assert server.end.sent_size - before < 1.2 * rest + 400  # packets are small


@pytest.mark.parametrize("capacity", [1, 1 << 20])
@pytest.mark.parametrize("wrong", [1000, 120])
def test_a_range_whose_beginning_was_wrong_is_fetched_once_more(capacity: int, wrong: int) -> None:
    """The part already here came from another source, and was never verified.

    The fault shows after the request has ended, or before: the goodbye overtakes the last packet,
    unless that is full, and so leaves by itself.
    """
    assert ((3000 - wrong) % SMALL.connection.packet_size_max == 0) is (wrong == 120)
    world = World(capacity=capacity, take_size=lambda: capacity)
    server = world.node(store_of(BIG), interest=SERVE)
    reader = world.node(
        store_of([NewEntry(new.entry) for new in BIG]), interest=Interest(live=False)
    )
    reader.store.write_payload(BIG_LOG, 2, 0, b"wrong" * (wrong // 5))
    world.connect(reader, server)
    world.run()
    ask(reader, BIG_LOG, Want(first=2, last=2, payload_only=True))
    world.settle()
    assert complete(reader, BIG_LOG) == [2]
    check_store(reader.store)
    assert settled(reader.end)


def test_a_range_whose_payload_was_begun_but_is_not_of_interest_begins_with_its_entry() -> None:
    world = World()
    server = world.node(store_of(BIG), interest=SERVE)
    reader = world.node(
        store_of([NewEntry(new.entry) for new in BIG]), interest=Interest(live=False)
    )
    reader.store.write_payload(BIG_LOG, 2, 0, b"begun")
    world.connect(reader, server)
    world.run()
    ask(reader, BIG_LOG, Want(first=2, last=3, payload_only=True, size_max=100))
    world.settle()
    assert complete(reader, BIG_LOG) == [3]
    assert reader.end.of(LogSynced)[-1] == LogSynced(log=BIG_LOG, seqnum=3)


# Single entries


def test_an_entry_comes_from_a_store_that_holds_hardly_more() -> None:
    """Sparse, from a store that was itself filled sparsely."""
    want = Want(first=30, last=30, sparse=True, payload_mandatory=True)
    world = World()
    full, middle, last = (
        world.node(store_of(LONG), interest=SERVE),
        world.node(interest=HEARING),
        world.node(interest=HEARING),
    )
    world.connect(middle, full)
    world.run()
    ask(middle, LONG_LOG, want)
    world.settle()
    world.connect(last, middle)
    world.run()
    ask(last, LONG_LOG, want)
    world.settle()
    assert complete(last, LONG_LOG) == [30]
    assert {entry.seqnum for entry in last.store.entries(LONG_LOG)} == set(lower_pool(30))
    check_store(last.store)
    assert settled(last.end)
    # Nor does it promise anything that it does not have.
    ask(last, LONG_LOG, replace(want, first=17, last=17))
    world.settle()
    assert last.end.of(LogRefused) == [LogRefused(log=LONG_LOG, reason=CancelReason.DO_NOT_RETRY)]
    assert settled(last.end)


# Nothing unless asked for


@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("live", [True, False])
def test_who_wants_nothing_hears_of_logs_and_fetches_what_it_asks_for(
    proactive: bool, live: bool
) -> None:
    world = World()
    server = world.node(store_of(MIXED, LONG[:20]), interest=SERVE)
    reader = world.node(store_of(MIXED[:2]), interest=replace(HEARING, live=live))
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    offered = {event.log: event.seqnum for event in reader.end.of(LogOffered)}
    assert offered == {LOG: 14, LONG_LOG: 20}
    assert complete(reader) == [1, 2]
    assert not reader.end.of(EntryStored)
    assert settled(reader.end)
    ask(reader, LOG, None)
    world.settle()
    assert len(complete(reader)) == 14


# Live, before there is anything.


@pytest.mark.parametrize("proactive", [True, False])
def test_a_log_that_the_peer_did_not_have_comes_as_soon_as_it_has_it(proactive: bool) -> None:
    world = World()
    server, reader = world.node(interest=SERVE), world.node(interest=Interest(live=True))
    world.connect(*(reader, server) if proactive else (server, reader))
    ask(reader, LOG, None)
    world.settle()
    assert reader.end.of(LogRefused) == [LogRefused(log=LOG, reason=CancelReason.DO_NOT_RETRY)]
    server.add(*MIXED[:3])
    world.settle()
    assert complete(reader) == [1, 2, 3]
    server.add(*MIXED[3:])
    world.settle()
    assert same(server, reader)


def test_several_ranges_are_fetched_in_the_order_in_which_they_were_asked_for() -> None:
    world = World()
    server = world.node(store_of(LONG), interest=SERVE)
    reader = world.node(interest=Interest(live=False), limits=SMALL)
    world.connect(reader, server)
    for first in (20, 5, 11, 5):
        ask(reader, LONG_LOG, Want(first=first, last=first + 1))
    world.settle()
    assert [event.seqnum for event in reader.end.of(LogSynced)] == [21, 6, 12]


# Changes of mind


@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    "before", [Want(eagerness=NOTIFY), Want(size_max=0), Want(eagerness=payloads_up_to(5))]
)
def test_what_is_wanted_instead_comes_from_then_on(
    proactive: bool, live: bool, before: Want
) -> None:
    world = World(steps_max=5000)
    server = world.node(store_of(MIXED[:8]), interest=SERVE)
    reader = world.node(interest=Interest(live=live, accept_new_logs=True, want=before))
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    ask(reader, LOG, Want())
    world.settle()
    assert len(reader.store.entries(LOG)) == 8
    server.add(*MIXED[8:])
    world.settle()
    if live:
        assert set(complete(reader)) >= set(range(9, 15))
    if not before.eagerness.wants_metadata and live:
        assert same(server, reader)
    assert settled(reader.end)
    assert settled(server.end)
    assert not reader.end.of(LogRefused)


@pytest.mark.costly
@pytest.mark.parametrize("steps", range(0, 60, 3))
@pytest.mark.parametrize("proactive", [True, False])
def test_a_mind_may_change_at_any_moment(steps: int, proactive: bool) -> None:
    """Even while a proposal waits for credit."""
    tight = replace(SMALL, connection=replace(SMALL.connection, requests_max=1))
    other = news_of((5, 6), log_id=7)
    world = World(steps_max=5000, capacity=300, take_size=lambda: 60)
    server = world.node(store_of(MIXED, other), interest=SERVE, limits=tight)
    reader = world.node(
        interest=Interest(live=False, accept_new_logs=True, want=Want(eagerness=NOTIFY)),
        limits=tight,
    )
    world.connect(*(reader, server) if proactive else (server, reader))
    world.run(steps)
    ask(reader, LOG, Want())
    world.run(2)
    ask(reader, LOG, Want(payload_mandatory=True))
    world.settle()
    assert complete(reader) == list(range(1, 15))
    assert settled(reader.end)


@pytest.mark.parametrize("proactive", [True, False])
def test_a_mind_may_change_while_a_proposal_waits_for_credit(proactive: bool) -> None:
    tight = replace(SMALL, connection=replace(SMALL.connection, requests_max=1))
    other = news_of((5, 6), log_id=7)
    world = World(steps_max=5000, capacity=300, take_size=lambda: 60)
    server = world.node(store_of(MIXED, other), interest=SERVE, limits=tight)
    reader = world.node(interest=Interest(live=False, accept_new_logs=True, want=Want(size_max=3)))
    world.connect(*(reader, server) if proactive else (server, reader))
    while key_of(other) not in {event.log for event in reader.end.of(LogOffered)}:
        world.run(1)
    while reader.end.effects:  # its needs are being read: the proposal could be made
        world.run(1)
    requests = reader.end.machine.connection.requests.values()
    assert [request.proposal.log for request in requests if request.ours] == [LOG]
    ask(reader, key_of(other), Want())
    world.settle()
    assert complete(reader, key_of(other)) == [1, 2]
    assert settled(reader.end)

"""Authors that publish two entries with one number: found, proved, kept, reported."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2p_support import adjust, cancel, grant, marker, propose, switch, varu64
from replicator_raw import RawPeer
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

from culm.bamboo.author import LogAuthor
from culm.bamboo.effects import AppendEntries, ReadEntries, ReadLog
from culm.bamboo.entry import Entry
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.records import NewEntry
from culm.machine import Effect
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    LogRefused,
    LogSynced,
    ReplicatorLimits,
    Want,
)
from culm.point2point.replication.steps import Purpose
from culm.wire.multihash import YAMF

SIZES = (5, 100, 3, 9, 70, 5, 5, 200, 5, 5, 5, 5, 5, 5, 5, 5, 5)
TRUNK = news_of(SIZES)
LOG = key_of(TRUNK)


def branch(at: int, name: bytes = b"other", length: int = 17) -> tuple[NewEntry, ...]:
    """The log as if the author had gone another way at entry `at`."""
    made = news_of(SIZES[:length], branch=name, fork_at=at)
    assert made[: at - 1] == TRUNK[: at - 1]
    assert all(one != other for one, other in zip(made[at - 1 :], TRUNK[at - 1 :], strict=False))
    return made


def assert_forked(at: int, *nodes: Node) -> None:
    """All have the proof, and exactly the entries before the fork."""
    for node in nodes:
        proof = node.store.fork(LOG)
        assert proof is not None
        assert proof.seqnum == at
        assert proof.verify()
        assert [entry.seqnum for entry in node.store.entries(LOG)] == list(range(1, at))
        check_store(node.store)
        assert all(end.closed is None and settled(end) for end in node.ends)
    assert same(*nodes)


def wiretap(node: Node) -> list[Effect]:
    """All that a node's store is asked for from now on."""
    asked: list[Effect] = []
    respond = node.respond

    def tap(effect: Effect) -> object:
        asked.append(effect)
        return respond(effect)

    node.respond = tap
    return asked


@pytest.mark.parametrize("at", [1, 2, 4, 5, 9, 13, 16])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("lengths", [(16, 16), (16, 0), (0, 16), (14, 1)])
def test_both_learn_of_a_fork_and_agree_on_what_comes_before(
    at: int, order: int, lengths: tuple[int, int]
) -> None:
    """`lengths`: the number of entries that each has on its branch."""
    left, right = (max(at, min(16, at + length)) for length in lengths)
    world = World(steps_max=20_000)
    nodes = world.node(store_of(TRUNK[:left])), world.node(store_of(branch(at)[:right]))
    world.connect(*nodes[::order])
    world.settle()
    if not same(*nodes) and left == right == at:
        # No message between them names the forked entry.
        nodes[0].add(TRUNK[at])
        world.settle()
    assert_forked(at, *nodes)


@pytest.mark.parametrize(("at", "length"), [(1, 3), (2, 4), (5, 8), (8, 8), (2, 12), (12, 16)])
@pytest.mark.parametrize("order", [1, -1])
def test_neither_needs_anything_new_for_that(at: int, length: int, order: int) -> None:
    """Entry `length` + 1, which neither has, would link to one on which they differ."""
    assert at <= lipmaa(length + 1)
    world = World(steps_max=2000)
    nodes = world.node(store_of(TRUNK[:length])), world.node(store_of(branch(at)[:length]))
    world.connect(*nodes[::order])
    world.settle()
    assert_forked(at, *nodes)


@pytest.mark.parametrize("at", [3, 12])
def test_a_fork_that_nobody_sees_comes_out_with_the_next_entry(at: int) -> None:
    """Entry at + 1 links back to a forked one, of which the peer has the other variant."""
    world = World()
    nodes = world.node(store_of(TRUNK[:at])), world.node(store_of(branch(at)[:at]))
    world.connect(*nodes)
    world.settle()
    nodes[1].add(branch(at)[at])
    world.settle()
    assert_forked(at, *nodes)


@pytest.mark.parametrize("length", range(1, 17))
def test_what_two_logs_of_one_length_see_of_a_fork(length: int) -> None:
    """Forks up to the lipmaalink target of the next entry, at once; none beyond it."""
    seen = lipmaa(length + 1)
    for at in {1, seen, min(seen + 1, length), length}:
        world = World(steps_max=2000)
        nodes = world.node(store_of(TRUNK[:length])), world.node(store_of(branch(at)[:length]))
        world.connect(*nodes)
        world.settle()
        if at <= seen:
            assert_forked(at, *nodes)
        else:
            assert all(node.store.fork(LOG) is None for node in nodes)
            assert all(node.store.head(LOG) is not None for node in nodes)


@pytest.mark.parametrize("at", [3, 12])
def test_a_fork_that_nobody_sees_comes_out_with_a_third_peer(at: int) -> None:
    world = World()
    nodes = world.node(store_of(TRUNK[:at])), world.node(store_of(branch(at)[:at]))
    world.connect(*nodes)
    world.settle()
    third = world.node(store_of(TRUNK[: at + 1]))
    world.connect(third, nodes[1])
    world.settle()
    assert_forked(at, *nodes, third)


@pytest.mark.parametrize("at", [3, 12])
def test_who_doubts_asks_for_the_last_entry(at: int) -> None:
    world = World(steps_max=3000)
    nodes = world.node(store_of(TRUNK[:at])), world.node(store_of(branch(at)[:at]))
    world.connect(*nodes)
    world.settle()
    assert nodes[0].store.fork(LOG) is None
    nodes[0].end.machine.replicate(LOG, Want(first=at, last=at))
    nodes[0].end.drain()
    world.settle()
    assert_forked(at, *nodes)


def test_the_proof_travels_with_a_cancel_and_is_verified() -> None:
    world = World()
    told, knowing = world.node(store_of(TRUNK)), world.node(store_of(branch(5)))
    third = world.node(store_of(TRUNK))
    world.connect(told, knowing)
    world.settle()
    assert_forked(5, told, knowing)
    world.connect(third, told)
    world.settle()
    assert_forked(5, told, knowing, third)
    (found,) = third.end.of(ForkFound)
    assert found.proof == told.store.fork(LOG)


def test_conflicting_entries_of_two_peers_prove_a_fork() -> None:
    world = World()
    middle = world.node()
    one, other = world.node(store_of(TRUNK)), world.node(store_of(branch(6)))
    world.connect(middle, one)
    world.connect(middle, other)
    world.settle()
    assert_forked(6, one, middle, other)


def test_a_fork_reaches_all_along_a_chain() -> None:
    world = World()
    nodes = [world.node(store_of(TRUNK[:12])) for _ in range(4)]
    for one, other in pairwise(nodes):
        world.connect(one, other)
    world.settle()
    forger = world.node(store_of(branch(12)[:13]))
    world.connect(forger, nodes[0])
    world.settle()
    assert_forked(12, *nodes, forger)


@cache
def twice_forked(early: int, at: int, name: bytes) -> tuple[list[NewEntry], ForkProof]:
    """The remains of a branch from `early` on that is itself forked at `at`, and the proof."""
    ends: list[Entry] = []
    for last in b"last", b"another":
        author = LogAuthor(SigningKey(bytes([1]) * 32), family=YAMF)
        parts = [b"common"] * (early - 1) + [name] * (at - early) + [name + last]
        news = [author.publish(part) for part in parts]
        ends.append(news[-1].entry)
    return news[:-1], ForkProof(ends[0], ends[1])


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("early", "at"), [(early, at) for at in (2, 4, 5, 9, 13, 14) for early in range(1, at)]
)
def test_who_know_of_one_fork_find_an_earlier_one_that_only_both_can_prove(
    early: int, at: int, order: int
) -> None:
    world = World(steps_max=20_000)
    nodes = [world.node(), world.node()]
    for node, name in zip(nodes, (b"one", b"other"), strict=True):
        kept, proof = twice_forked(early, at, name)
        if kept:
            node.store.append(LOG, kept)
        node.store.add_fork(LOG, proof)
    world.connect(*nodes[::order])
    world.settle()
    assert_forked(early, *nodes)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("at", [5, 8, 10])
def test_who_know_of_one_fork_compare_their_last_entries(at: int, order: int) -> None:
    """By 13, of which they have had the pools alone, neither sees that they differ from `at` on."""
    world = World()
    nodes = [world.node(store_of(news[:10])) for news in (TRUNK, branch(at))]
    for node in nodes:
        node.store.add_fork(LOG, ForkProof(TRUNK[12].entry, branch(at)[12].entry))
    world.connect(*nodes[::order])
    world.settle()
    assert_forked(at, *nodes)


def test_an_entry_that_was_compared_and_is_the_same_is_not_told_as_stored() -> None:
    """It would be told to other replicators over the store, which compare it, too, and so on."""
    world = World()
    nodes = [world.node(store_of(TRUNK[:12])) for _ in range(2)]
    for node in nodes:
        node.store.add_fork(LOG, ForkProof(TRUNK[12].entry, branch(5)[12].entry))
    seen = [wiretap(node) for node in nodes]
    world.connect(*nodes)
    world.settle()
    assert [node.end.of(EntryStored) for node in nodes] == [[], []]
    assert any(isinstance(each, AppendEntries) for effects in seen for each in effects)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("places", [(1, None), (2, None), (1, 1)], ids=str)
def test_what_was_compared_in_vain_is_not_compared_in_turns_for_ever(
    places: tuple[int | None, ...], order: int
) -> None:
    """A log that had to give up its place forgot it, and told the fork again with the next."""
    world = World(steps_max=5_000)
    scarce = replace(SMALL.connection, requests_max=1)
    few = [count and replace(SMALL, logs_max=count, connection=scarce) for count in places]
    nodes = [world.node(limits=each or SMALL) for each in few]
    for log_id in range(4):
        trunk = news_of(SIZES, log_id=log_id)
        other = news_of(SIZES, log_id=log_id, branch=b"other", fork_at=5)
        for node in nodes:
            node.store.append(key_of(trunk), trunk[:12])
            node.store.add_fork(key_of(trunk), ForkProof(trunk[12].entry, other[12].entry))
    world.connect(*nodes[::order])
    world.wait(20)
    carried = world.carried
    world.wait(20)
    assert world.carried - carried < 100  # signs of life
    assert all(settled(node.end) for node in nodes)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("order", [1, -1])
def test_a_fork_that_is_shown_before_the_own_logs_are_known_is_learnt_of(
    length: int, order: int
) -> None:
    """The proposal waits until the store has told its logs, and is cancelled with the proof."""
    world = World()
    told, slow = (world.node(store_of(TRUNK[:length])) for _ in range(2))
    told.store.add_fork(LOG, ForkProof(TRUNK[5].entry, branch(6)[5].entry))
    slow.paused = True
    world.connect(*(told, slow)[::order])
    world.run()
    slow.paused = False
    world.settle()
    assert slow.store.fork(LOG) == told.store.fork(LOG)


def test_a_range_that_cannot_end_before_the_fork_is_told_as_refused() -> None:
    """The end of a sparse range of payloads alone is fixed."""
    world = World()
    server = world.node(store_of(TRUNK), interest=SERVE)
    reader = world.node(store_of([NewEntry(new.entry) for new in TRUNK[:13]]))
    server.paused = True
    world.connect(server, reader)
    want = Want(first=1, last=13, sparse=True, payload_only=True)
    reader.end.machine.replicate(LOG, want)
    reader.end.drain()
    world.run()
    reader.store.add_fork(LOG, ForkProof(TRUNK[4].entry, branch(5)[4].entry))
    reader.tell(LOG, None)
    server.paused = False
    world.settle()
    assert LogRefused(log=LOG, fault=Reason.FORK) in reader.end.events
    assert_forked(5, reader)


@pytest.mark.parametrize("closed", [False, True], ids=["adjusted", "cancelled"])
def test_a_range_is_shortened_once_by_two_forks_that_are_seen_together(closed: bool) -> None:
    """One is shown by the peer; the other is in the store by the time that is looked at."""
    connection = replace(SMALL.connection, request_adjustments_max=2)
    limits = replace(SMALL, connection=connection)
    peer = RawPeer([NewEntry(new.entry) for new in TRUNK], limits=limits)
    want = Want(first=1, last=17, sparse=closed, payload_only=True)
    peer.machine.replicate(LOG, want)
    peer.drain()
    peer.control(adjust(3, "notify"))
    earlier = ForkProof(TRUNK[8].entry, branch(9)[8].entry)

    def respond(effect: Effect) -> object:
        if isinstance(effect, ReadLog) and peer.store.fork(LOG) not in (None, earlier):
            peer.store.add_fork(LOG, earlier)
        return peer.store.perform(effect)

    peer.respond = respond
    peer.control(cancel(1, 135, proof_bytes(14)))
    assert [each.fault for each in peer.of(LogRefused)] == [Reason.FORK] * closed
    assert (cancel(3, 128) in peer.control_seen) is closed
    assert peer.code is None
    assert peer.store.fork(LOG) == earlier


def test_an_entry_to_be_compared_that_the_peer_lacks_keeps_no_others_away() -> None:
    """The peer does not have 13, with which it is to be compared."""
    world = World()
    nodes = [world.node(store_of(news)) for news in (TRUNK[:12], [*TRUNK[:8], *TRUNK[11:13]])]
    for node in nodes:
        node.store.add_fork(LOG, ForkProof(TRUNK[13].entry, branch(9)[13].entry))
    world.connect(*nodes)
    world.settle()
    assert_forked(14, *nodes)


def test_three_branches_are_cut_at_the_earliest_fork() -> None:
    world = World()
    nodes = [world.node(store_of(news)) for news in (TRUNK, branch(9), branch(4, b"third"))]
    for one in range(3):
        world.connect(nodes[one], nodes[one - 1])
    world.settle()
    assert_forked(4, *nodes)


@pytest.mark.parametrize("known", [0, 2, 7])
def test_what_comes_before_a_known_fork_can_still_be_had(known: int) -> None:
    world = World()
    knowing = world.node(store_of(TRUNK))
    other = world.node(store_of(branch(9)))
    world.connect(knowing, other)
    world.settle()
    reader = world.node(store_of(TRUNK[:known]) if known else None)
    world.connect(reader, knowing)
    world.settle()
    assert_forked(9, knowing, other, reader)


def test_one_time_fetches_find_forks_too() -> None:
    world = World()
    server = world.node(store_of(branch(5)), interest=SERVE)
    reader = world.node(store_of(TRUNK[:8]), interest=FETCH)
    world.connect(reader, server)
    world.settle()
    assert_forked(5, server, reader)


def test_a_range_that_crosses_a_fork_is_refused_with_its_proof() -> None:
    world = World()
    server = world.node(store_of(TRUNK), interest=SERVE)
    other = world.node(store_of(branch(9)))
    world.connect(server, other)
    world.settle()
    reader = world.node(interest=Interest(live=False))
    world.connect(reader, server)
    reader.end.machine.replicate(LOG, Want(first=8, last=12))
    reader.end.drain()
    world.settle()
    proof = reader.store.fork(LOG)
    assert proof is not None
    assert proof.seqnum == 9
    assert reader.end.of(ForkFound)


def test_a_store_that_knows_a_fork_from_elsewhere_tells_the_peer() -> None:
    world = World()
    one, other = world.node(store_of(TRUNK)), world.node(store_of(TRUNK))
    world.connect(one, other)
    world.settle()
    one.store.add_fork(LOG, ForkProof(TRUNK[7].entry, branch(8)[7].entry))
    one.tell(LOG, None)
    world.settle()
    assert_forked(8, one, other)
    assert not other.end.of(LogRefused)


def test_what_a_forked_log_had_in_payloads_before_the_fork_is_resumed() -> None:
    news = news_of((5, 3000, 7))
    forged = news_of((5, 3000, 8), branch=b"x", fork_at=3)
    log = key_of(news)
    world = World()
    server, reader = world.node(store_of(news)), world.node()
    cable = world.connect(server, reader)
    while not (kept := reader.store.entry(log, 2)) or kept.payload_stored < 300:
        world.run(1)
    world.cut(cable)
    world.run()
    server.store.add_fork(log, ForkProof(news[2].entry, forged[2].entry))
    world.connect(server, reader)
    world.settle()
    assert same(server, reader)
    assert [e.payload_complete for e in reader.store.entries(log)] == [True, True]


# Before a known fork, and beyond it


def knows_fork(at: int, **options: Any) -> RawPeer:
    """A replicator that has entries 1 to at - 1, and knows the fork after them."""
    store = store_of(TRUNK)
    store.add_fork(LOG, ForkProof(TRUNK[at - 1].entry, branch(at)[at - 1].entry))
    peer = RawPeer(store=store, **options)
    for request_id in list(peer.machine.connection.requests):  # its own proposals
        peer.control(cancel(request_id, 131))
        peer.data(marker(request_id))
    assert not peer.machine.connection.requests
    return peer


def proof_bytes(at: int) -> bytes:
    proof = ForkProof(TRUNK[at - 1].entry, branch(at)[at - 1].entry)
    return proof.first.encode() + proof.second.encode()


@pytest.mark.parametrize("interest", [SERVE, KEEP, FETCH])
@pytest.mark.parametrize("end", [None, (12, 12), (12, 13), (8, 12), (9, 9)])
@pytest.mark.parametrize("at", [2, 9, 12])
def test_what_comes_before_the_fork_is_sent_then_the_fork_is_told(
    at: int, end: tuple[int, int] | None, interest: Interest
) -> None:
    peer = knows_fork(at, interest=interest)
    peer.control(propose(0, 1, log=LOG, end=end))
    last = min(at - 1, end[0] if end else at)
    if end is None or end[0] >= at:
        assert any(
            adjust(0, eager, flags=12 | others, extra=varu64(last) * 2) in peer.control_seen
            for eager, others in (("all", 16 | 3), ("notify", 16))
        )
    if interest is SERVE or interest is KEEP:
        # It takes part: the peer has also passed everything.
        peer.data(switch(0), b"\x03" + varu64(2 * last) if last > 1 else b"\x02\x02")
    sent = [new.entry.seqnum for new in TRUNK if new.entry.signature in peer.data_seen]
    assert sent == list(range(1, last + 1))
    assert cancel(0, 130) in peer.control_seen
    assert cancel(0, 135) not in peer.control_seen
    peer.control(cancel(0, 131))
    peer.data(marker(0))
    peer.control(propose(2, at, log=LOG, hash=TRUNK[lipmaa(at) - 1].entry.hash()))
    assert cancel(2, 135, proof_bytes(at)) in peer.control_seen
    assert peer.code is None


@pytest.mark.parametrize("at", [6, 8])
def test_a_pool_that_reaches_over_the_fork_is_refused(at: int) -> None:
    """Its range begins beyond the fork, and cannot end before it."""
    peer = knows_fork(at)
    peer.control(propose(0, 12, log=LOG, lower=4, hash=TRUNK[0].entry.hash(), end=(12, 12)))
    assert cancel(0, 128) in peer.control_seen
    assert peer.code is None


def test_the_peer_is_told_of_a_fork_from_which_both_are_far() -> None:
    """By a proposal of the forked entry, which is cancelled with the proof."""
    world = World()
    one, other = world.node(store_of(TRUNK[:4])), world.node(store_of(TRUNK[:4]))
    world.connect(one, other)
    world.settle()
    one.store.add_fork(LOG, ForkProof(TRUNK[11].entry, branch(12)[11].entry))
    one.tell(LOG, None)
    world.settle()
    assert [event.proof.seqnum for event in other.end.of(ForkFound)] == [12]
    one.add(*TRUNK[4:11])
    world.settle()
    assert_forked(12, one, other)


def test_ranges_that_are_being_served_end_before_a_fork_that_comes_to_be_known() -> None:
    peer = RawPeer(TRUNK, interest=SERVE, slow=True)
    while peer.effects:
        peer.answer()
        peer.drain()
    peer.control(propose(0, 1, log=LOG, end=(12, 12)))
    while not any(isinstance(effect, ReadEntries) for effect in peer.effects):
        peer.answer()
        peer.drain()
    peer.store.add_fork(LOG, ForkProof(TRUNK[8].entry, branch(9)[8].entry))
    peer.slow = False
    peer.machine.stored(LOG)
    peer.drain()
    assert cancel(0, 130) in peer.control_seen
    assert TRUNK[7].entry.signature in peer.data_seen
    assert TRUNK[8].entry.signature not in peer.data_seen
    assert peer.code is None


def test_a_fork_for_which_there_was_no_room_is_told_when_there_is_some() -> None:
    """The peer has room for one request, and does not answer that one for long."""
    peer = RawPeer(news_of((5, 6), log_id=7), interest=SERVE, credit=1)
    peer.store.append(LOG, TRUNK)
    peer.store.add_fork(LOG, ForkProof(TRUNK[8].entry, branch(9)[8].entry))
    peer.machine.stored(LOG)
    for now in range(9):  # it gives up waiting for credit
        peer.machine.advance(float(now))
        peer.drain()
    assert {event.log for event in peer.of(LogRefused)} == {LOG}
    peer.control(cancel(1, 128))
    peer.data(marker(1))
    peer.control(grant(1))
    assert cancel(3, 135, proof_bytes(9)) in peer.control_seen
    for request_id in (3, 5):  # nor has it room now; 5 is about entries before the fork
        peer.control(cancel(request_id, 129 if request_id == 3 else 131))
        peer.data(marker(request_id))
        peer.control(grant(1))
    assert cancel(7, 135, proof_bytes(9)) in peer.control_seen


def test_a_fork_told_of_a_log_without_a_place_is_kept_and_not_told_back() -> None:
    peer = RawPeer(news_of((5, 6), log_id=7), limits=replace(SMALL, logs_max=1))
    peer.control(propose(0, 9, log=LOG, end=(9, 9), hash=TRUNK[7].entry.hash()))
    peer.control(cancel(0, 135, proof_bytes(9)))
    peer.data(marker(0))
    assert {event.log for event in peer.of(LogRefused)} == {LOG}
    assert peer.store.fork(LOG) is None
    peer.control(cancel(1, 128))  # the other log has nothing more to do
    peer.data(marker(1))
    proof = peer.store.fork(LOG)
    assert proof is not None
    assert proof.seqnum == 9
    assert proof_bytes(9) not in peer.control_seen


@pytest.mark.parametrize(
    "want",
    [
        Want(first=1, last=13, payload_only=True, size_max=2),
        Want(first=1, last=13, size_max=2),
        Want(first=9, last=13, payload_only=True),
        Want(first=9, last=13),
    ],
)
def test_a_range_that_a_known_fork_cuts_short_is_told(want: Want) -> None:
    """Of the first there is nothing to store, and of the last nothing is left."""
    world = World()
    branches = [news_of((5,) * 13, branch=branch, fork_at=5) for branch in (b"", b"other")]
    nodes = [world.node(store_of(each)) for each in branches]
    world.connect(*nodes)
    world.wait(10)
    reader = nodes[0].end
    assert reader.of(ForkFound)
    told = len(reader.of(LogSynced)) + len(reader.of(LogRefused))
    reader.machine.replicate(key_of(branches[0]), want)
    reader.drain()
    world.wait(10)
    assert len(reader.of(LogSynced)) + len(reader.of(LogRefused)) > told
    assert not reader.machine.logs[key_of(branches[0])].ranges


@pytest.mark.parametrize("at", [2, 3])
def test_a_range_under_way_that_begins_behind_a_new_fork_is_told_of(at: int) -> None:
    world = World()
    reader, server = world.node(store_of(TRUNK[:8])), world.node(store_of(TRUNK[:8]))
    world.connect(reader, server)
    world.wait(5)
    server.paused = True
    reader.end.machine.replicate(LOG, Want(first=3, last=8))
    reader.end.drain()
    world.run()
    reader.store.add_fork(LOG, ForkProof(TRUNK[at - 1].entry, branch(at)[at - 1].entry))
    reader.tell(LOG, None)
    world.run()
    server.paused = False
    world.wait(5)
    assert len(reader.end.of(LogRefused)) == 1
    assert settled(reader.end)


def test_an_entry_is_compared_again_after_there_was_no_room_for_that() -> None:
    peer = RawPeer(TRUNK)
    peer.control(cancel(1, 134, varu64(5)))
    peer.data(marker(1))
    asked = peer.machine.logs[LOG].ours[Purpose.NEXT].request
    assert asked is not None
    assert (asked.request_id, asked.proposal.start, asked.proposal.end) == (3, 5, 5)
    peer.control(cancel(3, 129))
    peer.data(marker(3))
    peer.control(propose(0, log=key_of(news_of((1,), log_id=9))))
    peer.control(cancel(0, 128))  # so there is room
    peer.data(marker(0))
    again = peer.machine.logs[LOG].ours[Purpose.NEXT].request
    assert again is not None
    assert (again.proposal.start, again.proposal.end) == (5, 5)


def test_an_entry_is_compared_when_there_is_credit_for_that() -> None:
    peer = RawPeer(TRUNK, credit=1)
    peer.control(cancel(1, 134, varu64(5)))
    peer.data(marker(1))
    for now in range(9):  # it gives up waiting for credit
        peer.machine.advance(float(now))
        peer.drain()
    assert peer.machine.logs[LOG].ours[Purpose.NEXT].request is None
    peer.control(grant(1))
    asked = peer.machine.logs[LOG].ours[Purpose.NEXT].request
    assert asked is not None
    assert (asked.proposal.start, asked.proposal.end) == (5, 5)


@pytest.mark.parametrize("fork_at", [2, 3])
@pytest.mark.parametrize("islands", [(False, True), (True, False)])
def test_entries_of_two_branches_never_stand_beside_each_other(
    fork_at: int, islands: tuple[bool, bool]
) -> None:
    """One peer has entry 4 of a branch, one the entries up to 3 of the other; both are fetched."""
    one, other = (news_of((5,) * 4, branch=each, fork_at=fork_at) for each in (b"", b"other"))
    log, store = key_of(one), store_of(one[:1])
    for island in islands:
        world = World()
        peer = world.node(store_of(other if island else one[:3]))
        end = world.connect(world.node(store, interest=Interest(want=None)), peer).left
        end.machine.replicate(log, Want(first=4, last=4) if island else Want(first=2, last=3))
        end.drain()
        world.settle()
        check_store(store)
    if islands[1]:
        fork = store.fork(log)
        assert fork is not None
        assert fork.seqnum == fork_at


@pytest.mark.parametrize(
    ("stored", "wants"),
    [
        ((1, 4, 13), ()),
        ((1, 4, 5, 6, 7), (Want(first=8, last=9),)),
        ((1, 4, 13), (Want(first=12, last=12),)),
    ],
)
def test_of_entries_of_two_branches_beside_each_other_the_stored_one_is_compared(
    stored: tuple[int, ...], wants: tuple[Want, ...]
) -> None:
    """The peer is asked for its own, be it before or after the one that does not fit."""
    world, other = World(), branch(6)
    only_ranges = Interest(want=None, accept_new_logs=True)
    reader = world.node(
        store_of(other[number - 1] for number in stored),
        limits=replace(SMALL, batch_count_max=1),
        interest=only_ranges if wants else KEEP,
    )
    world.connect(reader, world.node(store_of(TRUNK)))
    for want in wants:
        reader.end.machine.replicate(LOG, want)
    reader.end.drain()
    world.wait(10)
    check_store(reader.store)
    assert reader.end.of(ForkFound)


@pytest.mark.parametrize("wants", [(), (Want(first=2, last=16),)])
def test_what_comes_before_a_fork_is_kept_or_fetched_again(wants: tuple[Want, ...]) -> None:
    """All comes in one batch, and the store has another branch from the last of its entries on."""
    world, other = World(), branch(6)
    reader = world.node(
        store_of(other[number - 1] for number in (1, 4, 13)),
        limits=ReplicatorLimits(),
        interest=Interest(want=None, accept_new_logs=True) if wants else KEEP,
    )
    peer = world.node(store_of(TRUNK), limits=ReplicatorLimits())
    world.connect(reader, peer)
    for want in wants:
        reader.end.machine.replicate(LOG, want)
    reader.end.drain()
    world.wait(10)
    assert reader.end.of(ForkFound)
    if not wants:
        assert_forked(13, reader, peer)
    else:  # entry 12 did not fit at first: the range has not come as a whole
        assert [entry.seqnum for entry in reader.store.entries(LOG)] == list(range(1, 12))
        assert [event.fault for event in reader.end.of(LogRefused)] == [Reason.FORK]
        assert not reader.end.of(LogSynced)

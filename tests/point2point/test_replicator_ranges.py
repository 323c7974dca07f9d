"""Ranges requested one by one: single payloads, ends of logs, refusals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from p2p_support import adjust, cancel, marker, metadata, propose, raw, switch, varu64
from replicator_raw import RawPeer
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    Node,
    World,
    check_store,
    key_of,
    news_of,
    settled,
    store_of,
)

from culm.bamboo.links import lower_pool
from culm.bamboo.records import NewEntry
from culm.point2point import EVERYTHING, NOTIFY, CancelReason, Eagerness
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    PiecesNotified,
    Want,
)

SIZES = (10, 0, 300, 50, 64, 65, 700, 1, 2, 3, 4, 5, 6, 900)
NEWS = news_of(SIZES)
LOG = key_of(NEWS)
BARE = [NewEntry(new.entry) for new in NEWS]
ENDED = news_of((5, 300, 7, 1, 1, 1, 1, 1, 100), ended=True)
ENDED_LOG = key_of(ENDED)


def there(node: Node, log: Any = LOG) -> list[int]:
    return [e.seqnum for e in node.store.entries(log) if e.payload_complete]


def ask(node: Node, log: Any, want: Want) -> None:
    node.end.machine.replicate(log, want)
    node.end.drain()


# One payload


@pytest.mark.parametrize("seqnum", [1, 2, 3, 7, 13, 14])
@pytest.mark.parametrize("reader", [KEEP, FETCH, Interest(live=False)])
@pytest.mark.parametrize("server", [KEEP, SERVE, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_a_single_payload(
    seqnum: int, reader: Interest, server: Interest, proactive: bool, early: bool
) -> None:
    """From either side, and whether or not the log is live as well."""
    world = World(steps_max=5000)
    nodes = (
        world.node(store_of(BARE), interest=reader),
        world.node(store_of(NEWS), interest=server),
    )
    world.connect(*nodes if proactive else nodes[::-1])
    if not early:
        world.run()
    ask(nodes[0], LOG, Want(first=seqnum, last=seqnum, payload_only=True))
    world.settle()
    assert there(nodes[0]) == [seqnum]
    assert LogSynced(log=LOG, seqnum=seqnum) in nodes[0].end.of(LogSynced)
    assert all(settled(node.end) for node in nodes)
    # A server that is not live has nothing to offer for the next entries.
    refused = {event.reason for event in nodes[0].end.of(LogRefused)}
    assert refused <= (set() if server.live else {CancelReason.DO_NOT_RETRY})


@pytest.mark.parametrize("eager", ["all", "notify", "up to"])
@pytest.mark.parametrize("seqnum", [1, 2, 3])
def test_a_payload_that_we_lack_is_not_passed_over(eager: str, seqnum: int) -> None:
    """Although the peer asks us for what it is about to send: it may be another implementation."""
    peer = RawPeer(interest=Interest(live=False))
    peer.store.append(LOG, BARE)
    peer.machine.replicate(LOG, Want(first=seqnum, last=seqnum, payload_only=True))
    peer.drain()
    (request,) = peer.machine.connection.requests.values()
    assert request.proposal.payload_only
    extra = varu64(1000) if eager == "up to" else b""
    peer.control(adjust(request.request_id, eager, extra=extra))
    peer.drain()
    assert request.send_cursor.piece == (seqnum, 1)
    payload = NEWS[seqnum - 1].payload
    assert payload is not None
    peer.data(switch(request.request_id), raw(payload))
    assert peer.code is None
    assert peer.of(EntryStored)[-1].payload_stored
    kept = peer.store.entry(LOG, seqnum)
    assert kept is not None
    assert kept.payload_complete
    assert peer.control_seen.endswith(cancel(request.request_id, 130))


@pytest.mark.parametrize("packet", [b"\x06", b"\x05", b"\x04"])
def test_a_payload_that_the_peer_lacks_does_not_come(packet: bytes) -> None:
    peer = RawPeer(interest=Interest(live=False))
    peer.store.append(LOG, BARE)
    want = Want(first=3, last=3, payload_only=True, size_min=1, size_max=2**64 - 2)
    peer.machine.replicate(LOG, want)
    peer.drain()
    peer.control(adjust(1, "notify"))
    peer.data(switch(1), packet)
    assert peer.code is None
    assert not peer.of(EntryStored)
    kept = peer.store.entry(LOG, 3)
    assert kept is not None
    assert not kept.payload_complete


def test_a_sparse_path_of_payloads() -> None:
    world = World()
    reader = world.node(store_of(BARE), interest=Interest(live=False))
    world.connect(reader, world.node(store_of(NEWS), interest=SERVE))
    world.run()
    ask(reader, LOG, Want(first=1, last=13, sparse=True, payload_only=True))
    world.settle()
    assert there(reader) == [1, 4, 13]


# Logs that have ended


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("lacking", ["nothing", "payloads", "the last payload"])
def test_newcomers_get_a_log_that_has_ended(
    interest: Interest, proactive: bool, lacking: str
) -> None:
    """It is offered at the entry after its end, which no peer will ever ask for."""
    world = World(steps_max=3000)
    server = world.node(store_of(ENDED))
    for seqnum in {"nothing": (), "payloads": range(1, 10), "the last payload": (9,)}[lacking]:
        server.store.discard_payload(ENDED_LOG, seqnum)
    readers = [world.node(interest=interest) for _ in range(2)]
    for reader in readers:
        world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    for reader in readers:
        assert reader.end.of(LogOffered) == [LogOffered(log=ENDED_LOG, seqnum=9)]
        assert reader.end.of(LogEnded) == [LogEnded(log=ENDED_LOG, seqnum=9)]
        assert there(reader, ENDED_LOG) == there(server, ENDED_LOG)
        assert len(reader.store.entries(ENDED_LOG)) == 9
    for node in (server, *readers):
        assert all(settled(end) for end in node.ends)
    assert not any(reader.end.of(LogRefused) for reader in readers)


def test_two_that_have_all_of_an_ended_log_stay_quiet() -> None:
    world = World(steps_max=500)
    nodes = [world.node(store_of(ENDED)) for _ in range(2)]
    world.connect(*nodes)
    world.settle()
    assert all(settled(node.end) for node in nodes)
    assert not any(node.end.of(LogRefused) for node in nodes)


@pytest.mark.parametrize("confirmed", [True, False])
def test_another_implementation_may_think_what_it_likes_of_such_an_offer(confirmed: bool) -> None:
    peer = RawPeer(ENDED)
    request = peer.machine.connection.requests[1]
    assert request.proposal.start == 10
    if confirmed:
        peer.control(adjust(1, "all"))
        peer.drain()
        assert request.send_cursor.piece == (10, 0)
        # It has nothing to send.
        peer.data(switch(1), metadata(NEWS[9].entry))
        assert peer.code is not None
    else:
        peer.control(cancel(1, 134, varu64(9)))
        peer.data(marker(1))
        assert not peer.of(LogRefused)
        assert peer.code is None
        assert not peer.machine.connection.requests


@pytest.mark.parametrize("first", [14, 20])
@pytest.mark.parametrize("proactive", [True, False])
def test_whoever_asks_for_too_much_learns_of_the_end(first: int, proactive: bool) -> None:
    world = World(steps_max=3000)
    quiet = Interest(live=False)
    server, reader = world.node(store_of(ENDED), interest=quiet), world.node(store_of(ENDED[:8]))
    reader.interest = quiet
    world.connect(*(reader, server) if proactive else (server, reader))
    world.run()
    ask(reader, ENDED_LOG, Want(first=first, last=first + 5))
    world.settle()
    assert LogRefused(log=ENDED_LOG, reason=CancelReason.END_OF_LOG) in reader.end.of(LogRefused)
    newest = reader.store.newest(ENDED_LOG)
    assert newest is not None
    assert (newest.seqnum, newest.end_of_log) == (9, True)
    assert reader.end.of(LogEnded) == [LogEnded(log=ENDED_LOG, seqnum=9)]
    check_store(reader.store)
    assert settled(reader.end)
    assert settled(server.end)


@pytest.mark.parametrize("first", [1, 8, 9, 10, 14])
@pytest.mark.parametrize("known", [0, 3])
def test_a_range_beyond_the_end_comes_as_far_as_there_is_something(first: int, known: int) -> None:
    world = World(steps_max=3000)
    server = world.node(store_of(ENDED), interest=Interest(live=False))
    reader = world.node(store_of(ENDED[:known]) if known else None)
    reader.interest = Interest(live=False)
    world.connect(reader, server)
    world.run()
    ask(reader, ENDED_LOG, Want(first=first, last=first + 15))
    world.settle()
    pool = {n for n in lower_pool(first) if n <= 9 and n < first}
    got = {e.seqnum for e in reader.store.entries(ENDED_LOG)}
    assert got == pool | set(range(first, 10)) | set(range(1, known + 1))
    assert CancelReason.DO_NOT_RETRY in {event.reason for event in reader.end.of(LogRefused)}
    assert not reader.end.machine.connection.requests
    assert settled(reader.end)


def test_a_peer_that_makes_ends_up_is_asked_once() -> None:
    peer = RawPeer(interest=Interest(live=False))
    peer.machine.replicate(LOG, Want(first=20, last=30))
    peer.drain()
    said, asked = 20, []
    while peer.machine.connection.requests and len(asked) < 50:
        (request_id,) = peer.machine.connection.requests
        request = peer.machine.connection.requests[request_id].proposal
        asked.append((request.start, request.end))
        said = request.first_seqnum - 1
        peer.control(cancel(request_id, 134, varu64(said)) if said else cancel(request_id, 128))
        peer.data(marker(request_id))
    assert peer.code is None
    assert len(asked) <= 3, asked


def test_an_offer_of_less_than_we_have_asks_us() -> None:
    """A request of the peer is answered although its own logs have ended."""
    peer = RawPeer(ENDED)
    peer.control(cancel(1, 129))
    peer.data(marker(1))
    peer.control(propose(0, 12, log=ENDED_LOG, hash=bytes([0, 64]) + bytes(64)))
    assert cancel(0, 134, varu64(9)) in peer.control_seen
    assert peer.code is None


# Refusals for lack of room


def test_what_was_refused_for_lack_of_room_is_proposed_again() -> None:
    """As soon as another of our requests has ended, and not before."""
    logs = [news_of((3, 4), log_id=n) for n in range(3)]
    peer = RawPeer(*logs)
    requests = peer.machine.connection.requests
    assert sorted(requests) == [1, 3, 5]
    refused = requests[3].proposal
    peer.control(cancel(3, 129))
    peer.data(marker(3))
    assert sorted(requests) == [1, 5]
    assert [e.reason for e in peer.of(LogRefused)] == [CancelReason.RESOURCE_LIMIT]
    peer.control(adjust(1, "all"))
    assert sorted(requests) == [1, 5]
    peer.control(cancel(5, 128))
    peer.data(marker(5))
    again = [request.proposal for request in requests.values() if request.request_id > 5]
    assert again == [refused]
    assert peer.code is None


def test_a_range_for_which_there_is_room_before_its_refusal_is_over_is_not_lost() -> None:
    other = news_of((3, 4), log_id=1)
    peer = RawPeer(interest=FETCH)
    for log in (LOG, key_of(other)):
        peer.machine.replicate(log, Want(first=1, last=2))
    peer.drain()
    requests = peer.machine.connection.requests
    wanted = requests[1].proposal
    peer.control(cancel(1, 129), cancel(3, 128))
    peer.data(marker(3))  # there is room again
    assert sorted(requests) == [1]
    peer.data(marker(1))
    assert [request.proposal for request in requests.values()] == [wanted]


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("later", [0, 5])
def test_a_range_without_end_holds_up_no_other(interest: Interest, later: int) -> None:
    news = news_of((5,) * 12)
    world = World()
    reader, server = (
        world.node(store_of(news[:8]), interest=interest),
        world.node(store_of(news[:8])),
    )
    for seqnum in range(1, 9):
        reader.store.discard_payload(key_of(news), seqnum)
    world.connect(reader, server)
    world.wait(later)
    wants = [
        Want(first=5, payload_only=True),
        *(Want(first=n, last=n, payload_only=True) for n in (1, 3)),
    ]
    for want in wants:
        reader.end.machine.replicate(key_of(news), want)
        reader.end.drain()
        world.wait(later)
    world.wait(10)
    assert {1, 3} <= {event.seqnum for event in reader.end.of(LogSynced)}
    server.add(*news[8:])
    world.wait(10)
    stored = {n for n in range(1, 9) if reader.store.entry(key_of(news), n).payload_complete}
    assert stored == {1, 3, 5, 6, 7, 8}
    assert len(reader.end.of(EntryStored)) == len(stored) + 4 * (interest is KEEP)


def test_a_range_without_end_past_a_gap_is_no_offer_of_the_entries_before_it() -> None:
    """Though nothing is missing of its certificate pool."""
    news = news_of((5,) * 14)
    world = World()
    kept = [*news[:6], news[7]]
    nodes = reader, other = world.node(store_of(kept)), world.node(store_of(news[:6]))
    world.connect(*nodes)
    world.wait(10)
    ask(reader, key_of(news), Want(first=12))
    world.wait(10)
    assert {event.seqnum for event in other.end.of(LogOffered)} <= {6, 8}
    assert all(node.end.settled for node in nodes)
    other.add(*news[6:])
    world.wait(10)
    assert len(there(reader, key_of(news))) == 14


@pytest.mark.parametrize("known", [range(4, 9), [4, 5, 8]])
def test_entries_behind_a_gap_go_on_to_the_peer_when_it_is_filled(known: Iterable[int]) -> None:
    """They are from a range; the peer, which fills the gap, has not got so far."""
    news = news_of((5,) * 8)
    kept = [news[n - 1] for n in (1, *known)]
    world = World()
    holder, other = world.node(store_of(kept)), world.node(store_of(news[:3]))
    world.connect(holder, other)
    world.wait(10)
    heads = [node.store.head(key_of(news)) for node in (holder, other)]
    assert heads[0] == heads[1]
    assert heads[0] is not None
    assert heads[0].seqnum == (8 if 7 in known else 5)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("later", [0, 5])
def test_a_range_to_be_notified_of_which_the_peer_lacks_a_part_holds_up_no_other(
    later: int, first: int
) -> None:
    """The peer does not owe it.  It ends when that has the rest, or refuses to go on from there."""
    news = news_of((5,) * 12)
    world = World()
    reader = world.node(store_of(news[:4]))
    server = world.node(store_of(news[:7]))
    world.connect(reader, server)
    world.wait(later)
    for seqnum in (1, 2):
        reader.store.discard_payload(key_of(news), seqnum)
    wants = [Want(first=1, last=9, eagerness=NOTIFY), Want(first=1, last=2, payload_only=True)]
    for want in (wants[first], wants[1 - first]):
        reader.end.machine.replicate(key_of(news), want)
        reader.end.drain()
        world.wait(later)
    world.wait(10)
    assert [event.seqnum for event in reader.end.of(LogSynced) if event.seqnum < 7] == [2]
    assert settled(reader.end)
    server.add(*news[7:])
    world.wait(10)
    refused = [event.reason for event in reader.end.of(LogRefused)]
    assert refused in ([], [CancelReason.DO_NOT_RETRY])
    assert (9 in {event.seqnum for event in reader.end.of(LogSynced)}) is not bool(refused)


@pytest.mark.parametrize("interest", [KEEP, Interest(want=None)], ids=["all", "ranges"])
@pytest.mark.parametrize("later", [0, 5])
@pytest.mark.parametrize("eagerness", [NOTIFY, EVERYTHING])
def test_ranges_that_are_never_over_take_turns(
    eagerness: Eagerness, later: int, interest: Interest
) -> None:
    """Each goes on when the peer has more of it, whichever of them has told of that."""
    news = news_of((5,) * 12)
    world = World()
    reader, server = world.node(interest=interest), world.node(store_of(news[:7]))
    world.connect(reader, server)
    wants = [
        Want(first=1, last=9, eagerness=NOTIFY),
        Want(first=2, eagerness=eagerness),
        Want(first=3, last=11, eagerness=NOTIFY),
    ]
    for want in wants:
        reader.end.machine.replicate(key_of(news), want)
        reader.end.drain()
        world.wait(later)
    for entry in news[7:]:
        world.wait(10)
        server.add(entry)
    world.wait(10)
    assert {9, 11} <= {event.seqnum for event in reader.end.of(LogSynced)}
    assert settled(reader.end)
    carried = world.carried
    world.wait(60)
    assert world.carried - carried < 100


def test_a_notified_range_makes_way_within_its_upper_pool() -> None:
    """Nothing of what was asked for is left then, but for the entries that prove it."""
    news = news_of((5,) * 15)
    world = World(chunker=lambda size: 1)
    reader, server = world.node(store_of(news)), world.node(store_of(news))
    world.connect(reader, server)
    world.wait(5)
    ask(reader, key_of(news), Want(first=1, last=5, eagerness=NOTIFY))
    while max((event.seqnum for event in reader.end.of(PiecesNotified)), default=0) < 6:
        world.run(1)
    ask(reader, key_of(news), Want(first=2, last=2))
    world.wait(5)
    assert sorted(event.seqnum for event in reader.end.of(LogSynced))[:2] == [2, 5]
    assert settled(reader.end)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("size_min", [0, 10])
def test_entries_that_are_only_notified_are_notified_once(size_min: int, live: bool) -> None:
    """Also if the payload of the last is passed over, as it is too small or not there."""
    world = World(steps_max=500)
    server = world.node(store_of(NEWS[:2]))
    server.store.discard_payload(LOG, 2)
    want = Want(eagerness=NOTIFY, size_min=size_min)
    reader = world.node(interest=Interest(live=live, accept_new_logs=True, want=want))
    world.connect(reader, server)
    world.wait(5)
    assert settled(reader.end)


def test_a_gap_of_ours_does_not_end_what_only_notifies_us() -> None:
    world = World(steps_max=500)
    reader = world.node(interest=Interest(want=Want(eagerness=NOTIFY)))
    reader.store.append(LOG, [*NEWS[:2], BARE[4]])
    server = world.node(store_of(NEWS[:2]))
    world.connect(reader, server)
    world.wait(5)
    server.add(NEWS[2])
    world.wait(5)
    assert reader.end.of(PiecesNotified)[-1].seqnum == 3


def test_a_payload_that_we_have_sent_ourselves_is_not_waited_for() -> None:
    """The peer has begun the entry, too, and passes over the rest: a range need not wait."""
    world = World()
    ours, theirs = world.node(store_of(NEWS[:2])), world.node(store_of(NEWS[:2]))
    world.connect(ours, theirs)
    world.wait(5)
    data = NEWS[2].payload or b""
    theirs.add(NewEntry(NEWS[2].entry, data[:100], staged=True))
    world.wait(5)
    ours.store.write_payload(LOG, 3, 0, data)
    ours.store.finish_payload(LOG, 3)
    ours.tell(LOG, None)
    world.wait(5)
    ask(ours, LOG, Want(first=1, last=1))
    world.wait(5)
    assert ours.end.of(LogSynced)[-1].seqnum == 1


def test_who_has_shown_the_end_of_a_log_does_not_offer_it() -> None:
    """The peer knows by that, and may have given its place to another log."""
    peer = RawPeer(ENDED)
    (ours,) = peer.machine.connection.requests.values()
    peer.control(propose(0, 10, hash=ours.proposal.expected_hash, log=ENDED_LOG))
    peer.drain()
    assert peer.of(LogOffered)[-1].seqnum == 9
    peer.control(cancel(0, 131))
    peer.data(marker(0))
    peer.drain()
    assert not peer.machine.connection.requests
    assert [event.seqnum for event in peer.of(LogEnded)] == [9]


@pytest.mark.parametrize("parts", [(200, 100), (200, 0), (200, None), (0, None)])
def test_a_range_that_begins_inside_a_payload_that_nobody_has_comes_to_rest(
    parts: tuple[int, int | None],
) -> None:
    """It was proposed again at once, for ever: its own end counted as news from the store."""
    world = World()
    data = NEWS[2].payload or b""
    nodes: list[Node] = []
    for part in parts:
        begun = [] if part is None else [NewEntry(NEWS[2].entry, data[:part], staged=True)]
        nodes.append(world.node(store_of([*NEWS[:2], *begun])))
    world.connect(*nodes)
    world.settle()
    carried = world.carried
    ask(nodes[0], LOG, Want(first=3))
    world.wait(20)
    assert world.carried - carried < 1000
    assert settled(nodes[0].end)

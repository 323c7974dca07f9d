"""The laws of life in random worlds; a failure names its seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from replicator_life import Life
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    End,
    World,
    key_of,
    news_of,
    same,
    settled,
    store_of,
)

from culm.bamboo.effects import ReadEntries, ReadLog, ReadLogs, ReadPayload
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import NewEntry
from culm.machine import Effect
from culm.point2point import NOTIFY, CancelReason, Limits
from culm.point2point.replication import (
    EntryStored,
    Interest,
    LogRefused,
    LogSynced,
    ReplicatorLimits,
    Timing,
    Want,
    decisions,
)
from effort import seeds


def go(seed: int, *, tight: bool) -> None:
    try:
        Life(seed, tight=tight).go()
    except BaseException as error:
        error.add_note(f"Life({seed}, tight={tight})")
        raise


@pytest.mark.parametrize("seed", seeds("REPLICATOR_LIFE", 24, long=4000))
def test_stores_from_backups_converge(seed: int) -> None:
    """Each may be any earlier one, beside the present ones of the neighbours."""
    go(seed, tight=False)


@pytest.mark.parametrize("seed", seeds("REPLICATOR_LIFE", 24, long=4000))
def test_where_everything_has_to_wait_for_its_place_all_of_it_comes(seed: int) -> None:
    go(seed, tight=True)


@pytest.mark.parametrize("seed", [103, 191, 1033])
def test_a_request_makes_room_though_the_peer_is_within_an_entry_or_had_no_place(seed: int) -> None:
    """Logs were once kept out for ever: by requests that only awaited news, or a taken place."""
    go(seed, tight=True)


@pytest.mark.parametrize("seed", [227, 1005, 2036, 3352, 3391, 20224])
def test_an_entry_whose_payload_was_left_in_the_middle_by_a_backup_comes(seed: int) -> None:
    """Whether a request for it is open, has made room before, or its log has no place any more."""
    go(seed, tight=True)


def test_readers_that_wait_for_room_go_on_when_there_is_some() -> None:
    """Both waited for ever, in silence: one had got room meanwhile, for news, and was called."""
    go(2060, tight=True)


NEWS = [news_of((5, 5), log_id=number) for number in range(4)]


def strangers(count: int) -> list[tuple[NewEntry, ...]]:
    """Logs that the peer does not know."""
    return [news_of((1,), log_id=100 + number) for number in range(count)]


@pytest.mark.parametrize("mine", [0, 1, 5])
@pytest.mark.parametrize("logs_max", [1, 2, 3])
@pytest.mark.parametrize("interest", [KEEP, FETCH], ids=["live", "once"])
def test_a_log_in_step_gives_its_place_up_to_one_that_waits(
    logs_max: int, interest: Interest, mine: int
) -> None:
    """However many logs a stranger has left in the store, some of them shared with the peer."""
    world = World()
    server = world.node(store_of(*NEWS, *strangers(1)), interest=SERVE)
    client = world.node(
        store_of(*strangers(mine)), interest=interest, limits=ReplicatorLimits(logs_max=logs_max)
    )
    end = world.connect(client, server).left
    world.wait(20)
    assert settled(end)
    assert {key_of(news) for news in NEWS} <= set(client.store.logs())
    for news in NEWS:
        assert client.store.head(key_of(news)) == server.store.head(key_of(news))
    refused = [event.reason for event in end.of(LogRefused)]
    assert CancelReason.RESOURCE_LIMIT not in refused


@pytest.mark.parametrize("logs_max", [1, 2, 3])
@pytest.mark.parametrize("interest", [KEEP, FETCH], ids=["live", "once"])
def test_a_server_with_more_logs_than_places_serves_them_all(
    logs_max: int, interest: Interest
) -> None:
    world = World()
    server = world.node(store_of(*NEWS), interest=SERVE, limits=ReplicatorLimits(logs_max=logs_max))
    client = world.node(interest=interest)
    end = world.connect(client, server).left
    world.wait(20)
    assert settled(end)
    assert set(client.store.logs()) == {key_of(news) for news in NEWS}


@pytest.mark.parametrize("known", [0, 1, 2])
@pytest.mark.parametrize("requests_max", [1, 8])
@pytest.mark.parametrize("logs_max", [1, 8])
def test_an_entry_comes_though_its_payload_does_not_and_the_payload_when_it_is_there(
    logs_max: int, requests_max: int, known: int
) -> None:
    """Its request holds up no other log: neither side knows when the payload will come."""
    begun, *others = (news_of((5, 300), log_id=number) for number in range(4))
    log, payload = key_of(begun), begun[1].payload or b""
    limits = ReplicatorLimits(connection=Limits(requests_max=requests_max), logs_max=logs_max)
    world = World()
    server = world.node(store_of(begun[:1], *others), interest=KEEP, limits=limits)
    server.store.append(log, [NewEntry(begun[1].entry, payload[:100], staged=True)])
    client = world.node(interest=KEEP, limits=limits)
    if known:
        client.store.append(log, [begun[0], NewEntry(begun[1].entry, None)][:known])
    world.connect(client, server)
    world.wait(20)
    assert client.store.head(log) == server.store.head(log)
    assert {key_of(news) for news in others} < set(client.store.logs())
    for news in others:
        assert client.store.head(key_of(news)) == server.store.head(key_of(news))
    server.store.write_payload(log, 2, 100, payload[100:])
    server.store.finish_payload(log, 2)
    server.tell(log, None)
    world.wait(20)
    if known < 2:
        assert client.store.read_payload(log, 2, 0, 300) == payload


def exchange_all(world: World, places: tuple[int, int], shared: int) -> None:
    both = [news_of((1, 1), log_id=50 + number) for number in range(shared)]
    left, right = (
        world.node(store_of(*logs, *both), interest=KEEP, limits=ReplicatorLimits(logs_max=count))
        for logs, count in zip((NEWS, strangers(5)), places, strict=True)
    )
    cable = world.connect(left, right)
    world.wait(60)
    assert settled(cable.left)
    assert settled(cable.right)
    logs = {key_of(news) for news in (*NEWS, *strangers(5), *both)}
    assert set(left.store.logs()) == set(right.store.logs()) == logs
    for log in logs:
        assert left.store.head(log) == right.store.head(log)


PLACES = pytest.mark.parametrize("places", [(1, 1), (1, 2), (2, 1), (3, 3)])


@pytest.mark.parametrize("shared", [0, 3])
@PLACES
def test_two_peers_with_more_logs_than_places_exchange_them_all(
    places: tuple[int, int], shared: int
) -> None:
    """Each has its places taken by logs that wait for a place at the other."""
    exchange_all(World(), places, shared)


@pytest.mark.parametrize("seed", range(6))
@PLACES
def test_a_place_that_is_taken_while_the_store_looks_for_more_logs_costs_none_of_them(
    places: tuple[int, int], seed: int
) -> None:
    exchange_all(World(rng=Random(seed), late=True), places, shared=1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_stored_of_a_log_without_a_place_comes(count: int) -> None:
    """The place is that of a log in step; more may be stored than can be remembered."""
    world = World()
    server = world.node(store_of(*strangers(1)), interest=KEEP, limits=ReplicatorLimits(logs_max=1))
    client = world.node(interest=KEEP)
    world.connect(client, server)
    world.wait(2)
    for news in NEWS[:count]:
        server.store.append(key_of(news), news)
        server.changed.append((None, key_of(news)))
    world.wait(20)
    assert set(client.store.logs()) == {key_of(news) for news in (*strangers(1), *NEWS[:count])}


def test_what_is_stored_while_the_store_looks_for_later_logs_comes() -> None:
    """Meanwhile a log of the peer takes the place, and more is stored than is remembered."""
    world = World()
    limits = ReplicatorLimits(logs_max=1)
    server = world.node(store_of(*strangers(2)), interest=KEEP, limits=limits)
    client = world.node(interest=KEEP)
    end = world.connect(client, server).right

    def run_until(condition: Callable[[], bool]) -> None:
        while not condition():
            world.run(1)

    run_until(lambda: any(isinstance(each, ReadLogs) and each.after for each in end.effects))
    held = list(end.effects)
    end.effects.clear()
    client.add(*NEWS[3])
    run_until(lambda: key_of(NEWS[3]) in end.machine.logs)
    for news in NEWS[:2]:
        server.add(*news)
    end.effects.extend(held)
    world.wait(20)
    assert set(client.store.logs()) == set(server.store.logs())
    assert set(client.store.logs()) == {
        key_of(news) for news in (*strangers(2), *NEWS[:2], NEWS[3])
    }


def test_logs_of_the_store_without_a_place_are_told_of_though_others_are_stored() -> None:
    """More than can be remembered, and the peer never answers for the log that has the place."""
    world = World()
    limits = ReplicatorLimits(logs_max=1)
    server = world.node(store_of(*strangers(3)), interest=KEEP, limits=limits)
    client = world.node(interest=KEEP)
    client.paused = True
    end = world.connect(client, server).right
    world.run()
    for news in NEWS[:2]:
        server.add(*news)
    world.wait(5)
    refused = {event.log for event in end.of(LogRefused)}
    assert refused == {key_of(news) for news in (*strangers(3)[1:], *NEWS[:2])}


@pytest.mark.parametrize("logs_max", [1, 2, 3])
def test_a_log_for_which_there_is_no_place_is_told_of(logs_max: int) -> None:
    """The logs that the user has asked for before are still unknown."""
    world = World()
    client = world.node(interest=FETCH, limits=ReplicatorLimits(logs_max=logs_max))
    end = world.connect(client, world.node(interest=SERVE)).left
    for news in NEWS:
        end.machine.replicate(key_of(news))
    world.wait(3)
    assert [event.log for event in end.of(LogRefused)] == [key_of(each) for each in NEWS[logs_max:]]
    assert {event.reason for event in end.of(LogRefused)} == {CancelReason.RESOURCE_LIMIT}


def run_without(world: World, end: End, log: LogKey, kind: type[Effect]) -> None:
    """Run with a store that never does this kind of work for one log."""
    for _ in range(5):
        while True:
            end.effects = deque(
                each
                for each in end.effects
                if not (isinstance(each, kind) and getattr(each, "log", None) == log)
            )
            moves = list(world.moves())
            if not moves:
                break
            moves[0]()
        world.now += 1
        for node in world.nodes:
            node.end.machine.advance(world.now)
            node.end.drain()


@pytest.mark.parametrize("kind", [ReadLog, ReadEntries, ReadPayload])
@pytest.mark.parametrize("at", range(4))
def test_a_log_that_its_server_cannot_read_holds_up_no_other(kind: type[Effect], at: int) -> None:
    """Before it is offered, before its entries, or inside a payload; whichever log it is."""
    news = [news_of((20, 300, 20), log_id=number) for number in range(4)]
    stuck = key_of(news[at])
    others = [key_of(each) for each in news if key_of(each) != stuck]
    world = World()
    server, client = world.node(store_of(*news), interest=SERVE), world.node(interest=FETCH)
    cable = world.connect(client, server)
    run_without(world, cable.right, stuck, kind)
    assert {event.log for event in cable.left.of(LogSynced)} == set(others)
    assert [event.log for event in cable.left.of(EntryStored) if event.seqnum == 3] == others
    head = client.store.head(stuck)
    assert head is None or head.seqnum < 3


def test_an_entry_of_a_range_is_not_stored_without_its_payload_because_that_is_slow() -> None:
    """Quiet counts for others that need room, and not for the range itself."""
    news = news_of((500,), log_id=1)
    world = World()
    server, client = world.node(store_of(news)), world.node(interest=Interest(want=None))
    cable = world.connect(client, server)
    cable.left.machine.replicate(key_of(news), Want(first=1, last=1))
    run_without(world, cable.right, key_of(news), ReadPayload)
    assert not cable.left.of(EntryStored)
    assert not settled(cable.left)


def test_canary_a_request_that_waits_for_news_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "may_rest", lambda facts, *, patient: False)
    with pytest.raises(AssertionError):
        go(103, tight=True)


def test_canary_an_entry_without_all_of_its_payload_counts_as_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "_lacks_begun", lambda facts: False)
    with pytest.raises(AssertionError):
        go(20224, tight=True)


@pytest.mark.parametrize(
    ("count", "places"),
    [
        (
            14,
            ((3, 1), (3, 1)),
        ),  # each kept telling the other of a log that the other had forgotten
        (64, ((4, 3), (30, 10))),  # a log made way just when the other side had no room for it
        (200, ((30, 10), (30, 10))),  # a request ended while it waited for room to read
    ],
)
def test_two_with_fewer_places_than_logs_get_all_and_come_to_rest(
    count: int, places: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    """Each has half of the logs; `places`: for logs and requests, on either side."""
    check_crowd(count, places, {})


@pytest.mark.parametrize("seed", seeds("REPLICATOR_CROWD", 8, long=2000))
def test_any_two_with_fewer_places_than_logs_get_all_and_come_to_rest(seed: int) -> None:
    rng = Random(seed)
    places = [(rng.choice((2, 3, 4, 5, 8, 20)), rng.choice((1, 2, 3, 5, 10))) for _ in range(2)]
    least = {"read_ahead_size_max": 1, "outstanding_max": 1, "batch_count_max": 1}
    check_crowd(rng.choice((9, 14, 20, 33)), (places[0], places[1]), rng.choice(({}, least)))


def check_crowd(
    count: int, places: tuple[tuple[int, int], tuple[int, int]], others: dict[str, int]
) -> None:
    world = World()
    logs = [news_of((1, 1, 1), log_id=number) for number in range(count)]
    nodes = [
        world.node(
            store_of(*logs[half::2]),
            interest=KEEP,
            limits=ReplicatorLimits(
                connection=Limits(requests_max=requests), logs_max=logs_max, **others
            ),
        )
        for half, (logs_max, requests) in enumerate(places)
    ]
    world.connect(*nodes)
    world.wait(2.0 * count)
    assert [set(node.store.logs()) for node in nodes] == [set(map(key_of, logs))] * 2
    for node in nodes:
        assert all(node.store.head(key_of(news)).seqnum == 3 for news in logs)
        assert settled(node.end)
        assert len(node.end.of(LogSynced)) <= 4 * count


def grow(seed: int, *, asks: bool = False) -> None:
    """Two nodes with few places; logs grow at any moment, even between two messages of one end.

    `asks`: their users ask for logs and ranges by name meanwhile, and perhaps for entries that the
    peer never gets: those wait for `progress_max_s`, and others with them, but not for ever.
    """
    rng = Random(seed)
    world = World(rng=rng, chunker=lambda size: rng.choice((3, 10, size)))
    nodes = [
        world.node(
            interest=KEEP,
            limits=ReplicatorLimits(
                connection=Limits(requests_max=rng.choice((1, 2, 8))),
                logs_max=rng.choice((1, 3)),
            ),
        )
        for _ in range(2)
    ]
    for node in nodes if asks else []:
        node.timing = Timing(settle_s=rng.choice((0.0, 0.5)))
    world.connect(*nodes)
    growing = [list(news_of((1,) * 12, log_id=number)) for number in range(rng.choice((2, 4)))]
    logs = [key_of(news) for news in growing]
    while any(growing):
        if asks and rng.random() < 0.3:
            rng.choice(nodes).end.machine.replicate(rng.choice(logs), rng.choice(WANTS))
        number = rng.randrange(len(growing))
        for _ in range(rng.randint(1, 3)):
            if growing[number]:
                nodes[number % 2].add(growing[number].pop(0))
        world.run(rng.choice((0, 3, 10, 30)))
    world.wait(40)
    carried = world.carried
    world.wait(20)
    assert world.carried - carried < 100  # none takes turns with another for ever
    if asks:
        world.wait(2 * 2 * Timing().progress_max_s)
    assert asks or same(*nodes)  # a sparse range leaves payloads out
    assert {node.store.head(log).seqnum for node in nodes for log in logs} == {12}
    assert all(settled(node.end) for node in nodes)


@pytest.mark.parametrize("seed", seeds("REPLICATOR_GROWTH", 60, long=20000))
def test_what_comes_to_logs_that_wait_for_a_place_comes(seed: int) -> None:
    grow(seed)


def stall(seed: int) -> None:
    """A log may get the place of another, whose request is given up meanwhile.

    Where the line stalls for too long the connection ends, and nothing is promised.
    """
    rng = Random(seed)
    world = World()
    places = [(rng.choice((1, 2)), rng.choice((1, 2))) for _ in range(2)]
    nodes = [
        world.node(limits=ReplicatorLimits(connection=Limits(requests_max=requests), logs_max=logs))
        for requests, logs in places
    ]
    for node in nodes:
        node.timing = Timing(progress_max_s=5)
    cable = world.connect(*nodes)
    growing = [list(news_of((1,) * 6, log_id=number)) for number in range(rng.choice((2, 3, 4)))]
    logs = [key_of(news) for news in growing]
    while any(growing):
        world.latency = rng.choice((0.0, 0.0, 8.0))
        number = rng.randrange(len(growing))
        for _ in range(rng.randint(1, 3)):
            if growing[number]:
                nodes[number % 2].add(growing[number].pop(0))
        world.wait(rng.choice((0.0, 0.2, 1.0, 6.0)))
    world.latency = 0.0
    world.wait(100)
    if cable.left.code or cable.right.code:
        return
    refused = [event for end in (cable.left, cable.right) for event in end.of(LogRefused)]
    given_up = {event.log for event in refused if event.reason is not CancelReason.RESOURCE_LIMIT}
    for log in logs:
        heads = [node.store.head(log) for node in nodes]
        assert log in given_up or heads[0] == heads[1]


@pytest.mark.parametrize("seed", seeds("REPLICATOR_STALLS", 24, long=4000))
def test_what_had_no_place_while_the_line_stalled_comes(seed: int) -> None:
    stall(seed)


@pytest.mark.parametrize("seed", [7, 12, 35, 42, 2364])
def test_places_of_logs_that_are_given_up_or_wait_for_each_other_come_free(seed: int) -> None:
    stall(seed)


WANTS = [None, Want(first=1, last=3), Want(first=2, last=2, sparse=True)]
WANTS += [Want(first=1, last=99, eagerness=NOTIFY), Want(first=2)]  # which are never over


@pytest.mark.parametrize("seed", [191, 1422, 2302, *seeds("REPLICATOR_GROWTH", 60, long=20000)])
def test_a_log_or_range_asked_for_by_name_keeps_nobody_out(seed: int) -> None:
    grow(seed, asks=True)


def test_beside_a_range_that_the_peer_cannot_complete_others_are_told_and_come_later() -> None:
    """It holds the one place of its side; a proposal for another log is answered all the same."""
    begun, other = news_of((1,) * 2, log_id=1), news_of((1,) * 2, log_id=2)
    world = World()
    narrow = replace(SMALL, logs_max=1)
    asker = world.node(store_of(begun), limits=narrow)
    peer = world.node(store_of(begun))
    cable = world.connect(asker, peer)
    asker.end.machine.replicate(key_of(begun), Want(first=1, last=3))
    world.wait(2)
    for news in other:
        peer.add(news)
    world.wait(5)
    refusals = [(event.log, event.reason) for event in cable.right.of(LogRefused)]
    assert refusals == [(key_of(other), CancelReason.RESOURCE_LIMIT)]
    assert not settled(asker.end)
    world.wait(2 * Timing().progress_max_s)
    assert asker.store.head(key_of(other)).seqnum == 2
    assert settled(asker.end)


@pytest.mark.parametrize("entries", [0, 2])
@pytest.mark.parametrize("want", WANTS[1:])
@pytest.mark.parametrize(("asks", "writes"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_range_asked_for_first_leaves_the_log_in_step(
    asks: int, writes: int, want: Want, entries: int
) -> None:
    """Before anything is known of the log: it is wanted as every other, and the range besides."""
    log = news_of((1,) * 5, log_id=1)
    world = World()
    known = [log[:entries]] if entries else []
    nodes = [world.node(store_of(*known), interest=KEEP) for _ in range(2)]
    world.connect(*nodes)
    nodes[asks].end.machine.replicate(key_of(log), want)
    world.wait(2)
    for news in log[entries:]:
        nodes[writes].add(news)
    world.wait(2)
    assert [node.store.head(key_of(log)).seqnum for node in nodes] == [5, 5]


def test_a_log_of_which_only_a_range_was_wanted_is_wanted_once_the_store_has_it() -> None:
    """Logs of the peer are not accepted; this one comes into the store from elsewhere."""
    log = news_of((1,) * 5, log_id=1)
    world = World()
    reader, other = world.node(interest=Interest()), world.node(interest=KEEP)
    world.connect(reader, other)
    reader.end.machine.replicate(key_of(log), Want(first=1, last=3))
    world.wait(2)
    for news in log:
        reader.add(news)
    world.wait(2)
    assert other.store.head(key_of(log)).seqnum == 5


def test_a_log_asked_for_by_name_after_a_range_of_it_is_wanted() -> None:
    log = news_of((1,) * 5, log_id=1)
    world = World()
    reader, other = world.node(interest=Interest()), world.node(store_of(log), interest=KEEP)
    world.connect(reader, other)
    reader.end.machine.replicate(key_of(log), Want(first=1, last=3))
    reader.end.machine.replicate(key_of(log))
    world.wait(2)
    assert reader.store.head(key_of(log)).seqnum == 5


def test_limits_of_0_cost_speed_and_nothing_else() -> None:
    """Of all runs of dropped ids one is kept, and a large payload is read byte by byte."""
    logs = [news_of((500, 1), log_id=number) for number in range(4)]
    connection = Limits(packet_size_max=100, unsent_size_max=0, dropped_max=0)
    limits = ReplicatorLimits(
        connection=connection,
        unwritten_size_max=0,
        read_ahead_size_max=0,
        batch_size_max=0,
        batch_count_max=0,
        payload_inline_max=0,
        outstanding_max=0,
    )
    world = World(steps_max=1_000_000)
    known = [logs, [log[:1] for log in logs]]
    nodes = [world.node(store_of(*each), interest=KEEP, limits=limits) for each in known]
    world.connect(*nodes)
    world.wait(10)
    assert same(*nodes)


@pytest.mark.parametrize("seed", [9, 100, 401, 675, 1109])
def test_what_comes_to_a_log_while_its_request_ends_is_told_of(seed: int) -> None:
    """After the peer's end of it; or when both end it at once, and pass over data under way."""
    grow(seed)


@pytest.mark.parametrize("proactive", [True, False])
@pytest.mark.parametrize("logs_max", [1, 2])
def test_a_forked_log_comes_though_there_is_no_place_when_the_peer_tells_of_it(
    logs_max: int, proactive: bool
) -> None:
    """A mere report is over at once; the place belongs to a log in step."""
    forked = news_of((1, 1, 1), log_id=7)
    other = news_of((1, 1, 1), log_id=7, branch=b"other", fork_at=3)
    log, shared = key_of(forked), news_of((1,), log_id=1)
    store = store_of(shared, news_of((1,), log_id=2), forked[:2])
    store.add_fork(log, ForkProof(forked[2].entry, other[2].entry))
    world = World()
    server = world.node(store, interest=KEEP)
    client = world.node(store_of(shared), interest=KEEP, limits=ReplicatorLimits(logs_max=logs_max))
    end = world.connect(*((client, server) if proactive else (server, client))).left
    world.wait(20)
    assert same(server, client)
    assert client.store.fork(log) == store.fork(log)
    assert settled(end)


@pytest.mark.parametrize("stored", [0, 20, 90])
def test_logs_that_wait_for_each_other_s_place_and_one_is_to_go_on_inside_a_payload(
    stored: int,
) -> None:
    """Each has a single place, and a log that the other lacks: one of them lets the other go."""
    limits = replace(SMALL, logs_max=1)
    ours, theirs = news_of((5, 5)), news_of((5, 90), seed=2)
    payload = theirs[1].payload
    assert payload is not None
    begun = NewEntry(theirs[1].entry, payload[:stored], staged=True)
    world = World(latency=0.1)
    stores = store_of(ours), store_of([theirs[0], begun])
    world.connect(*(world.node(each, limits=limits) for each in stores))
    world.wait(30)
    assert all(len(node.store.logs()) == 2 for node in world.nodes)

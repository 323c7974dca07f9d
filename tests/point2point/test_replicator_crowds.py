"""More logs than requests: the endless ones share the places, and every log has its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacl.signing import SigningKey
from replicator_support import KEEP, SMALL, Node, World, news_of, same, store_of

from culm.bamboo.author import LogAuthor
from culm.bamboo.store import MemoryStore
from culm.point2point import NOTIFY, CancelReason
from culm.point2point.replication import (
    Interest,
    LogRefused,
    LogSynced,
    ReplicatorLimits,
    Settled,
    Timing,
    Want,
    logs,
)
from culm.wire.multihash import YAMF


class Crowd:
    """Two nodes, and authors of logs with entries at either node, or at both."""

    def __init__(
        self,
        count: int,
        limits: tuple[ReplicatorLimits, ReplicatorLimits],
        split: str,
        *,
        latency: float = 0.0,
    ) -> None:
        self.world = World(steps_max=1_000_000, latency=latency)
        self.nodes: list[Node] = [
            self.world.node(MemoryStore(family=YAMF), interest=KEEP, limits=each) for each in limits
        ]
        self.authors: list[tuple[LogAuthor, Node]] = []
        for node in self.nodes if split != "one" else self.nodes[:1]:
            key = SigningKey(bytes([len(self.authors) % 251 + 1]) * 32)
            for log_id in range(count):
                author = LogAuthor(key, family=YAMF, log_id=log_id)
                first = author.publish(b"first")
                self.authors.append((author, node))
                node.store.append(author.log, [first])
                if split == "common":
                    other = self.nodes[node is self.nodes[0]]
                    other.store.append(author.log, [first])
                    node.store.append(author.log, [author.publish(b"second")])

    def check(self) -> None:
        for node in self.nodes:
            assert node.end.code is None
            reasons = {event.reason for event in node.end.of(LogRefused)}
            assert reasons <= {CancelReason.RESOURCE_LIMIT}  # tried again, with success
            assert node.end.settled
        assert same(*self.nodes)


def limited(requests_max: int) -> ReplicatorLimits:
    return replace(SMALL, connection=replace(SMALL.connection, requests_max=requests_max))


@pytest.mark.costly
@pytest.mark.parametrize("split", ["one", "each", "common"])
@pytest.mark.parametrize("room", [(4, 4), (1, 1), (3, 50), (50, 3)])
@pytest.mark.parametrize("count", [5, 30])
def test_everything_arrives_and_what_comes_later_too(
    count: int, room: tuple[int, int], split: str
) -> None:
    crowd = Crowd(count, (limited(room[0]), limited(room[1])), split)
    world = crowd.world
    world.connect(*crowd.nodes)
    world.wait(60)
    crowd.check()
    for _ in range(2):
        for author, node in crowd.authors:
            node.add(author.publish(b"later"))
        world.wait(60)
        crowd.check()
    for author, node in reversed(crowd.authors):  # one after the other
        node.add(author.publish(b"at last"))
        world.run()
    world.wait(60)
    crowd.check()


@pytest.mark.slow
def test_a_thousand_logs_each_with_the_default_limits() -> None:
    limits = ReplicatorLimits()
    assert limits.connection.requests_max < 1000
    crowd = Crowd(1000, (limits, limits), "each")
    crowd.world.connect(*crowd.nodes)
    crowd.world.wait(60)
    crowd.check()
    for author, node in crowd.authors[::97]:
        node.add(author.publish(b"later"))
        crowd.world.run()
    crowd.world.wait(60)
    crowd.check()


@pytest.mark.costly
@pytest.mark.parametrize("split", ["one", "each"])
@pytest.mark.parametrize("room", [(1, 1), (2, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("round_trips", [0.5, 1.5, 6])
def test_a_log_has_its_turn_whatever_the_round_trip_is(
    round_trips: float, room: tuple[int, int], split: str
) -> None:
    """Silence beyond `settle_s` that only a long line explains does not count as settled."""
    limits = limited(room[0]), limited(room[1])
    crowd = Crowd(5, limits, split, latency=round_trips * Timing().settle_s / 2)
    crowd.world.connect(*crowd.nodes)
    crowd.world.wait(120)
    crowd.check()


def test_it_comes_to_rest() -> None:
    """Logs do not take turns for ever without anything new."""
    crowd = Crowd(30, (limited(4), limited(4)), "each")
    crowd.world.connect(*crowd.nodes)
    crowd.world.wait(60)
    sent = [node.end.sent_size for node in crowd.nodes]
    crowd.world.wait(20)
    assert [node.end.sent_size for node in crowd.nodes] == sent


def test_who_can_remember_no_more_refusals_lets_no_more_logs_make_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would propose them again and again, by turns."""
    monkeypatch.setattr(logs, "_ABSENT_MAX", 2)
    news = [news_of((1,), log_id=n) for n in range(5)]
    world = World()
    limits = ReplicatorLimits(logs_max=1)
    full = world.node(store_of(*news), limits=limits)
    end = world.connect(full, world.node(interest=Interest())).left
    world.wait(60)
    told = {event.log.log_id: event.reason for event in end.of(LogRefused)}
    again, room = CancelReason.DO_NOT_RETRY, CancelReason.RESOURCE_LIMIT
    assert told == {0: again, 1: again, 2: again, 3: room, 4: room}
    assert end.of(Settled)


@pytest.mark.parametrize("want", [Want(), Want(size_max=0), Want(eagerness=NOTIFY)], ids=str)
@pytest.mark.parametrize("interest", [Interest(want=None), KEEP], ids=["none", "all"])
def test_a_wish_for_one_log_outlives_its_place(interest: Interest, want: Want) -> None:
    """Its news came no more, or came with what was not wanted."""
    world = World()
    few = world.node(interest=interest, limits=replace(SMALL, logs_max=2))
    source = world.node(limits=replace(SMALL, logs_max=1))
    world.connect(few, source)
    world.wait()
    authors = [LogAuthor(SigningKey(bytes([9]) * 32), family=YAMF, log_id=n) for n in range(3)]
    for author in authors:
        few.end.machine.replicate(author.log, want)
        few.end.drain()
        source.add(author.publish(b"first"))
        world.wait(10)
    assert not few.end.of(LogRefused)
    for author in authors * 2:
        source.add(author.publish(b"news"))
        world.wait(10)
    for author in authors:
        entries = few.store.entries(author.log)
        assert len(entries) == (0 if want.eagerness is NOTIFY else 3)
        assert sum(each.payload_complete for each in entries) == (3 if want == Want() else 0)


def test_a_range_asked_for_while_its_log_makes_way_is_not_lost() -> None:
    """Two that wait for each other's only place: one makes way, and hears of a wish meanwhile."""
    world = World(latency=1.0)
    logs = [news_of((5, 5, 5), log_id=n) for n in range(2)]
    for news in logs:
        world.node(store_of(news), limits=replace(SMALL, logs_max=1)).timing = Timing(settle_s=5)
    world.connect(*world.nodes)
    end = world.nodes[1].end
    while not any(state.withdrawn for state in end.machine.logs.values()):
        assert world.now < 60
        world.wait(0.25)
    (log,) = end.machine.logs
    end.machine.replicate(log, Want(first=1, last=2))
    end.drain()
    world.wait(200)
    synced = LogSynced(log=log, seqnum=2)  # or the other does not have it yet
    assert {synced, LogRefused(log=log, reason=CancelReason.DO_NOT_RETRY)} & {*end.events}

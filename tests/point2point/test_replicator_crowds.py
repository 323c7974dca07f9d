"""More logs than requests: the endless ones share the places, and every log has its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacl.signing import SigningKey
from replicator_support import KEEP, SMALL, Node, World, news_of, same, store_of

from culm.bamboo.author import LogAuthor
from culm.bamboo.store import MemoryStore
from culm.point2point import CancelReason
from culm.point2point.replication import (
    Interest,
    LogRefused,
    ReplicatorLimits,
    Settled,
    Timing,
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

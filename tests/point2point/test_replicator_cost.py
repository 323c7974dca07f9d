"""The cost of replication on the wire (``benchmarks/test_point2point_cost.py`` takes it apart)."""

from __future__ import annotations

import pytest
from p2p_support import adjust, propose
from replicator_raw import RawPeer
from replicator_support import FETCH, KEEP, SERVE, World, key_of, news_of, same, store_of

from culm.bamboo.effects import ReadLogs
from culm.bamboo.entry import LogKey
from culm.bamboo.links import lipmaa
from culm.effects import Effect
from culm.point2point.replication import Interest, ReplicatorLimits

COUNT, PAYLOAD_SIZE = 1000, 100
# Tag, size, hash of the payload, signature, and three bytes for the rest.
BOUND = 1 + 1 + 66 + 64 + 3


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
def test_an_entry_of_a_whole_log_costs_what_it_has_to(interest: Interest, proactive: bool) -> None:
    """Backlinks and lipmaalinks are omitted; bymux and both directions are counted, too."""
    limits = ReplicatorLimits()
    world = World()
    server = world.node(store_of(news_of((PAYLOAD_SIZE,) * COUNT)), interest=SERVE, limits=limits)
    reader = world.node(interest=interest, limits=limits)
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    assert same(server, reader)
    sent = server.end.sent_size + reader.end.sent_size
    assert (sent - COUNT * PAYLOAD_SIZE) / COUNT <= BOUND


def asked(peer: RawPeer) -> list[str]:
    """The requests to the store, one after the other, until there is nothing to do."""
    found: list[str] = []
    while peer.effects:
        found.append(type(peer.effects[0]).__name__)
        peer.answer()
        peer.drain()
    return found


def test_logs_are_read_a_thousand_at_a_time_and_each_once() -> None:
    logs = [LogKey(bytes(32), number) for number in range(1500)]
    peer = RawPeer(slow=True, limits=ReplicatorLimits())
    read: list[LogKey | None] = []

    def respond(effect: Effect) -> object:
        if isinstance(effect, ReadLogs):
            read.append(effect.after)
            start = 0 if effect.after is None else logs.index(effect.after) + 1
            return logs[start : start + effect.count_max]
        return peer.store.perform(effect)

    peer.respond = respond
    asked(peer)
    assert read == [None, logs[999]]


def test_a_proposal_and_an_answer_to_one_take_one_effect_each() -> None:
    news = news_of((3,) * 20)
    peer, log = RawPeer(news, slow=True), key_of(news)
    # The list of logs, the state of this one, and the needs of a proposal of it.
    assert asked(peer) == ["ReadLogs", "ReadLog", "ReadLog"]
    link = news[lipmaa(21) - 1].entry.hash()
    assert propose(1, 21, hash=link, log=log) in peer.control_seen
    link = news[lipmaa(15) - 1].entry.hash()
    peer.control(propose(0, 15, hash=link, end=(16, 16), log=log))
    assert [type(effect).__name__ for effect in peer.effects] == ["ReadLog"]
    peer.answer()
    peer.drain()
    assert adjust(0, "notify", flags=16) in peer.control_seen

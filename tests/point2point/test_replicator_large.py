"""Large payloads are copied no more often than they have to be."""

from __future__ import annotations

import tracemalloc

import pytest
from p2p_support import published
from replicator_support import FETCH, SERVE, key_of, news_of, store_of

from culm.bamboo.records import NewEntry
from culm.bamboo.store import MemoryStore
from culm.buffer import LARGE_SIZE_MIN
from culm.point2point import Limits, Role
from culm.point2point.replication import Replicator, ReplicatorLimits
from culm.wire.multihash import YAMF

MIB = 1 << 20
BULK = ReplicatorLimits(
    connection=Limits(packet_size_max=MIB, unsent_size_max=MIB, data_window_max=4 * MIB)
)
NEWS = news_of((MIB, 300_000, MIB, MIB, 100, MIB, 600_000, 20_000, 70_000, MIB))
TEXT = published([b"a bamboo log of a bamboo log %d " % number * 20_000 for number in range(4)])


class End:
    """A replicator and its store, and the pieces that it has sent."""

    def __init__(self, role: Role, store: MemoryStore, limits: ReplicatorLimits) -> None:
        interest = FETCH if role is Role.PROACTIVE else SERVE
        self.machine = Replicator(role=role, interest=interest, limits=limits)
        self.store = store
        self.sent: list[bytes] = []

    def go_on(self, other: End, size_max: int | None) -> bool:
        """Drain, and send one piece of at most that size; returns whether there was one."""
        machine, moved = self.machine, True
        while moved:
            moved = False
            while machine.next_event() is not None:
                moved = True
            while (effect := machine.next_effect()) is not None:
                machine.complete(effect.ticket, self.store.perform(effect))
                moved = True
        data = machine.data_to_send(size_max)
        assert machine.data_to_send() == b"" if size_max is None else len(data) <= size_max
        if data:
            self.sent.append(data)
            other.machine.receive_data(data)
        return bool(data)


def replicated(
    news: tuple[NewEntry, ...], limits: ReplicatorLimits, size_max: int | None
) -> tuple[End, End]:
    """Two ends, after the log has gone from the first to the second."""
    source = End(Role.REACTIVE, store_of(news), limits)
    target = End(Role.PROACTIVE, MemoryStore(family=YAMF), limits)
    while source.go_on(target, size_max) | target.go_on(source, size_max):
        pass
    return source, target


def payload_of(store: MemoryStore, new: NewEntry) -> bytes:
    seqnum, size = new.entry.seqnum, new.entry.payload_size
    (stored,) = store.entries(key_of([new]), seqnum, seqnum, payload_size_max=size)
    assert stored.payload is not None
    return stored.payload


def test_large_payloads_go_from_store_to_store_as_they_are() -> None:
    """A driver that asks for enough gets a payload's very bytes, and so does the other store."""
    source, target = replicated(NEWS, BULK, 4 * MIB)
    for new in NEWS:
        payload = payload_of(target.store, new)
        assert payload == new.payload
        if new.entry.payload_size >= LARGE_SIZE_MIN:
            assert payload is new.payload
            assert any(piece is payload for piece in source.sent)


@pytest.mark.parametrize("limits", [ReplicatorLimits(), BULK], ids=["default", "bulk"])
@pytest.mark.parametrize("size_max", [None, 1 << 16, 300_000, MIB + 100, 3 * MIB])
@pytest.mark.parametrize("news", [NEWS, TEXT], ids=["random", "text"])
def test_payloads_arrive_whatever_the_pieces(
    news: tuple[NewEntry, ...], limits: ReplicatorLimits, size_max: int | None
) -> None:
    _, target = replicated(news, limits, size_max)
    assert [payload_of(target.store, new) for new in news] == [new.payload for new in news]


def test_a_payload_that_comes_in_pieces_is_put_together_once() -> None:
    """Nothing grows bit by bit, which would copy it again and again, or be too large."""
    log = news_of((MIB,))
    source = End(Role.REACTIVE, store_of(log), BULK)
    target = End(Role.PROACTIVE, MemoryStore(family=YAMF), BULK)
    tracemalloc.start()
    try:
        while source.go_on(target, 1 << 16) | target.go_on(source, 1 << 16):
            source.sent.clear()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert payload_of(target.store, log[0]) == log[0].payload
    assert peak < 2 * MIB + 300_000  # the pieces, the payload, and what is under way

"""A replicator's memory for data read for its peers, over all requests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from p2p_support import adjust, cancel, marker, propose, varu64, write
from replicator_raw import RawPeer
from replicator_support import SERVE, key_of, news_of

from culm.bamboo.effects import ReadEntries, ReadPayload
from culm.machine import Effect
from culm.machines.memory import retained_size
from culm.point2point import Limits
from culm.point2point.replication import ReplicatorLimits

KIB = 1 << 10
LIMITS = ReplicatorLimits(
    read_ahead_size_max=128 * KIB,
    batch_size_max=64 * KIB,
    payload_inline_max=4 * KIB,
    connection=Limits(packet_size_max=4 * KIB, unsent_size_max=8 * KIB, requests_max=256),
)
SMALL = news_of((3 * KIB,) * 50)  # read with their entries
LARGE = news_of((100 * KIB, 120 * KIB))  # read on their own
TINY = news_of((0,) * 2000)


def asking(news: tuple, count: int, **options: object) -> RawPeer:  # type: ignore[type-arg]
    """`count` requests for all of one log, from a peer that takes nothing."""
    peer = RawPeer(news, interest=SERVE, limits=LIMITS, **options)  # type: ignore[arg-type]
    for request_id in list(peer.machine.connection.requests):
        peer.control(cancel(request_id, 129))
        peer.data(marker(request_id))
    peer.takes = False
    log, last = key_of(news), len(news)
    for number in range(count):
        peer.receive(write(0, propose(2 * number, 1, log=log, end=(last, last))))
    return peer


@pytest.mark.costly
@pytest.mark.parametrize("news", [SMALL, LARGE, TINY], ids=["small", "large", "tiny"])
def test_what_is_read_ahead_does_not_grow_with_the_requests(news: tuple) -> None:  # type: ignore[type-arg]
    """Neither the machine's memory grows, nor the amount it requests from its store at a time."""
    idle = retained_size(asking(news, 0).machine)
    requests = retained_size(asking((news[0],), 200).machine) - idle
    allowed = LIMITS.read_ahead_size_max + 3 * LIMITS.connection.packet_size_max
    peer = asking(news, 200)
    assert len(peer.machine.connection.requests) == 200
    assert retained_size(peer.machine) - idle - requests < allowed
    peer = asking(news, 200, slow=True)
    for _ in range(10_000):
        asked = sum(
            effect.size if isinstance(effect, ReadPayload) else effect.size_max or 0
            for effect in peer.effects
            if isinstance(effect, (ReadPayload, ReadEntries))
        )
        assert asked <= allowed
        if not peer.effects:
            break
        peer.answer()
        peer.drain()
    assert retained_size(peer.machine) - idle - requests < allowed


@pytest.mark.costly
@pytest.mark.parametrize("news", [SMALL, LARGE, TINY], ids=["small", "large", "tiny"])
def test_all_requests_are_served_in_the_end(news: tuple) -> None:  # type: ignore[type-arg]
    peer = asking(news, 40)
    peer.takes = True
    peer.drain()
    last = news[-1].entry
    assert peer.data_seen.count(last.signature) == 40
    assert all(cancel(2 * number, 130) in peer.control_seen for number in range(40))
    assert peer.machine.read_ahead_size == 0


def test_who_has_cancelled_and_does_not_say_goodbye_holds_nothing() -> None:
    """Its requests are not over without its markers, but nothing is kept for them."""
    peer = asking(SMALL, 100)
    for number in range(99):
        peer.receive(write(0, cancel(2 * number)))
    peer.takes = True
    peer.drain()
    assert SMALL[-1].entry.signature in peer.data_seen
    assert cancel(198, 130) in peer.control_seen
    assert len(peer.machine.connection.requests) >= 99
    assert peer.machine.read_ahead_size == 0


def test_requests_that_cannot_go_on_are_in_nobodys_way() -> None:
    """They want notifications, or wait for a payload, or end: the data read for them is dropped."""
    peer = asking(SMALL, 100)
    for number in range(50):
        peer.receive(write(0, adjust(2 * number, "notify")))
    for number in range(50, 99):
        peer.receive(write(0, adjust(2 * number, flags=12, extra=varu64(1) * 2)))
    peer.takes = True
    peer.drain()
    assert cancel(198, 130) in peer.control_seen
    assert peer.machine.read_ahead_size == 0


def test_one_packet_is_always_read() -> None:
    """However small the limit is."""
    limits = replace(LIMITS, read_ahead_size_max=1)
    for news in (SMALL, LARGE):
        peer = RawPeer(news, interest=SERVE, limits=limits)
        peer.control(propose(0, 1, log=key_of(news), end=(len(news), len(news))))
        assert cancel(0, 130) in peer.control_seen


@pytest.mark.costly
@pytest.mark.parametrize("news", [SMALL, LARGE, TINY], ids=["small", "large", "tiny"])
def test_without_credit_no_byte_of_a_payload_is_read(news: tuple) -> None:  # type: ignore[type-arg]
    """But metadata needed to report that there is nothing, or nothing more, is read."""
    peer = RawPeer(news, interest=SERVE, limits=LIMITS, data_credit=0)
    read: list[int] = []
    respond = peer.respond

    def counting(effect: Effect) -> object:
        result = respond(effect)
        if isinstance(effect, ReadPayload):
            read.append(len(peer.store.perform(effect)))
        elif isinstance(effect, ReadEntries):
            read.extend(len(each.payload or b"") for each in peer.store.perform(effect))
        return result

    peer.respond = counting
    last = len(news)
    for number in range(50):
        peer.control(propose(2 * number, 1, log=key_of(news), end=(last, last)))
    assert read
    assert sum(read) == 0
    assert len(read) < 5
    peer.receive(bytes([0x00, 1, 0]))  # unlimited credit
    assert sum(read) == 50 * sum(len(new.payload or b"") for new in news)
    assert all(cancel(2 * number, 130) in peer.control_seen for number in range(50))

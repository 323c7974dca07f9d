"""Each peer has its own queue: a slow or dead one hurts only itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oxen_simulation import LIMITS, TIMING
from oxen_support import joining

from culm.machine import LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    ErrorCode,
    FailReason,
    MessageReceived,
    PeerState,
    SendFailed,
    Writable,
)
from culm.testing.network import Conditions, Network

NAMES = [b"N00", b"N01", b"N02"]
QUEUE_MAX = 8


class Three:
    """Three nodes, the first of which talks to the others."""

    def __init__(self, message_size_max: int = 0) -> None:
        limits = replace(LIMITS, queue_max=QUEUE_MAX, message_size_max=message_size_max)
        timing = replace(TIMING, give_up_s=60.0)
        self.network = Network(seed=1, conditions=Conditions(delay_min=0.001, delay_max=0.002))
        self.cluster = joining(self.network, NAMES, limits=limits, timing=timing)
        self.speaker = self.cluster[NAMES[0]]
        self.wait(2.0)
        assert all(view.state is PeerState.JOINED for view in self.speaker.machine.peers().values())

    def wait(self, seconds: float) -> None:
        self.network.run(self.network.clock.now + seconds)

    def pause(self) -> None:
        """The last node stops hearing anything."""
        self.network.partition(NAMES[:2], NAMES[2:])

    def broadcast(
        self, number: int, delivery: Delivery = Delivery.IN_ORDER_BROADCAST, *, size: int = 1
    ) -> bool:
        verb = "broadcast" if delivery is Delivery.DATAGRAM else "broadcast_in_order"
        try:
            self.speaker.call(verb, data=(b"%d" % number).ljust(size))
        except LocalProtocolError as error:
            if error.code is not ErrorCode.QUEUE_FULL:
                raise
            return False
        return True

    def events(self, kind: type) -> list[object]:
        return [event for _, event in self.speaker.events if isinstance(event, kind)]

    def got(self, sid: bytes, delivery: Delivery = Delivery.IN_ORDER_BROADCAST) -> list[int]:
        return [
            int(event.data)
            for _, event in self.cluster[sid].events
            if isinstance(event, MessageReceived) and event.delivery is delivery
        ]


@pytest.mark.parametrize("delivery", [Delivery.DATAGRAM, Delivery.IN_ORDER_BROADCAST])
def test_a_peer_that_does_not_answer_keeps_no_broadcast_waiting(delivery: Delivery) -> None:
    three = Three()
    three.pause()
    for number in range(QUEUE_MAX):
        assert three.broadcast(number, delivery)
    assert not three.broadcast(99, delivery)  # who knows
    three.wait(5.0)
    assert three.events(Writable) == [Writable(peer=sid) for sid in NAMES[1:]]
    for number in range(QUEUE_MAX, 3 * QUEUE_MAX):
        assert three.broadcast(number, delivery)
        three.wait(0.1)
    assert sorted(three.got(NAMES[1], delivery)) == list(range(3 * QUEUE_MAX))
    failed = three.events(SendFailed)
    assert len(failed) == 2 * QUEUE_MAX
    assert {(event.peer, event.reason) for event in failed} == {  # type: ignore[attr-defined]
        (NAMES[2], FailReason.QUEUE_FULL)
    }
    three.network.heal()
    three.wait(10.0)
    assert set(three.got(NAMES[2], delivery)) == set(range(QUEUE_MAX))
    assert three.events(Writable) == [Writable(peer=NAMES[at]) for at in (1, 2, 2)]
    for number in range(100, 105):
        assert three.broadcast(number, delivery)
    three.wait(1.0)
    assert sorted(number for number in three.got(NAMES[2], delivery) if number >= 100) == [
        *range(100, 105)
    ]
    assert not any(view.queued for view in three.speaker.machine.peers().values())


def test_what_was_skipped_is_told_once_all_before_it_has_arrived() -> None:
    """In order and once each, however often the peer is away."""
    three = Three()
    count = 0
    for _ in range(2):
        three.pause()
        for _ in range(30):
            count += three.broadcast(count)
            three.wait(0.1)
        three.network.heal()
        for _ in range(20):
            count += three.broadcast(count)
            three.wait(0.02)
        three.wait(2.0)
    failed = len(three.events(SendFailed))
    got = three.got(NAMES[2])
    assert failed > 10
    assert len(got) == count - failed
    assert got == sorted(set(got))
    assert three.got(NAMES[1]) == list(range(count))


def test_who_leaves_waits_until_what_was_skipped_is_known() -> None:
    three = Three()
    three.pause()
    for number in range(QUEUE_MAX):
        assert three.broadcast(number)
    three.wait(5.0)
    assert three.broadcast(99)
    three.network.heal()
    three.speaker.call("leave")
    three.wait(4.0)
    assert three.got(NAMES[2]) == list(range(QUEUE_MAX))
    for sid in NAMES[1:]:
        assert NAMES[0] not in three.cluster[sid].machine.peers()


def test_a_full_queue_has_room_again() -> None:
    three = Three()
    to = NAMES[1]
    for _ in range(QUEUE_MAX):
        three.speaker.call("send_in_order", to=to, data=b"0")
    with pytest.raises(LocalProtocolError) as caught:
        three.speaker.call("send_in_order", to=to, data=b"0")
    assert caught.value.code is ErrorCode.QUEUE_FULL
    three.wait(1.0)
    assert three.events(Writable) == [Writable(peer=to)]
    for _ in range(QUEUE_MAX - 1):
        three.speaker.call("send_in_order", to=to, data=b"0")
    three.wait(1.0)
    assert three.events(Writable) == [Writable(peer=to)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("queue_max", [1, 2, 5])
def test_whoever_finds_a_queue_full_is_told_when_to_try_again(queue_max: int, seed: int) -> None:
    """However it has become full: by messages of the user's or of ours, or because others that
    waited for a place have found it."""
    network = Network(seed=seed, conditions=Conditions(delay_min=0.01, delay_max=0.03))
    window = network.random("window").choice([1, 256])
    limits = replace(
        LIMITS, queue_max=queue_max, window_max=window, message_size_max=5_000, assemblies_max=1
    )
    cluster = joining(network, NAMES, limits=limits)
    rng = network.random("user")
    refused: dict[tuple[bytes, bytes | None], int] = {}
    end = rng.choice([0.1, 0.5, 3.0])
    while network.clock.now < end:
        network.run(network.clock.now + rng.expovariate(60))
        sid, size = rng.choice(NAMES), rng.choice([10, 4_000])
        to = rng.choice([name for name in NAMES if name != sid])
        verb = rng.choice(["send", "send_in_order", "broadcast_in_order"])
        everybody = verb == "broadcast_in_order"
        args: dict[str, object] = {"data": bytes(10 if verb == "send" else size)}
        if not everybody:
            args["to"] = to
        try:
            cluster[sid].call(verb, **args)
        except LocalProtocolError as error:
            if error.code is ErrorCode.QUEUE_FULL:
                refused[sid, None if everybody else to] = len(cluster[sid].events)
    network.run(network.clock.now + 120.0)
    for (sid, peer), at in refused.items():
        later = [event for _, event in cluster[sid].events[at:] if isinstance(event, Writable)]
        assert peer is None or Writable(peer=peer) in later, (sid, peer)
        assert later, sid


@pytest.mark.parametrize("size", [1, 3_000])
@pytest.mark.parametrize("count", [1, 2, 3 * QUEUE_MAX])
def test_a_broadcast_is_for_those_who_have_joined(size: int, count: int) -> None:
    """A peer that is about to join begins with the next ones, and is not reported before."""
    three = Three(message_size_max=4_000)
    newcomer, network = three.cluster[NAMES[2]], three.network
    newcomer.crash()
    newcomer.start()
    newcomer.call("join", sid=NAMES[0])

    def state() -> PeerState:
        return three.speaker.machine.peers()[NAMES[2]].state

    assert network.run(network.clock.now + 5.0, done=lambda: state() is PeerState.SYNCHRONIZING)
    three.pause()  # so that it stays in that state for a while
    begin = network.clock.now
    for index in range(count):
        assert three.broadcast(index, size=size)
        three.wait(0.1)
    assert state() is PeerState.SYNCHRONIZING
    network.heal()
    assert network.run(network.clock.now + 5.0, done=lambda: state() is PeerState.JOINED)
    assert three.broadcast(count, size=size)
    three.wait(2.0)
    assert three.got(NAMES[1]) == list(range(count + 1))
    assert three.got(NAMES[2]) == [count]
    ends = [
        event.peer
        for time, event in three.speaker.events
        if time >= begin and isinstance(event, Delivered | SendFailed)
    ]
    assert sorted(ends) == [NAMES[1]] * (count + 1) + [NAMES[2]]

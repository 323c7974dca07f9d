"""While the store is at work: others write, answers come in any order, bytes arrive."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, LogKey, LogStore, MemoryStore, NewEntry
from culm.bamboo.effects import perform
from culm.effects import Answer
from culm.machine import Effect
from culm.point2point import Limits, Role
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits, Settled
from culm.wire.multihash import YAMF
from effort import amount

ALL = Interest(accept_new_logs=True)


def published(seed: int, payloads: list[bytes]) -> tuple[LogKey, list[NewEntry]]:
    author = LogAuthor(SigningKey(bytes([seed]) * 32), family=YAMF)
    return author.log, [author.publish(payload) for payload in payloads]


class End:
    """A replicator, its store, and what is on its way to either."""

    def __init__(self, role: Role, store: LogStore, limits: ReplicatorLimits) -> None:
        self.machine = Replicator(role=role, interest=ALL, limits=limits)
        self.store = store
        self.events: list[object] = []
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self.bytes = bytearray()
        self.other = self

    def drain(self) -> bool:
        machine, before = self.machine, len(self.events) + len(self.effects)
        self.events += iter(machine.next_event, None)
        self.effects += iter(machine.next_effect, None)
        data = machine.data_to_send()
        self.other.bytes += data
        return bool(data) or len(self.events) + len(self.effects) != before

    def perform(self) -> None:
        """Do the oldest effect; the answer comes later."""
        self.answers.append(
            Answer.of(self.effects.pop(0), lambda effect: perform(effect, self.store))
        )

    def answer(self, at: int = 0) -> None:
        self.answers.pop(at).give(self.machine)

    def receive(self, size: int = 1 << 30) -> None:
        data = bytes(self.bytes[:size])
        del self.bytes[:size]
        self.machine.receive_data(data)


class Pair:
    """Two replicators, and one thing after the other."""

    def __init__(
        self, left: LogStore, right: LogStore, rng: Random, limits: ReplicatorLimits
    ) -> None:
        self.rng = rng
        self.left = End(Role.PROACTIVE, left, ReplicatorLimits())
        self.right = End(Role.REACTIVE, right, limits)
        self.left.other, self.right.other = self.right, self.left
        self.ends = self.left, self.right

    def drain(self) -> None:
        left, right = self.ends
        while left.drain() | right.drain():
            pass

    def step(self) -> bool:
        """Something that is possible; effects are performed in order, and answered in any."""
        self.drain()
        rng, possible = self.rng, []
        for end in self.ends:
            if end.effects:
                possible.append(end.perform)
            if end.answers:
                possible.append(lambda end=end: end.answer(rng.randrange(len(end.answers))))
            if end.bytes:
                possible.append(lambda end=end: end.receive(rng.choice((5, 10, 1 << 20))))
        if possible:
            rng.choice(possible)()
        return bool(possible)

    def wait(self, seconds: int, step: int = 1) -> None:
        for now in range(0, seconds, step):
            for end in self.ends:
                end.machine.advance(float(now))
            while self.step():
                pass


def heads(store: LogStore) -> dict[LogKey, int]:
    return {log: head.seqnum for log in store.logs() if (head := store.head(log)) is not None}


@pytest.mark.parametrize("seed", range(amount(45, long=3_000)))
def test_a_payload_that_is_complete_keeps_no_request_from_resting(seed: int) -> None:
    """A payload was begun; when all of it is here, the other log has its turn."""
    (log, news), (other, others) = published(1, [b"x" * 10] * 8), published(2, [b"y"] * 8)
    left, right = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
    right.append(log, news)
    left.append(other, others)
    left.append(log, [news[0], NewEntry(news[1].entry)])
    left.write_payload(log, 2, 0, b"x" * 5)
    limits = ReplicatorLimits(connection=Limits(requests_max=1))
    pair = Pair(left, right, Random(seed + 30), limits)
    pair.wait(40)
    assert heads(left) == heads(right) == {log: 8, other: 8}


@pytest.mark.parametrize("seed", range(amount(6, long=1_000)))
def test_what_is_read_for_a_request_that_has_ended_takes_no_room(seed: int) -> None:
    """Else those that come later would wait for room for ever."""
    rng = Random(seed)
    limits = ReplicatorLimits(
        read_ahead_size_max=1000, connection=Limits(requests_max=1, packet_size_max=1000)
    )
    pair = Pair(MemoryStore(family=YAMF), MemoryStore(family=YAMF), rng, limits)
    store, machine = pair.right.store, pair.right.machine
    coming = [
        published(30 + number, [bytes(rng.choice((0, 1, 10, 50))) for _ in range(count)])
        for number, count in enumerate((1, 20, 3))
    ]
    while coming:
        for _ in range(rng.randrange(12)):
            pair.step()
        log, news = rng.choice(coming)
        store.append(log, [news.pop(0)])
        machine.stored(log)
        coming = [each for each in coming if each[1]]
    pair.wait(300, 30)
    assert sorted(heads(pair.left.store).values()) == [1, 3, 20]
    assert machine.snapshot().read_ahead_size == 0


def words() -> Iterator[tuple[int, str]]:
    """Stories in which a store grows (i), is asked (a), and bytes of the peer come once (r)."""
    for known in (1, 2, 3):
        for length in range(2, 6):
            for grows in range(1, 1 << length):
                word = "".join("i" if grows >> at & 1 else "a" for at in range(length))
                if word.count("i") <= 3:
                    yield from ((known, f"{word[:at]}r{word[at:]}") for at in range(4))


def test_a_store_that_grows_while_a_proposal_is_made_leaves_no_proposal_unanswered() -> None:
    """What we were about to propose no longer displaces what the peer has proposed."""
    log, news = published(1, [b"x"] * 8)
    for known, word in words():
        left, right = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
        left.append(log, news[:4])
        right.append(log, news[:known])
        pair = Pair(left, right, Random(1), ReplicatorLimits())
        a, b = pair.ends
        for end in pair.ends:
            end.machine.advance(0.0)
        hear(a)
        a.bytes += b.machine.data_to_send()
        a.receive()
        hear(a)
        for letter in word:
            if letter == "i":
                head = right.head(log)
                assert head is not None
                right.append(log, [news[head.seqnum]])
                b.machine.stored(log)
            elif letter == "r":
                b.receive()
            elif b.effects:
                b.perform()
                b.answer()
            b.drain()
        pair.wait(10)
        assert any(isinstance(event, Settled) for event in b.events), (known, word)
        assert heads(left) == heads(right), (known, word)


def hear(end: End) -> None:
    """Have done at once whatever an end wants done."""
    while end.drain() or end.effects:
        while end.effects:
            end.perform()
            end.answer()


def test_nothing_has_settled_while_the_peer_has_not_answered() -> None:
    """However long its answer takes: whoever fetches once would leave without anything."""
    (log, news), store = published(1, [b"x"] * 5), MemoryStore(family=YAMF)
    store.append(log, news)
    fetching = End(Role.PROACTIVE, MemoryStore(family=YAMF), ReplicatorLimits())
    serving = End(Role.REACTIVE, store, ReplicatorLimits())
    fetching.other, serving.other = serving, fetching
    fetching.machine.replicate(log)
    for end in (fetching, serving):
        end.machine.advance(0.0)
        hear(end)
    fetching.receive()  # the setup, and credit
    hear(fetching)
    for tenths in range(1, 100):
        fetching.machine.advance(tenths / 10)
        hear(fetching)
    assert not any(isinstance(event, Settled) for event in fetching.events)
    for seconds in range(10, 20):
        for end in (serving, fetching):
            end.receive()
            end.machine.advance(float(seconds))
            hear(end)
    assert heads(fetching.store) == {log: 5}
    assert any(isinstance(event, Settled) for event in fetching.events)


def test_a_replicator_needs_room_for_what_a_confirmation_takes() -> None:
    with pytest.raises(ValueError, match="request_adjustments_max"):
        ReplicatorLimits(connection=Limits(request_adjustments_max=1))

"""A payload of any size: nothing waits for it, and it is never held whole.

The payload is made on demand, and counted and hashed on arrival, not kept.  Its size is that of the
requirement (1 GiB) in the long profile.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

import pytest
from nacl.signing import SigningKey
from p2p_snapshots import request_as_it_is
from replicator_support import key_of, news_of

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.records import NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.bamboo.store import MemoryStore
from culm.machine import Closed, Effect, Event
from culm.machines.memory import retained_size
from culm.point2point import Limits, Role, Setup
from culm.point2point.replication import EntryStored, Interest, Replicator, ReplicatorLimits
from culm.wire.multihash import YAMF
from effort import LONG

SIZE = 1 << 30 if LONG else 1 << 23
BLOCK = blake2b(b"some bytes").digest() * 1024  # 64 KiB
LIMITS = ReplicatorLimits(
    unwritten_size_max=1 << 18,
    batch_size_max=1 << 17,
    payload_inline_max=1 << 16,
    connection=Limits(packet_size_max=1 << 14, data_window_max=1 << 17, unsent_size_max=1 << 16),
)
SMALL = news_of((100, 200, 300))


def content(offset: int, size: int) -> bytes:
    """That part of the large payload."""
    size = max(0, min(size, SIZE - offset))
    start = offset % len(BLOCK)
    return (BLOCK * ((start + size) // len(BLOCK) + 1))[start : start + size]


def large() -> NewEntry:
    """The entry of the large payload, without that payload."""
    hasher = YAMF.hasher()
    for offset in range(0, SIZE, 1 << 20):
        hasher.update(content(offset, 1 << 20))
    author = LogAuthor(SigningKey(bytes([9]) * 32), family=YAMF)
    return author.publish(payload_size=SIZE, payload_hash=hasher.hash())


class Imaginary(MemoryStore):
    """Has up to `on_hand` bytes of the large payload, without holding them."""

    def __init__(self, new: NewEntry, on_hand: int) -> None:
        super().__init__(family=YAMF)
        self.log: LogKey = new.entry.log
        self.on_hand = on_hand
        self.complete = on_hand == SIZE
        if on_hand:
            super().append(self.log, [NewEntry(new.entry)])

    def _imagined(self, kept: StoredEntry) -> StoredEntry:
        return StoredEntry(
            seqnum=kept.seqnum,
            encoded=kept.encoded,
            hash=kept.hash,
            payload_size=kept.payload_size,
            payload_stored=self.on_hand,
            payload_complete=self.complete,
            payload=None,
        )

    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        kept = super().entry(log, seqnum)
        return kept if kept is None or log != self.log else self._imagined(kept)

    def entries(self, log: LogKey, *args: object, **options: object) -> list[StoredEntry]:
        kept = super().entries(log, *args, **options)  # type: ignore[arg-type]
        return [self._imagined(each) for each in kept] if log == self.log else kept

    def append(self, log: LogKey, entries: object) -> None:
        news = list(entries)  # type: ignore[call-overload]
        if log == self.log:
            for new in news:
                assert new.staged
                self.write_payload(log, new.entry.seqnum, 0, new.payload)
            news = [NewEntry(new.entry) for new in news]
        super().append(log, news)

    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        if log != self.log:
            super().write_payload(log, seqnum, offset, data)
        elif offset != self.on_hand:
            raise StoreError(StoreErrorCode.WRONG_OFFSET, log, seqnum)
        else:
            assert data == content(offset, len(data))
            self.on_hand += len(data)

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        if log != self.log:
            return super().read_payload(log, seqnum, offset, size)
        return content(offset, min(size, self.on_hand - offset))

    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        if log != self.log:
            super().finish_payload(log, seqnum)
        else:
            assert self.on_hand == SIZE
            self.complete = True


class Node:
    """A replicator over a store that answers at once, or later."""

    def __init__(self, role: Role, store: MemoryStore, setup: Setup) -> None:
        self.store = store
        interest = Interest(live=True, accept_new_logs=True)
        self.machine = Replicator(
            role=role, setup=setup, limits=LIMITS, interest=interest, family=YAMF
        )
        self.events: list[Event] = []
        self.effects: deque[Effect] = deque()
        self.slow = False
        self.retained_max = 0

    def drain(self) -> None:
        going_on = True
        while going_on:
            going_on = False
            while (event := self.machine.next_event()) is not None:
                if isinstance(event, (EntryStored, Closed)):
                    self.events.append(event)
                going_on = True
            while (effect := self.machine.next_effect()) is not None:
                self.effects.append(effect)
                going_on = True
            while self.effects and not self.slow:
                done = self.effects.popleft()
                self.machine.complete(done.ticket, self.store.perform(done))
                going_on = True

    def note_memory(self) -> None:
        self.retained_max = max(self.retained_max, retained_size(self.machine))


class Pair:
    def __init__(self, setup: Setup) -> None:
        new = large()
        self.log = new.entry.log
        self.sender = Node(Role.PROACTIVE, Imaginary(new, SIZE), setup)
        self.receiver = Node(Role.REACTIVE, Imaginary(new, 0), setup)

    def carry(self, sender: Node, receiver: Node, size_max: int) -> int:
        """Some bytes, as far as they are welcome."""
        room = receiver.machine.read_size()
        data = sender.machine.data_to_send(min(room, size_max)) if room else b""
        if data:
            receiver.machine.receive_data(data)
            receiver.drain()
        sender.drain()
        return len(data)

    def turn(self, size_max: int = 1 << 14) -> int:
        there = self.carry(self.sender, self.receiver, size_max)
        return there + self.carry(self.receiver, self.sender, size_max)

    def has_come(self, entry: Entry) -> bool:
        """Whether its metadata has reached the receiver."""
        requests = self.receiver.machine.connection.requests.values()
        return any(
            first <= entry.seqnum <= last
            for request in requests
            if request.proposal.log == entry.log
            for first, last in request_as_it_is(request).incoming.metadata
        )

    def has(self, log: LogKey, seqnum: int) -> bool:
        return any(
            isinstance(event, EntryStored) and (event.log, event.seqnum) == (log, seqnum)
            for event in self.receiver.events
        )


SETUPS = {
    "raw": Setup(send_window_max=0, receive_window_max=0),
    "compressed": Setup(),
}


@pytest.mark.parametrize("way", list(SETUPS))
def test_metadata_waits_for_no_more_than_a_packet(way: str) -> None:
    """Each new entry of another log overtakes everything but the packet already begun."""
    pair = Pair(SETUPS[way])
    sender, receiver = pair.sender, pair.receiver
    small = key_of(SMALL)
    sender.drain()
    receiver.drain()
    behind: list[int] = []
    waiting: Entry | None = None  # in the sender's store, and not on its way
    next_at, turns = SIZE // 8, 0
    while pair.turn() or not receiver.store.complete:  # type: ignore[attr-defined]
        turns += 1
        assert turns < 100 * SIZE // (1 << 14)
        arrived = receiver.store.on_hand  # type: ignore[attr-defined]
        if waiting is None and arrived >= next_at and len(behind) < len(SMALL):
            new = SMALL[len(behind)]
            sender.store.append(small, [new])
            sender.machine.stored(small)
            sender.drain()
            waiting = new.entry
            next_at += SIZE // 8
        taken = 0  # since then
        while waiting is not None:
            taken += pair.carry(sender, receiver, 512)
            if pair.has_come(waiting):
                behind.append(taken)
                waiting = None
            pair.carry(receiver, sender, 1 << 14)
            assert taken < SIZE // 8
        if turns % (1 + SIZE // (1 << 20)) == 0:
            sender.note_memory()
            receiver.note_memory()
    assert len(behind) == 3
    packet = LIMITS.connection.packet_size_max
    # The first one is for an unknown log: a proposal has to go there, and a confirmation back.
    for taken in behind[1:]:
        assert taken <= packet + 1500, behind
    assert behind[0] <= 3 * packet, behind
    assert not any(isinstance(event, Closed) for event in receiver.events)
    assert pair.has(pair.log, 1)
    for node in (sender, receiver):
        assert node.retained_max < 1_500_000


@pytest.mark.parametrize("way", list(SETUPS))
def test_the_credit_bounds_what_is_held_for_a_slow_store(way: str) -> None:
    """The store does not answer for a while, again and again."""
    pair = Pair(SETUPS[way])
    sender, receiver = pair.sender, pair.receiver
    limits = LIMITS
    # Received and not written, then the window, and data being assembled or compressed.
    allowed = (
        limits.unwritten_size_max
        + limits.connection.data_window_max
        + 2 * limits.payload_inline_max
        + 2 * limits.connection.packet_size_max
    )
    stops = 0
    for _ in range(100 * SIZE // (1 << 14)):
        moved = pair.turn(1 << 12)
        arrived = receiver.store.on_hand  # type: ignore[attr-defined]
        if arrived > stops * SIZE // 5 and not receiver.store.complete:  # type: ignore[attr-defined]
            receiver.slow = True
            while pair.turn(1 << 16):
                pass
            held = retained_size(receiver.machine)
            pending = sum(len(getattr(effect, "data", b"")) for effect in receiver.effects)
            assert pending <= allowed
            assert held < 2 * allowed + 300_000
            assert retained_size(sender.machine) < 1_000_000
            stops += 1
            receiver.slow = False
            receiver.drain()
        elif not moved and receiver.store.complete:  # type: ignore[attr-defined]
            break
    assert stops == 5
    assert pair.has(pair.log, 1)
    assert not any(isinstance(event, Closed) for event in receiver.events)

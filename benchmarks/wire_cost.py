"""The cost of replicating a log on the wire, counted byte by byte.

Two replicators in memory, one of which has the whole log.  Their traffic is split into bymux
packets, so that the protocol's own bytes and those of bymux are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from random import Random

from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, LogStore, MemoryStore
from culm.buffer import ReceiveBuffer
from culm.bymux.packets import PacketType, take_packet
from culm.point2point import Role
from culm.point2point.codec import encode_setup
from culm.point2point.messages import Setup
from culm.point2point.replication import Interest, Replicator
from culm.wire import varu64
from culm.wire.multihash import YAMF
from two_replicators import End, exchange

HASH_SIZE = len(YAMF.hash(b""))
SIGNATURE_SIZE = 64
SLACK = 3  # bytes an entry beside tag, size, hash and signature


def bound(payload_size: int) -> int:
    """The bytes that an entry may cost besides its payload: tag, size, hash, signature, slack."""
    return 1 + len(varu64.encode(payload_size)) + HASH_SIZE + SIGNATURE_SIZE + SLACK


@dataclass
class Cost:
    """Bytes in both directions: all of them, those of each channel, and those added by bymux."""

    entries: int
    payload: int
    total: int = 0
    setup: int = 0
    channels: dict[int | None, int] = field(default_factory=lambda: {0: 0, 1: 0})
    bymux: int = 0

    @property
    def per_entry(self) -> float:
        """Bytes an entry, besides payloads; everything included."""
        return (self.total - self.payload) / self.entries

    @property
    def bymux_per_entry(self) -> float:
        """The share of these that bymux adds."""
        return self.bymux / self.entries

    def count(self, data: bytes) -> None:
        """Count all bytes sent by one side."""
        self.total += len(data)
        size = len(encode_setup(Setup()))
        self.setup += size
        inbox = ReceiveBuffer()
        inbox.append(data[size:])
        while len(inbox):
            before = len(inbox)
            packet = take_packet(inbox)
            assert packet is not None
            self.bymux += before - len(inbox)
            if packet.type is PacketType.WRITE:
                assert packet.amount is not None
                inbox.consume(packet.amount)
                self.channels[packet.stream_id] += packet.amount


@cache
def log_of(count: int, payload_size: int) -> MemoryStore:
    """A log with incompressible payloads."""
    store, rng = MemoryStore(family=YAMF), Random(1)
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    store.append(author.log, [author.publish(rng.randbytes(payload_size)) for _ in range(count)])
    return store


def replicate(source: MemoryStore, *, take_size: int) -> tuple[LogStore, list[bytearray]]:
    """Let one replicator fetch everything from the other; the new store, and the bytes of each."""
    interest = Interest(live=False, accept_new_logs=True)
    fetcher = Replicator(role=Role.PROACTIVE, interest=interest)
    said = [bytearray(), bytearray()]
    target = End(fetcher, MemoryStore(family=YAMF), said[0])
    server = End(Replicator(role=Role.REACTIVE), source, said[1])
    exchange(target, server, size_max=take_size)
    return target.store, said


def cost_of(count: int, payload_size: int, said: list[bytearray]) -> Cost:
    """Count the bytes of both for a log of `count` entries."""
    cost = Cost(entries=count, payload=count * payload_size)
    for data in said:
        cost.count(bytes(data))
    assert cost.total == cost.setup + cost.bymux + sum(cost.channels.values())
    return cost

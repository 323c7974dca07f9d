"""The cost of idle connections for a peer: 1,000 feeds, 100 connected peers.

``python -m pytest benchmarks/test_ssb_connections.py -s`` prints memory and processor time for one
end of a connection, from the secret handshake to notes of all feeds, and for a minute with nothing
but keepalives.  All peers are in one process, and all have all messages.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ssb"))

from peer_support import Node, connect, feed_of, run

from culm.machine import Ticket
from culm.ssb.ebt import AppendMessages, Message
from culm.ssb.peer import Timing
from culm.ssb.store import MemoryStore

FEEDS = 1000
PEERS = 100
PING_S = 60.0
FIRST_SIZE_MAX = 400 << 10  # bytes for one end of a connection
AGAIN_SIZE_MAX = 64 << 10


class World:
    """A peer in the middle, and the peers connected with it."""

    def __init__(self) -> None:
        names = [feed_of(f"feed {number}") for number in range(FEEDS)]
        messages = tuple(Message(name, 1, f"%{name}", b'{"message":1}') for name in names)
        self.hub = self._node("hub", messages)
        self.others = [self._node(f"peer {number}", messages) for number in range(PEERS)]
        self.now = 0.0

    def _node(self, name: str, messages: tuple[Message, ...]) -> Node:
        store = MemoryStore()
        store.perform(AppendMessages(ticket=Ticket(1), messages=messages))
        node = Node(name, store=store, timing=Timing(ping_s=PING_S))
        for message in messages:
            node.peer.follow(message.author)
        return node

    def connect(self) -> None:
        for other in self.others:
            connect(other, self.hub, sealed=True)
            run(other, self.hub)
        run(self.hub, *self.others)
        assert len(self.hub.peer.links) == PEERS

    def disconnect(self) -> None:
        for link in self.hub.peer.links:
            link.close()
        run(self.hub, *self.others)
        assert not self.hub.peer.links

    def rest(self) -> None:
        """A minute goes by."""
        self.now += PING_S
        for node in (self.hub, *self.others):
            node.advance(self.now)
        run(self.hub, *self.others)
        assert len(self.hub.peer.links) == PEERS

    def forget(self) -> None:
        for node in (self.hub, *self.others):
            node.events.clear()


def size_of(action: Callable[[], None], world: World) -> float:
    """The growth of memory in bytes, for one end of a connection."""
    gc.collect()
    tracemalloc.start()
    action()
    world.forget()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / (2 * PEERS)


def time_of(action: Callable[[], None]) -> float:
    """Seconds of the processor, for one end of a connection."""
    start = process_time()
    action()
    return (process_time() - start) / (2 * PEERS)


def test_idle_connections() -> None:
    world = World()
    first_s = time_of(world.connect)
    idle_s = time_of(world.rest)
    world.disconnect()
    again_s = time_of(world.connect)
    world.disconnect()
    again_size = size_of(world.connect, world)
    first = World()
    first_size = size_of(first.connect, first)
    print(f"\n{FEEDS:,} feeds, {PEERS} peers; for one end of a connection:")
    print(f"the first time {first_s * 1e3:.1f} ms and {first_size / 1024:.0f} KiB")
    print(f"again {again_s * 1e3:.1f} ms and {again_size / 1024:.0f} KiB")
    print(f"a minute without anything but a sign of life {idle_s * 1e6:.0f} µs")
    assert first_size <= FIRST_SIZE_MAX
    assert again_size <= AGAIN_SIZE_MAX

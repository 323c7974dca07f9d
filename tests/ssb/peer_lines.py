"""Two peers on a line that is slow, or long, or dead after a while, from one seed.

A line carries a number of bytes a second in each direction, and takes no more than that from a
link; they arrive later.  A line that is cut carries nothing any more, and neither end is told.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Self

from peer_support import Node, connect, feed_of

from culm.ssb.peer import PeerDisconnected, PeerLink, Timing

STEP_S = 0.25


class Line:
    """Both ends of a connection, client first."""

    def __init__(self, links: tuple[PeerLink, PeerLink], rates: tuple[int, int], delay_s: float):
        self.links = links
        self.rates = rates  # bytes a second, from each end
        self.delay_s = delay_s
        self.is_cut = False
        self._ways: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())

    def carry(self, now: float) -> None:
        for way, sender, receiver, rate in zip(
            self._ways, self.links, self.links[::-1], self.rates, strict=True
        ):
            if self.is_cut:
                continue
            data = sender.data_to_send(max(1, int(rate * STEP_S)))
            if data:
                way.append((now + self.delay_s, data))
            while way and way[0][0] <= now and (room := receiver.read_size()):
                at, data = way.popleft()
                receiver.receive_data(data[:room])
                if data[room:]:
                    way.appendleft((at, data[room:]))


class Pair:
    """A client and a server on a line."""

    def __init__(self, nodes: tuple[Node, Node], rates: tuple[int, int], delay_s: float) -> None:
        self.now = 0.0
        self.nodes = nodes
        links = connect(*nodes)
        for node in nodes:
            node.ways.clear()  # a line carries their bytes
        self.line = Line(links, rates, delay_s)

    def live(self, seconds: float) -> Self:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            for node in self.nodes:
                node.peer.advance(self.now)
                settle(node)
            self.line.carry(self.now)
            for node in self.nodes:
                settle(node)
        return self

    def lost(self) -> list[Node]:
        """The ends that have lost the other one."""
        return [node for node in self.nodes if node.told(PeerDisconnected)]


class World(Pair):
    """One of them has a feed that the other wants; everything from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.patience_s = self.rng.choice([4.0, 10.0, 30.0])
        pings = {"ping_s": self.patience_s, "idle_timeout_s": self.patience_s}
        pings.pop(self.rng.choice([*pings, "none"]), None)
        timing = Timing(**pings)  # type: ignore[arg-type]
        nodes = Node("client", timing=timing), Node("server", timing=timing)
        author = self.rng.choice(nodes)
        for node in nodes:
            node.peer.follow(author.peer.me)
        text = "x" * self.rng.choice([10, 5000])
        for _ in range(self.rng.choice([0, 1, 20])):
            author.peer.publish({"type": "post", "text": text})
        rates = tuple(self.rng.choice([300, 2000, 100_000]) for _ in "12")
        super().__init__(nodes, (rates[0], rates[1]), self.rng.choice([0.0, 0.3, 1.5]))


def settle(node: Node) -> None:
    """Events and effects; bytes stay where they are."""
    moved = True
    while moved:
        moved = False
        while (event := node.peer.next_event()) is not None:
            node.events.append(event)
            moved = True
        while (effect := node.peer.next_effect()) is not None:
            node.peer.complete(effect.ticket, node.store.perform(effect))
            moved = True


__all__ = ["Line", "Pair", "World", "feed_of", "settle"]

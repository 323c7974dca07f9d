"""Peers with any of their limits at its least value, with and without sessions, from one seed.

Connections come and go, peers are killed and started again from their store, and stop following
feeds for a while.  Guests, which some peers may follow, send anything harmful on their links, and
some peers have feeds of guests that no other takes for valid.  Then the weather is over, and the
guests are gone: every peer follows all others, the connections of a tree are kept, and dialled
again when they end.
"""

from __future__ import annotations

from dataclasses import fields
from math import inf
from random import Random
from typing import Any, Self

from peer_support import Node, connect, feed_of, identity, packet, run

from culm import ssb
from culm.ssb import ebt, history, muxrpc
from culm.ssb.ebt import Message, SessionRole
from culm.ssb.messages import create_message
from culm.ssb.peer import Limits, PeerLink, Settings, Timing
from culm.ssb.store import MemoryStore

# By then all have everything, including later messages. Where feeds are asked for one by one from a
# peer with a single place, all but one are refused at a time: `retry_s` for each of six feeds, on
# each of three connections in a row.
LEVEL_S = 6 * 3 * 600.0

# Not limits on the number of waiting things: anything they refuse was never accepted, or ends a
# link by design.
_OTHERS = frozenset(
    ("links_max", "half_sent_size_max", "body_size_max", "control_size_max", "handshake_size_max")
)

Ends = tuple[PeerLink, PeerLink]
GUESTS = ["mallory", "trudy", "eve"]


def odd_store(rng: Random) -> MemoryStore:
    """A store with feeds of guests that its host takes for valid, and nobody else does."""
    store = MemoryStore()
    for guest in GUESTS if rng.random() < 0.3 else ():
        message = create_message(identity(guest), content={"type": "post"}, timestamp=1)
        data = message.data.replace(b'"timestamp":1', b'"timestamp":2')
        store.append([Message(message.author, 1, message.id, data)])
    return store


class Least:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.share = self.rng.choice([0.1, 0.5, 1.0])  # of limits at their least value
        self.names = [f"peer {number}" for number in range(self.rng.randint(2, 4))]
        self.options = {name: self._options() for name in self.names}
        self.nodes = {name: self._new(name) for name in self.names}
        self.links: dict[tuple[str, str], Ends] = {}
        self.guests: list[tuple[str, PeerLink]] = []  # by the node where they are

    def _options(self) -> dict[str, Any]:
        parts: dict[str, Any] = {
            "ssb": ssb.Limits,
            "rpc": muxrpc.Limits,
            "ebt": ebt.Limits,
            "history": history.Limits,
        }
        made = {name: part(**self._least(part)) for name, part in parts.items()}
        return {
            "limits": Limits(**self._least(Limits, *parts), **made),
            "settings": Settings(
                speaks_ebt=self.rng.random() < 0.7, asks_as_server=self.rng.random() < 0.3
            ),
            "timing": Timing(ping_s=self.rng.choice([inf, 20.0])),
        }

    def _least(self, limits: Any, *apart: str) -> dict[str, int]:
        names = [each.name for each in fields(limits) if each.name not in {*_OTHERS, *apart}]
        return {name: self.rng.randint(1, 2) for name in names if self.rng.random() < self.share}

    def _new(self, name: str, node: Node | None = None) -> Node:
        store = odd_store(self.rng) if node is None else node.store
        made = Node(name, store=store, **self.options[name])
        made.is_late = self.rng.random() < 0.3
        made.advance(self.now)
        for other in (*self.names, *self.rng.sample(GUESTS, self.rng.randint(0, 3))):
            made.peer.follow(feed_of(other))
        return made

    # Events

    def live(self, steps: int) -> Self:
        actions = [self.publish] * 2 + [self.dial] * 2 + [self.move] * 3
        actions += [self.cut, self.part, self.kill, self.change, self.wait]
        actions += [self.invite, self.harm, self.harm, self.judge]
        for _ in range(steps):
            self.rng.choice(actions)()
        return self

    def publish(self) -> None:
        node = self.nodes[self.rng.choice(self.names)]
        for _ in range(self.rng.choice([1, 1, 10])):
            node.peer.publish({"type": "post", "text": "x" * self.rng.choice([1, 1, 3000])})

    def dial(self) -> None:
        client, server = self.rng.sample(self.names, 2)
        self._connect((client, server))

    def move(self) -> None:
        for name in self.rng.choices(self.names, k=self.rng.choice([1, 5, 50])):
            self.nodes[name].drain()

    def cut(self) -> None:
        if self.links:
            self._cut(self.rng.choice(list(self.links)))

    def judge(self) -> None:
        """Signatures are verified that some nodes were late with."""
        for node in self.nodes.values():
            node.judge()

    def part(self) -> None:
        """A user says goodbye over one of its links, whatever is on its way."""
        if self.links:
            link = self.rng.choice(self.rng.choice(list(self.links.values())))
            if not link.closed:
                link.close()

    def kill(self) -> None:
        name = self.rng.choice(self.names)
        for edge in [edge for edge in self.links if name in edge]:
            self._cut(edge)
        self.guests = [each for each in self.guests if each[0] != name]
        self.nodes[name] = self._new(name, self.nodes[name])

    def change(self) -> None:
        name, feed = self.rng.choice(self.names), feed_of(self.rng.choice(self.names))
        peer = self.nodes[name].peer
        if feed != peer.me:
            peer.follow(feed, not peer.follows(feed))

    def wait(self) -> None:
        self._advance(self.now + self.rng.choice([0.1, 1.0, 5.0, 40.0, 400.0]))

    def invite(self) -> None:
        """A guest connects, or is connected to."""
        name, role = self.rng.choice(self.names), self.rng.choice(list(SessionRole))
        guest = feed_of(self.rng.choice(GUESTS))
        self.guests.append((name, self.nodes[name].peer.attached(guest, role=role)))

    def harm(self) -> None:
        """A guest sends something harmful; answers to it go unread."""
        if self.guests:
            _, link = self.rng.choice(self.guests)
            lie = self.rng.random() < 0.5
            said = (
                self._lie(link) if lie else [self._harm() for _ in range(self.rng.choice([1, 9]))]
            )
            for data in said:
                if not link.closed:
                    link.receive_data(data)

    def _lie(self, link: PeerLink) -> list[bytes]:
        """A session in which a feed is promised, with invalid messages of it."""
        feed = feed_of(self.rng.choice(self.names))
        message = {"author": feed, "content": {"type": "post"}}
        said = [{feed: 198}, *[{**message, "sequence": number} for number in range(1, 25)]]
        if link.role is SessionRole.CLIENT:
            return [packet(-1, each) for each in said]
        asked = {"name": ["ebt", "replicate"], "args": [{"version": 3}], "type": "duplex"}
        return [packet(1, each) for each in (asked, *said)]

    def _harm(self) -> bytes:
        rng, number = self.rng, self.rng.choice([-3, -2, -1, 1, 2, 3, 4])
        feed = feed_of(rng.choice([*self.names, *GUESTS, str(rng.random())]))
        message = {"author": feed, "sequence": rng.randint(1, 30), "content": {"type": "post"}}
        said = [
            {"name": ["ebt", "replicate"], "args": [{"version": 3}], "type": "duplex"},
            {"name": ["gossip", "ping"], "args": [], "type": "duplex"},
            *[
                {
                    "name": ["createHistoryStream"],
                    "args": [{"id": feed, "live": live}],
                    "type": kind,
                }
                for live, kind in ((True, "source"), (False, "source"), (True, "duplex"))
            ],
            *[{feed: note} for note in (-1, 0, 1, rng.randint(0, 99), 2**53 - 1, 2**53)],
            *[message, {**message, "sequence": 2**53}, {**message, "content": None}],
            *[True, {}, [], 0, {"message": "unexpected end of parent stream"}],
        ]
        data = packet(number, rng.choice(said), flags=rng.choice([10, 10, 10, 10, 2, 14, 6]))
        return data[: rng.choice([len(data)] * 9 + [10])]

    def _advance(self, now: float) -> None:
        self.now = now
        for node in self.nodes.values():
            node.advance(now)

    def _connect(self, edge: tuple[str, str]) -> None:
        self._cut(edge)
        client, server = (self.nodes[name] for name in edge)
        self.links[edge] = connect(client, server)

    def _cut(self, edge: tuple[str, str]) -> None:
        for name, link in zip(edge, self.links.pop(edge, ()), strict=False):
            self.nodes[name].ways.pop(link.number, None)
            if not link.closed:
                link.receive_eof()

    # The end

    def settle(self) -> None:
        """The weather is over; all connected peers get everything, later messages too."""
        for edge in list(self.links):
            self._cut(edge)
        for _, link in self.guests:
            if not link.closed:
                link.receive_eof()
        self.judge()
        for node in self.nodes.values():
            node.is_late = False
            for name in self.names:
                node.peer.follow(feed_of(name))
        tree = [
            (self.rng.choice(self.names[:at]), self.names[at]) for at in range(1, len(self.names))
        ]
        edges = [self.rng.choice([edge, edge[::-1]]) for edge in tree]
        self._keep(edges)
        for node in self.nodes.values():
            node.peer.publish({"type": "post", "text": "news"})
        self._keep(edges)

    def _keep(self, edges: list[tuple[str, str]]) -> None:
        end = self.now + LEVEL_S
        while True:
            for edge in edges:
                if edge not in self.links or any(link.closed for link in self.links[edge]):
                    self._connect(edge)
            run(*self.nodes.values())
            if self.is_level():
                return
            dues = [node.peer.next_deadline() for node in self.nodes.values()]
            due = min((each for each in dues if each is not None), default=end)
            assert due < end, f"not level: {self.clocks()}"
            self._advance(max(due, self.now + 0.001))

    def clocks(self) -> list[dict[str, int]]:
        feeds = [feed_of(name) for name in self.names]
        return [{feed: node.peer.clock[feed] for feed in feeds} for node in self.nodes.values()]

    def is_level(self) -> bool:
        first, *others = self.clocks()
        return all(each == first for each in others)

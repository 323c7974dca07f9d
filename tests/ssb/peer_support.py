"""Peers with their stores, connected in memory."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import Any

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.machine import Event
from culm.signatures import Verify, verify
from culm.ssb.ebt import SessionRole
from culm.ssb.feed_id import feed_id_of
from culm.ssb.peer import Peer, PeerLink
from culm.ssb.store import MemoryStore


def identity(name: str) -> SigningKey:
    return SigningKey(sha256(name.encode()).digest())


def feed_of(name: str) -> str:
    return feed_id_of(bytes(identity(name).verify_key))


def packet(number: int, body: Any, *, flags: int = 10) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return struct.pack(">BIi", flags, len(data), number) + data


def packets(data: bytes) -> list[tuple[int, int, Any]]:
    """Flags, number and body of each packet."""
    found = []
    while data:
        flags, size, number = struct.unpack(">BIi", data[:9])
        body = data[9 : 9 + size]
        found.append((flags, number, json.loads(body) if body else None))
        data = data[9 + size :]
    return found


class Node:
    """A peer, driven by the law; `connect` says where its links' bytes go."""

    def __init__(self, name: str, *, store: MemoryStore | None = None, **options: Any) -> None:
        self.name = name
        self.store = MemoryStore() if store is None else store
        self.peer = Peer(
            identity=identity(name), stored=self.store.load(), now=0.0, epoch=1.7e9, **options
        )
        self.events: list[Event] = []
        self.verdicts: list[Verify] = []  # that are due
        self.is_late = False  # whether only `judge` gives them
        self.ways: dict[int, tuple[Node, PeerLink]] = {}  # where a link's bytes go
        self.sent: dict[int, bytes] = {}  # output of links without a way
        self.piece_size: int | None = None  # bytes to take at a time

    def drain(self) -> bool:
        """Take everything; returns whether anything has moved."""
        moved = False
        while True:
            before = moved
            moved = False
            while (event := self.peer.next_event()) is not None:
                self.events.append(event)
                moved = True
            while (effect := self.peer.next_effect()) is not None:
                if isinstance(effect, Verify):
                    self.verdicts.append(effect)
                else:
                    self.peer.complete(effect.ticket, self.store.perform(effect))
                moved = True
            moved |= not self.is_late and self.judge()
            for link in self.peer.links_to_send():
                moved |= self.carry(link)
            if not moved:
                return before

    def judge(self) -> bool:
        """Verify the signatures that are due; returns whether there were any."""
        due, self.verdicts = self.verdicts, []
        for effect in due:
            self.peer.complete(effect.ticket, verify(effect.signatures))
        return bool(due)

    def carry(self, link: PeerLink) -> bool:
        data = b"".join(iter(lambda: link.data_to_send(self.piece_size), b""))
        way = self.ways.get(link.number)
        if way is None:
            self.sent[link.number] = self.sent.get(link.number, b"") + data
        else:
            if data:
                way[1].receive_data(data)
            if link.closed and not way[1].closed:
                del self.ways[link.number]
                way[1].receive_eof()
                return True
        return bool(data)

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def advance(self, now: float) -> None:
        self.peer.advance(now)
        self.drain()

    def take(self, link: PeerLink) -> bytes:
        """The output of a link without a way since the last call."""
        self.drain()
        return self.sent.pop(link.number, b"")


def run(*nodes: Node) -> None:
    """Run all until nothing moves."""
    for _ in range(10_000):
        moved = [node.drain() for node in nodes]
        if not any(moved):
            return
    raise AssertionError("they do not come to rest")


def connect(client: Node, server: Node, *, sealed: bool = False) -> tuple[PeerLink, PeerLink]:
    """A connection that `client` has made."""
    if sealed:
        keys = [
            PrivateKey(sha256(f"{client.name} {server.name} {n}".encode()).digest()) for n in "01"
        ]
        far = server.peer.accepted(ephemeral=keys[0])
        near = client.peer.dialled(server.peer.me, ephemeral=keys[1])
    else:
        far = server.peer.attached(client.peer.me, role=SessionRole.SERVER)
        near = client.peer.attached(server.peer.me, role=SessionRole.CLIENT)
    client.ways[near.number], server.ways[far.number] = (server, far), (client, near)
    return near, far

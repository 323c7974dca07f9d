"""Replicators, feeds and conversations for the tests of Epidemic Broadcast Trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from culm.machine import Event
from culm.machines.ssb_lines import LineFormat, encode_fields
from culm.ssb.ebt import (
    Head,
    Message,
    Replicator,
    SessionRole,
    decode_notes,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.store import MemoryStore
from culm.testing import captures


def feed(name: str) -> str:
    """The id of a feed, the same for a name in every run."""
    return feed_id_of(sha256(name.encode()).digest())


ALICE, BOB, CAROL, DAVE, EVE = map(feed, ("alice", "bob", "carol", "dave", "eve"))


def message(author: str, sequence: int, previous: str | None, text: str = "") -> Message:
    """An unsigned message whose id is the hash of its bytes."""
    fields = {
        "previous": previous,
        "author": author,
        "sequence": sequence,
        "content": {"type": "post", "text": text},
    }
    return encode_fields(fields)


def chain(author: str, count: int, *, after: Head | None = None, text: str = "") -> list[Message]:
    """The next messages of a feed."""
    found: list[Message] = []
    for _ in range(count):
        sequence, previous = (1, None) if after is None else (after.sequence + 1, after.id)
        found.append(message(author, sequence, previous, text))
        after = Head(found[-1].sequence, found[-1].id)
    return found


class Host:
    """A replicator with its store, driven by the law."""

    def __init__(self, me: str, store: MemoryStore | None = None, **options: Any) -> None:
        self.store = MemoryStore() if store is None else store
        self.now = options.setdefault("now", 0.0)
        self.machine = captures.make(
            Replicator, me=me, stored=self.store.load(), format=LineFormat(), **options
        )
        self.events: list[Event] = []
        self.frames: dict[int, list[Any]] = {}

    def drain(self) -> None:
        """Events, effects and frames, until a round brings nothing."""
        moved = True
        while moved:
            moved = False
            while (event := self.machine.next_event()) is not None:
                self.events.append(event)
            while (effect := self.machine.next_effect()) is not None:
                self.machine.complete(effect.ticket, self.store.perform(effect))
                moved = True
            for number in self.machine.sessions_to_send():
                for frame in self.machine.frames_to_send(number):
                    self.frames.setdefault(number, []).append(json.loads(frame))
                    moved = True

    def take(self, session: int) -> list[Any]:
        """The frames for that session since the last call."""
        self.drain()
        return self.frames.pop(session, [])

    def tell(self, session: int, *frames: Any) -> list[Any]:
        """Give frames of the peer; the frames that it gets in return."""
        for frame in frames:
            self.give(session, frame)
        return self.take(session)

    def give(self, session: int, frame: Any) -> None:
        self.hear(session, frame)
        self.drain()

    def hear(self, session: int, frame: Any) -> None:
        """The same, without draining."""
        if "content" in frame:
            self.machine.receive_message(session, frame["author"], frame["sequence"], frame)
        else:
            self.machine.receive_notes(session, decode_notes(frame))

    def write(self, author: str, count: int, text: str = "") -> list[Message]:
        """Append messages to a feed."""
        found = chain(author, count, after=self.machine.head(author), text=text)
        for each in found:
            self.machine.append(each)
        self.drain()
        return found

    def accept(self, peer: str) -> int:
        """A session as its server."""
        number = self.machine.connect(peer, role=SessionRole.SERVER)
        self.drain()
        return number

    def dial(self, peer: str) -> int:
        """A session as its client."""
        number = self.machine.connect(peer, role=SessionRole.CLIENT)
        self.drain()
        return number

    def follow(self, *feeds: str) -> Host:
        for each in feeds:
            self.machine.follow(each)
        return self

    def advance(self, now: float) -> None:
        self.now = now
        self.machine.advance(now)
        self.drain()


def on(sequence: int) -> int:
    """The note with that sequence and the receive flag."""
    return sequence << 1


def off(sequence: int) -> int:
    return sequence << 1 | 1


def as_frames(messages: list[Message]) -> list[dict[str, object]]:
    return [json.loads(each.data) for each in messages]


def alice(**options: object) -> Host:
    """Alice, who follows herself and Bob."""
    return Host(ALICE, **options).follow(ALICE, BOB)  # type: ignore[arg-type]


class Pair:
    """Two hosts in one session: `client` has dialled `server`."""

    def __init__(self, client: Host, server: Host) -> None:
        self.client, self.server = client, server
        self.ends = {
            client: (client.dial(server.machine.me), server),
            server: (server.accept(client.machine.me), client),
        }
        self.said: list[tuple[Host, Any]] = []

    def run(self, *, hears: Callable[[Host], bool] = lambda host: True) -> Pair:
        """Carry frames until there are none."""
        moved = True
        while moved:
            moved = False
            for host, (session, other) in self.ends.items():
                for frame in host.take(session):
                    moved = True
                    self.said.append((host, frame))
                    if hears(other):
                        other.give(self.ends[other][0], frame)
        return self

    def end(self) -> None:
        for host, (session, _) in self.ends.items():
            host.machine.disconnect(session)
            host.drain()


def kinds(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]

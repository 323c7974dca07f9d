"""Faults are local: one wrong item costs its dependants, however the bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from peer_support import Node, feed_of, identity, packet

from culm.ssb.ebt import SessionEnded, SessionRole
from culm.ssb.messages import ClassicMessage, create_message
from culm.ssb.v8json import parse, stringify

AUTHORS = ("bob", "carol", "dave")
LENGTH = 3
OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'


def chain(author: str, count: int, text: str = "hello") -> list[ClassicMessage]:
    made: list[ClassicMessage] = []
    for number in range(count):
        content = {"type": "post", "text": text}
        last = made[-1].place if made else None
        made.append(create_message(identity(author), content=content, timestamp=number, last=last))
    return made


CHAINS = {author: chain(author, LENGTH + 1) for author in AUTHORS}
BRANCH = chain("bob", LENGTH + 1, "another branch")


def forged(message: ClassicMessage) -> bytes:
    """A signature by another author."""
    fields = parse(message.data)
    fields["signature"] = parse(BRANCH[0].data)["signature"]
    return stringify(fields).encode()


def changed(name: str, value: Any) -> Callable[[int], bytes]:
    """The message with another value in one field."""
    return lambda at: json.dumps({**json.loads(CHAINS["bob"][at].data), name: value}).encode()


NO_CONTENT: list[Any] = [None, 0, "", {}, False, "text", []]
NO_SEQUENCE: list[Any] = [None, 0, -1, 2.5, "2", 2**64, True, []]

# A frame to replace Bob's message at some index, and whether the session goes on.
WRONG = {
    "a signature": (lambda at: forged(CHAINS["bob"][at]), True),
    "another branch": (lambda at: BRANCH[at].data, True),
    "another layout": (lambda at: CHAINS["bob"][at].data.replace(b'"sha256"', b'"sha1"'), True),
    "no JSON": (lambda at: b"{", False),
    "null": (lambda at: b"null", False),
    "a note": (lambda at: b'{"@x":2}', False),
    "a list": (lambda at: b"[[[[" * 40, False),
    **{f"content {value!r}": (changed("content", value), True) for value in NO_CONTENT},
    **{f"sequence {value!r}": (changed("sequence", value), True) for value in NO_SEQUENCE},
    "no author": (changed("author", None), False),
    "too deep": (changed("content", {"a": parse("[" * 64 + "]" * 64)}), False),
}


def frames(kind: str, at: int) -> list[tuple[str | None, bytes]]:
    """All messages by turns, one of Bob's replaced; with the author, who is not named there."""
    found: list[tuple[str | None, bytes]] = []
    for index in range(LENGTH):
        for author in AUTHORS:
            wrong = author == "bob" and index == at
            data = WRONG[kind][0](at) if wrong else CHAINS[author][index].data
            found.append((None if wrong else author, data))
    return found


def kept(kind: str, at: int) -> dict[str, int]:
    """The number of stored messages of each feed in the end."""
    counts = dict.fromkeys(AUTHORS, 0)
    for author, _ in frames(kind, at):
        if author is None:
            if not WRONG[kind][1]:
                break
            counts["bob"] = -LENGTH  # no more of that feed
        elif author != "bob" or counts["bob"] >= 0:
            counts[author] += 1
    counts["bob"] = at
    return {feed_of(author): count for author, count in counts.items()}


def cuts(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    rng = Random(len(data))
    for step in (1000, 300, 50):
        places = sorted(rng.sample(range(len(data)), len(data) // step))
        ends = [*places, len(data)]
        yield [data[start:end] for start, end in zip([0, *places], ends, strict=True)]


@pytest.mark.parametrize("at", range(LENGTH))
@pytest.mark.parametrize("kind", WRONG)
def test_what_came_before_is_kept_and_what_is_independent_goes_on(kind: str, at: int) -> None:
    notes = {feed_of(author): 2 * LENGTH for author in AUTHORS}
    said = packet(1, OPEN) + packet(1, notes)
    said += b"".join(packet(1, data) for _, data in frames(kind, at))
    for pieces in cuts(said):
        node = Node("alice")
        for author in AUTHORS:
            node.peer.follow(feed_of(author))
        link = node.peer.attached(feed_of("eve"), role=SessionRole.SERVER)
        for piece in pieces:
            link.receive_data(piece)
            node.drain()
        assert not link.closed
        assert bool(node.told(SessionEnded)) is not WRONG[kind][1]
        stored = {feed: len(node.store.messages(feed)) for feed in notes}
        if kind == "another branch" and at == 0:  # either branch is as good
            assert stored.pop(feed_of("bob")) == 1
            assert stored.items() <= kept(kind, at).items()
        else:
            assert stored == kept(kind, at)

"""Recorded sessions of JavaScript peers are repeated: the same frames, byte for byte.

Either end is played by a replicator in turn; the other end follows the recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ebt_support import Host

from culm.ssb.ebt import Message, Replicator
from culm.ssb.store import MemoryStore
from vectors import load_json, load_json_lines

CLIENT, SERVER = "client->server", "server->client"


@dataclass(frozen=True)
class Frame:
    direction: str
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def is_message(self) -> bool:
        return "content" in self.value


def sessions(name: str) -> list[list[Frame]]:
    """The frames of each stream, without those that open and end it."""
    found: dict[tuple[int, int], list[Frame]] = {}
    for packet in load_json_lines(f"ssb/{name}"):
        body = bytes.fromhex(packet["hex"])[9:]
        if not packet["req"]:
            continue  # a goodbye
        frames = found.setdefault((packet["session"], abs(packet["req"])), [])
        if not packet["end"] and b'"name":["ebt"' not in body:
            frames.append(Frame(packet["dir"], body))
    return list(found.values())


def identities() -> dict[str, str]:
    keys = load_json("ssb/keys.json")
    return {SERVER: keys["alice"]["id"], CLIENT: keys["bob"]["id"]}


class Verbatim:
    """Accepts every message as it came."""

    def check(self, previous: str | None, received: bytes) -> Message:
        value = json.loads(received)
        return Message(value["author"], value["sequence"], f"%{value['sequence']}", received)


class Player(Host):
    """One end of the recorded sessions; its store lasts from one to the next."""

    def __init__(self, direction: str, store: MemoryStore) -> None:
        super().__init__(identities()[direction], store)
        self.machine = Replicator(
            me=identities()[direction], stored=store.load(), format=Verbatim(), now=0.0
        )
        self.said: list[bytes] = []

    def drain(self) -> None:
        while True:
            while self.machine.next_event() is not None:
                pass
            while (effect := self.machine.next_effect()) is not None:
                self.machine.complete(effect.ticket, self.store.perform(effect))
            frames = [
                frame
                for number in self.machine.sessions_to_send()
                for frame in self.machine.frames_to_send(number)
            ]
            if not frames:
                return
            self.said += frames

    def hear(self, session: int, frame: Frame) -> None:
        if frame.is_message:
            value = frame.value
            self.machine.receive_message(session, value["author"], value["sequence"], frame.body)
        else:
            self.machine.receive_notes(session, frame.value)
        self.drain()

    def publish(self, frames: list[Frame]) -> None:
        """Messages that the user of this end had published before the session."""
        for frame in frames:
            value = frame.value
            if self.machine.clock.get(value["author"], 0) < value["sequence"]:
                self.machine.append(Message(value["author"], value["sequence"], "%", frame.body))
                self.drain()


def published(name: str, direction: str) -> list[list[Frame]]:
    """The messages that the user of that end had published before each session."""
    there: list[Frame] = []
    found: list[list[Frame]] = []
    for frames in sessions(name):
        there += [frame for frame in frames if frame.is_message and frame.direction == direction]
        found.append(list(there))
    if direction == SERVER and not there:  # it had three messages, which were never asked for
        return [published("session-3-messages.jsonl", SERVER)[-1]] * len(found)
    return found


def played(name: str, direction: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The recorded frames of one end, and a replicator's in its place, by session."""
    store, names = MemoryStore(), identities()
    for frames, own in zip(sessions(name), published(name, direction), strict=True):
        player = Player(direction, store)
        player.publish(own)
        if direction == CLIENT:
            player.follow(names[CLIENT], names[SERVER])
            session = player.dial(names[SERVER])
        else:  # at the end it follows the client, too
            player.follow(names[SERVER])
            if any(frame.is_message and frame.direction == CLIENT for frame in frames):
                player.follow(names[CLIENT])
            session = player.accept(names[CLIENT])
        for frame in frames:
            if frame.direction != direction:
                player.hear(session, frame)
        player.machine.disconnect(session)
        player.drain()
        yield [frame.body for frame in frames if frame.direction == direction], player.said


@pytest.mark.parametrize("direction", [CLIENT, SERVER])
@pytest.mark.parametrize(
    "name", ["session-3-messages.jsonl", "session-close.jsonl", "session-reconnect.jsonl"]
)
def test_sessions_of_javascript_peers_are_replayed(name: str, direction: str) -> None:
    """In one of them the client closes before it has said anything, and sometimes both do.

    There is one addition, or replacement of a refusal: our position in our own feed, in the first
    notes of each session.
    """
    me = identities()[direction]
    found = [(recorded, said) for recorded, said in played(name, direction) if recorded]
    for recorded, said in found:
        ours, theirs = json.loads(said[0]), json.loads(recorded[0])
        assert json.dumps(ours, separators=(",", ":")).encode() == said[0]
        own = ours.pop(me)
        assert own // 2 == theirs.pop(me, own) // 2  # the same length
        assert [json.dumps(ours), *said[1:]] == [json.dumps(theirs), *recorded[1:]]
    assert found or (name, direction) == ("session-close.jsonl", CLIENT)

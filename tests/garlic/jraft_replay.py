"""A node of ours takes the place of one server of a recorded JRaft cluster.

The node receives everything that was sent to that server, and must send everything that the server
sent, byte for byte and in this order on each connection.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import vectors
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.limits import Limits, Timing
from culm.garlic.link import Link
from culm.garlic.messages import (
    REQUEST_HEADER_SIZE,
    RESPONSE_OF,
    MessageType,
    RequestFrame,
    ResponseFrame,
)
from culm.garlic.node import Node
from culm.garlic.raft import Configuration, Entry, Server, Stored
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.store import MemoryStore
from culm.garlic.values import decode_entries, encode_log
from culm.testing.raft_store_model import Values

LIMITS = Limits()
# The settings with which the transcripts were recorded.
TIMING = RaftTiming(
    election_timeout_min_s=3.0,
    election_timeout_max_s=5.0,
    heartbeat_interval_s=1.5,
    request_timeout_s=2.5,
)
RAFT_LIMITS = RaftLimits(append_entries_max=5, sync_gap=5, chunk_size=4096)


def frames(name: str) -> list[dict[str, Any]]:
    lines = vectors.load_json_lines(f"jraft/{name}.jsonl")
    return [line for line in lines if line["ev"] == "frame"]


def recorded_server(number: int) -> Server:
    return Server(number, f"tcp://127.0.0.1:{9000 + number}")


FOUNDERS = tuple(recorded_server(number) for number in (1, 2, 3))
FOUNDING = Stored.founding(FOUNDERS)
# The first entry of the recorded cluster
FIRST = Entry(1, Configuration(1, 0, FOUNDERS))


class Actor:
    """The node, its connections by the recorded number, and the bytes that it has sent on each."""

    def __init__(self, number: int, stored: Stored, *, timing: RaftTiming = TIMING) -> None:
        self.number = number
        self.now = 0.0
        self.store = MemoryStore(Values(), stored)
        self.node = Node(
            server_id=number,
            stored=self.store.load(),
            rng=random.Random(number),
            now=0.0,
            timing=Timing(raft=timing),
            limits=replace(LIMITS, raft=RAFT_LIMITS),
        )
        self.links: dict[object, Link] = {}
        self.sent: dict[object, bytearray] = defaultdict(bytearray)
        self.closed: dict[int, LinkClosed] = {}

    def drain(self) -> None:
        while True:
            event = self.node.next_event()
            if isinstance(event, DialWanted):
                peer = event.server.server_id
                self.links["to", peer] = self.node.dialled(peer)
            elif isinstance(event, LinkClosed):
                self.closed[event.link] = event
            elif event is None:
                effect = self.node.next_effect()
                if effect is None:
                    break
                self.node.complete(effect.ticket, self.store.perform(effect))
        for link in self.node.links_to_send():
            key = next(key for key, one in self.links.items() if one is link)
            self.sent[key] += link.data_to_send()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.node.advance(self.now)
        self.drain()

    def receive(self, key: object, data: bytes) -> None:
        """Bytes on a connection, which is accepted if it is new."""
        if key not in self.links:
            self.links[key] = self.node.accepted()
        self.links[key].receive_data(data)
        self.drain()

    def take_request(self, peer: int) -> bytes | None:
        """The next request to `peer`."""
        sent = self.sent["to", peer]
        if not sent:
            return None
        header = bytes(sent[:REQUEST_HEADER_SIZE])
        size = REQUEST_HEADER_SIZE + RequestFrame.log_size(header, LIMITS)
        data = bytes(sent[:size])
        del sent[:size]
        return data

    # Reaching the state in which a transcript begins

    def follow(self, leader: int, term: int, log: Sequence[Entry], commit: int) -> None:
        """Hear that leader: its log becomes ours, and its leadership is known."""
        request = RequestFrame(
            type=MessageType.APPEND_ENTRIES_REQUEST,
            source=leader,
            destination=self.number,
            term=term,
            last_log_term=0,
            last_log_index=0,
            commit_index=commit,
            log=encode_log(log),
        )
        self.receive("prelude", request.encode())
        assert ResponseFrame.decode(bytes(self.sent.pop("prelude")), LIMITS).accepted

    def lead(self, values: Sequence[bytes], *, until: int) -> None:
        """Be elected in term 1, and let the followers accept `values`."""
        while self.node.leader != self.number:
            self.wait(0.1)
            self.satisfy()
        for value in values:
            self.node.propose([value])
            self.drain()
            self.satisfy()
        assert self.node.commit_index == until

    def satisfy(self) -> None:
        """The followers agree to everything."""
        busy = True
        while busy:
            busy = False
            for key in list(self.sent):
                if isinstance(key, tuple) and (data := self.take_request(key[1])) is not None:
                    busy = True
                    self.answer(key[1], data)

    def answer(self, peer: int, data: bytes) -> None:
        request = RequestFrame.decode(
            data[:REQUEST_HEADER_SIZE], data[REQUEST_HEADER_SIZE:], LIMITS
        )
        end = request.last_log_index + len(decode_entries(request.log, LIMITS)) + 1
        response = ResponseFrame(
            type=RESPONSE_OF[request.type],
            source=peer,
            destination=self.number,
            term=request.term,
            next_index=end if request.type is MessageType.APPEND_ENTRIES_REQUEST else 0,
            accepted=True,
        )
        self.receive(("to", peer), response.encode())

    # The transcript

    def play(self, recorded: Sequence[dict[str, Any]]) -> int:
        """Go through the frames; returns the number of ours among them."""
        ours = 0
        for frame in recorded:
            data, asks = bytes.fromhex(frame["hex"]), frame["dir"] == "req"
            if frame["listener"] == self.number and asks:
                self.receive(frame["conn"], data)
            elif frame["listener"] == self.number:
                sent = self.sent[frame["conn"]]
                assert bytes(sent[: len(data)]).hex() == data.hex(), frame
                del sent[: len(data)]
                ours += 1
            elif frame["dialer"] == self.number and asks:
                peer = frame["listener"]
                assert self._next_to(peer, data).hex() == data.hex(), frame
                ours += 1
            elif frame["dialer"] == self.number:
                self.receive(("to", frame["listener"]), data)
        return ours

    def _next_to(self, peer: int, wanted: bytes) -> bytes:
        """The next request to `peer`; time passes if it is a heartbeat or an election.

        A heartbeat that the recorded server did not send then is answered and left out.
        """
        for _ in range(60):
            data = self.take_request(peer)
            if data is None:
                self.wait(0.1)
            elif data != wanted and data[0] == 3 and len(data) == REQUEST_HEADER_SIZE:
                self.answer(peer, data)
            else:
                return data
        raise AssertionError(f"nothing is sent to {peer}")

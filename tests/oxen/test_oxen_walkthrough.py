"""The specification's walk-through: A sends B a message by way of P, in seven parcels."""

from __future__ import annotations

import re
from pathlib import Path

from oxen_support import EPOCH, Dice

from culm.oxen import Limits, MessageReceived, Node, Timing
from culm.oxen.messages import MessageAck, MessageData, Parcel, decode_parcel

A, P, B = b"A", b"P", b"B"
PAGE = Path(__file__).parents[2] / "docs" / "oxen.md"

# No node is asked or told anything about itself while the message is on its way: all links were
# used half a keepalive interval ago or more, and gossip is between two rounds.
TIMING = Timing(keepalive_s=120.0, usable_s=400.0, gossip_s=16.0)

SEVEN = """\
A to P: { ka: 123, md: { to: "B", fr: "A", id: 9999, d: "...data..." } }
P to A: { kk: 123 }
P to B: { ka: 456, md: { to: "B", fr: "A", id: 9999, d: "...data..." } }
B to P: { kk: 456, ka: 345, ma: { to: "A", fr: "B", id: 9999 } }
P to A: { ka: 789, ma: { to: "A", fr: "B", id: 9999 } }
P to B: { kk: 345 }
A to P: { kk: 789 }
"""


def written(parcel: Parcel) -> str:
    """A parcel in the specification's notation."""
    fields = []
    if parcel.kk is not None:
        fields.append(f"kk: {parcel.kk}")
    if parcel.ka is not None:
        fields.append(f"ka: {parcel.ka}")
    match parcel.body:
        case MessageData(to, fr, id, bytes(data)):
            to, fr, data = (each.decode() for each in (to, fr, data))  # type: ignore[misc]
            fields.append(f'md: {{ to: "{to}", fr: "{fr}", id: {id}, d: "{data}" }}')  # type: ignore[str-bytes-safe]
        case MessageAck(to, fr, id):
            fields.append(f'ma: {{ to: "{to.decode()}", fr: "{fr.decode()}", id: {id} }}')
    return f"{{ {', '.join(fields)} }}"


class Three:
    """A, P and B; A and B cannot communicate directly."""

    def __init__(self) -> None:
        self.dice = {sid: Dice(index) for index, sid in enumerate((A, P, B), 7)}
        self.nodes = {
            sid: Node(me=sid, rng=self.dice[sid], epoch=EPOCH, timing=TIMING, limits=Limits())
            for sid in (A, P, B)
        }
        self.log: list[str] = []
        self.messages: list[tuple[bytes, MessageReceived]] = []

    def run(self, until: float) -> None:
        while True:
            deadlines = [node.next_deadline() for node in self.nodes.values()]
            now = min([until, *(time for time in deadlines if time is not None)])
            for node in self.nodes.values():
                node.advance(now)
            self.settle()
            if now >= until:
                return

    def settle(self) -> None:
        """Deliver one datagram after the other, until there is none."""
        under_way: list[tuple[bytes, bytes, bytes]] = []
        for sid in self.nodes:
            under_way += self._drained(sid)
        while under_way:
            fr, to, data = under_way.pop(0)
            if {fr, to} != {A, B}:
                self.log.append(f"{fr.decode()} to {to.decode()}: {written(decode_parcel(data))}\n")
                self.nodes[to].receive_datagram(data, source=fr)
                under_way += self._drained(to)

    def _drained(self, sid: bytes) -> list[tuple[bytes, bytes, bytes]]:
        node = self.nodes[sid]
        while (event := node.next_event()) is not None:
            if isinstance(event, MessageReceived):
                self.messages.append((sid, event))
        return [(sid, to, data) for to, data in node.datagrams_to_send()]  # type: ignore[misc]


def test_seven_messages_exactly() -> None:
    three = Three()
    three.run(1.0)
    three.nodes[P].start()
    three.nodes[A].join(P)
    three.nodes[B].join(P)
    three.run(62.5)
    for sid, ids in ((A, [9999, 123]), (P, [456, 789]), (B, [345])):
        three.dice[sid].script.extend(ids)
    three.log.clear()
    before = {sid: three.nodes[sid].contacts()[sid] for sid in three.nodes}
    three.nodes[A].send(B, b"...data...")
    three.settle()
    assert "".join(three.log) == SEVEN
    ((receiver, message),) = three.messages
    assert (receiver, message.peer, message.data) == (B, A, b"...data...")
    assert three.nodes[A].peers()[B].queued == 0
    # Last contact figures in both directions for 2 links between 3 hosts.
    fresh = {
        (sid, to)
        for sid, node in three.nodes.items()
        for to, time in node.contacts()[sid].items()
        if time > before[sid].get(to, 0.0)
    }
    assert fresh == {(A, P), (P, A), (P, B), (B, P)}
    three.log.clear()
    three.settle()
    assert three.log == []


def test_the_page_shows_these_seven() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"```text\n{SEVEN}```" in page
    assert len(re.findall(r"^[APB] to [APB]: ", page, flags=re.M)) >= 7

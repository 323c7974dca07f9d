"""Whole conversations of a cluster, parcel by parcel, as kept in ``tests/transcripts/oxen``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.oxen import Node, Timing
from culm.oxen.messages import (
    Gossip,
    MessageAck,
    MessageData,
    decode_parcel,
)
from culm.testing import transcript
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

EPOCH = 1_420_070_400.0  # so that numbers are short
A, B, C = b"A", b"B", b"C"

# No node is asked or told anything about itself while something else is under way.
QUIET = Timing(
    keepalive_s=40.0,
    usable_s=100.0,
    give_up_s=100.0,
    forget_s=900.0,
    gossip_s=20.0,
    keepalive_retry_s=10.0,
)


def shown(data: bytes) -> str:
    """A parcel in the specification's notation."""
    ka, kk, body = decode_parcel(data)
    said = [f"{key}: {value:08x}" for key, value in (("ka", ka), ("kk", kk)) if value is not None]
    match body:
        case MessageData(to, fr, id, d):
            wanted = "" if id is None else f", id: {id:08x}"
            said.append(f"md: {{to: {to.decode()}, fr: {fr.decode()}{wanted}, d: {_plain(d)}}}")
        case MessageAck(to, fr, id):
            said.append(f"ma: {{to: {to.decode()}, fr: {fr.decode()}, id: {id:08x}}}")
        case Gossip(rows, columns):
            ages = {
                fr.decode(): [_seconds(time) for time in row] for fr, row in sorted(rows.items())
            }
            said.append(f"lc: {ages}, p: {[sid.decode() for sid in columns]}")
    return f"{{{', '.join(said)}}}"


def _plain(value: object) -> str:
    match value:
        case bytes():
            return repr(value)[1:]
        case dict():
            return (
                f"{{{', '.join(f'{key.decode()}: {_plain(value[key])}' for key in sorted(value))}}}"
            )
    return str(value)


def _seconds(time: float) -> str:
    return "-" if time == 0 else f"{time - EPOCH:g}"


class Talk:
    """A cluster with letters for names; the network has a delay and no faults."""

    def __init__(self, *sids: bytes) -> None:
        self.network = Network(seed=1, conditions=Conditions(delay_min=0.01, delay_max=0.01))
        self.cluster = Cluster(self.network, records=True)
        for sid in sids:
            self.cluster.add(sid, self._build)
        self.cluster[sids[0]].call("start")

    def _build(self, host: Host) -> Node:
        assert isinstance(host.address, bytes)
        rng = self.network.random(f"{host.address!r} {host.incarnation}")
        return Node(me=host.address, rng=rng, epoch=EPOCH, timing=QUIET)

    def run(self, seconds: float) -> None:
        self.network.run(self.network.clock.now + seconds)

    def call(self, sid: bytes, verb: str, /, **arguments: object) -> None:
        self.cluster[sid].call(verb, **arguments)

    def joined(self) -> None:
        """Let all nodes join, and forget that traffic."""
        first, *others = self.cluster.nodes
        for sid in others:
            self.call(sid, "join", sid=first)  # type: ignore[arg-type]
        self.run(1.0)
        self.cluster.log.clear()


def joining_talking_and_leaving() -> Talk:
    talk = Talk(A, B)
    talk.call(B, "join", sid=A)
    talk.run(0.5)
    talk.call(A, "send", to=B, data=b"plain")
    talk.run(0.1)
    talk.call(B, "send_in_order", to=A, data=b"one")
    talk.call(B, "send_in_order", to=A, data=b"two")
    talk.call(B, "broadcast_in_order", data=b"to all")
    talk.run(0.1)
    talk.call(B, "leave")
    talk.run(0.5)
    return talk


def a_third_hears_of_the_second() -> Talk:
    talk = Talk(A, B, C)
    talk.call(B, "join", sid=A)
    talk.run(0.5)
    talk.cluster.log.clear()
    talk.call(C, "join", sid=A)
    talk.run(0.5)
    return talk


def a_message_is_lost_and_then_its_acknowledgement() -> Talk:
    talk = Talk(A, B)
    talk.joined()
    talk.network.cut(A, B, one_way=True)
    talk.call(A, "send_in_order", to=B, data=b"first")
    talk.run(0.5)
    talk.network.heal()
    talk.network.cut(B, A, one_way=True)
    talk.run(1.0)
    talk.network.heal()
    talk.run(3.0)
    return talk


def around_a_broken_link() -> Talk:
    talk = Talk(A, B, C)
    talk.joined()
    talk.network.cut(B, C)
    talk.run(150.0)
    talk.cluster.log.clear()
    talk.call(B, "send_in_order", to=C, data=b"by way of A")
    talk.run(0.5)
    return talk


def given_up_and_reachable_again() -> Talk:
    talk = Talk(A, B)
    talk.joined()
    talk.network.cut(A, B)
    talk.run(90.0)
    talk.call(A, "send_in_order", to=B, data=b"in vain")
    talk.run(115.0)
    talk.cluster.log.clear()
    talk.run(10.0)
    talk.network.heal()
    talk.run(40.0)
    talk.call(A, "send_in_order", to=B, data=b"afterwards")
    talk.run(0.5)
    return talk


def a_peer_starts_anew() -> Talk:
    talk = Talk(A, B)
    talk.joined()
    talk.cluster[B].crash()
    talk.call(A, "send_in_order", to=B, data=b"to the former B")
    talk.run(0.5)
    talk.cluster[B].start()
    talk.call(B, "join", sid=A)
    talk.run(4.0)
    talk.call(A, "send_in_order", to=B, data=b"to the new B")
    talk.run(0.5)
    return talk


@pytest.mark.parametrize(
    "tell",
    [
        joining_talking_and_leaving,
        a_third_hears_of_the_second,
        a_message_is_lost_and_then_its_acknowledgement,
        around_a_broken_link,
        given_up_and_reachable_again,
        a_peer_starts_anew,
    ],
)
def test_conversation(
    tell: Callable[[], Talk], same_transcript: Callable[[str, str], None]
) -> None:
    text = transcript.of_cluster(tell().cluster, shown)
    same_transcript(f"oxen/{tell.__name__.replace('_', '-')}", text)

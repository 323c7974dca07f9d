"""Parcels that go round in circles among forwarders: each circle ends, and soon."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import permutations

import pytest
from oxen_simulation import EPOCH
from oxen_support import Table, all_joined, joining

from culm.oxen import DropReason, Limits
from culm.oxen.messages import (
    Body,
    Gossip,
    MessageAck,
    MessageData,
    Parcel,
    Synchronize,
    decode_parcel,
    encode_parcel,
    write_message,
)
from culm.testing.cluster import Cluster
from culm.testing.network import Conditions, Network

NAMES = [b"A", b"B", b"C", b"D"]
PLAIN = b"round and round"


class CountingNetwork(Network):
    """Counts the parcels that are forwarded: those from others than their sender."""

    forwarded = 0

    def send(self, source: Hashable, destination: Hashable, payload: bytes) -> None:
        body = decode_parcel(payload).body
        if isinstance(body, MessageData | MessageAck) and body.fr != source:
            self.forwarded += 1
        super().send(source, destination, payload)


def four(limits: Limits) -> tuple[CountingNetwork, Cluster]:
    """Four nodes, all joined, with a millisecond or two between them."""
    network = CountingNetwork(seed=1, conditions=Conditions(delay_min=0.0005, delay_max=0.002))
    cluster = joining(network, NAMES, limits=limits)
    assert network.run(10.0, done=lambda: all_joined(cluster))
    network.run(12.0)
    return network, cluster


def forge(network: Network, source: bytes, to: bytes, body: Body) -> None:
    Network.send(network, source, to, encode_parcel(Parcel(None, None, body)))


def deceived(limits: Limits) -> tuple[CountingNetwork, Cluster]:
    """The last of four has died, and seems to the others to be in touch with all of them.

    Parcels for it go round among the three, as their tables say.
    """
    network, cluster = four(limits)
    cluster[b"D"].crash()
    network.run(network.clock.now + 21.0)
    gossip = Gossip({sid: [EPOCH + network.clock.now] for sid in NAMES[:3]}, [b"D"])
    for source, to in permutations(NAMES[:3], 2):
        forge(network, source, to, gossip)
    network.run(network.clock.now + 0.01)
    network.forwarded = 0
    return network, cluster


@pytest.mark.parametrize("id", [None, 5])
@pytest.mark.parametrize("message", [PLAIN, write_message(Synchronize(3, 1200))])
def test_what_a_server_is_said_to_send_to_itself_is_not_forwarded(
    id: int | None, message: bytes
) -> None:
    """It never goes back to its origin, and so could never arrive.

    One such datagram in a member's name went round among three servers for ever, at the speed of
    the wire.
    """
    table = Table()
    for sid in (b"P", b"Q", b"R"):
        table.join(sid)
    table.said()
    table.tell(b"P", MessageData(b"Q", b"Q", id, message))
    assert table.said() == []
    assert table.node.dropped[DropReason.MALFORMED] == 1


@pytest.mark.parametrize("forwards_max", [1, 4096])
@pytest.mark.parametrize("fr", [b"D", b"E"])
@pytest.mark.parametrize("id", [None, 5])
def test_a_forged_parcel_does_not_circle_for_ever(
    fr: bytes, id: int | None, forwards_max: int
) -> None:
    """Law 2: whoever the sender and wherever it comes in, it has left the cluster soon."""
    network, _ = deceived(Limits(forwards_max=forwards_max))
    for source, to in permutations(NAMES[:3], 2):
        forge(network, source, to, MessageData(b"D", fr, id, PLAIN))
    network.run(network.clock.now + 15.0)
    told = network.forwarded
    assert told <= 6 * 27  # at most nine times past each of three servers
    network.run(network.clock.now + 5.0)
    assert network.forwarded == told


@pytest.mark.parametrize("id", [None, 5])
def test_more_of_them_than_can_be_remembered_do_not_circle_either(id: int | None) -> None:
    network, _ = deceived(Limits(forwards_max=16))
    for number in range(20):
        body = MessageData(b"D", b"E", id and id + number, PLAIN + b"%d" % number)
        forge(network, b"C", b"A", body)
    network.run(network.clock.now + 15.0)
    told = network.forwarded
    assert told <= 20 * 27
    network.run(network.clock.now + 5.0)
    assert network.forwarded == told

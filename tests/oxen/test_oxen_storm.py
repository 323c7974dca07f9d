"""The cost of many servers joining one at the same moment: counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from math import log2

import pytest

from culm.oxen import Limits, Node, PeerState
from culm.oxen.messages import decode_parcel
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network

# Two that meet need three synchronize messages with their acknowledgements, four if both begin at
# once, and one portion of gossip to each: eight to ten datagrams.
FOR_EACH_OTHER = 5.0
JOIN_BOUND_S = 5.0


class CountingNetwork(Network):
    """Counts datagrams by the kinds of their bodies."""

    def __init__(self, *, seed: int) -> None:
        super().__init__(seed=seed, conditions=Conditions(delay_min=0.005, delay_max=0.05))
        self.bodies: Counter[str] = Counter()

    def send(self, source: Hashable, destination: Hashable, payload: bytes) -> None:
        self.bodies[type(decode_parcel(payload).body).__name__] += 1
        super().send(source, destination, payload)


def storm(size: int) -> tuple[float, float]:
    """`size` nodes join one of them at once, until all have joined with all.

    Datagrams from each node to each other one: with a body, and with keepalives alone.
    """
    network = CountingNetwork(seed=size)
    cluster = Cluster(network)
    names = [b"N%03d" % index for index in range(size)]

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        return Node(
            me=host.address,
            rng=network.random(repr(host.address)),
            epoch=1.7e9,
            limits=Limits(candidates_max=256),
        )

    for sid in names:
        cluster.add(sid, build)
    cluster[names[0]].call("start")
    for sid in names[1:]:
        cluster[sid].call("join", sid=names[0])

    def joined() -> bool:
        return all(
            sum(view.state is PeerState.JOINED for view in host.machine.peers().values())
            == size - 1
            for host in cluster
        )

    while not joined():
        assert network.clock.now < JOIN_BOUND_S
        network.run(network.clock.now + 0.5)
    alone = network.bodies.pop("NoneType", 0)
    pairs = size * (size - 1)
    return sum(network.bodies.values()) / pairs, alone / pairs


def test_a_storm_of_joins_costs_what_the_square_of_its_size_is() -> None:
    """No node asks others to forward where its own way is untried."""
    (small, alone), (large, none) = storm(6), storm(12)
    assert alone < 0.1
    assert none < 0.1
    assert max(small, large) <= FOR_EACH_OTHER
    assert 2 + log2(large / small) < 2.15  # the exponent of the size


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_storm_of_256_costs_no_more_for_each_other() -> None:
    bodies, alone = storm(256)
    assert bodies <= FOR_EACH_OTHER
    assert alone < 0.3

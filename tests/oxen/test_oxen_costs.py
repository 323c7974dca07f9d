"""The cost of a message and of an idle node on the wire, as on the page: counted, not timed."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from oxen_support import all_joined, joining

from culm.oxen import MessageReceived
from culm.testing.cluster import Cluster
from culm.testing.network import Conditions, Network

PAGE = Path(__file__).resolve().parents[2] / "docs" / "oxen.md"
ROWS = re.findall(r"^\| (\d+) \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
SECONDS = 30.0


def joined(size: int) -> Cluster:
    """A cluster in which all nodes know each other, and all is quiet."""
    network = Network(seed=size, conditions=Conditions(delay_min=0.01, delay_max=0.03))
    cluster = joining(network, [b"N%02d" % index for index in range(size)])
    network.run(30.0)
    assert all_joined(cluster)
    return cluster


def test_the_page_has_the_costs_of_three_sizes() -> None:
    assert [int(size) for size, _ in ROWS] == [3, 16, 64]


@pytest.mark.once
@pytest.mark.parametrize(
    ("size", "told"),
    [pytest.param(*row, marks=[pytest.mark.slow] if int(row[0]) > 16 else []) for row in ROWS],
)
def test_an_idle_node_costs_what_the_page_says(size: str, told: str) -> None:
    cluster = joined(int(size))
    network, peers = cluster.network, int(size) - 1
    before = network.statistics()
    network.run(network.clock.now + SECONDS)
    after = network.statistics()
    node_seconds = SECONDS * int(size)
    assert round((after.sent_bytes - before.sent_bytes) / node_seconds / 1000, 1) == float(told)
    datagrams = (after.sent - before.sent) / node_seconds
    assert (datagrams - 1) / peers == pytest.approx(0.3, abs=0.05)


def test_a_message_costs_two_datagrams() -> None:
    """Beyond the traffic of idle nodes; keepalives that ride along make it less."""
    count = 200
    cluster = joined(3)
    network, hosts, rng = cluster.network, list(cluster), Random(1)
    before = network.statistics().sent
    network.run(network.clock.now + SECONDS)
    idle = network.statistics().sent - before
    for number in range(count):
        one, other = rng.sample(hosts, 2)
        one.call("send_in_order", to=other.address, data=bytes(100))
        network.run(60.0 + (number + 1) * SECONDS / count)
    busy = network.statistics().sent - before - idle
    assert sum(
        isinstance(event, MessageReceived) for host in hosts for _, event in host.events
    ) == (count)
    assert 1.8 < (busy - idle) / count <= 2.0

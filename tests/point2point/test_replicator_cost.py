"""What replicating costs on the wire (``benchmarks/test_point2point_cost.py`` takes it apart)."""

from __future__ import annotations

import pytest
from replicator_support import FETCH, KEEP, SERVE, World, news_of, same, store_of

from culm.point2point.replication import Interest, ReplicatorLimits

COUNT, PAYLOAD_SIZE = 1000, 100
# Tag, size, hash of the payload, signature, and three bytes for all the rest.
BOUND = 1 + 1 + 66 + 64 + 3


@pytest.mark.parametrize("interest", [KEEP, FETCH])
@pytest.mark.parametrize("proactive", [True, False])
def test_an_entry_of_a_whole_log_costs_what_it_has_to(interest: Interest, proactive: bool) -> None:
    """Backlinks and lipmaalinks are left out; bymux and both directions are counted, too."""
    limits = ReplicatorLimits()
    world = World()
    server = world.node(store_of(news_of((PAYLOAD_SIZE,) * COUNT)), interest=SERVE, limits=limits)
    reader = world.node(interest=interest, limits=limits)
    world.connect(*(reader, server) if proactive else (server, reader))
    world.settle()
    assert same(server, reader)
    sent = server.end.sent_size + reader.end.sent_size
    assert (sent - COUNT * PAYLOAD_SIZE) / COUNT <= BOUND

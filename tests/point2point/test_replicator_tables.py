"""A replicator's knowledge of many logs and requests: its limits, and its cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from p2p_support import cancel, marker, propose, steps
from replicator_raw import RawPeer
from replicator_support import KEEP, SERVE, SMALL, key_of, news_of

from culm.bamboo.entry import LogKey
from culm.machines.memory import retained_size
from culm.point2point import CancelReason
from culm.point2point.replication import ReplicatorLimits

LOG_SIZE_MAX = 8 << 10  # bytes for each tracked log
AUTHOR = bytes(31)


def unknown(number: int) -> LogKey:
    """One of the logs that no node has."""
    return LogKey(AUTHOR + b"\1", number)


def limited(**limits: int) -> ReplicatorLimits:
    return replace(SMALL, connection=replace(SMALL.connection, requests_max=8), **limits)


def offer(peer: RawPeer, count: int, first: int = 0, *, refused: bool = True) -> None:
    """Propose `count` logs without end, each for a moment.

    refused: whether the peer refuses the proposals for them in return.
    """
    for number in range(first, first + count):
        peer.control(propose(2 * number, 1, log=unknown(number)))
        peer.control(cancel(2 * number))
        peer.data(marker(2 * number))
        for request in list(peer.machine.connection.requests.values()):
            if request.ours and refused:
                peer.control(cancel(request.request_id, 129))
                peer.data(marker(request.request_id))


@pytest.mark.parametrize("slow", [False, True])
def test_proposals_for_new_logs_without_end(slow: bool) -> None:
    """Only a limited number is tracked; even while the store does not answer."""
    limits = limited(logs_max=16, outstanding_max=32)
    peer = RawPeer(interest=KEEP, limits=limits, credit=1 << 20, slow=slow)
    offer(peer, 64)
    full = retained_size(peer.machine)
    offer(peer, 200, first=64)
    assert len(peer.machine.logs) <= 16
    assert retained_size(peer.machine) < full + 4096
    if not slow:  # each has had a place, as the one before it had nothing left to do
        assert cancel(2 * 100, CancelReason.RESOURCE_LIMIT)[:2] not in peer.control_seen


def test_a_proposal_for_which_no_log_makes_way() -> None:
    """It waits for a place, and is refused once nothing else moves."""
    peer = RawPeer(interest=KEEP, limits=limited(logs_max=16, outstanding_max=32), credit=1 << 20)
    offer(peer, 16, refused=False)
    peer.control(propose(2 * 16, 1, log=unknown(16)))
    refusal = cancel(2 * 16, CancelReason.RESOURCE_LIMIT)[:2]
    assert refusal not in peer.control_seen
    peer.machine.advance(0.0)
    deadline = peer.machine.next_deadline()
    assert deadline is not None
    peer.machine.advance(deadline)
    peer.drain()
    assert peer.control_seen.endswith(refusal)
    assert len(peer.machine.logs) == 16


def test_proposals_for_logs_that_are_not_taken() -> None:
    peer = RawPeer(interest=SERVE, limits=limited(), credit=1 << 20)
    offer(peer, 16)
    before = retained_size(peer.machine)
    offer(peer, 400, first=16)
    assert not peer.machine.logs
    assert retained_size(peer.machine) < before + 2048


def test_what_a_log_costs() -> None:
    """`logs_max` times that, at most."""
    costs = []
    for count in (100, 300):
        peer = RawPeer(interest=KEEP, limits=limited(logs_max=1000), credit=1 << 20)
        offer(peer, count)
        assert len(peer.machine.logs) == count
        costs.append(retained_size(peer.machine))
    assert (costs[1] - costs[0]) / 200 < LOG_SIZE_MAX


def test_news_of_a_log_cost_nothing_for_the_requests_of_others() -> None:
    def cost(others: int) -> int:
        logs = [news_of((1,), log_id=number) for number in range(others + 1)]
        limits = replace(SMALL, connection=replace(SMALL.connection, requests_max=1000))
        peer = RawPeer(*logs, interest=SERVE, limits=limits, credit=0)
        for number, news in enumerate(logs):
            peer.control(propose(2 * number, 1, log=key_of(news)))
        assert len(peer.machine.connection.requests) == others + 1
        log = key_of(logs[0])
        return steps(lambda: (peer.machine.stored(log), peer.drain()))

    assert cost(10) == cost(200)

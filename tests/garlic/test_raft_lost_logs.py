"""A follower that returns with less than it has confirmed is reported, and served again."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from garlic_cluster import CORE_LIMITS, Cluster
from raft_lab import Lab, all_of, founders, one

from culm.garlic.raft import ErrorCode, PeerFault
from culm.garlic.raft.messages import AppendRequest, Message
from culm.garlic.raft.progress import Progress


def to(messages: list[Message], peer: int) -> AppendRequest:
    return one([message for message in messages if message.destination == peer], AppendRequest)


def faults(lab: Lab) -> list[int]:
    found = [event for event in lab.events if isinstance(event, PeerFault)]
    assert all(fault.error.code is ErrorCode.LOST_ENTRIES for fault in found)
    return [fault.peer for fault in found]


def in_step(*, in_flight_max: int = 1) -> Lab:
    """Server 1 leads, and servers 2 and 3 have confirmed entries 1 to 4."""
    lab = Lab(in_flight_max=in_flight_max, append_entries_max=2)
    lab.settle(lab.lead())
    lab.core.propose([b"2", b"3", b"4"])
    lab.settle(lab.drain())
    assert [peer.match_index for peer in lab.core.peers] == [4, 4]
    return lab


def test_a_follower_with_less_than_it_confirmed_is_named_and_served_from_there() -> None:
    lab = in_step()
    request = to(lab.wait(0.5), 2)
    search = to(lab.answer(request, 2, accepted=False), 2)
    assert faults(lab) == [2]
    assert [peer.match_index for peer in lab.core.peers] == [0, 4]
    assert (search.previous_index, search.entries) == (1, [])
    lab.settle([search])
    assert [peer.match_index for peer in lab.core.peers] == [4, 4]
    assert faults(lab) == [2]


def test_what_it_has_lost_does_not_count_until_it_is_there_again() -> None:
    lab = Lab(founders(1, 2, 3, 4, 5))
    lab.settle(lab.lead())
    lab.core.propose([b"2"])
    requests = {each.destination: each for each in lab.drain()}
    lab.accept(requests[2])
    heartbeat = to(lab.wait(0.5), 2)
    search = to(lab.answer(heartbeat, 1, accepted=False), 2)  # it has lost everything
    lab.accept(requests[3])
    assert lab.core.commit_index == 1  # two of five have entry 2
    lab.accept(search)
    assert lab.core.commit_index == 2


def test_its_confirmations_from_before_count_no_more() -> None:
    """Messages of its former life arrive after the first ones of the new life."""
    lab = in_step(in_flight_max=4)
    lab.core.propose([b"5", b"6", b"7", b"8"])
    first, second = [each for each in all_of(lab.drain(), AppendRequest) if each.destination == 2]
    lab.accept(first)
    request = next(each for each in lab.wait(0.95) if each.destination == 2)
    assert isinstance(request, AppendRequest)
    lab.answer(request, 2, accepted=False)
    assert faults(lab) == [2]
    lab.accept(second)
    assert lab.core.peers[0].match_index == 0


@pytest.mark.parametrize("hint", [0, 5, 9])
def test_a_refusal_that_shows_no_loss_only_waits(hint: int) -> None:
    """It is writing a snapshot, or has another reason; its log ends where it should."""
    lab = in_step()
    assert lab.answer(to(lab.wait(0.5), 2), hint, accepted=False) == []
    assert [peer.match_index for peer in lab.core.peers] == [4, 4]
    assert faults(lab) == []


def test_refusals_that_were_overtaken_show_no_loss() -> None:
    """The second request arrives first, and is refused; the answers come back in reverse order."""
    lab = in_step(in_flight_max=4)
    lab.core.propose([b"5", b"6", b"7", b"8"])
    first, second = [each for each in all_of(lab.drain(), AppendRequest) if each.destination == 2]
    lab.accept(first)
    lab.answer(second, 5, accepted=False)
    assert faults(lab) == []
    assert lab.core.peers[0].match_index == 6


@pytest.mark.parametrize("distance", [0, 10], ids=["from the log", "by a snapshot"])
def test_a_node_that_is_given_an_older_store_is_named_and_catches_up(distance: int) -> None:
    limits = replace(CORE_LIMITS, snapshot_distance=distance, trailing_entries=2)
    cluster = Cluster(1, 2, 3, core=limits)
    leader = cluster.leader()
    number = next(each for each in (1, 2, 3) if cluster.members[each] is not leader)
    propose(cluster, 20)
    old = copy.deepcopy(cluster.members[number].store.load())
    propose(cluster, 30)
    cluster.stop(number)
    cluster.add(number, old)
    cluster.down.discard(number)
    assert cluster.run(10.0, lambda: cluster.members[number].node.applied_index >= 51)
    told = [event for event in leader.events if isinstance(event, PeerFault)]
    assert [(fault.peer, fault.error.code) for fault in told] == [(number, ErrorCode.LOST_ENTRIES)]
    assert cluster.leader() is leader
    propose(cluster, 5)
    assert cluster.members[number].machine.values == leader.machine.values


def propose(cluster: Cluster, count: int) -> None:
    leader = cluster.leader()
    for number in range(count):
        leader.node.propose([b"%d" % number])
    members = [each.node for each in cluster.members.values()]
    index = leader.node.last_index
    assert cluster.run(10.0, lambda: all(node.applied_index >= index for node in members))


def test_canary_what_a_follower_has_confirmed_it_has_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Progress, "lost", lambda self, flight, hint: False)
    with pytest.raises(AssertionError):
        test_a_node_that_is_given_an_older_store_is_named_and_catches_up(0)

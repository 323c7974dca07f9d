"""Reads at any node, over frames."""

from __future__ import annotations

import pytest
from garlic_cluster import Cluster, Member
from test_garlic_pre_vote import kinds

from culm.garlic.errors import ErrorCode
from culm.garlic.events import LinkClosed
from culm.garlic.messages import MessageType, RequestFrame
from culm.garlic.raft import ErrorCode as RaftErrorCode
from culm.garlic.raft import ReadFailed, ReadReady
from culm.machine import LocalProtocolError


def follower_of(cluster: Cluster) -> tuple[Member, Member]:
    leader = cluster.leader()
    cluster.run(0.5)
    return leader, next(one for one in cluster.members.values() if one is not leader)


def reads(member: Member) -> list[object]:
    return [event for event in member.events if isinstance(event, ReadReady | ReadFailed)]


def test_a_follower_dials_its_leader_and_reads_what_was_committed() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader, follower = follower_of(cluster)
    index, _ = leader.node.propose([b"new"])
    assert cluster.run(1.0, lambda: leader.node.applied_index >= index)
    number = follower.node.read()
    assert cluster.run(1.0, lambda: bool(reads(follower)))
    assert reads(follower) == [ReadReady(read=number, index=index)]
    assert follower.machine.values == [b"new"]
    again = follower.node.read()
    assert cluster.run(1.0, lambda: len(reads(follower)) == 2)
    assert reads(follower)[1] == ReadReady(read=again, index=index)
    assert MessageType.READ_INDEX_REQUEST in kinds(cluster)


@pytest.mark.parametrize("handshake", [True, False])
def test_a_leader_that_does_not_know_the_question_is_not_asked(*, handshake: bool) -> None:
    cluster = Cluster(1, 2, 3, handshake=handshake)
    cluster.plain = {1, 2, 3}
    leader, follower = follower_of(cluster)
    if not any(link.dialled and link.peer == leader.node.server_id for link in follower.node.links):
        number = follower.node.read()
        assert cluster.run(1.0, lambda: bool(reads(follower)))
        assert reads(follower) == [ReadFailed(read=number)]
    with pytest.raises(LocalProtocolError) as raised:
        follower.node.read()
    assert raised.value.code is RaftErrorCode.NOT_LEADER
    assert max(kinds(cluster)) <= 17


def test_a_leader_that_dies_ends_the_read() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader, follower = follower_of(cluster)
    cluster.stop(leader.node.server_id)
    number = follower.node.read()
    assert cluster.run(1.0, lambda: bool(reads(follower)))
    assert reads(follower) == [ReadFailed(read=number)]


def test_the_question_without_agreement_is_an_unknown_type() -> None:
    cluster = Cluster(1, 2, 3)
    near, _ = cluster.client(1)
    near.send_request(RequestFrame(type=MessageType.READ_INDEX_REQUEST, source=2, destination=1))
    cluster.run(0.0)
    ends = [event for event in cluster.members[1].events if isinstance(event, LinkClosed)]
    assert [event.error and event.error.code for event in ends] == [ErrorCode.UNKNOWN_MESSAGE_TYPE]

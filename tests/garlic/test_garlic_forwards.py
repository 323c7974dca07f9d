"""Values proposed at any node, over frames."""

from __future__ import annotations

import pytest
from garlic_cluster import Cluster, Member
from test_garlic_follower_reads import follower_of
from test_garlic_pre_vote import kinds

from culm.garlic.errors import ErrorCode
from culm.garlic.messages import MessageType
from culm.garlic.raft import Committed, Forwarded, ForwardFailed
from culm.garlic.raft import ErrorCode as RaftErrorCode
from culm.garlic.translate import value_size_max
from culm.machine import LocalProtocolError


def outcomes(member: Member) -> list[object]:
    kinds = Forwarded | ForwardFailed | Committed
    return [event for event in member.events if isinstance(event, kinds)]


def test_a_follower_dials_its_leader_and_gives_it_the_values() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader, follower = follower_of(cluster)
    number = follower.node.forward([b"one", b"two"])
    assert cluster.run(1.0, lambda: len(outcomes(follower)) == 2)
    term, index = leader.node.term, leader.node.last_index - 1
    assert outcomes(follower) == [
        Forwarded(forward=number, index=index, term=term, count=2),
        Committed(index=index, term=term, count=2),
    ]
    cluster.run(0.5)
    assert [one.machine.values for one in cluster.members.values()] == [[b"one", b"two"]] * 3
    assert MessageType.FORWARD_REQUEST in kinds(cluster)


@pytest.mark.parametrize("handshake", [True, False])
def test_a_leader_that_does_not_know_the_frame_gets_none(*, handshake: bool) -> None:
    cluster = Cluster(1, 2, 3, handshake=handshake)
    cluster.plain = {1, 2, 3}
    leader, follower = follower_of(cluster)
    if not any(link.dialled and link.peer == leader.node.server_id for link in follower.node.links):
        number = follower.node.forward([b"value"])
        assert cluster.run(1.0, lambda: bool(outcomes(follower)))
        assert outcomes(follower) == [ForwardFailed(forward=number, certain=True)]
    with pytest.raises(LocalProtocolError) as raised:
        follower.node.forward([b"value"])
    assert raised.value.code is RaftErrorCode.NOT_LEADER
    assert max(kinds(cluster)) <= 17


def test_a_value_that_fits_no_frame_is_refused_at_once() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    _, follower = follower_of(cluster)
    with pytest.raises(LocalProtocolError) as raised:
        follower.node.forward([bytes(value_size_max(cluster.limits) + 1)])
    assert raised.value.code is ErrorCode.VALUE_TOO_LARGE


def test_a_leader_that_dies_leaves_the_outcome_open_or_lost() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader, follower = follower_of(cluster)
    follower.node.forward([b"before"])
    assert cluster.run(1.0, lambda: len(outcomes(follower)) == 2)
    cluster.stop(leader.node.server_id)
    follower.node.forward([b"after"])
    assert cluster.run(1.0, lambda: len(outcomes(follower)) == 3)
    assert isinstance(outcomes(follower)[-1], ForwardFailed)
    assert cluster.leader() is not leader

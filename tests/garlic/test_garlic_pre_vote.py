"""Pre-vote over frames: agreed upon in the handshake, and unknown to JRaft."""

from __future__ import annotations

import pytest
from garlic_cluster import Cluster, Member

from culm.garlic.errors import ErrorCode
from culm.garlic.events import LinkClosed
from culm.garlic.handshake import agreed_extensions
from culm.garlic.messages import Extension, MessageType, RequestFrame
from culm.garlic.raft import State


def kinds(cluster: Cluster) -> set[int]:
    """The types of all dialled frames, except those of the handshake."""
    found: set[int] = set()
    for pipe in cluster.pipes:
        data = bytes(pipe.up).rpartition(b"\r\n\r\n")[2]
        while len(data) >= 45:
            found.add(data[0])
            data = data[45 + int.from_bytes(data[41:45], "big") :]
    return found


def agreed(cluster: Cluster) -> None:
    cluster.leader()
    cluster.run(1.0)


def cut_off_follower(cluster: Cluster) -> tuple[Member, Member, int]:
    """A leader, and a follower that has long been cut off; the term before that."""
    leader = cluster.leader()
    cluster.run(1.0)
    term = leader.node.term
    follower = next(one for one in cluster.members.values() if one is not leader)
    cluster.isolate(follower.node.server_id)
    cluster.run(3.0)
    return leader, follower, term


@pytest.mark.parametrize("handshake", [True, False])
def test_the_term_of_who_is_cut_off_does_not_grow(*, handshake: bool) -> None:
    _, follower, term = cut_off_follower(Cluster(1, 2, 3, handshake=handshake))
    assert (follower.node.state, follower.node.term) == (State.PRE_CANDIDATE, term)


def test_who_was_cut_off_comes_back_and_the_leader_leads_on() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader, follower, term = cut_off_follower(cluster)
    cluster.cut_off.clear()
    cluster.run(2.0)
    assert {one.node.term for one in cluster.members.values()} == {term}
    assert (leader.node.state, follower.node.state) == (State.LEADER, State.FOLLOWER)


def test_nodes_that_shake_hands_ask_before_they_stand() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    agreed(cluster)
    assert MessageType.PRE_VOTE_REQUEST in kinds(cluster)
    assert any(Extension.PRE_VOTE in link.extensions for link in cluster.members[1].node.links)


@pytest.mark.parametrize("handshake", [True, False])
def test_whoever_does_not_know_the_question_is_not_asked(*, handshake: bool) -> None:
    cluster = Cluster(1, 2, 3, handshake=handshake)
    cluster.plain = {1, 2, 3}
    agreed(cluster)
    assert MessageType.PRE_VOTE_REQUEST not in kinds(cluster)
    assert max(kinds(cluster)) <= 17
    assert b"Culm-Extensions" not in b"".join(bytes(pipe.up + pipe.down) for pipe in cluster.pipes)


@pytest.mark.parametrize("plain", [{1}, {2}, {1, 2}, {3, 1}])
def test_mixed_clusters_find_a_leader_and_another(plain: set[int]) -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    cluster.plain = plain
    first = cluster.leader()
    cluster.stop(first.node.server_id)
    second = cluster.leader()
    assert second is not first
    second.node.propose([b"goes on"])
    cluster.run(1.0)
    assert second.machine.values == [b"goes on"]


def test_the_question_without_agreement_is_an_unknown_type() -> None:
    cluster = Cluster(1, 2, 3)
    near, pipe = cluster.client(1)
    near.send_request(RequestFrame(type=MessageType.PRE_VOTE_REQUEST, source=2, destination=1))
    cluster.run(0.0)
    ends = [event for event in cluster.members[1].events if isinstance(event, LinkClosed)]
    assert [event.error and event.error.code for event in ends] == [ErrorCode.UNKNOWN_MESSAGE_TYPE]
    assert not pipe.open


def test_unknown_extensions_say_nothing() -> None:
    ours = frozenset(Extension)
    headers = [
        (b"culm-extensions", b"teleport ,PRE-vote,Read-Index, forward, learners"),
        (b"culm-extensions", b""),
    ]
    assert agreed_extensions(ours, headers) == ours
    assert agreed_extensions(ours, [(b"culm-extensions", b"prevote")]) == frozenset()
    assert agreed_extensions(frozenset(), headers) == frozenset()

"""Learners: replicated to, never counted, never candidates."""

from __future__ import annotations

import dataclasses
from collections import deque

import pytest
from garlic_cluster import Cluster, server
from raft_lab import TIMING, Lab, all_of, one
from test_raft_simulation import STORM, caught

from culm.garlic.limits import Limits
from culm.garlic.raft import (
    ChangeFailed,
    Configuration,
    ConfigurationChanged,
    ErrorCode,
    LeaderChanged,
    ReadReady,
    ReadSnapshot,
    Server,
    Snapshot,
    SnapshotChunk,
    State,
    Stored,
)
from culm.garlic.raft.membership import Membership
from culm.garlic.raft.messages import (
    AppendRequest,
    Extension,
    JoinRequest,
    Message,
    PreVoteRequest,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
)
from culm.garlic.values import decode_configuration, encode_configuration
from culm.machine import Effect, LocalProtocolError

LEARNER = Server(9, "tcp://lab:9", voter=False)
VOTERS = tuple(Server(number, f"tcp://lab:{number}") for number in (1, 2, 3))


def founded(*servers: Server) -> Stored:
    return Stored.founding(servers)


def leader(stored: Stored | None = None) -> Lab:
    lab = Lab(founded(*VOTERS, LEARNER) if stored is None else stored)
    lab.settle(lab.lead())
    lab.settle(lab.wait(0.5))
    return lab


def refusal(lab: Lab, added: Server) -> object:
    with pytest.raises(LocalProtocolError) as raised:
        lab.core.add_server(added)
    return raised.value.code


# Its duties


def test_a_learner_is_given_the_log_and_does_not_count() -> None:
    lab = leader()
    index, _ = lab.core.propose([b"value"])
    requests = all_of(lab.drain(), AppendRequest)
    assert {request.destination for request in requests} == {2, 3, 9}
    by_peer = {request.destination: request for request in requests}
    lab.accept(by_peer[9])
    assert lab.core.commit_index < index
    lab.accept(by_peer[2])
    assert lab.core.commit_index == index


def test_answers_of_learners_confirm_no_read() -> None:
    lab = leader()
    lab.core.read()
    by_peer = {one.destination: one for one in all_of(lab.drain(), AppendRequest)}
    lab.accept(by_peer[9])
    assert not any(isinstance(event, ReadReady) for event in lab.events)
    lab.accept(by_peer[3])
    assert any(isinstance(event, ReadReady) for event in lab.events)


def test_a_leader_that_hears_only_learners_gives_way() -> None:
    lab = leader()
    for _ in range(10):
        for request in all_of(lab.wait(0.5), AppendRequest):
            if request.destination == 9:
                lab.accept(request)
    assert lab.core.state is not State.LEADER


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_learner_never_stands(*, pre_vote: bool) -> None:
    lab = Lab(founded(*VOTERS, LEARNER), server_id=9, pre_vote=pre_vote)
    assert lab.core.next_deadline() is None
    lab.append(term=1)
    for _ in range(10):
        sent = lab.wait(3.0)
        assert all_of(sent, VoteRequest) == all_of(sent, PreVoteRequest) == []
    assert lab.core.state is State.FOLLOWER


@pytest.mark.parametrize("stored", [founded(*VOTERS, LEARNER), Stored()], ids=["learner", "joiner"])
def test_who_does_not_vote_forgets_a_silent_leader_as_well(stored: Stored) -> None:
    """One forged heartbeat named another server as leader of the term, for as long as it lasted."""
    lab = Lab(stored, server_id=9)
    assert lab.append(source=1, term=2).accepted
    assert not lab.append(source=2, term=2).accepted
    deadline = lab.core.next_deadline()
    assert deadline is not None
    assert deadline - lab.now <= TIMING.election_timeout_max_s
    lab.wait(deadline - lab.now)
    assert lab.events[-1] == LeaderChanged(leader=None, term=2)
    assert lab.append(source=2, term=2).accepted


def test_a_learner_keeps_its_leader_while_it_is_heard() -> None:
    lab = Lab(founded(*VOTERS, LEARNER), server_id=9)
    for _ in range(20):
        lab.append(term=1)
        lab.wait(TIMING.election_timeout_min_s * 0.9)
    assert lab.core.leader == 2


def test_a_learner_does_not_stand_either_when_a_candidate_lacks_its_log() -> None:
    """Unlike a removed server."""
    lab = Lab(founded(*VOTERS, LEARNER), server_id=9, log=(1, 1), term=1)
    assert not lab.ask_vote(source=3, term=2, last=(1, 1)).accepted
    assert lab.core.next_deadline() is None


def test_a_candidate_asks_no_learner_and_takes_no_vote_of_one() -> None:
    lab = Lab(founded(*VOTERS, LEARNER))
    requests = all_of(lab.wait(2.0), VoteRequest)
    assert {request.destination for request in requests} == {2, 3}
    lab.vote(9)
    assert lab.core.state is State.CANDIDATE
    lab.vote(2)
    assert lab.core.state is State.LEADER


def test_a_learner_is_not_handed_the_leadership() -> None:
    lab = leader()
    with pytest.raises(LocalProtocolError) as raised:
        lab.core.transfer_leadership(9)
    assert raised.value.code is ErrorCode.NOT_VOTER


def test_majorities_are_of_voters() -> None:
    members = Membership(Snapshot(configuration=Configuration(servers=(*VOTERS, LEARNER))), 0)
    assert (members.members, members.voters) == ({1, 2, 3, 9}, {1, 2, 3})
    assert members.quorum == 2


def test_a_learner_disregards_far_terms_as_every_member() -> None:
    lab = Lab(founded(*VOTERS, LEARNER), server_id=9)
    lab.append(term=1)
    assert not lab.ask_vote(source=3, term=2**40).accepted
    assert lab.core.term == 1


# Adding and promoting it


def knowing(lab: Lab, *peers: int) -> Lab:
    for peer in peers:
        lab.core.reachable(peer, Extension)
    return lab


def test_a_learner_is_added_only_where_all_others_know_what_that_is() -> None:
    lab = leader(founded(*VOTERS))
    assert refusal(lab, LEARNER) is ErrorCode.NOT_UNDERSTOOD
    knowing(lab, 2)
    assert refusal(lab, LEARNER) is ErrorCode.NOT_UNDERSTOOD
    lab.core.reachable(3, [Extension.PRE_VOTE, Extension.READ_INDEX])
    assert refusal(lab, LEARNER) is ErrorCode.NOT_UNDERSTOOD
    knowing(lab, 3)
    lab.core.add_server(LEARNER)
    assert all_of(lab.drain(), JoinRequest) == []
    knowing(lab, 9)
    assert one(lab.drain(), JoinRequest).destination == 9


@pytest.mark.parametrize("added", [LEARNER, Server(8, "tcp://lab:8")])
def test_who_would_count_learners_is_not_invited(added: Server) -> None:
    """Nor a voter, while there are learners."""
    stored = founded(*VOTERS) if added is LEARNER else founded(*VOTERS, LEARNER)
    lab = knowing(leader(stored), 2, 3, 9 if added is not LEARNER else 2)
    lab.core.add_server(added)
    lab.wait(0.5)
    lab.core.reachable(added.server_id, [Extension.PRE_VOTE])
    assert all_of(lab.drain(), JoinRequest) == all_of(lab.sent, JoinRequest) == []
    assert lab.events[-1] == ChangeFailed(server_id=added.server_id)


def test_voters_are_added_without_a_question_where_there_are_no_learners() -> None:
    lab = leader(founded(*VOTERS))
    lab.core.add_server(Server(8, "tcp://lab:8"))
    assert len(all_of(lab.drain(), JoinRequest)) == 1


def test_an_endpoint_has_no_fragment() -> None:
    lab = leader(founded(*VOTERS))
    assert refusal(lab, Server(8, "tcp://lab:8#learner")) is ErrorCode.BAD_ENDPOINT


VOTER = dataclasses.replace(LEARNER, voter=True)


def to_promote(**limits: int) -> tuple[Lab, dict[int, AppendRequest]]:
    """A leader that is to promote its learner, and its requests to its peers since."""
    lab = Lab(founded(*VOTERS, LEARNER), **limits)
    lab.settle(lab.lead())
    lab.settle(lab.wait(0.5))
    lab.core.add_server(VOTER)
    return lab, {one.destination: one for one in all_of(lab.drain(), AppendRequest)}


def said(lab: Lab) -> list[frozenset[int]]:
    """The voters of each configuration in the log."""
    log = lab.core.log
    entries = log.slice(log.base_index + 1, log.last_index)
    return [entry.data.voters for entry in entries if isinstance(entry.data, Configuration)]


def doing(lab: Lab) -> str:
    return next(peer.doing for peer in lab.core.peers if peer.server_id == 9)


def test_a_learner_that_is_added_as_a_voter_becomes_one_in_place() -> None:
    lab, asked = to_promote()
    assert doing(lab) == "promoting"
    sent = lab.accept(asked[9])
    told = {one.destination: one for one in all_of(sent, AppendRequest)}
    assert said(lab)[-1] == {1, 2, 3, 9}
    assert doing(lab) == "committing"
    # The majority is that of the former voters, without it.
    lab.accept(told[9])
    assert lab.core.configuration.voters == {1, 2, 3}
    lab.settle(lab.accept(asked[2]))
    assert lab.core.configuration.voters == {1, 2, 3, 9}
    assert lab.events[-1] == ConfigurationChanged(configuration=lab.core.configuration)
    assert doing(lab) == "replicate"
    assert all_of(lab.sent, JoinRequest) == []
    index, _ = lab.core.propose([b"value"])
    by_peer = {one.destination: one for one in all_of(lab.drain(), AppendRequest)}
    lab.accept(by_peer[2])
    assert lab.core.commit_index < index  # two of four
    lab.accept(by_peer[9])
    assert lab.core.commit_index == index


def test_a_learner_is_promoted_only_when_it_has_answered_since() -> None:
    """A dead server would count, but not answer."""
    lab, asked = to_promote()
    for peer in (2, 3):
        lab.accept(asked[peer])
    assert said(lab)[-1] == {1, 2, 3}
    lab.accept(asked[9])
    assert said(lab)[-1] == {1, 2, 3, 9}


def test_what_a_learner_answers_to_an_earlier_request_promotes_nobody() -> None:
    """The first request since then may go to it alone, and then that answer is enough."""
    learner = dataclasses.replace(VOTERS[1], voter=False)
    lab = leader(founded(VOTERS[0], learner, VOTERS[2]))
    (earlier,) = (one for one in all_of(lab.wait(0.5), AppendRequest) if one.destination == 2)
    lab.core.add_server(VOTERS[1])
    assert all_of(lab.drain(), AppendRequest) == []
    (since,) = (one for one in all_of(lab.accept(earlier), AppendRequest) if one.destination == 2)
    assert said(lab)[-1] == {1, 3}
    lab.accept(since)
    assert said(lab)[-1] == {1, 2, 3}


@pytest.mark.parametrize(("lacks", "promoted"), [(4, True), (5, False)])
def test_a_learner_is_promoted_when_it_lacks_as_little_as_a_joiner_may(
    lacks: int, *, promoted: bool
) -> None:
    lab, asked = to_promote(sync_gap=5)
    lab.core.propose([b"value"] * lacks)
    sent = lab.accept(asked[9])
    assert (said(lab)[-1] == {1, 2, 3, 9}) == promoted
    lab.settle(sent)
    assert said(lab)[-1] == {1, 2, 3, 9}


def test_a_learner_that_gets_no_further_is_given_up() -> None:
    lab, asked = to_promote(change_timeout_s=3)
    for peer in (2, 3):
        lab.accept(asked[peer])
    for _ in range(7):
        for request in all_of(lab.wait(0.5), AppendRequest):
            if request.destination != 9:
                lab.accept(request)
    assert lab.core.state is State.LEADER
    assert lab.events[-1] == ChangeFailed(server_id=9)
    assert said(lab)[-1] == {1, 2, 3}
    assert doing(lab) == "probe"


class LongSnapshot(Lab):
    """A leader whose log is a snapshot of a hundred chunks, which its learner does not have."""

    def __init__(self) -> None:
        snapshot = Snapshot(5, 1, Configuration(0, 0, (*VOTERS, LEARNER)))
        stored = Stored(term=1, snapshot=snapshot)
        super().__init__(stored, change_timeout_s=3, chunk_size=4, sync_gap=1)
        self.taken: list[int] = []

    def do(self, effect: Effect, result: object = None) -> None:
        if isinstance(effect, ReadSnapshot):
            result = SnapshotChunk(b"four", effect.offset >= 4 * 99)
        super().do(effect, result)

    def reply(self, request: Message) -> list[Message]:
        """The peer's answer; each of the learner's chunks takes half a second."""
        if isinstance(request, SnapshotRequest):
            self.taken.append(request.offset)
            answer = SnapshotResponse(
                source=request.destination,
                destination=1,
                term=request.term,
                sequence=request.sequence,
                next_index=request.offset + 4,
                accepted=True,
            )
            return self.wait(0.5) + self.tell(answer)
        assert isinstance(request, AppendRequest)
        if request.destination == 9 and len(self.taken) < 100:
            return self.answer(request, 2, accepted=False)
        return self.accept(request)


def test_a_learner_that_gets_a_long_snapshot_is_not_given_up() -> None:
    """Each chunk is a step: all of them may take far longer than a change may stand still."""
    lab = LongSnapshot()
    messages = deque(lab.lead())
    while lab.taken != [4 * number for number in range(100)]:
        messages.extend(lab.reply(messages.popleft()))
        if len(lab.taken) == 1 and doing(lab) != "promoting":
            lab.core.add_server(VOTER)
            messages.extend(lab.drain())
    assert ChangeFailed(server_id=9) not in lab.events
    lab.settle(list(messages))
    assert said(lab)[-1] == {1, 2, 3, 9}


def test_a_promotion_can_be_cancelled_and_ends_with_the_leader() -> None:
    lab, _ = to_promote()
    lab.core.cancel_change()
    lab.drain()
    assert lab.events[-1] == ChangeFailed(server_id=9)
    lab, _ = to_promote()
    lab.append(term=lab.core.term + 1)
    assert ChangeFailed(server_id=9) in lab.events


@pytest.mark.parametrize(
    "added", [LEARNER, Server(9, "tcp://elsewhere:9"), Server(2, "tcp://lab:2")], ids=str
)
def test_nothing_else_of_a_member_is_changed(added: Server) -> None:
    assert refusal(leader(), added) is ErrorCode.ALREADY_MEMBER


def test_a_configuration_says_who_is_a_learner() -> None:
    made = Configuration(7, 3, (*VOTERS, LEARNER))
    data = encode_configuration(made)
    assert data.endswith(b"tcp://lab:9#learner")
    assert decode_configuration(data, Limits()) == made
    assert encode_configuration(Configuration(7, 3, VOTERS)).find(b"#") < 0


# Nodes


def test_a_node_learns_and_then_votes_and_leads() -> None:
    cluster = Cluster(1, 2, handshake=True)
    first = cluster.leader()
    first.node.propose([b"before"])
    late = cluster.add(3)
    cluster.run(0.5)
    first.node.add_server(dataclasses.replace(server(3), voter=False))
    assert cluster.run(5.0, lambda: first.node.configuration.ids == {1, 2, 3})
    assert first.node.configuration.voters == {1, 2}
    cluster.run(0.5)
    first.node.add_server(server(3))
    assert cluster.run(5.0, lambda: late.node.configuration.voters == {1, 2, 3})
    assert first.events[-1] == ConfigurationChanged(configuration=first.node.configuration)
    first.node.transfer_leadership(3)
    assert cluster.run(5.0, lambda: late.node.state is State.LEADER)
    late.node.propose([b"after"])
    cluster.stop(first.node.server_id)
    assert cluster.run(5.0, lambda: late.machine.values == [b"before", b"after"])


def test_a_node_learns_reads_and_is_removed() -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    first = cluster.leader()
    first.node.propose([b"before"])
    late = cluster.add(4)
    cluster.run(0.5)
    first.node.add_server(dataclasses.replace(server(4), voter=False))
    assert cluster.run(5.0, lambda: late.machine.values == [b"before"])
    assert first.node.configuration.voters == {1, 2, 3}
    cluster.run(0.5)
    assert late.node.configuration == first.node.configuration
    late.node.read()
    assert cluster.run(1.0, lambda: any(isinstance(event, ReadReady) for event in late.events))
    # With it and one voter there is no majority.
    others = [number for number in (1, 2, 3) if number != first.node.server_id]
    for number in others:
        cluster.stop(number)
    assert cluster.run(2.0, lambda: first.node.state is not State.LEADER)
    assert not cluster.run(3.0, lambda: late.node.state is not State.FOLLOWER)
    for number in others:
        cluster.down.discard(number)
    again = cluster.leader()
    cluster.run(1.0)
    again.node.remove_server(4)
    assert cluster.run(5.0, lambda: 4 not in again.node.configuration.ids)
    kinds = [type(event) for event in again.events]
    assert ConfigurationChanged in kinds


def test_where_nobody_shakes_hands_there_are_no_learners() -> None:
    cluster = Cluster(1, 2, 3)
    first = cluster.leader()
    cluster.run(0.5)
    with pytest.raises(LocalProtocolError) as raised:
        first.node.add_server(dataclasses.replace(server(4), voter=False))
    assert raised.value.code is ErrorCode.NOT_UNDERSTOOD


# Faults that the simulator would notice


def test_canary_learners_that_are_counted_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    refresh = Membership.refresh

    def count_all(members: Membership) -> None:
        refresh(members)
        members.voters = members.members

    monkeypatch.setattr(Membership, "refresh", count_all)
    weather = dataclasses.replace(STORM, loss=0.0, delay_max=0.002, leader_crash=0.0, change=0.8)
    assert caught(weather, size=3, seeds=60, seconds=2, check_sends=True)

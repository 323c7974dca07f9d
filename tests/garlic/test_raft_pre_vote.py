"""Pre-vote (thesis, 9.6): a server that could not win asks first, and disturbs no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raft_lab import Lab, all_of, entries, founders, one
from raft_simulator import Simulator
from raft_weather import ELECTION_TIMEOUT, Weather

from culm.garlic.raft import State
from culm.garlic.raft.messages import (
    Extension,
    LeaveRequest,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    TransferRequest,
    VoteRequest,
)

CALM = Weather(
    loss=0.0,
    duplication=0.0,
    delay_max=0.002,
    crash=0.0,
    partition=0.0,
    change=0.0,
    transfer=0.0,
    skew=0.0,
    disk_delay_max=0.0005,
    pause=0.1,
)


def asking(**settings: object) -> tuple[Lab, list[PreVoteRequest]]:
    """A server that has heard nothing for an election timeout."""
    lab = Lab(pre_vote=True, **settings)  # type: ignore[arg-type]
    return lab, all_of(lab.wait(2.0), PreVoteRequest)


def answer(
    lab: Lab, request: PreVoteRequest, *, accepted: bool = True, term: int | None = None
) -> list[Message]:
    return lab.tell(
        PreVoteResponse(
            source=request.destination,
            destination=request.source,
            term=request.term if term is None else term,
            sequence=request.sequence,
            next_index=0,
            accepted=accepted,
        )
    )


def ask(lab: Lab, *, term: int, last: tuple[int, int] = (0, 0), source: int = 2) -> PreVoteResponse:
    request = PreVoteRequest(
        source=source,
        destination=1,
        term=term,
        sequence=7,
        last_log_index=last[0],
        last_log_term=last[1],
    )
    found = one(lab.tell(request), PreVoteResponse)
    assert found.sequence == 7
    return found


# Asking


def test_a_timeout_asks_and_leaves_term_and_vote_as_they_are() -> None:
    lab, requests = asking(log=(1, 3), term=4)
    assert lab.core.state is State.PRE_CANDIDATE
    assert lab.persists == []
    assert requests == [
        PreVoteRequest(
            source=1, destination=peer, term=4, sequence=1, last_log_index=2, last_log_term=3
        )
        for peer in (2, 3)
    ]
    for _ in range(10):
        assert not all_of(lab.wait(2.0), VoteRequest)
    assert lab.core.term == 4


def test_whoever_a_majority_would_vote_for_stands() -> None:
    lab, (two, three, *_) = asking(stored=founders(1, 2, 3, 4, 5))
    assert answer(lab, two) == []
    assert answer(lab, two) == []  # repeated, but counted once
    requests = all_of(answer(lab, three), VoteRequest)
    assert [request.term for request in requests] == [1, 1, 1, 1]
    assert lab.core.state is State.CANDIDATE


def test_refusals_do_not_add_up_to_a_candidacy() -> None:
    lab, requests = asking()
    for request in requests:
        assert answer(lab, request, accepted=False) == []
    assert (lab.core.state, lab.core.term) == (State.PRE_CANDIDATE, 0)


def test_an_answer_to_an_earlier_question_is_too_old() -> None:
    lab, (old, _) = asking()
    (new, _) = all_of(lab.wait(2.0), PreVoteRequest)
    assert answer(lab, old) == []
    assert lab.core.state is State.PRE_CANDIDATE
    assert all_of(answer(lab, new), VoteRequest)


def test_a_refusal_of_a_later_term_is_followed_and_the_question_asked_again() -> None:
    lab, (request, _) = asking()
    answer(lab, request, accepted=False, term=9)
    assert (lab.core.state, lab.core.term) == (State.FOLLOWER, 9)
    assert one(lab.wait(2.0)[:1], PreVoteRequest).term == 9


def test_a_leader_that_is_heard_ends_the_question() -> None:
    lab, (request, _) = asking()
    assert lab.append(term=0).accepted
    assert lab.core.state is State.FOLLOWER
    assert answer(lab, request) == []
    assert lab.core.state is State.FOLLOWER


def test_a_candidate_without_enough_votes_asks_before_it_stands_again() -> None:
    lab, (request, _) = asking()
    answer(lab, request)
    assert all_of(lab.wait(2.0), PreVoteRequest)
    assert (lab.core.state, lab.core.term) == (State.PRE_CANDIDATE, 1)


def test_who_leads_alone_needs_nobody() -> None:
    lab, requests = asking(stored=founders(1))
    assert requests == []
    assert lab.core.state is State.LEADER


def test_the_leader_hands_over_without_a_question() -> None:
    lab = Lab(pre_vote=True)
    lab.append(term=1)
    request = TransferRequest(source=2, destination=1, term=1, last_log_index=0)
    assert all(vote.transfer for vote in all_of(lab.tell(request), VoteRequest))
    assert lab.core.state is State.CANDIDATE


def test_who_can_be_reached_and_not_be_asked_has_no_objection() -> None:
    lab, _ = asking()
    lab.core.reachable(2, ())
    assert len(all_of(lab.drain(), VoteRequest)) == 2
    lab.core.unreachable(2)
    assert all_of(lab.wait(2.0), PreVoteRequest)
    assert lab.core.state is State.PRE_CANDIDATE


def test_who_can_be_asked_is_asked() -> None:
    lab, _ = asking()
    lab.core.reachable(2, [Extension.PRE_VOTE])
    lab.core.reachable(3, [Extension.PRE_VOTE])
    assert lab.drain() == []
    assert lab.core.state is State.PRE_CANDIDATE


def test_a_majority_that_cannot_be_asked_saves_the_question() -> None:
    lab = Lab(pre_vote=True)
    lab.core.reachable(2, ())
    sent = lab.wait(2.0)
    assert [type(message) for message in sent] == [VoteRequest, VoteRequest]


def test_a_stranger_cannot_speak_for_a_voter() -> None:
    lab, _ = asking()
    lab.core.reachable(8, ())
    lab.core.reachable(9, ())
    assert lab.drain() == []
    assert lab.core.state is State.PRE_CANDIDATE


def test_a_vote_that_comes_while_others_are_asked_again_counts() -> None:
    """A store that takes longer for a vote than an election timeout keeps nobody from leading."""
    lab, requests = asking()
    answer(lab, requests[0])
    term = lab.core.term
    assert lab.core.state is State.CANDIDATE
    again = all_of(lab.wait(2.0), PreVoteRequest)
    assert (lab.core.state, lab.core.term) == (State.PRE_CANDIDATE, term)
    lab.vote(3, accepted=False)
    assert lab.core.state is State.PRE_CANDIDATE
    lab.vote(2)
    assert (lab.core.state, lab.core.term) == (State.LEADER, term)
    answer(lab, again[0])  # by then nobody needs it
    assert (lab.core.state, lab.core.term) == (State.LEADER, term)


def test_a_leader_that_has_stepped_down_needs_new_votes() -> None:
    """Those of its term made it leader once; it may have told others entries since."""
    lab, requests = asking()
    answer(lab, requests[0])
    lab.vote(2)
    assert lab.core.state is State.LEADER
    term = lab.core.term
    lab.wait(2.5)  # nobody is heard
    assert lab.core.state is State.FOLLOWER
    lab.wait(2.0)
    assert (lab.core.state, lab.core.term) == (State.PRE_CANDIDATE, term)
    lab.vote(2)
    assert (lab.core.state, lab.core.term) == (State.PRE_CANDIDATE, term)


# Answering


@pytest.mark.parametrize(
    ("last", "term", "granted"),
    [
        ((2, 1), 1, True),
        ((1, 2), 2, True),
        ((3, 1), 1, True),
        ((1, 1), 1, False),  # a shorter log
        ((2, 1), 0, False),  # a vote in term 1 would be refused
        ((2, 1), 7, True),
    ],
)
def test_what_would_become_of_a_vote_is_told(
    last: tuple[int, int], term: int, *, granted: bool
) -> None:
    lab = Lab(log=(1, 1), term=1)
    found = ask(lab, term=term, last=last)
    assert found.accepted is granted
    assert found.term == (term if granted else 1)
    assert (lab.core.term, lab.core.state) == (1, State.FOLLOWER)
    assert lab.persists == []


def test_in_contact_with_the_leader_nobody_else_is_wanted() -> None:
    lab = Lab()
    lab.append(term=1)
    assert not ask(lab, term=5, last=(9, 5), source=3).accepted
    lab.wait(0.99)
    assert not ask(lab, term=5, last=(9, 5), source=3).accepted
    lab.wait(0.02)
    assert ask(lab, term=5, last=(9, 5), source=3).accepted


def test_a_leader_wants_no_other() -> None:
    lab = Lab()
    lab.settle(lab.lead())
    assert not ask(lab, term=5, last=(9, 5)).accepted
    assert lab.core.state is State.LEADER


def test_a_term_that_no_vote_would_be_given_in_is_refused() -> None:
    lab = Lab(term_step_max=10)
    assert ask(lab, term=9).accepted
    assert not ask(lab, term=10).accepted


def test_the_answer_does_not_put_off_the_own_election() -> None:
    lab = Lab()
    before = lab.core.next_deadline()
    ask(lab, term=0)
    assert lab.core.next_deadline() == before


def test_who_was_told_to_leave_is_back_if_only_it_has_the_last_entries() -> None:
    """The others keep asking in one term; the next one shows that the leader is gone."""
    lab = Lab(pre_vote=True)
    lab.append(term=1, entries=entries(1, 1))
    lab.tell(LeaveRequest(source=2, destination=1, term=1, last_log_index=2, commit_index=0))
    lab.wait(1.5)
    assert not ask(lab, term=1, last=(1, 1), source=3).accepted
    assert any(all_of(lab.wait(0.4), PreVoteRequest) for _ in range(5))


# A cluster with a healthy leader


class Healthy(Simulator):
    """Servers that lead and follow in peace, until a test begins."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, weather=CALM, size=5, pre_vote=True)
        assert self.run_until(5.0, lambda: self.followed_leader() is not None)
        self.run_until(self.now + 1.0)
        leader = self.followed_leader()
        assert leader is not None
        self.leader, self.term = leader, max(self.terms())
        self.victims = [node.id for node in self.nodes.values() if node is not leader][:2]

    def terms(self) -> set[int]:
        return {node.raft.term for node in self.nodes.values() if node.raft is not None}

    def undisturbed(self) -> bool:
        return self.followed_leader() is self.leader and self.terms() == {self.term}


def cut(simulator: Healthy, *, hears: bool, speaks: bool) -> None:
    for one_end in simulator.victims:
        for other in simulator.nodes:
            if not speaks:
                simulator.cuts.add((one_end, other))
            if not hears:
                simulator.cuts.add((other, one_end))


def stall(simulator: Healthy) -> None:
    for number in simulator.victims:
        simulator.nodes[number].stalled = simulator.now + simulator.rng.uniform(0, 2.0)


def restart_behind_a_partition(simulator: Healthy) -> None:
    cut(simulator, hears=False, speaks=False)
    for number in simulator.victims:
        simulator.crash(simulator.nodes[number])
        simulator.start(simulator.nodes[number])


FAULTS: dict[str, Callable[[Healthy], None]] = {
    "deaf": lambda simulator: cut(simulator, hears=False, speaks=True),
    "dumb": lambda simulator: cut(simulator, hears=True, speaks=False),
    "cut off": lambda simulator: cut(simulator, hears=False, speaks=False),
    "stalled": stall,
    "restarted": restart_behind_a_partition,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_minority_in_trouble_changes_no_healthy_leader(fault: str, seed: int) -> None:
    simulator = Healthy(seed)
    for _ in range(3):
        FAULTS[fault](simulator)
        simulator.run_until(simulator.now + 8 * ELECTION_TIMEOUT)
        assert simulator.followed_leader() is simulator.leader
        simulator.cuts.clear()
        simulator.run_until(simulator.now + 2.0)
        assert simulator.undisturbed()


def test_when_the_leader_is_gone_another_leads_soon() -> None:
    simulator = Healthy(1)
    simulator.crash(simulator.leader)
    start = simulator.now
    assert simulator.run_until(start + 5.0, lambda: simulator.followed_leader() is not None)
    assert simulator.now - start < 4 * ELECTION_TIMEOUT

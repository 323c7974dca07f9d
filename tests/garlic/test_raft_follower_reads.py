"""Reads at a server that does not lead: the leader tells the index to wait for (thesis, 6.4)."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
from raft_lab import Lab, all_of, configuration, entries, one
from test_raft_simulation import STORM, caught

from culm.garlic.raft import Entry, ErrorCode, ReadFailed, ReadReady, Stored
from culm.garlic.raft.follower_reads import FollowerReads
from culm.garlic.raft.leadership import Leadership
from culm.garlic.raft.messages import (
    AppendRequest,
    Extension,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
)
from culm.garlic.raft.ways import Ways
from culm.machine import LocalProtocolError

CALM = dataclasses.replace(
    STORM, loss=0.0, delay_max=0.002, crash=0.0, partition=0.2, leader_crash=0.0
)


def follower(*, way: bool = True, **settings: object) -> Lab:
    """A server that has heard leader 2, and has one entry that is committed."""
    lab = Lab(asks_leader=True, **settings)  # type: ignore[arg-type]
    if way:
        lab.core.reachable(2, Extension)
    lab.append(term=1, entries=entries(1), commit=1)
    return lab


def ask(lab: Lab) -> tuple[int, list[ReadIndexRequest]]:
    number = lab.core.read()
    return number, all_of(lab.drain(), ReadIndexRequest)


def answer(
    lab: Lab, request: ReadIndexRequest, index: int, *, accepted: bool = True
) -> list[Message]:
    return lab.tell(
        ReadIndexResponse(
            source=request.destination,
            destination=request.source,
            term=request.term,
            sequence=request.sequence,
            next_index=index + 1,
            accepted=accepted,
        )
    )


def reads(lab: Lab) -> list[object]:
    return [event for event in lab.events if isinstance(event, ReadReady | ReadFailed)]


def refused(lab: Lab) -> object:
    with pytest.raises(LocalProtocolError) as raised:
        lab.core.read()
    return raised.value.code


def leader() -> Lab:
    lab = Lab(asks_leader=True)
    lab.settle(lab.lead())
    lab.settle(lab.wait(0.5))
    return lab


def asked(lab: Lab, *, sequence: int = 7, term: int | None = None) -> list[Message]:
    return lab.tell(
        ReadIndexRequest(
            source=2,
            destination=1,
            term=lab.core.term if term is None else term,
            sequence=sequence,
        )
    )


# At the follower


def test_a_follower_asks_the_leader_and_waits_for_its_own_state_machine() -> None:
    lab = follower()
    number, requests = ask(lab)
    assert [(one.destination, one.term) for one in requests] == [(2, 1)]
    answer(lab, requests[0], 2)
    assert reads(lab) == []
    lab.append(term=1, previous=(1, 1), entries=entries(1))
    assert reads(lab) == []
    lab.append(term=1, previous=(2, 1), commit=2)
    assert reads(lab) == [ReadReady(read=number, index=2)]


def test_what_is_applied_already_is_ready_at_once() -> None:
    lab = follower()
    number, requests = ask(lab)
    answer(lab, requests[0], 1)
    assert reads(lab) == [ReadReady(read=number, index=1)]


def test_reads_that_come_while_one_is_asked_for_share_the_next_question() -> None:
    lab = follower()
    first, requests = ask(lab)
    assert [ask(lab)[1] for _ in range(3)] == [[], [], []]
    following = all_of(answer(lab, requests[0], 1), ReadIndexRequest)
    assert reads(lab) == [ReadReady(read=first, index=1)]
    assert len(following) == 1
    assert following[0].sequence != requests[0].sequence
    answer(lab, following[0], 1)
    assert len(reads(lab)) == 4


def test_an_answer_to_an_earlier_question_is_none_to_this_one() -> None:
    lab = follower()
    _, requests = ask(lab)
    lab.append(term=1, previous=(1, 1))
    lab.wait(0.9)
    lab.append(term=1, previous=(1, 1))
    again = all_of(lab.sent, ReadIndexRequest)[-1]
    assert again.sequence != requests[0].sequence
    answer(lab, requests[0], 1)
    assert reads(lab) == []
    answer(lab, again, 1)
    assert len(reads(lab)) == 1


def test_questions_of_another_life_have_other_numbers() -> None:
    lives = [Ways(Random(seed)) for seed in (1, 2)]
    assert len({ways.next_sequence() for ways in lives for _ in range(3)}) == 6


def test_without_a_leader_there_is_nobody_to_ask() -> None:
    assert refused(Lab(asks_leader=True)) is ErrorCode.NO_LEADER


def test_a_server_that_asks_nobody_says_that_it_does_not_lead() -> None:
    lab = Lab()
    lab.append(term=1)
    assert refused(lab) is ErrorCode.NOT_LEADER


def test_a_leader_that_does_not_understand_is_not_asked() -> None:
    lab = follower(way=False)
    number, requests = ask(lab)
    assert requests == []
    assert list(lab.core.addressees) == [2]
    lab.core.reachable(2, [Extension.PRE_VOTE])
    lab.drain()
    assert reads(lab) == [ReadFailed(read=number)]
    assert refused(lab) is ErrorCode.NOT_LEADER
    assert list(lab.core.addressees) == []


def test_a_leader_that_is_in_no_configuration_yet_is_not_dialled() -> None:
    lab = Lab(Stored(), asks_leader=True)
    lab.append(term=1)
    ask(lab)
    assert list(lab.core.addressees) == []
    members = Entry(1, configuration(2, 3))
    lab.append(term=1, entries=[members], commit=1)
    assert list(lab.core.addressees) == [2]


def test_a_read_waits_for_a_way_to_the_leader() -> None:
    lab = follower(way=False)
    assert ask(lab)[1] == []
    lab.core.reachable(2, Extension)
    assert len(all_of(lab.drain(), ReadIndexRequest)) == 1
    lab.core.unreachable(2)
    assert all_of(lab.drain(), ReadIndexRequest) == []
    lab.core.reachable(2, Extension)
    assert len(all_of(lab.drain(), ReadIndexRequest)) == 1


def test_reads_that_wait_are_bounded() -> None:
    lab = follower(reads_max=2)
    ask(lab)
    ask(lab)
    assert refused(lab) is ErrorCode.QUEUE_FULL


@pytest.mark.parametrize("confirmed", [True, False])
def test_another_leader_ends_all_reads_of_the_last_one(*, confirmed: bool) -> None:
    lab = follower()
    number, requests = ask(lab)
    if confirmed:
        answer(lab, requests[0], 9)
    lab.append(source=3, term=2, previous=(1, 1))
    assert reads(lab) == [ReadFailed(read=number)]
    assert ask(lab)[1] == []  # leader 3 is still unknown


def test_a_refusal_ends_the_reads_that_were_asked_for() -> None:
    lab = follower()
    number, requests = ask(lab)
    ask(lab)
    following = all_of(answer(lab, requests[0], 0, accepted=False), ReadIndexRequest)
    assert reads(lab) == [ReadFailed(read=number)]
    assert len(following) == 1


def test_a_leader_that_does_not_answer_for_an_election_timeout_ends_them() -> None:
    lab = follower()
    number, _ = ask(lab)
    for _ in range(3):
        lab.wait(0.5)
        lab.append(term=1, previous=(1, 1))
    assert reads(lab) == []
    deadline = lab.core.next_deadline()
    assert deadline is not None
    assert deadline <= 2.0
    lab.wait(0.5)
    assert reads(lab) == [ReadFailed(read=number)]


@pytest.mark.parametrize("index", [2, 2**63 - 1])
def test_an_index_that_does_not_come_nearer_for_an_election_timeout_ends_them(index: int) -> None:
    lab = follower()
    number, requests = ask(lab)
    answer(lab, requests[0], index)
    for _ in range(3):
        lab.wait(0.5)
        lab.append(term=1, previous=(1, 1))
    assert reads(lab) == []
    deadline = lab.core.next_deadline()
    assert deadline is not None
    assert deadline <= 2.0
    lab.wait(0.5)
    assert reads(lab) == [ReadFailed(read=number)]


def test_reads_wait_as_long_as_the_state_machine_gets_on() -> None:
    lab = follower()
    number, requests = ask(lab)
    answer(lab, requests[0], 5)
    for index in range(1, 5):
        lab.wait(0.9)
        lab.append(term=1, previous=(index, 1))
        lab.wait(0.9)
        assert reads(lab) == []
        lab.append(term=1, previous=(index, 1), entries=entries(1), commit=index + 1)
    assert reads(lab) == [ReadReady(read=number, index=5)]


def test_reads_wait_as_long_as_the_state_machine_is_at_work() -> None:
    lab = follower()
    lab.append(term=1, previous=(1, 1), entries=entries(1))
    number, requests = ask(lab)
    answer(lab, requests[0], 2)
    lab.hold = True
    for _ in range(4):
        lab.append(term=1, previous=(2, 1), commit=2)
        lab.wait(0.9)
    assert reads(lab) == []
    lab.release()
    assert reads(lab) == [ReadReady(read=number, index=2)]


def test_the_end_of_the_server_ends_them() -> None:
    lab = follower()
    number, _ = ask(lab)
    lab.core.close()
    lab.drain()
    assert reads(lab) == [ReadFailed(read=number)]


# At the leader


def test_the_leader_answers_when_a_majority_has_confirmed_it() -> None:
    lab = leader()
    lab.core.propose([b"open"])
    sent = asked(lab)
    assert all_of(sent, ReadIndexResponse) == []
    request = all_of(sent, AppendRequest)[0]
    found = one(lab.accept(request, next_index=2), ReadIndexResponse)
    assert (found.accepted, found.sequence, found.next_index) == (True, 7, 2)


def test_the_leader_refuses_when_it_leads_no_more() -> None:
    lab = leader()
    asked(lab)
    lab.append(source=3, term=2)
    found = all_of(lab.sent, ReadIndexResponse)
    assert [one.accepted for one in found] == [False]


def test_the_leader_holds_so_many_questions_and_no_more() -> None:
    lab = Lab(asks_leader=True, reads_max=1)
    lab.settle(lab.lead())
    lab.settle(lab.wait(0.5))
    asked(lab)
    assert not one(asked(lab, sequence=8), ReadIndexResponse).accepted


def test_who_does_not_lead_refuses() -> None:
    lab = follower()
    assert not one(asked(lab), ReadIndexResponse).accepted


# Faults that the simulator would notice


def test_canary_a_leader_that_asks_no_majority_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Leadership.read

    def at_once(self: Leadership, asked: int | ReadIndexRequest) -> None:
        if isinstance(asked, int):
            read(self, asked)
        else:
            shared = self._shared
            shared.respond(asked, shared.journal.commit_index + 1, accepted=True)

    monkeypatch.setattr(Leadership, "read", at_once)
    assert caught(CALM, size=5, seeds=100, seconds=5, check_sends=True)


def test_canary_a_follower_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    on_response = FollowerReads.on_response

    def at_once(reads: FollowerReads, response: ReadIndexResponse) -> None:
        on_response(reads, dataclasses.replace(response, next_index=1))

    monkeypatch.setattr(FollowerReads, "on_response", at_once)
    assert caught(CALM, size=3, seeds=100, seconds=1.5, check_sends=True)

"""One test for each normative sentence of the Raft paper: figure 2, sections 5 to 8."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_lab import TIMING, Lab, all_of, configuration, entries, founders, one

from culm.garlic.raft import (
    ConfigurationChanged,
    Entry,
    ErrorCode,
    LeaderChanged,
    Left,
    PeerFault,
    ReadFailed,
    ReadReady,
    RoleChanged,
    Snapshot,
    SnapshotChunk,
    SnapshotInstalled,
    State,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    ClientRequest,
    ClientResponse,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
)
from culm.machine import LocalProtocolError

# 5.1 Raft basics


def test_if_one_servers_current_term_is_smaller_it_updates_to_the_larger_value() -> None:
    lab = Lab(term=1)
    lab.ask_vote(term=4)
    assert lab.core.term == 4
    lab.append(term=6)
    assert lab.core.term == 6


@pytest.mark.parametrize("role", [State.CANDIDATE, State.LEADER])
def test_a_candidate_or_leader_whose_term_is_out_of_date_reverts_to_follower(role: State) -> None:
    lab = Lab()
    if role is State.LEADER:
        first = lab.lead()[0]
        lab.tell(
            AppendResponse(
                source=first.destination,
                destination=1,
                term=9,
                sequence=first.sequence,
                next_index=1,
                accepted=False,
            )
        )
    else:
        lab.wait(2.0)
        lab.vote(2, term=9, accepted=False)
    assert lab.core.state is State.FOLLOWER
    assert lab.core.term == 9


def test_a_request_with_a_stale_term_is_rejected() -> None:
    lab = Lab(term=5, log=(1,))
    answer = lab.append(term=4, previous=(1, 1))
    assert not answer.accepted
    assert answer.term == 5
    assert not lab.ask_vote(term=4, last=(9, 4)).accepted


def test_each_server_persists_its_current_term_before_responding() -> None:
    lab = Lab()
    lab.hold = True
    lab.core.receive_message(
        VoteRequest(source=2, destination=1, term=3, last_log_index=0, last_log_term=0)
    )
    assert lab.drain() == []
    answer = lab.release()
    assert len(answer) == 1
    assert (lab.persists[0].term, lab.persists[0].voted_for) == (3, 2)


# 5.2 Leader election


def test_servers_begin_as_followers() -> None:
    assert Lab().core.state is State.FOLLOWER


def test_a_follower_that_receives_no_communication_begins_an_election() -> None:
    lab = Lab()
    requests = all_of(lab.wait(2.0), VoteRequest)
    assert lab.core.state is State.CANDIDATE
    assert lab.core.term == 1
    assert lab.persists[0].voted_for == 1
    assert {request.destination for request in requests} == {2, 3}


def test_a_server_remains_follower_as_long_as_it_receives_valid_requests_from_a_leader() -> None:
    lab = Lab()
    for _ in range(20):
        lab.append(term=1)
        lab.wait(0.9)
        assert lab.core.state is State.FOLLOWER


def test_a_candidate_wins_with_votes_from_a_majority_of_the_full_cluster() -> None:
    lab = Lab(founders(1, 2, 3, 4, 5))
    lab.wait(2.0)
    lab.vote(2)
    assert lab.core.state is State.CANDIDATE
    lab.vote(2)  # the same voter again
    assert lab.core.state is State.CANDIDATE
    lab.vote(9)  # not of the cluster
    assert lab.core.state is State.CANDIDATE
    lab.vote(3)
    assert lab.core.state is State.LEADER


def test_votes_of_another_term_do_not_count() -> None:
    lab = Lab()
    lab.wait(2.0)
    lab.wait(2.0)
    assert lab.core.term == 2
    lab.vote(2, term=1)
    assert lab.core.state is State.CANDIDATE


def test_a_candidate_counts_its_own_vote_only_when_it_is_durable() -> None:
    lab = Lab(founders(1))
    lab.hold = True
    lab.wait(2.0)
    assert lab.core.state is State.CANDIDATE
    lab.release()
    assert lab.core.state is State.LEADER


def test_each_server_votes_for_at_most_one_candidate_in_a_term_first_come_first_served() -> None:
    lab = Lab()
    assert lab.ask_vote(source=2, term=1).accepted
    assert not lab.ask_vote(source=3, term=1).accepted
    assert lab.ask_vote(source=2, term=1).accepted
    assert lab.ask_vote(source=3, term=2).accepted


def test_a_winner_sends_heartbeats_to_all_other_servers_to_establish_its_authority() -> None:
    lab = Lab()
    requests = lab.lead()
    assert {m.destination for m in all_of(requests, AppendRequest)} == {2, 3}
    lab.settle(requests)
    beats = all_of(lab.wait(0.5), AppendRequest)
    assert {beat.destination for beat in beats} == {2, 3}
    assert all(not beat.entries for beat in beats)


def test_a_candidate_recognizes_a_leader_of_its_term_and_returns_to_follower() -> None:
    lab = Lab()
    lab.wait(2.0)
    lab.append(term=1)
    assert lab.core.state is State.FOLLOWER
    assert lab.core.leader == 2


def test_a_candidate_rejects_a_leader_of_a_smaller_term_and_continues() -> None:
    lab = Lab(term=3)
    lab.wait(2.0)
    assert not lab.append(term=3).accepted
    assert lab.core.state is State.CANDIDATE


def test_a_candidate_that_neither_wins_nor_loses_starts_a_new_election() -> None:
    lab = Lab()
    lab.wait(2.0)
    requests = all_of(lab.wait(2.0), VoteRequest)
    assert lab.core.term == 2
    assert len(requests) == 2


def test_election_timeouts_are_chosen_randomly_from_a_fixed_interval() -> None:
    lab = Lab()
    waits = set()
    for _ in range(50):
        lab.append(term=1)
        deadline = lab.core.next_deadline()
        assert deadline is not None
        waits.add(deadline - lab.now)
        lab.wait(0.1)
    assert len(waits) > 40
    assert all(1.0 <= wait <= 2.0 + 1e-9 for wait in waits)


# 5.3 Log replication


def test_the_leader_appends_and_replicates_commands_in_parallel_and_applies_when_safe() -> None:
    lab = Lab()
    lab.settle(lab.lead())
    lab.applied.clear()
    assert lab.core.propose([b"x"]) == (2, lab.core.term)
    requests = all_of(lab.drain(), AppendRequest)
    assert [entry.data for entry in requests[0].entries] == [b"x"]
    assert len(requests) == 2
    assert lab.applied == []
    lab.accept(requests[0])
    assert [entry.data for entry in lab.applied] == [b"x"]


def test_the_leader_counts_its_own_copy_only_when_it_is_durable() -> None:
    lab = Lab()
    lab.settle(lab.lead())
    lab.hold = True
    lab.core.propose([b"x"])
    request = all_of(lab.drain(), AppendRequest)[0]
    lab.accept(request)
    assert lab.core.commit_index == 1
    lab.release()
    assert lab.core.commit_index == 2


def test_the_leader_retries_until_all_followers_store_all_entries() -> None:
    lab = Lab()
    lab.lead()
    for _ in range(3):
        lab.wait(0.5)
        again = all_of(lab.wait(0.5), AppendRequest)
        assert {request.destination for request in again} <= {2, 3}
        assert all(request.entries for request in again)
    assert len(all_of(lab.sent, AppendRequest)) >= 4


def test_the_leader_includes_its_commit_index_so_that_followers_find_out() -> None:
    lab = Lab()
    first, second = lab.lead()
    notice = all_of(lab.accept(first), AppendRequest)
    assert [message.commit_index for message in notice] == [1]
    late = all_of(lab.accept(second), AppendRequest)
    assert [message.commit_index for message in late] == [1]


def test_a_follower_applies_once_it_learns_that_an_entry_is_committed() -> None:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1))
    assert lab.applied == []
    lab.append(term=1, previous=(2, 1), commit=1)
    assert lab.applied == entries(1)
    lab.append(term=1, previous=(2, 1), commit=9)
    assert lab.applied == entries(1, 1)


def test_a_follower_commits_no_further_than_the_last_new_entry() -> None:
    lab = Lab(log=(1, 1, 1), term=1)
    lab.append(term=2, previous=(1, 1), commit=3)
    assert lab.core.commit_index == 1


def test_a_follower_refuses_new_entries_if_it_lacks_the_one_before() -> None:
    lab = Lab(log=(1, 1), term=1)
    answer = lab.append(term=2, previous=(3, 2), entries=entries(2))
    assert (answer.accepted, answer.next_index) == (False, 3)
    assert lab.log == [1, 1]


def test_a_conflicting_entry_is_deleted_with_all_that_follow_it() -> None:
    lab = Lab(log=(1, 1, 2, 2), term=2)
    answer = lab.append(term=3, previous=(2, 1), entries=entries(3))
    assert (answer.accepted, answer.next_index) == (True, 4)
    assert lab.log == [1, 1, 3]
    assert lab.persists[-1].first_index == 3


def test_entries_that_do_not_conflict_are_kept_when_an_old_request_comes_late() -> None:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1, 1))
    answer = lab.append(term=1, entries=entries(1))
    assert (answer.accepted, answer.next_index) == (True, 2)
    assert lab.log == [1, 1, 1]


def test_a_heartbeat_at_a_committed_index_deletes_nothing() -> None:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1, 1), commit=3)
    lab.append(term=1, previous=(1, 1))
    assert lab.log == [1, 1, 1]


def test_committed_entries_are_never_deleted_whatever_a_leader_says() -> None:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1), commit=2)
    lab.wait(1.0)
    request = AppendRequest(
        source=2,
        destination=1,
        term=2,
        previous_index=1,
        previous_term=1,
        commit_index=0,
        entries=entries(2),
    )
    assert not one(lab.tell(request), AppendResponse).accepted
    assert lab.log == [1, 1]
    assert isinstance(lab.events[-1], PeerFault)


def test_the_leader_starts_each_follower_at_its_last_index_plus_one() -> None:
    lab = Lab(log=(1, 1), term=1)
    assert {m.previous_index for m in all_of(lab.lead(), AppendRequest)} == {2}


def test_after_a_refusal_the_leader_decrements_next_index_and_retries() -> None:
    lab = Lab(log=[1] * 9, term=1)
    request = lab.lead()[0]
    (retry,) = all_of(lab.answer(request, 6, accepted=False), AppendRequest)
    assert retry.previous_index == 5
    (retry,) = all_of(lab.answer(retry, 5, accepted=False), AppendRequest)
    assert retry.previous_index == 3
    (rest,) = all_of(lab.accept(retry), AppendRequest)
    assert (rest.previous_index, len(rest.entries)) == (3, 7)


def test_a_hint_that_does_not_help_is_followed_by_steps_that_double() -> None:
    lab = Lab(log=[1] * 100, term=1)
    request = lab.lead()[0]
    tried = []
    while request.previous_index > 0 and len(tried) < 20:
        (request,) = all_of(lab.answer(request, 500, accepted=False), AppendRequest)
        tried.append(request.previous_index)
    assert tried == [99, 97, 93, 85, 69, 37, 0]


def test_a_follower_hints_past_a_whole_conflicting_term() -> None:
    lab = Lab(log=(1, 1, 4, 4, 4, 4), term=4)
    answer = lab.append(term=6, previous=(5, 2))
    assert (answer.accepted, answer.next_index) == (False, 3)


def test_a_leader_never_overwrites_or_deletes_entries_in_its_log() -> None:
    lab = Lab(log=(1, 1), term=1)
    lab.lead()
    answer = lab.append(source=3, term=lab.core.term, entries=entries(2, 2, 2))
    assert not answer.accepted
    assert lab.log == [1, 1, 2]


# 5.4 Safety


@pytest.mark.parametrize(
    ("last", "granted"),
    [((3, 2), True), ((4, 2), True), ((1, 3), True), ((2, 2), False), ((9, 1), False)],
)
def test_a_voter_denies_its_vote_if_its_own_log_is_more_up_to_date(
    last: tuple[int, int], granted: bool
) -> None:
    lab = Lab(log=(1, 2, 2), term=2)
    assert lab.ask_vote(term=3, last=last).accepted is granted


def test_a_leader_commits_no_entry_of_a_previous_term_by_counting_replicas() -> None:
    lab = Lab(log=(1, 2), term=2, append_entries_max=1)
    request = lab.lead()[0]
    assert lab.core.term == 3
    (request,) = all_of(lab.answer(request, 2, accepted=False), AppendRequest)
    assert request.previous_index == 1
    (request,) = all_of(lab.accept(request), AppendRequest)
    (request,) = all_of(lab.accept(request), AppendRequest)
    assert lab.core.commit_index == 0
    lab.accept(request)
    assert lab.core.commit_index == 3


def test_a_new_leader_begins_its_term_with_an_entry_of_its_own() -> None:
    lab = Lab(log=(1,), term=1)
    (request, _) = all_of(lab.lead(), AppendRequest)
    (entry,) = request.entries
    assert entry == Entry(2, configuration(1, 2, 3, index=2))


# 5.5 Follower and candidate crashes


def test_requests_are_idempotent() -> None:
    lab = Lab()
    first = lab.append(term=1, entries=entries(1, 1))
    assert lab.append(term=1, entries=entries(1, 1)) == first
    assert lab.log == [1, 1]


def test_a_torn_write_commits_nothing_that_it_was_to_replace() -> None:
    """Persist may be cut short after its head, whose commit index is for the entries before it."""
    lab = Lab(log=(1, 1, 1), term=1)
    lab.hold = True
    request = AppendRequest(
        source=2,
        destination=1,
        term=2,
        previous_index=1,
        previous_term=1,
        commit_index=3,
        entries=entries(2, 2),
    )
    lab.core.receive_message(request)
    lab.drain()
    assert lab.core.commit_index == 3
    assert (lab.persists[0].first_index, lab.persists[0].commit_index) == (2, 1)


def test_a_restarted_server_keeps_term_vote_and_log() -> None:
    lab = Lab(Stored(term=4, voted_for=3, snapshot=founders(1, 2, 3).snapshot), log=(1, 2))
    assert lab.core.term == 4
    assert not lab.ask_vote(source=2, term=4, last=(9, 4)).accepted
    assert lab.ask_vote(source=3, term=4, last=(9, 4)).accepted


# 6 Cluster membership changes


def test_servers_disregard_vote_requests_while_they_believe_a_leader_exists() -> None:
    lab = Lab()
    lab.append(source=2, term=1)
    lab.wait(0.9)
    answer = lab.ask_vote(source=3, term=7)
    assert (answer.accepted, answer.term) == (False, 1)
    assert lab.core.term == 1
    lab.wait(0.1)
    assert lab.ask_vote(source=3, term=7).accepted


def test_a_strangers_high_term_does_not_depose_a_leader() -> None:
    lab = Lab()
    lab.lead()
    assert not lab.ask_vote(source=77, term=99, last=(900, 98)).accepted
    assert not lab.append(source=77, term=99).accepted
    lab.vote(77, term=99, accepted=False)
    assert (lab.core.state, lab.core.term) == (State.LEADER, 1)


def test_a_leader_without_contact_to_a_majority_steps_down() -> None:
    lab = Lab()
    lab.lead()
    lab.wait(2.0)
    lab.wait(2.0)
    assert lab.core.state is not State.LEADER


def test_a_leader_that_steps_down_keeps_the_vote_that_it_gave_itself() -> None:
    """Otherwise the loser of the election would be a second leader of its term."""
    lab = Lab()
    lab.lead()
    while lab.core.state is State.LEADER:
        lab.wait(1.0)
    assert (lab.core.state, lab.core.term) == (State.FOLLOWER, 1)
    assert not lab.ask_vote(source=3, term=1, last=(9, 1)).accepted
    assert lab.persists[-1].voted_for == 1


def leader_that_is_removed() -> tuple[Lab, list[AppendRequest]]:
    """Its own removal is committed; later requests go unanswered."""
    without = Entry(1, configuration(2, 3, 4, index=1))
    lab = Lab(Stored(term=1, snapshot=founders(1, 2, 3, 4).snapshot, entries=[without]))
    requests = [
        all_of(lab.answer(request, 1, accepted=False), AppendRequest)[-1]
        for request in all_of(lab.lead(), AppendRequest)
    ]
    assert [request.destination for request in requests] == [2, 3, 4]
    lab.accept(requests[0])
    told = all_of(lab.accept(requests[1]), AppendRequest)
    assert any(isinstance(event, ConfigurationChanged) for event in lab.events)
    return lab, [*told, requests[2]]


def test_a_leader_that_is_not_in_the_committed_configuration_steps_down() -> None:
    """As soon as a majority of the others knows: otherwise they would want its vote."""
    lab, requests = leader_that_is_removed()
    assert lab.core.state is State.LEADER
    assert [request.destination for request in requests] == [2, 3, 4]
    assert [request.commit_index for request in requests] == [2, 2, 0]
    lab.accept(requests[0])
    assert lab.core.state is State.LEADER
    assert Left() not in lab.events
    lab.accept(requests[1])
    assert lab.core.state is State.FOLLOWER
    assert Left() in lab.events
    assert lab.wait(50.0) == []


def test_a_removed_leader_goes_at_last_when_nobody_answers() -> None:
    lab, _ = leader_that_is_removed()
    for _ in range(3):
        lab.wait(2.0)
    assert lab.core.state is State.FOLLOWER
    assert lab.events.count(Left()) == 1
    assert lab.wait(50.0) == []


def test_only_who_has_what_is_committed_lets_a_removed_leader_go() -> None:
    lab, requests = leader_that_is_removed()
    for request in requests[:2]:  # asked before it was committed
        lab.answer(replace(request, sequence=request.sequence - 3), 3, accepted=True)
    assert lab.core.state is State.LEADER
    lab.accept(requests[0])
    assert lab.answer(requests[2], 1, accepted=False) == []
    again = all_of(lab.wait(TIMING.heartbeat_interval_s), AppendRequest)[-1]
    assert again.destination == 4
    assert again.sequence > requests[0].sequence
    lab.answer(again, 1, accepted=False)
    assert lab.core.state is State.LEADER
    lab.accept(requests[1])
    assert lab.core.state is State.FOLLOWER


# 7 Log compaction


def test_a_snapshot_carries_the_last_included_index_and_term_and_configuration() -> None:
    lab = Lab(snapshot_distance=2)
    lab.append(term=1, entries=entries(1, 1, 1), commit=3)
    taken = [effect for effect in lab.effects if isinstance(effect, TakeSnapshot)]
    assert taken[0].snapshot == Snapshot(3, 1, configuration(1, 2, 3))
    assert lab.core.log.base_index == 3


def test_after_compaction_the_consistency_check_still_works() -> None:
    lab = Lab(snapshot_distance=2)
    lab.append(term=1, entries=entries(1, 1, 1), commit=3)
    assert lab.append(term=1, previous=(3, 1), entries=entries(1)).accepted
    assert not lab.append(term=2, previous=(9, 2)).accepted
    assert lab.append(term=2, previous=(1, 1), entries=entries(1, 1, 1, 2)).next_index == 6


def snapshot_chunks(lab: Lab, *, sizes: tuple[int, ...] = (4, 4)) -> list[SnapshotResponse]:
    snapshot = Snapshot(5, 2, configuration(1, 2, 3, index=4))
    offset, answers = 0, []
    for number, size in enumerate(sizes, 1):
        lab.hold = True
        lab.tell(
            SnapshotRequest(
                source=2,
                destination=1,
                term=3,
                snapshot=snapshot,
                offset=offset,
                data=bytes(size),
                done=number == len(sizes),
                commit_index=6,
            )
        )
        while lab.pending:
            effect = lab.pending.pop(0)
            lab.do(effect, True if isinstance(effect, WriteSnapshot) else None)
            lab.drain()
        answers.append(all_of(lab.sent, SnapshotResponse)[-1])
        offset += size
    lab.hold = False
    return answers


def test_a_snapshot_is_written_chunk_by_chunk_and_replaces_the_whole_log() -> None:
    lab = Lab(log=(1, 1), term=1)
    answers = snapshot_chunks(lab)
    assert [(a.next_index, a.accepted) for a in answers] == [(4, True), (8, True)]
    assert lab.log == []
    assert (lab.core.commit_index, lab.core.applied_index) == (5, 5)
    assert any(isinstance(event, SnapshotInstalled) for event in lab.events)
    assert lab.append(term=3, previous=(5, 2), entries=entries(3)).accepted


def test_entries_after_a_snapshot_that_the_log_agrees_with_are_retained() -> None:
    lab = Lab(log=(1, 1, 1, 2, 2, 2, 2), term=2)
    answers = snapshot_chunks(lab)
    assert all(answer.accepted for answer in answers)
    assert lab.log == [1, 1, 1, 2, 2, 2, 2]
    assert lab.core.commit_index == 5
    assert not any(isinstance(effect, WriteSnapshot) for effect in lab.effects)


def test_a_chunk_that_is_not_the_one_wanted_is_answered_with_the_offset_wanted() -> None:
    lab = Lab()
    chunk = SnapshotRequest(
        source=2,
        destination=1,
        term=3,
        snapshot=Snapshot(5, 2, configuration(1, 2, 3)),
        offset=8,
        data=b"late",
        done=False,
        commit_index=6,
    )
    answer = one(lab.tell(chunk), SnapshotResponse)
    assert (answer.next_index, answer.accepted) == (0, True)


def test_a_follower_that_lacks_discarded_entries_gets_the_snapshot_in_chunks() -> None:
    snapshot = Snapshot(9, 1, configuration(1, 2, 3, index=1))
    lab = Lab(Stored(term=1, snapshot=snapshot, first_index=10))
    request = lab.lead()[0]
    image, offset = b"0123456789", 0
    lab.hold = True
    lab.answer(request, 1, accepted=False)
    while lab.pending:
        effect = lab.pending.pop()
        data = image[offset : offset + 4]
        lab.do(effect, SnapshotChunk(data, offset + len(data) == len(image)))
        chunk = one(lab.drain(), SnapshotRequest)
        assert (chunk.offset, chunk.data) == (offset, data)
        offset += len(data)
        lab.tell(
            SnapshotResponse(
                source=chunk.destination,
                destination=1,
                term=chunk.term,
                sequence=chunk.sequence,
                next_index=offset,
                accepted=True,
            )
        )
    assert chunk.done
    last = all_of(lab.sent, AppendRequest)[-1]
    assert (last.destination, last.previous_index) == (chunk.destination, 9)


# 8 Client interaction


def test_a_server_that_is_not_the_leader_rejects_the_request_and_names_the_leader() -> None:
    lab = Lab()
    lab.append(source=3, term=1)
    with pytest.raises(LocalProtocolError) as caught:
        lab.core.propose([b"x"])
    assert caught.value.code is ErrorCode.NOT_LEADER
    request = ClientRequest(source=0, destination=0, term=0, sequence=5, values=[b"x"])
    answer = one(lab.tell(request), ClientResponse)
    assert (answer.accepted, answer.destination, answer.sequence) == (False, 3, 5)
    assert LeaderChanged(leader=3, term=1) in lab.events


def test_a_leader_accepts_client_requests_when_they_are_appended_durably() -> None:
    lab = Lab()
    lab.lead()
    lab.hold = True
    request = ClientRequest(source=0, destination=0, term=0, sequence=5, values=[b"x", b"y"])
    assert all_of(lab.tell(request), ClientResponse) == []
    answer = one(lab.release(), ClientResponse)
    assert (answer.accepted, answer.destination, answer.next_index) == (True, 1, 4)


def test_a_read_waits_for_heartbeats_with_a_majority_and_an_entry_of_the_own_term() -> None:
    lab = Lab()
    first, _ = lab.lead()
    number = lab.core.read()
    assert not any(isinstance(event, ReadReady) for event in lab.events)
    beat = all_of(lab.accept(first), AppendRequest)
    assert not any(isinstance(event, ReadReady) for event in lab.events)
    lab.accept(beat[0])
    assert ReadReady(read=number, index=1) in lab.events


def test_answers_to_requests_of_an_earlier_leadership_confirm_no_read() -> None:
    """A late refusal of an old request carries our present term, too."""
    lab = Lab()
    lab.settle(lab.lead())
    for _ in range(20):
        lab.core.propose([b"x"])
        lab.settle(lab.drain())
    old = [message for message in all_of(lab.sent, AppendRequest) if message.destination == 2]
    lab.append(source=3, term=2)
    lab.settle(lab.lead())
    number = lab.core.read()
    ready = ReadReady(read=number, index=lab.core.commit_index)
    request = all_of(lab.drain(), AppendRequest)[0]
    for message in old:
        late = replace(message, term=lab.core.term)
        lab.answer(late, 1, accepted=False)
    assert ready not in lab.events
    lab.accept(request)
    assert ready in lab.events


def test_a_read_fails_when_leadership_ends() -> None:
    lab = Lab()
    lab.lead()
    number = lab.core.read()
    lab.append(term=2)
    assert ReadFailed(read=number) in lab.events
    assert RoleChanged(role=State.FOLLOWER, term=2) in lab.events

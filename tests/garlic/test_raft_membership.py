"""Membership, transfer and limits of the core: the seed's message table, JRaft's flows."""

from __future__ import annotations

import pytest
from raft_lab import TIMING, Lab, all_of, configuration, entries, founders, one

from culm.garlic.raft import (
    ChangeFailed,
    Configuration,
    ConfigurationChanged,
    Entry,
    ErrorCode,
    Left,
    Limits,
    Persist,
    ReadFailed,
    Server,
    State,
    Stored,
    Timing,
    TransferFailed,
)
from culm.garlic.raft.engine import Engine
from culm.garlic.raft.membership import Membership
from culm.garlic.raft.messages import (
    RESPONSE_OF,
    AddServerRequest,
    AddServerResponse,
    AppendRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    Message,
    RaftRequest,
    SyncRequest,
    SyncResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
)
from culm.garlic.raft.model import Snapshot
from culm.machine import Closed, ContractErrorCode, LocalProtocolError

NEW = Server(4, "tcp://lab:4")


def leader(**settings: object) -> Lab:
    lab = Lab(**settings)  # type: ignore[arg-type]
    lab.settle(lab.lead())
    return lab


def refusal(call: object) -> object:
    with pytest.raises(LocalProtocolError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def respond(
    lab: Lab, request: Message, kind: type, *, next_index: int, accepted: bool = True
) -> list[Message]:
    return lab.tell(
        kind(
            source=request.destination,
            destination=1,
            term=request.term,
            sequence=request.sequence,
            next_index=next_index,
            accepted=accepted,
        )
    )


def test_every_request_has_a_rule_and_a_response() -> None:
    assert {kind for kind in Engine.RULES if issubclass(kind, RaftRequest)} == set(RESPONSE_OF)


def test_a_joiner_is_invited_synced_and_taken_in() -> None:
    lab = leader()
    lab.core.propose([b"a", b"b", b"c"])
    lab.settle(lab.drain())
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    assert join.configuration.ids == {1, 2, 3}
    sync = one(respond(lab, join, JoinResponse, next_index=1), SyncRequest)
    assert (sync.previous_index, len(sync.entries)) == (0, 4)
    lab.settle(respond(lab, sync, SyncResponse, next_index=5))
    assert lab.core.configuration.ids == {1, 2, 3, 4}
    assert lab.core.configuration.last_log_index == 1
    assert {m.destination for m in all_of(lab.sent, AppendRequest)} == {2, 3, 4}


def test_a_configuration_takes_effect_only_when_it_is_committed() -> None:
    lab = leader()
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    requests = respond(lab, join, JoinResponse, next_index=1)
    assert lab.core.configuration.ids == {1, 2, 3}
    assert {m.destination for m in all_of(requests, AppendRequest)} == {2, 3}
    assert isinstance(requests[0].entries[0].data, Configuration)  # type: ignore[attr-defined]
    lab.settle(requests)
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_one_change_at_a_time() -> None:
    lab = leader()
    lab.core.add_server(NEW)
    other = Server(5, "tcp://lab:5")
    assert refusal(lambda: lab.core.add_server(other)) is ErrorCode.CHANGE_IN_PROGRESS
    assert refusal(lambda: lab.core.remove_server(2)) is ErrorCode.CHANGE_IN_PROGRESS
    assert refusal(lambda: lab.core.transfer_leadership(2)) is ErrorCode.CHANGE_IN_PROGRESS
    join = one(lab.drain(), JoinRequest)
    respond(lab, join, JoinResponse, next_index=1)  # appended, not committed
    assert refusal(lambda: lab.core.add_server(other)) is ErrorCode.CHANGE_IN_PROGRESS


def test_a_leader_that_has_committed_nothing_in_its_term_changes_nothing() -> None:
    lab = Lab()
    lab.lead()
    assert refusal(lambda: lab.core.add_server(NEW)) is ErrorCode.NOTHING_COMMITTED


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda core: core.add_server(Server(2, "tcp://x:1")), ErrorCode.ALREADY_MEMBER),
        (lambda core: core.add_server(Server(9, "")), ErrorCode.BAD_ENDPOINT),
        (lambda core: core.add_server(Server(9, "tcp://ä:1")), ErrorCode.BAD_ENDPOINT),
        (lambda core: core.remove_server(9), ErrorCode.NOT_MEMBER),
        (lambda core: core.remove_server(1), ErrorCode.IS_LEADER),
        (lambda core: core.transfer_leadership(1), ErrorCode.IS_LEADER),
        (lambda core: core.transfer_leadership(9), ErrorCode.NOT_MEMBER),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(call: object, code: ErrorCode) -> None:
    lab = leader()
    assert refusal(lambda: call(lab.core)) is code  # type: ignore[operator]
    assert lab.drain() == []


def test_a_silent_joiner_is_given_up() -> None:
    lab = leader()
    lab.core.add_server(NEW)
    lab.drain()
    for _ in range(20):
        lab.settle(lab.wait(0.5))
    assert ChangeFailed(server_id=4) in lab.events
    lab.core.add_server(NEW)


def test_a_joiner_that_does_not_want_is_given_up() -> None:
    lab = leader()
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    respond(lab, join, JoinResponse, next_index=1, accepted=False)
    assert ChangeFailed(server_id=4) in lab.events


def test_a_server_is_told_to_leave_before_it_is_removed() -> None:
    lab = leader()
    lab.core.remove_server(3)
    requests = lab.drain()
    leave = one(requests, LeaveRequest)
    assert leave.destination == 3
    assert all_of(requests, AppendRequest) == []
    lab.settle(respond(lab, leave, LeaveResponse, next_index=2))
    assert lab.core.configuration.ids == {1, 2}


def test_a_silent_server_is_removed_all_the_same() -> None:
    lab = leader()
    lab.core.remove_server(3)
    lab.drain()
    for _ in range(12):
        for message in all_of(lab.wait(0.5), AppendRequest):
            if message.destination == 2:
                lab.settle(lab.accept(message))
    assert lab.core.configuration.ids == {1, 2}


def test_who_was_silent_for_two_election_timeouts_is_not_waited_for() -> None:
    lab = leader(attempts_max=100)

    def beats(number: int) -> None:
        for _ in range(number):
            for message in all_of(lab.wait(0.5), AppendRequest):
                if message.destination == 2:
                    lab.settle(lab.accept(message))

    beats(6)
    lab.core.remove_server(3)
    one(lab.drain(), LeaveRequest)
    beats(1)
    assert lab.core.configuration.ids == {1, 2, 3}  # silent for 3.5 s of 4
    beats(2)
    assert lab.core.configuration.ids == {1, 2}


def removed(lab: Lab) -> None:
    """Server 2 of a cluster of two is removed; effects wait from then on."""
    lab.core.remove_server(2)
    leave = one(lab.drain(), LeaveRequest)
    append = one(respond(lab, leave, LeaveResponse, next_index=2), AppendRequest)
    lab.hold = True
    lab.accept(append)


def test_a_removal_is_told_when_a_restart_would_know_it() -> None:
    lab = leader(stored=founders(1, 2))
    removed(lab)
    assert lab.core.configuration.ids == {1}
    (persist,) = (effect for effect in lab.pending if isinstance(effect, Persist))
    assert (persist.commit_index, persist.first_index) == (2, None)
    assert not any(isinstance(event, ConfigurationChanged) for event in lab.events)
    lab.release()
    assert ConfigurationChanged(configuration=lab.core.configuration) in lab.events
    lab.wait(0.5)
    assert [effect for effect in lab.pending if isinstance(effect, Persist)] == []


def test_a_change_that_is_not_told_yet_is_in_progress() -> None:
    """So each change has one end, and it is clear whose."""
    lab = leader(stored=founders(1, 2))
    removed(lab)
    assert lab.core.configuration.ids == {1}
    again = Server(2, "tcp://lab:2")
    assert refusal(lambda: lab.core.add_server(again)) is ErrorCode.CHANGE_IN_PROGRESS
    lab.release()
    lab.core.add_server(again)


def test_the_last_server_leads_after_a_restart() -> None:
    lab = leader(stored=founders(1, 2))
    removed(lab)
    lab.release()
    last = lab.persists[-1]
    log = lab.core.log
    stored = Stored(
        term=last.term,
        voted_for=last.voted_for,
        commit_index=last.commit_index,
        snapshot=log.snapshot,
        entries=log.slice(1, log.last_index),
    )
    again = Lab(stored)
    again.wait(2.0)
    again.wait(2.0)
    assert again.core.state is State.LEADER


def test_with_several_writes_a_removal_is_told_when_its_entry_is_durable_too() -> None:
    lab = leader(stored=founders(1, 2, 3), writes_max=4)
    lab.core.remove_server(3)
    leave = one(lab.drain(), LeaveRequest)
    lab.hold = True
    requests = all_of(respond(lab, leave, LeaveResponse, next_index=2), AppendRequest)
    for request in requests:
        lab.accept(request)  # committed by the others, not yet durable here
    assert lab.core.configuration.ids == {1, 2}
    for _ in range(3):
        assert not any(isinstance(event, ConfigurationChanged) for event in lab.events)
        lab.do(lab.pending.pop(0))
        lab.drain()
        if any(isinstance(event, ConfigurationChanged) for event in lab.events):
            break
    assert lab.persists[-1].commit_index == 2
    assert ConfigurationChanged(configuration=lab.core.configuration) in lab.events


def test_a_server_that_is_closed_tells_nothing_that_a_restart_would_not_know() -> None:
    lab = leader(stored=founders(1, 2))
    removed(lab)
    lab.core.close()
    lab.drain()
    assert lab.events[-2:] == [ChangeFailed(server_id=2), Closed()]
    assert not any(isinstance(event, ConfigurationChanged) for event in lab.events)


def test_a_change_that_a_restart_may_not_know_ends_with_its_server() -> None:
    lab = leader(stored=founders(1, 2))
    removed(lab)
    (persist,) = (effect for effect in lab.pending if isinstance(effect, Persist))
    lab.core.fail(persist.ticket, OSError("full"))
    lab.drain()
    assert lab.events[-2:] == [ChangeFailed(server_id=2), Closed()]


def test_a_server_that_was_asked_for_no_change_tells_of_none_when_it_is_closed() -> None:
    lab = leader(stored=founders(1, 2))
    removed(lab)
    lab.release()
    lab.core.close()
    lab.drain()
    assert not any(isinstance(event, ChangeFailed) for event in lab.events)


def joiner() -> Lab:
    return Lab(Stored(), server_id=4)


def join_request(term: int = 3, source: int = 1) -> JoinRequest:
    return JoinRequest(
        source=source,
        destination=4,
        term=term,
        configuration=configuration(1, 2, 3),
        last_log_index=9,
        commit_index=9,
    )


def sync(previous: int, *terms: int, term: int = 3, commit: int = 0) -> SyncRequest:
    return SyncRequest(
        source=1,
        destination=4,
        term=term,
        previous_index=previous,
        commit_index=commit,
        entries=entries(*terms),
    )


def test_a_joiner_takes_packs_from_the_start_and_applies_what_is_committed() -> None:
    lab = joiner()
    assert one(lab.tell(join_request()), JoinResponse).accepted
    answer = one(lab.tell(sync(0, 1, 1, commit=9)), SyncResponse)
    assert (answer.accepted, answer.next_index) == (True, 3)
    assert lab.core.applied_index == 2
    assert one(lab.tell(sync(2, 3)), SyncResponse).next_index == 4
    assert lab.log == [1, 1, 3]


def test_a_joiner_takes_no_pack_with_a_gap_before_it() -> None:
    lab = joiner()
    lab.tell(join_request())
    answer = one(lab.tell(sync(5, 1)), SyncResponse)
    assert (answer.accepted, answer.next_index) == (False, 1)
    assert lab.log == []


def test_who_was_not_invited_takes_no_pack() -> None:
    lab = Lab(log=(1, 1), term=1)
    answer = one(lab.tell(sync(0, 2, 2)), SyncResponse)
    assert not answer.accepted
    assert lab.log == [1, 1]


def test_a_joiner_never_stands_for_election() -> None:
    lab = joiner()
    lab.tell(join_request())
    lab.wait(100.0)  # its leader is silent
    assert lab.core.next_deadline() is None
    lab.wait(100.0)
    assert lab.core.state is State.FOLLOWER


def test_a_server_leaves_when_the_configuration_without_it_is_committed() -> None:
    lab = Lab()
    lab.append(term=1)
    assert one(
        lab.tell(LeaveRequest(source=2, destination=1, term=1, last_log_index=0, commit_index=0)),
        LeaveResponse,
    ).accepted
    without = [Entry(1, configuration(2, 3, index=1))]
    lab.append(term=1, entries=without)
    assert Left() not in lab.events
    lab.append(term=1, previous=(1, 1), commit=1)
    assert [type(event) for event in lab.events[-2:]] == [ConfigurationChanged, Left]
    assert lab.wait(50.0) == []


def test_a_server_that_shall_leave_goes_after_two_silent_election_timeouts() -> None:
    lab = Lab()
    lab.append(term=1)
    lab.tell(LeaveRequest(source=2, destination=1, term=1, last_log_index=0, commit_index=0))
    lab.append(term=1, entries=[Entry(1, configuration(2, 3, index=1))])
    for _ in range(5):
        lab.wait(0.9)
        lab.append(term=1, previous=(1, 1))
    assert Left() not in lab.events
    for _ in range(5):
        lab.wait(TIMING.election_timeout_max_s / 2)
    assert Left() in lab.events


def test_a_candidates_message_resets_the_wait_for_silence() -> None:
    """Two election timeouts after the last word of a leader or candidate, not before."""
    lab = Lab()
    lab.append(term=1)
    lab.tell(LeaveRequest(source=2, destination=1, term=1, last_log_index=0, commit_index=0))
    lab.append(term=1, entries=[Entry(1, configuration(2, 3, index=1))])
    for _ in range(4):
        lab.wait(TIMING.election_timeout_max_s - 0.01)
        term = lab.core.term + 1
        assert lab.ask_vote(source=3, term=term, last=(1, 1)).accepted
    assert Left() not in lab.events
    lab.wait(TIMING.election_timeout_max_s)
    assert Left() not in lab.events
    lab.wait(TIMING.election_timeout_max_s)
    assert Left() in lab.events


def test_the_defaults_are_jrafts() -> None:
    timing, limits = Timing(), Limits()
    assert (timing.election_timeout_min_s, timing.election_timeout_max_s) == (0.150, 0.300)
    assert (timing.heartbeat_interval_s, limits.sync_gap) == (0.075, 100)
    assert (limits.in_flight_max, limits.chunk_size) == (1, 4096)


@pytest.mark.parametrize(("in_flight_max", "sent"), [(1, 1), (3, 3)])
def test_one_request_to_a_peer_is_outstanding_unless_the_user_wants_more(
    in_flight_max: int, sent: int
) -> None:
    lab = leader(in_flight_max=in_flight_max)
    requests = []
    for number in range(5):
        lab.core.propose([b"%d" % number])
        requests += [m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2]
    assert len(requests) == sent
    (following,) = (m for m in all_of(lab.accept(requests[0]), AppendRequest) if m.destination == 2)
    assert [entry.data for entry in following.entries] == [b"%d" % n for n in range(sent, 5)]


def test_the_effective_configuration_is_at_most_one_change_behind_the_log() -> None:
    """Whatever commit index is remembered: a second change proves the first committed."""
    membership = Membership(Snapshot(configuration=configuration(1, 2, 3)), 0)
    membership.append(1, [Entry(1, configuration(1, 2, 3, 4, index=1))])
    assert membership.voters == {1, 2, 3}
    membership.append(2, [Entry(2, configuration(1, 2, 3, 4, index=2))])
    assert membership.voters == {1, 2, 3}
    membership.append(3, [Entry(2, configuration(1, 2, 3, 4, 5, index=3))])
    assert membership.voters == {1, 2, 3, 4}
    membership.truncate(3)
    assert membership.voters == {1, 2, 3}
    assert membership.commit(2)
    assert membership.voters == {1, 2, 3, 4}


def test_leadership_is_transferred_when_the_target_has_the_whole_log() -> None:
    lab = leader()
    lab.core.propose([b"x"])
    requests = lab.drain()
    lab.core.transfer_leadership(2)
    assert all_of(lab.drain(), TransferRequest) == []
    assert refusal(lambda: lab.core.propose([b"y"])) is ErrorCode.TRANSFER_IN_PROGRESS
    (to_target,) = (m for m in requests if m.destination == 2)
    transfer = one(lab.accept(to_target), TransferRequest)
    assert (transfer.destination, transfer.last_log_index) == (2, 2)
    assert lab.ask_vote(source=2, term=2, last=(2, 1), transfer=True).accepted
    assert lab.core.state is State.FOLLOWER


def test_a_target_stands_at_once_and_a_leader_in_contact_is_no_obstacle() -> None:
    lab = Lab()
    lab.append(term=1)
    messages = lab.tell(TransferRequest(source=2, destination=1, term=1, last_log_index=0))
    assert one(messages, TransferResponse).accepted
    votes = all_of(messages, VoteRequest)
    assert {vote.destination for vote in votes} == {2, 3}
    assert all(vote.transfer and vote.term == 2 for vote in votes)


def test_a_transfer_that_fails_is_told_and_proposals_are_taken_again() -> None:
    lab = leader()
    lab.core.transfer_leadership(2)
    for _ in range(5):
        lab.settle(lab.wait(0.5))
    assert TransferFailed(target=2) in lab.events
    lab.core.propose([b"x"])


def test_a_core_that_is_closed_waits_for_no_target() -> None:
    lab = leader()
    lab.core.transfer_leadership(2)
    lab.core.close()
    lab.drain()
    assert lab.events[-2:] == [TransferFailed(target=2), Closed()]


def test_proposals_are_bounded_by_count_and_size() -> None:
    lab = Lab(proposals_max=3, proposal_size_max=10)
    lab.settle(lab.lead())
    assert refusal(lambda: lab.core.propose([b""] * 4)) is ErrorCode.VALUE_TOO_LARGE
    assert lab.core.propose([b""] * 3) == (2, 1)
    assert refusal(lambda: lab.core.propose([b""])) is ErrorCode.QUEUE_FULL
    assert lab.core.propose([]) == (5, 1)  # which is empty
    lab.settle(lab.drain())
    assert refusal(lambda: lab.core.propose([b"x" * 11])) is ErrorCode.VALUE_TOO_LARGE
    lab.core.propose([b"x" * 6])
    assert refusal(lambda: lab.core.propose([b"x" * 6])) is ErrorCode.QUEUE_FULL
    lab.settle(lab.drain())
    lab.core.propose([b"x" * 6])


def test_reads_are_bounded() -> None:
    lab = Lab(reads_max=1)
    lab.lead()
    lab.core.read()
    assert refusal(lab.core.read) is ErrorCode.QUEUE_FULL


def test_appends_are_cut_by_count_and_by_size() -> None:
    lab = leader(append_entries_max=2, append_size_max=10)
    lab.core.propose([b"x" * 20, b"y" * 4, b"z" * 4, b"w" * 4])
    request = next(m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    sizes = []
    while request.entries:
        sizes.append(len(request.entries))
        (request,) = (m for m in all_of(lab.accept(request), AppendRequest) if m.destination == 2)
    assert sizes == [1, 2, 1]


def test_an_add_request_of_a_client_is_answered_with_the_log_end_and_the_leader() -> None:
    lab = leader()
    request = AddServerRequest(source=0, destination=0, term=0, sequence=3, server=NEW)
    answer = one(lab.tell(request), AddServerResponse)
    assert (answer.accepted, answer.next_index, answer.destination) == (True, 2, 1)
    answer = one(lab.tell(request), AddServerResponse)
    assert not answer.accepted


def test_a_single_server_leads_commits_and_reads_alone() -> None:
    lab = Lab(founders(1))
    lab.wait(2.0)
    assert lab.core.state is State.LEADER
    lab.core.propose([b"x"])
    lab.drain()
    assert lab.core.commit_index == 2
    number = lab.core.read()
    lab.drain()
    assert [event.read for event in lab.events if hasattr(event, "read")] == [number]
    assert not any(isinstance(event, ConfigurationChanged) for event in lab.events)


def test_time_does_not_go_back_and_tickets_are_answered_once() -> None:
    lab = Lab()
    lab.wait(1.0)
    assert refusal(lambda: lab.core.advance(0.5)) is ContractErrorCode.TIME_WENT_BACK
    assert refusal(lambda: lab.core.complete(99, None)) is ContractErrorCode.UNKNOWN_TICKET


def test_a_closed_core_says_nothing_more() -> None:
    lab = leader()
    number = lab.core.read()
    lab.core.add_server(NEW)
    lab.core.close()
    lab.core.close()
    assert lab.drain() == []
    assert ReadFailed(read=number) in lab.events
    assert ChangeFailed(server_id=4) in lab.events
    assert lab.events[-1] == Closed()
    assert lab.core.state is State.CLOSED
    assert refusal(lambda: lab.core.propose([b"x"])) is ContractErrorCode.ALREADY_CLOSED
    lab.core.receive_message(
        VoteRequest(source=2, destination=1, term=9, last_log_index=0, last_log_term=0)
    )
    assert lab.drain() == []
    assert lab.core.next_deadline() is None

"""Between the paper's lines: boundaries, strays, and simultaneous events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_lab import TIMING, Lab, all_of, configuration, entries, founders, one

from culm.garlic.raft import (
    ChangeFailed,
    LeaderChanged,
    Left,
    Limits,
    ReadSnapshot,
    Server,
    Snapshot,
    SnapshotChunk,
    State,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    JoinRequest,
    JoinResponse,
    LeaveResponse,
    Message,
    SnapshotRequest,
    SnapshotResponse,
    SyncRequest,
    SyncResponse,
)


@pytest.mark.parametrize(
    "name", ["append_entries_max", "apply_entries_max", "chunk_size", "sync_gap"]
)
def test_a_limit_of_0_with_which_nothing_is_ever_done_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})
    Limits(**{name: 1})


NEW = Server(4, "tcp://lab:4")


def leader(**settings: object) -> Lab:
    lab = Lab(**settings)  # type: ignore[arg-type]
    lab.settle(lab.lead())
    return lab


def answer_of(request: Message, kind: type, *, next_index: int, accepted: bool = True) -> Message:
    return kind(  # type: ignore[no-any-return]
        source=request.destination,
        destination=1,
        term=request.term,
        sequence=request.sequence,
        next_index=next_index,
        accepted=accepted,
    )


def snapshot_request(snapshot: Snapshot, *, term: int = 3, data: bytes = b"all") -> SnapshotRequest:
    return SnapshotRequest(
        source=2,
        destination=1,
        term=term,
        snapshot=snapshot,
        offset=0,
        data=data,
        done=True,
        commit_index=6,
    )


# Followers


def test_a_new_term_has_no_known_leader_yet() -> None:
    lab = Lab()
    lab.append(source=2, term=1)
    lab.wait(1.0)
    lab.ask_vote(source=3, term=2)
    assert lab.core.leader is None
    assert lab.events[-1] == LeaderChanged(leader=None, term=2)


def test_who_steps_down_waits_a_whole_election_timeout_before_it_stands() -> None:
    lab = leader()
    lab.append(source=2, term=2)
    deadline = lab.core.next_deadline()
    assert deadline is not None
    assert deadline - lab.now >= TIMING.election_timeout_min_s
    alone = Lab()
    alone.lead()
    for _ in range(5):
        alone.wait(0.5)
    assert alone.core.state is State.FOLLOWER
    deadline = alone.core.next_deadline()
    assert deadline is not None
    assert deadline - alone.now > 0


def test_a_snapshot_of_a_term_that_is_not_yet_is_refused() -> None:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1, 1), commit=3)
    lab.wait(0.1)
    request = snapshot_request(Snapshot(9, 4, configuration(1, 2, 3)), term=3)
    assert not one(lab.tell(request), SnapshotResponse).accepted
    assert lab.log == [1, 1, 1]
    assert not any(isinstance(effect, WriteSnapshot) for effect in lab.effects)


def test_while_a_snapshot_is_written_entries_and_votes_for_oneself_wait() -> None:
    lab = Lab()
    lab.append(term=3)
    lab.hold = True
    lab.tell(snapshot_request(Snapshot(5, 2, configuration(1, 2, 3))))
    (write,) = lab.pending
    refused = lab.append(term=3, entries=entries(3))
    assert (refused.accepted, refused.next_index) == (False, 1)
    lab.wait(2.0)
    lab.wait(2.0)
    assert (lab.core.state, lab.core.term) == (State.FOLLOWER, 3)
    lab.pending.clear()
    lab.hold = False
    lab.do(write, True)
    assert one(lab.drain(), SnapshotResponse).accepted
    assert lab.append(term=3, previous=(5, 2), entries=entries(3)).accepted


def test_a_snapshot_that_cannot_be_used_is_asked_for_again_from_its_start() -> None:
    lab = Lab()
    lab.append(term=3)
    lab.hold = True
    request = snapshot_request(Snapshot(5, 2, configuration(1, 2, 3)))
    lab.tell(request)
    lab.do(lab.pending.pop(), False)
    answer = one(lab.drain(), SnapshotResponse)
    assert (answer.accepted, answer.next_index) == (True, 0)
    lab.tell(request)
    lab.do(lab.pending.pop(), True)
    assert one(lab.drain(), SnapshotResponse).accepted


def test_who_is_not_in_an_installed_snapshots_configuration_has_left() -> None:
    lab = Lab()
    lab.append(term=3)
    lab.hold = True
    lab.tell(snapshot_request(Snapshot(5, 2, configuration(2, 3, index=4))))
    lab.do(lab.pending.pop(), True)
    lab.hold = False
    assert one(lab.drain(), SnapshotResponse).accepted
    assert Left() in lab.events
    assert lab.core.configuration.ids == {2, 3}
    assert lab.wait(50.0) == []


@pytest.mark.parametrize(("first_index", "kept"), [(1, 5), (3, 3), (5, 1), (6, 0)])
def test_a_stored_log_may_begin_before_or_behind_its_snapshot(first_index: int, kept: int) -> None:
    """A crash between a snapshot and the compaction leaves the entries that it replaces."""
    stored = Stored(
        term=1,
        snapshot=Snapshot(5, 1, configuration(1, 2, 3)),
        first_index=first_index,
        entries=entries(*[1] * (8 - first_index)),
    )
    lab = Lab(stored)
    assert lab.core.last_index == 7
    assert (lab.core.commit_index, lab.core.applied_index) == (5, 5)
    assert lab.append(term=1, previous=(5, 1), commit=5).accepted
    assert not lab.append(term=1, previous=(5, 4), commit=5).accepted
    assert len(lab.log) == 2 + max(0, kept - 1)


@pytest.mark.parametrize(("commit", "taken"), [(2, []), (3, [3]), (5, [5])])
def test_a_snapshot_is_taken_as_soon_as_the_distance_is_reached(
    commit: int, taken: list[int]
) -> None:
    lab = Lab(snapshot_distance=3)
    lab.append(term=1, entries=entries(1, 1, 1, 1, 1), commit=commit)
    found = [e.snapshot.index for e in lab.effects if isinstance(e, TakeSnapshot)]
    assert found == taken


def test_entries_before_a_snapshot_are_kept_for_slow_followers_as_far_as_wanted() -> None:
    lab = Lab(snapshot_distance=3, trailing_entries=2)
    lab.append(term=1, entries=entries(1, 1, 1, 1), commit=4)
    assert lab.log == [1, 1]
    assert not lab.append(term=1, previous=(3, 9)).accepted
    assert lab.append(term=1, previous=(3, 1)).accepted


# Leaders


def test_strays_change_nothing() -> None:
    """Answers of servers that were not asked, and of other kinds than were asked for."""
    lab = leader()
    lab.core.propose([b"x"])
    request = all_of(lab.drain(), AppendRequest)[0]
    before = (lab.core.commit_index, lab.core.state, lab.core.term)
    for kind in (AppendResponse, SnapshotResponse, JoinResponse, SyncResponse, LeaveResponse):
        for source in (2, 77):
            message = answer_of(replace(request, destination=source), kind, next_index=9)
            assert lab.tell(message) == []
    early = replace(answer_of(request, AppendResponse, next_index=3), sequence=request.sequence + 9)
    assert lab.tell(early) == []
    assert (lab.core.commit_index, lab.core.state, lab.core.term) == before
    lab.accept(request)
    assert lab.core.commit_index == 2


def test_an_answer_that_agrees_further_than_the_log_goes_does_not_count() -> None:
    lab = leader()
    lab.core.propose([b"x"])
    request = all_of(lab.drain(), AppendRequest)[0]
    assert lab.tell(answer_of(request, AppendResponse, next_index=50)) == []
    assert lab.core.commit_index == 1


def test_answers_to_an_invitation_that_come_twice_are_taken_once() -> None:
    lab = leader()
    lab.core.propose([b"a", b"b", b"c", b"d"])
    lab.settle(lab.drain())
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    yes = answer_of(join, JoinResponse, next_index=1)
    sync = one(lab.tell(yes), SyncRequest)
    assert lab.tell(yes) == []
    assert lab.tell(replace(yes, accepted=False)) == []  # type: ignore[type-var]
    assert ChangeFailed(server_id=4) not in lab.events
    lab.settle(lab.tell(answer_of(sync, SyncResponse, next_index=6)))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_another_server_does_not_answer_for_the_one_that_is_added() -> None:
    lab = leader()
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    assert lab.tell(answer_of(replace(join, destination=3), JoinResponse, next_index=1)) == []
    assert lab.tell(answer_of(replace(join, destination=3), LeaveResponse, next_index=1)) == []
    lab.settle(lab.tell(answer_of(join, JoinResponse, next_index=1)))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_an_answer_of_another_kind_lets_nobody_in() -> None:
    """A server gets the log before it is a member, whatever it answers."""
    lab = leader()
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    log = lab.log
    assert lab.tell(answer_of(join, LeaveResponse, next_index=1)) == []
    assert lab.log == log
    lab.settle(lab.tell(answer_of(join, JoinResponse, next_index=1)))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_server_is_found_while_it_is_added_and_while_that_is_not_committed() -> None:
    lab = leader()
    assert lab.core.find_server(4) is None
    lab.core.add_server(NEW)
    assert lab.core.find_server(4) == NEW
    join = one(lab.drain(), JoinRequest)
    requests = lab.tell(answer_of(join, JoinResponse, next_index=1))
    assert lab.core.find_server(4) == NEW  # in the log, not in force
    lab.append(source=2, term=2)  # another leader; it keeps what we have so far
    assert lab.core.find_server(4) == NEW
    assert lab.core.find_server(2) == Server(2, "tcp://lab:2")
    assert requests


def test_what_was_sent_over_a_way_that_broke_is_sent_again_at_once() -> None:
    lab = leader(in_flight_max=2)
    lab.core.propose([b"x"])
    lost = next(m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    lab.core.unreachable(2)
    lab.core.unreachable(77)
    (again,) = all_of(lab.drain(), AppendRequest)
    assert (again.destination, again.entries) == (2, lost.entries)
    assert again.sequence > lost.sequence


def test_a_way_that_broke_with_nothing_on_it_changes_nothing() -> None:
    lab = leader(in_flight_max=2)
    served = lab.core.peers
    assert [(peer.doing, peer.in_flight) for peer in served] == [("replicate", 0)] * 2
    lab.core.unreachable(2)
    assert lab.drain() == []
    assert lab.core.peers == served


def test_values_that_fill_a_request_exactly_go_together() -> None:
    lab = leader(append_size_max=10)
    lab.core.propose([b"x" * 5, b"y" * 5, b"z"])
    request = next(m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    assert [entry.data for entry in request.entries] == [b"x" * 5, b"y" * 5]


def test_after_a_snapshot_entries_go_on_behind_it() -> None:
    stored = Stored(
        term=1,
        snapshot=Snapshot(9, 1, configuration(1, 2, 3, index=1)),
        first_index=10,
        entries=entries(1, 1),
    )
    lab = Lab(stored)
    request = lab.lead()[0]
    lab.hold = True
    lab.answer(request, 1, accepted=False)
    lab.do(lab.pending.pop(), SnapshotChunk(b"0123", True))
    chunk = one(lab.drain(), SnapshotRequest)
    after = lab.tell(answer_of(chunk, SnapshotResponse, next_index=4))
    following = one(after, AppendRequest)
    assert (following.previous_index, len(following.entries)) == (9, 3)


def test_a_snapshot_that_is_gone_is_replaced_by_the_present_one() -> None:
    lab = Lab(
        Stored(term=1, snapshot=Snapshot(9, 1, configuration(1, 2, 3)), first_index=10),
        snapshot_distance=1,
    )
    request = lab.lead()[0]
    lab.hold = True
    lab.answer(request, 1, accepted=False)
    (read,) = lab.pending
    lab.pending.clear()
    lab.hold = False
    lab.accept(
        next(m for m in lab.sent[::-1] if isinstance(m, AppendRequest) and m.destination == 3)
    )
    assert lab.core.log.snapshot.index == 10
    lab.hold = True
    lab.do(read, None)
    lab.drain()
    again = lab.pending.pop()
    assert again.snapshot.index == 10  # type: ignore[attr-defined]
    assert again.offset == 0  # type: ignore[attr-defined]


def test_what_waits_to_be_sent_when_a_core_is_closed_is_not_sent() -> None:
    lab = leader()
    lab.core.advance(lab.now + 0.5)  # heartbeats are due
    lab.core.close()
    assert lab.core.messages_to_send() == []
    assert Lab(founders(1)).core.messages_to_send() == []


# The place where two logs part


def test_entries_are_sent_again_only_when_it_is_known_where_the_logs_part() -> None:
    lab = Lab(log=[1] * 9, term=1)
    request = lab.lead()[0]
    assert len(request.entries) == 1
    for _ in range(3):
        (request,) = all_of(lab.answer(request, 10, accepted=False), AppendRequest)
        assert request.entries == []
    lab.wait(0.5)
    (again,) = [m for m in all_of(lab.wait(0.5), AppendRequest) if m.destination == 2]
    assert (again.previous_index, again.entries) == (request.previous_index, [])
    (request,) = all_of(lab.answer(again, 10, accepted=False), AppendRequest)
    # Logs agree before the first known entry.
    assert (request.previous_index, len(request.entries)) == (0, 10)


def test_no_step_passes_the_beginning_of_the_log() -> None:
    snapshot = Snapshot(20, 1, configuration(1, 2, 3, index=1))
    stored = Stored(snapshot=snapshot, first_index=21, entries=entries(*[1] * 20))
    lab = Lab(stored, term=1)
    request = lab.lead()[0]
    tried = []
    while request.previous_index > 20:
        (request,) = all_of(lab.answer(request, 500, accepted=False), AppendRequest)
        tried.append(request.previous_index)
    assert tried == [39, 37, 33, 25, 20]
    assert all_of(lab.answer(request, 500, accepted=False), AppendRequest) == []
    assert isinstance(lab.effects[-1], ReadSnapshot)


@pytest.mark.parametrize("width", [1, 3, 10_000])
@pytest.mark.parametrize("size", [1, 10, 100, 3000])
def test_a_divergence_of_any_length_costs_few_requests(size: int, width: int) -> None:
    """With one term or with many: the leader's are odd here, the other's even."""
    turns = [2 * (at // width) for at in range(size)]
    leader = Lab(log=[1] * 50 + [3 + turn for turn in turns], term=2 * size + 3)
    follower = Lab(log=[1] * 50 + [2 + turn for turn in turns], server_id=2, term=2 * size + 2)
    messages: list[Message] = list(leader.lead())
    requests = []
    while messages:
        message = messages.pop(0)
        if message.destination == 2:
            requests += all_of([message], AppendRequest)
            messages += follower.tell(message)
        elif message.destination == 1:
            messages += leader.tell(message)
    assert follower.log == leader.log
    assert len(requests) <= 6 + size.bit_length() + 2 * size // 1000
    assert sum(len(request.entries) for request in requests) <= 2 * size + 2

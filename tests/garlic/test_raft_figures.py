"""More of the paper's statements: figures 2 and 13 where sections 5 to 7 do not repeat them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_lab import Lab, all_of, configuration, entries, founders, one

from culm.garlic.raft import (
    Apply,
    Compact,
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
    RaftRequest,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
)

SNAPSHOT = Snapshot(5, 2, configuration(1, 2, 3, 4, index=4))


def chunk(lab: Lab, offset: int, data: bytes, **fields: object) -> SnapshotResponse:
    """Send a chunk of the snapshot; the lab writes it."""
    request = SnapshotRequest(
        source=2,
        destination=1,
        term=3,
        snapshot=SNAPSHOT,
        offset=offset,
        data=data,
        done=False,
        commit_index=6,
    )
    lab.hold = True
    messages = lab.tell(replace(request, **fields))  # type: ignore[arg-type]
    while lab.pending:
        effect = lab.pending.pop(0)
        lab.do(effect, True if isinstance(effect, WriteSnapshot) else None)
        messages += lab.drain()
    lab.hold = False
    return one(messages, SnapshotResponse)


# Figure 2, state


def test_the_match_index_of_an_earlier_leadership_is_forgotten() -> None:
    """It is to be reinitialized after election: logs may have changed in between."""
    lab = Lab()
    lab.settle(lab.lead())
    lab.core.propose([b"x"])
    lab.settle(lab.drain())
    assert lab.core.commit_index == 2
    lab.append(source=3, term=2, previous=(2, 1), entries=entries(2))
    first = lab.lead()[0]
    assert lab.core.term == 3
    # Only its own copy is known now: earlier answers do not count
    assert lab.core.commit_index == 2
    lab.answer(first, 1, accepted=False)
    assert lab.core.commit_index == 2
    retry = all_of(lab.sent, AppendRequest)[-1]
    assert retry.previous_index == 0
    lab.accept(retry)
    assert lab.core.commit_index == 4


def test_a_late_answer_does_not_lower_the_match_index() -> None:
    lab = Lab(in_flight_max=4)
    first = lab.lead()[0]
    lab.accept(first)
    lab.core.propose([b"x"])
    second = next(m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    lab.accept(second)
    assert lab.core.commit_index == 2
    before = len(lab.sent)
    lab.accept(first)  # duplicated on the way
    lab.core.propose([b"y"])
    third = next(m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    assert third.previous_index == 2
    assert lab.sent[before:].count(third) == 1


def test_committed_entries_are_applied_once_each_in_order() -> None:
    lab = Lab(apply_entries_max=2)
    lab.append(term=1, entries=entries(1, 1, 1, 1, 1), commit=5)
    lab.append(term=1, previous=(5, 1), commit=5)
    found = [effect for effect in lab.effects if isinstance(effect, Apply)]
    assert [(effect.first_index, len(effect.entries)) for effect in found] == [
        (1, 2),
        (3, 2),
        (5, 1),
    ]
    assert lab.applied == entries(1, 1, 1, 1, 1)


# Figure 2, rules for servers


@pytest.mark.parametrize("granted", [True, False])
def test_only_a_vote_that_is_granted_restarts_the_election_timeout(granted: bool) -> None:
    lab = Lab(log=(1,), term=1)
    lab.wait(0.9)
    before = lab.core.next_deadline()
    answer = lab.ask_vote(term=2, last=(1, 1) if granted else (0, 0))
    assert answer.accepted is granted
    after = lab.core.next_deadline()
    assert before is not None
    assert after is not None
    assert (after == before) is not granted
    if granted:
        assert 1.9 <= after <= 2.9


def test_followers_are_passive() -> None:
    """They send no requests of their own, whatever they hear (5.1)."""
    lab = Lab()
    for step in range(10):
        lab.append(term=1, previous=(step, 1 if step else 0), entries=entries(1), commit=step)
        lab.wait(0.5)
        lab.ask_vote(term=1, source=3)
    assert lab.core.state is State.FOLLOWER
    assert all_of(lab.sent, RaftRequest) == []


def test_a_candidate_tells_its_last_index_and_term_to_all_at_once() -> None:
    lab = Lab(log=(1, 1, 2), term=4)
    requests = all_of(lab.wait(2.0), VoteRequest)
    assert {(r.destination, r.term, r.last_log_index, r.last_log_term) for r in requests} == {
        (2, 5, 3, 2),
        (3, 5, 3, 2),
    }


def test_a_slow_follower_does_not_hold_up_a_command() -> None:
    lab = Lab(founders(1, 2, 3, 4, 5))
    for request in lab.lead():
        if request.destination in (2, 3):
            lab.settle([request])
    lab.core.propose([b"x"])
    requests = all_of(lab.drain(), AppendRequest)
    lab.accept(next(request for request in requests if request.destination == 2))
    assert lab.core.commit_index == 1
    lab.accept(next(request for request in requests if request.destination == 3))
    assert lab.core.commit_index == 2  # 4 and 5 have said nothing yet


def test_several_entries_go_in_one_request() -> None:
    lab = Lab()
    lab.settle(lab.lead())
    lab.core.propose([b"x", b"y", b"z"])
    assert {len(request.entries) for request in all_of(lab.drain(), AppendRequest)} == {3}


# Figure 13 and section 7


def test_a_snapshot_of_an_older_term_is_answered_with_the_present_one_and_not_taken() -> None:
    lab = Lab(term=7)
    answer = chunk(lab, 0, b"data", done=True)
    assert (answer.accepted, answer.term) == (False, 7)
    assert not any(isinstance(effect, WriteSnapshot) for effect in lab.effects)


def test_the_first_chunk_begins_a_new_snapshot_and_the_rest_follow_at_their_offsets() -> None:
    lab = Lab()
    assert chunk(lab, 0, b"half").next_index == 4
    again = Snapshot(6, 2, SNAPSHOT.configuration)
    assert chunk(lab, 0, b"other", snapshot=again).next_index == 5
    assert chunk(lab, 4, b"late").next_index == 0  # of the abandoned one
    assert chunk(lab, 5, b"end", snapshot=again, done=True).next_index == 8
    written = [effect for effect in lab.effects if isinstance(effect, WriteSnapshot)]
    assert [(w.snapshot, w.offset, w.data, w.done) for w in written] == [
        (SNAPSHOT, 0, b"half", False),
        (again, 0, b"other", False),
        (again, 5, b"end", True),
    ]
    assert lab.core.applied_index == 6


def test_an_installed_snapshot_sets_the_state_and_the_configuration() -> None:
    lab = Lab(log=(1, 1, 1, 1, 1, 1, 1), term=1)
    assert chunk(lab, 0, b"all", done=True).accepted
    assert lab.log == []  # it conflicts with the snapshot's term
    assert lab.core.configuration == SNAPSHOT.configuration
    assert (lab.core.commit_index, lab.core.applied_index) == (5, 5)


def test_a_snapshot_of_what_is_compacted_already_changes_nothing() -> None:
    lab = Lab(Stored(term=3, snapshot=Snapshot(9, 3, configuration(1, 2, 3)), first_index=10))
    assert chunk(lab, 0, b"all", done=True).accepted
    assert not any(isinstance(effect, WriteSnapshot) for effect in lab.effects)
    assert lab.core.commit_index == 9


def test_a_snapshot_covers_committed_entries_only_and_the_log_keeps_the_rest() -> None:
    lab = Lab(snapshot_distance=2)
    lab.append(term=1, entries=entries(1, 1, 1, 1, 1), commit=3)
    taken = [effect for effect in lab.effects if isinstance(effect, TakeSnapshot)]
    compacted = [effect for effect in lab.effects if isinstance(effect, Compact)]
    assert [effect.snapshot.index for effect in taken] == [3]
    assert [effect.index for effect in compacted] == [3]
    assert lab.log == [1, 1]
    # The snapshot is on the disk before anything is dropped
    assert lab.effects.index(taken[0]) < lab.effects.index(compacted[0])


def test_a_chunk_that_is_not_answered_is_sent_again() -> None:
    lab = Lab(Stored(term=1, snapshot=Snapshot(9, 1, configuration(1, 2, 3)), first_index=10))
    request = lab.lead()[0]
    lab.hold = True
    lab.answer(request, 1, accepted=False)
    sent = []
    for _ in range(8):
        while lab.pending:
            effect = lab.pending.pop()
            assert isinstance(effect, ReadSnapshot)
            assert effect.offset == 0
            lab.do(effect, SnapshotChunk(b"0123", False))
        sent += all_of(lab.drain(), SnapshotRequest)
        # The other follower answers, so that we stay leader
        for other in all_of(lab.wait(0.5), AppendRequest):
            if other.destination != request.destination:
                lab.answer(other, other.previous_index + 1, accepted=True)
    assert len(sent) > 2
    assert {(chunk.offset, chunk.data) for chunk in sent} == {(0, b"0123")}
    assert len({chunk.sequence for chunk in sent}) == len(sent)


def test_a_leader_says_how_each_peer_is_served() -> None:
    lab = Lab()
    assert lab.core.peers == ()
    messages = lab.lead()
    lab.settle([m for m in messages if m.destination == 2])
    lab.core.propose([b"a", b"b"])
    lab.drain()
    second, third = lab.core.peers
    assert (second.server_id, second.doing, second.match_index) == (2, "replicate", 1)
    assert (second.next_index, second.in_flight, second.heard_at) == (4, 1, 2.0)
    assert (third.server_id, third.doing, third.match_index) == (3, "probe", 0)
    assert (third.next_index, third.in_flight, third.snapshot_index) == (1, 1, None)
    lab.core.add_server(Server(4, "tcp://lab:4"))
    lab.drain()
    assert [(peer.server_id, peer.doing) for peer in lab.core.peers] == [
        (2, "replicate"),
        (3, "probe"),
        (4, "joining"),
    ]
    assert lab.core.peers[-1].next_index == 1  # from the first entry on
    lab.core.cancel_change()
    lab.core.remove_server(3)
    assert [(peer.server_id, peer.doing) for peer in lab.core.peers] == [
        (2, "replicate"),
        (3, "leaving"),
    ]


def test_a_leader_says_how_much_of_a_snapshot_has_arrived() -> None:
    lab = Lab(Stored(term=1, snapshot=Snapshot(9, 1, configuration(1, 2, 3)), first_index=10))
    request = lab.lead()[0]
    lab.hold = True
    lab.answer(request, 1, accepted=False)
    (read,) = lab.pending
    lab.do(read, SnapshotChunk(b"0123", False))
    (chunk,) = all_of(lab.drain(), SnapshotRequest)
    lab.tell(
        SnapshotResponse(
            source=chunk.destination,
            destination=1,
            term=chunk.term,
            sequence=chunk.sequence,
            next_index=4,
            accepted=True,
        )
    )
    (peer,) = (peer for peer in lab.core.peers if peer.server_id == chunk.destination)
    assert (peer.doing, peer.snapshot_index, peer.snapshot_offset) == ("snapshot", 9, 4)

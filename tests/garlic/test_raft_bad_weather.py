"""Former obstacles to a cluster's progress, one test for each: none of them was ever unsafe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_lab import TIMING, Lab, all_of, configuration, entries, one

from culm.garlic.raft import (
    ChangeFailed,
    Entry,
    ErrorCode,
    Left,
    Limits,
    PeerFault,
    ReadSnapshot,
    Server,
    Snapshot,
    SnapshotChunk,
    State,
    Stored,
    WriteSnapshot,
)
from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    Extension,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    RaftResponse,
    SnapshotRequest,
    SnapshotResponse,
    SyncRequest,
    SyncResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
)
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.terms import Terms
from culm.machine import LocalProtocolError

NEW = Server(4, "tcp://lab:4")


def leader(**settings: object) -> Lab:
    lab = Lab(**settings)  # type: ignore[arg-type]
    lab.settle(lab.lead())
    return lab


def answer(
    lab: Lab, request: Message, kind: type, next_index: int, *, accepted: bool = True
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


def beat(lab: Lab) -> list[Message]:
    """A heartbeat interval goes by; the members accept everything."""
    messages = lab.wait(0.5)
    strangers = [m for m in messages if m.destination not in (2, 3)]
    lab.settle([m for m in messages if m.destination in (2, 3)])
    return strangers


# Joining


def syncing() -> tuple[Lab, SyncRequest]:
    lab = leader()
    lab.core.propose([b"a", b"b", b"c"])
    lab.settle(lab.drain())
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    return lab, one(answer(lab, join, JoinResponse, 1), SyncRequest)


def test_a_joiner_that_has_forgotten_its_invitation_is_invited_again() -> None:
    """It was restarted: its refusals used to be answered with the same pack, for ever."""
    lab, sync = syncing()
    assert answer(lab, sync, SyncResponse, 1, accepted=False) == []
    join = one(beat(lab), JoinRequest)
    sync = one(answer(lab, join, JoinResponse, 1), SyncRequest)
    lab.settle(answer(lab, sync, SyncResponse, 5))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_joiner_that_forgets_its_invitation_every_time_is_given_up() -> None:
    lab, sync = syncing()
    invitations = 1
    while ChangeFailed(server_id=4) not in lab.events:
        assert invitations < 10
        answer(lab, sync, SyncResponse, 1, accepted=False)
        for message in beat(lab):
            invitations += 1
            sync = one(answer(lab, message, JoinResponse, 1), SyncRequest)
    assert invitations == 3  # attempts_max
    lab.core.add_server(NEW)


def test_a_joiner_that_answers_and_gets_no_further_is_given_up() -> None:
    lab, sync = syncing()
    packs = 0
    while ChangeFailed(server_id=4) not in lab.events:
        found = all_of(answer(lab, sync, SyncResponse, 2), SyncRequest)
        packs += 1
        if found:
            (sync,) = found
        if packs % 10 == 0:
            beat(lab)
        assert lab.now < 60
    assert lab.now == pytest.approx(2 + 30.0, abs=1.0)


@pytest.mark.parametrize(("wanted", "previous"), [(0, 0), (1, 0), (2, 1), (5, None), (99, None)])
def test_a_joiner_gets_what_it_wants_next_and_no_entry_is_passed_over(
    wanted: int, previous: int | None
) -> None:
    lab, sync = syncing()
    assert sync.previous_index == 0
    found = all_of(answer(lab, sync, SyncResponse, wanted), SyncRequest)
    assert [request.previous_index for request in found] == ([] if previous is None else [previous])


def test_a_joiner_that_gets_further_has_time() -> None:
    lab = leader(append_entries_max=1, change_timeout_s=2.0)
    lab.core.propose([b"%d" % number for number in range(12)])
    lab.settle(lab.drain())
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    sync = one(answer(lab, join, JoinResponse, 1), SyncRequest)
    for following in range(2, 14):
        beat(lab)
        messages = answer(lab, sync, SyncResponse, following)
        found = all_of(messages, SyncRequest)
        if not found:
            break
        (sync,) = found
    lab.settle(messages)
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_joiner_that_gets_further_in_a_snapshot_has_time() -> None:
    """Even a single byte further."""
    stored = Stored(term=1, snapshot=Snapshot(5, 1, configuration(1, 2, 3)))
    lab = leader(stored=stored, change_timeout_s=0.9)
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    lab.hold = True
    messages = answer(lab, join, JoinResponse, 1)
    for end in range(1, 11):
        (read,) = lab.pending
        lab.pending.clear()
        lab.do(read, SnapshotChunk(b"1", end == 10))
        chunk = one(lab.drain(), SnapshotRequest)
        assert (chunk.destination, chunk.offset) == (4, end - 1)
        beat(lab)
        messages = answer(lab, chunk, SnapshotResponse, end)
    assert ChangeFailed(server_id=4) not in lab.events
    lab.hold = False
    lab.settle([*messages, *lab.release()])
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_joiner_that_takes_bytes_has_time() -> None:
    """A batch that took longer than a few requests was given up, and begun anew for ever."""
    lab, sync = syncing()
    for _ in range(200):
        assert beat(lab) == []
        lab.core.still_sending(4)
    lab.settle(answer(lab, sync, SyncResponse, 5))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_late_answer_of_a_joiner_counts_once() -> None:
    lab, sync = syncing()
    while not (again := all_of(beat(lab), SyncRequest)):
        pass
    following = one(answer(lab, sync, SyncResponse, 3), SyncRequest)
    assert (again[0].previous_index, following.previous_index) == (0, 2)
    assert answer(lab, sync, SyncResponse, 3) == []
    assert answer(lab, again[0], SyncResponse, 3) == []
    lab.settle(answer(lab, following, SyncResponse, 5))
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_change_can_be_cancelled() -> None:
    lab, sync = syncing()
    lab.core.cancel_change()
    assert lab.drain() == []
    assert lab.events[-1] == ChangeFailed(server_id=4)
    assert answer(lab, sync, SyncResponse, 5) == []
    lab.core.add_server(Server(5, "tcp://lab:5"))
    assert one(lab.drain(), JoinRequest).destination == 5


def test_what_is_in_the_log_is_not_cancelled() -> None:
    lab = leader()
    with pytest.raises(LocalProtocolError) as caught:
        lab.core.cancel_change()
    assert caught.value.code is ErrorCode.NO_CHANGE
    lab.core.add_server(NEW)
    join = one(lab.drain(), JoinRequest)
    appended = answer(lab, join, JoinResponse, 1)
    with pytest.raises(LocalProtocolError) as caught:
        lab.core.cancel_change()
    assert caught.value.code is ErrorCode.CHANGE_IN_PROGRESS
    lab.settle(appended)
    assert lab.core.configuration.ids == {1, 2, 3, 4}


def test_a_restarted_joiner_goes_on_with_a_leader_that_does_not_invite_again() -> None:
    """JRaft answers a refused pack with the log from the place named in the refusal."""
    lab = Lab(Stored(), server_id=4, log=(1, 1), term=3)

    def sync(previous: int, *terms: int) -> SyncResponse:
        request = SyncRequest(
            source=1,
            destination=4,
            term=3,
            previous_index=previous,
            commit_index=9,
            entries=entries(*terms),
        )
        return one(lab.tell(request), SyncResponse)

    refused = sync(2, 2)
    assert (refused.accepted, refused.next_index) == (False, 1)
    taken = sync(0, 1, 1, 2)
    assert (taken.accepted, taken.next_index) == (True, 4)
    assert sync(3, 3).accepted
    assert lab.log == [1, 1, 2, 3]


def test_who_waits_for_its_own_vote_to_be_written_does_not_stand_again() -> None:
    """A disk that takes longer than a timeout would never catch up with ever higher terms."""
    lab = Lab(term=3)
    lab.hold = True
    lab.wait(2 * TIMING.election_timeout_max_s)
    (write,) = lab.pending
    for _ in range(10):
        assert lab.wait(2 * TIMING.election_timeout_max_s) == []
    assert (lab.core.term, lab.pending) == (4, [write])
    asked = all_of(lab.release(), VoteRequest)
    assert {request.term for request in asked} == {4}
    lab.wait(2 * TIMING.election_timeout_max_s)
    assert lab.core.term == 5


@pytest.mark.parametrize("chunked", [False, True])
def test_who_writes_what_its_leader_has_sent_does_not_stand(chunked: bool) -> None:
    """The leader waits for the answer, up to `request_timeout_s`, before it speaks again."""
    lab = Lab()
    lab.append(term=3)
    lab.hold = True
    new = AppendRequest(
        source=2,
        destination=1,
        term=3,
        previous_index=0,
        previous_term=0,
        commit_index=0,
        entries=entries(3),
    )
    lab.tell(chunk(0) if chunked else new)
    (write,) = lab.pending
    for _ in range(10):
        assert lab.wait(TIMING.election_timeout_max_s) == []
    lab.hold = False
    lab.do(write, True if chunked else None)
    lab.wait(TIMING.election_timeout_min_s)  # answer and next request are on their way
    assert all_of(lab.sent, VoteRequest) == []
    for _ in range(3):
        lab.wait(TIMING.election_timeout_max_s)
    assert all_of(lab.sent, VoteRequest)  # a leader that is gone is replaced all the same


# Snapshots


SNAPSHOT = Snapshot(5, 2, configuration(1, 2, 3))


def chunk(offset: int, *, done: bool = False) -> SnapshotRequest:
    return SnapshotRequest(
        source=2,
        destination=1,
        term=3,
        snapshot=SNAPSHOT,
        offset=offset,
        data=b"four",
        done=done,
        commit_index=6,
    )


def test_a_snapshot_whose_beginning_is_lost_is_taken_from_the_start() -> None:
    """A server killed in its middle: JRaft repeats a refused chunk, without end or pause."""
    lab = Lab(term=3)
    answered = one(lab.tell(chunk(8)), SnapshotResponse)
    assert (answered.accepted, answered.next_index) == (True, 0)
    lab.hold = True
    lab.tell(chunk(0))
    lab.do(lab.pending.pop(), True)
    answered = one(lab.drain(), SnapshotResponse)
    assert (answered.accepted, answered.next_index) == (True, 4)


def test_a_leader_that_starts_over_is_told_chunk_by_chunk_what_is_there() -> None:
    """It has forgotten its progress, and does not believe a request for bytes beyond a chunk."""
    lab = Lab(term=3)
    lab.hold = True
    for offset in (0, 4):
        lab.tell(chunk(offset))
        lab.do(lab.pending.pop(), True)
        lab.drain()
    for offset, wanted in ((0, 4), (2, 6), (4, 8), (12, 8)):
        answered = one(lab.tell(chunk(offset)), SnapshotResponse)
        assert (answered.accepted, answered.next_index) == (True, wanted)
        assert lab.pending == []
    lab.tell(chunk(8, done=True))
    write = lab.pending.pop()
    assert all_of(lab.tell(chunk(0)), SnapshotResponse) == []  # another one is being written
    answered = one(lab.tell(chunk(4)), SnapshotResponse)  # the first of two that have to wait
    assert answered.next_index == 4
    lab.do(write, False)
    answers = all_of(lab.drain(), SnapshotResponse)
    assert [answered.next_index for answered in answers] == [0, 0]


@pytest.mark.parametrize("usable", [True, False])
def test_a_chunk_that_comes_during_a_write_fares_as_one_that_comes_after_it(usable: bool) -> None:
    """The answer of our own store makes no difference to the fate of the peer's requests."""
    held, later = Lab(term=3), Lab(term=3)
    other = replace(chunk(0), snapshot=Snapshot(9, 2, configuration(1, 2)))
    for lab in (held, later):
        lab.hold = True
        lab.tell(chunk(0))
    held.tell(other)
    held.do(held.pending.pop(), usable)
    answers = all_of(held.drain(), SnapshotResponse)
    later.do(later.pending.pop(), usable)
    expected = all_of([*later.drain(), *later.tell(other)], SnapshotResponse)
    assert [each.next_index for each in answers] == [each.next_index for each in expected]
    assert [*map(type, held.pending)] == [*map(type, later.pending)] == [WriteSnapshot]
    assert held.pending[0].snapshot == later.pending[0].snapshot == other.snapshot  # type: ignore[attr-defined]


def test_a_chunk_that_waited_for_a_write_is_refused_by_a_later_term() -> None:
    lab = Lab(term=3)
    lab.hold = True
    lab.tell(chunk(0))
    write = lab.pending.pop()
    lab.tell(chunk(4))
    lab.hold = False
    lab.append(source=3, term=4)
    lab.do(write, True)
    answers = all_of(lab.drain(), SnapshotResponse)
    assert [(each.accepted, each.term) for each in answers] == [(True, 4), (False, 4)]


@pytest.mark.parametrize("done", [False, True])
def test_a_chunk_that_is_being_written_is_answered_when_it_comes_again(done: bool) -> None:
    """A leader that hears nothing for as long as a slow write takes would not be one any more."""
    lab = Lab(term=3)
    lab.hold = True
    lab.tell(chunk(0))
    lab.do(lab.pending.pop(), True)
    lab.drain()
    lab.tell(replace(chunk(4, done=done), sequence=1))
    write = lab.pending.pop()
    for sequence in (2, 3):
        repeated = replace(chunk(4, done=done), sequence=sequence)
        answered = one(lab.tell(repeated), SnapshotResponse)
        assert (answered.sequence, answered.next_index) == (sequence - 1, 4)
        assert (answered.accepted, lab.pending) == (True, [])
    lab.do(write, True)
    (answered,) = all_of(lab.drain(), SnapshotResponse)
    assert (answered.sequence, answered.next_index) == (3, 8)


def partly_written(chunks: int, leader: int) -> Lab:
    """A follower that has so many chunks of a snapshot, and then a leader of the next term."""
    lab = Lab(term=3)
    lab.hold = True
    for offset in range(0, 4 * chunks, 4):
        lab.tell(chunk(offset))
        lab.do(lab.pending.pop(), True)
    lab.hold = False
    lab.append(source=leader, term=4)
    lab.drain()
    lab.hold = True
    return lab


@pytest.mark.parametrize("leader", [2, 3])
@pytest.mark.parametrize("size", [3, 4, 5, 20])  # of its chunks, those of the former one have 4
def test_what_is_written_of_a_snapshot_outlasts_its_leader(leader: int, size: int) -> None:
    """Where each chunk takes longer than an election it would never be whole."""
    lab, data = partly_written(3, leader), b"fourfourfour and some more"
    offset = 0
    while offset < 12:
        request = replace(chunk(offset), term=4, source=leader, data=data[offset : offset + size])
        offset = one(lab.tell(request), SnapshotResponse).next_index
        assert lab.pending == []
    assert offset == 12
    lab.tell(replace(chunk(12, done=True), term=4, source=leader, data=data[12:]))
    assert lab.pending[0].offset == 12  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [4, 5, 20])
def test_a_leader_whose_snapshot_has_other_bytes_begins_anew(size: int) -> None:
    lab, data = partly_written(2, 3), b"fouRfour and some more"
    offset, answers = 0, []
    while not answers or offset:
        request = replace(chunk(offset), term=4, source=3, data=data[offset : offset + size])
        offset = one(lab.tell(request), SnapshotResponse).next_index
        answers.append(offset)
        assert lab.pending == []
    assert answers == ([4, 0] if size == 4 else [5, 0] if size == 5 else [0])
    lab.tell(replace(chunk(0), term=4, source=3, data=data[:size]))
    assert lab.pending[0].data == data[:size]  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", [b"", b"fou", b"four", b"other", b"fourfour", b"fourFOUR"])
def test_a_snapshot_that_ends_within_what_is_written_is_not_there_yet(data: bytes) -> None:
    """Its leader took the follower for one that has it, and accused it of having lost entries."""
    lab = partly_written(2, 3)
    shorter = replace(chunk(0, done=True), term=4, source=3, data=data)
    for _ in range(2):
        lab.tell(shorter)  # at first it is told to begin anew
    (write,) = lab.pending
    assert (write.offset, write.data, write.done) == (0, data, True)  # type: ignore[attr-defined]
    assert all_of(lab.sent, SnapshotResponse)[-1].next_index == 0


def test_a_snapshot_that_cannot_be_used_is_wanted_from_the_start() -> None:
    lab = Lab(term=3)
    lab.hold = True
    lab.tell(chunk(0, done=True))
    assert isinstance(lab.pending[0], WriteSnapshot)
    lab.do(lab.pending.pop(), False)
    answered = one(lab.drain(), SnapshotResponse)
    assert (answered.accepted, answered.next_index) == (True, 0)


def compacted(**settings: object) -> tuple[Lab, AppendRequest]:
    """A leader whose log begins after 5, and its first request to 2."""
    lab = Lab(Stored(term=1, snapshot=Snapshot(5, 1, configuration(1, 2, 3))), **settings)  # type: ignore[arg-type]
    return lab, next(m for m in all_of(lab.lead(), AppendRequest) if m.destination == 2)


def installing(lab: Lab, request: AppendRequest) -> SnapshotRequest:
    """The peer's log ends before ours begins: it gets the snapshot."""
    lab.hold = True
    messages = lab.answer(request, 2, accepted=False)
    reads = [effect for effect in lab.pending if isinstance(effect, ReadSnapshot)]
    lab.pending.clear()
    for read in reads:
        lab.do(read, SnapshotChunk(b"four", False))
    lab.hold = False
    return one([*messages, *lab.drain()], SnapshotRequest)


def test_a_refused_snapshot_is_not_sent_again_before_the_next_heartbeat() -> None:
    """The peer may have committed its content: then it takes entries after it."""
    lab, request = compacted()
    sent = installing(lab, request)
    lab.effects.clear()
    refusal = answer(lab, sent, SnapshotResponse, 0, accepted=False)
    assert [m for m in refusal if m.destination == 2] == []
    assert lab.effects == []
    (again,) = (m for m in all_of(lab.wait(0.5), AppendRequest) if m.destination == 2)
    assert (again.previous_index, again.previous_term) == (5, 1)


@pytest.mark.parametrize("wanted", [0, 5, 2**62])
def test_an_answer_that_takes_the_snapshot_no_further_waits_for_the_heartbeat(wanted: int) -> None:
    """A peer that wants the same chunk again, or one not sent yet, gets that chunk again."""
    lab, request = compacted()
    sent = installing(lab, request)
    lab.effects.clear()
    answer(lab, sent, SnapshotResponse, wanted)
    assert lab.effects == []
    lab.hold = True
    lab.wait(0.5)
    assert [type(effect) for effect in lab.pending] == [ReadSnapshot]


def test_a_refusal_counts_however_late() -> None:
    """A peer that lacks entries, and takes longer to answer, was asked the same for ever."""
    lab, request = compacted(request_timeout_s=0.4)
    lab.hold = True
    lab.wait(0.5)
    lab.answer(request, 2, accepted=False)
    assert [type(effect) for effect in lab.pending] == [ReadSnapshot]


@pytest.mark.parametrize("begun_anew", [False, True])
def test_an_answer_to_a_chunk_counts_however_late_unless_the_snapshot_was_begun_anew(
    *, begun_anew: bool
) -> None:
    """A chunk that was longer on its way than a request is waited for was sent again for ever."""
    lab, request = compacted(request_timeout_s=0.4)
    sent = installing(lab, request)
    lab.hold = True
    for chunk in (
        (None, SnapshotChunk(b"nine", True)) if begun_anew else (SnapshotChunk(b"four", True),)
    ):
        lab.wait(0.5)
        (read,) = lab.pending
        lab.pending.clear()
        lab.do(read, chunk)
        lab.drain()
    answer(lab, sent, SnapshotResponse, 4)
    assert lab.pending == []
    told = lab.core.peers[0]
    wanted = ("snapshot", 0, 0) if begun_anew else ("replicate", 5, 0)
    assert (told.doing, told.match_index, told.snapshot_offset) == wanted


def test_a_snapshot_that_the_store_does_not_find_is_read_again_with_the_next_heartbeat() -> None:
    """For a whole request timeout the peer heard nothing, and stood for election."""
    lab, request = compacted(request_timeout_s=2.0)
    sent = installing(lab, request)
    lab.hold = True
    answer(lab, sent, SnapshotResponse, 4)
    (read,) = lab.pending
    lab.pending.clear()
    lab.do(read, None)
    lab.drain()
    assert lab.pending == []
    lab.wait(0.5)
    assert [type(effect) for effect in lab.pending] == [ReadSnapshot]


def test_a_peer_hears_its_leader_while_a_chunk_is_read() -> None:
    """A read that took longer than the election timeout deposed the leader, again and again."""
    lab, request = compacted()
    sent = installing(lab, request)
    lab.hold = True
    answer(lab, sent, SnapshotResponse, 4)
    (read,) = lab.pending

    def beat() -> AppendRequest:
        return next(m for m in all_of(lab.wait(0.5), AppendRequest) if m.destination == 2)

    for _ in range(8):
        request = beat()
        assert (request.previous_index, request.commit_index, request.entries) == (0, 0, ())
        assert all_of(lab.accept(request), SnapshotRequest) == []
    assert lab.core.state is State.LEADER
    request = beat()
    lab.do(read, SnapshotChunk(b"more", False))
    assert all_of(lab.drain(), SnapshotRequest) == []  # one request is unanswered at a time
    sent = one(lab.accept(request), SnapshotRequest)
    assert (sent.offset, sent.data) == (4, b"more")


# Probing


def test_a_peer_is_not_asked_for_what_precedes_the_own_log() -> None:
    """It did not answer during the compaction of the log: it may have all of it."""
    lab = leader(snapshot_distance=3, request_timeout_s=0.6)
    lab.core.propose([b"a"] * 4)
    messages = lab.drain()
    lab.settle([m for m in messages if m.destination == 3])
    assert lab.core.log.base_index == 5
    lab.wait(0.5)
    (again,) = (m for m in lab.wait(0.5) if m.destination == 2)
    assert isinstance(again, AppendRequest)
    assert again.previous_index == 5


def test_who_hangs_up_in_a_search_is_asked_for_less() -> None:
    """JRaft does so for compacted entries: up to 40 in this log, which differs from 42 on."""
    lab = Lab(log=[1] * 50, term=1)
    (request,) = (m for m in all_of(lab.lead(), AppendRequest) if m.destination == 2)
    asked = []
    for _ in range(30):
        previous = request.previous_index
        asked.append(previous)
        if previous < 40:
            lab.core.unreachable(2)
            messages = lab.drain()
        elif previous > 41:
            messages = lab.answer(request, 51, accepted=False)
        else:
            break
        (request,) = (m for m in all_of(messages, AppendRequest) if m.destination == 2)
    assert asked == [50, 49, 47, 43, 35, 39, 41]  # hung up at 35, 8 before 43, then 4, then 2


def test_a_search_begins_at_once_whatever_else_is_unanswered() -> None:
    lab = leader(in_flight_max=3)
    for value in (b"a", b"b", b"c"):
        lab.core.propose([value])
        lab.drain()
    sent = [m for m in all_of(lab.sent, AppendRequest) if m.destination == 2]
    assert len(lab.core.peers) == 2
    assert lab.core.peers[0].in_flight == 3
    (search,) = (m for m in lab.answer(sent[-1], 3, accepted=False) if m.destination == 2)
    assert isinstance(search, AppendRequest)
    assert (search.previous_index, search.entries, lab.core.peers[0].in_flight) == (2, [], 1)


def test_who_hangs_up_when_probed_is_asked_for_the_last_entry() -> None:
    lab = leader()
    lab.core.propose([b"a", b"b"])
    lab.settle([m for m in lab.drain() if m.destination == 3])
    lab.core.unreachable(2)  # the entries were on their way
    (probe,) = (m for m in all_of(lab.drain(), AppendRequest) if m.destination == 2)
    assert probe.previous_index == 1
    lab.core.unreachable(2)  # it has compacted them
    (probe,) = (m for m in all_of(lab.wait(0.5), AppendRequest) if m.destination == 2)
    assert probe.previous_index == 3


def test_who_refuses_where_the_logs_agree_is_asked_at_heartbeats_only() -> None:
    lab = leader()
    lab.core.propose([b"a"])
    (request,) = (m for m in lab.drain() if m.destination == 2)
    assert [m for m in lab.answer(request, 2, accepted=False) if m.destination == 2] == []
    (again,) = (m for m in lab.wait(0.5) if m.destination == 2)
    lab.settle(lab.accept(again))
    assert lab.core.commit_index == 2


def test_a_request_tells_no_commit_index_beyond_what_it_proves() -> None:
    """JRaft commits up to there whatever it has: entries of an old term, in its tail."""
    lab = Lab(log=[1] * 9, term=1)
    messages = lab.lead()
    lab.settle([m for m in messages if m.destination == 3])
    assert lab.core.commit_index == 10
    (request,) = (m for m in messages if m.destination == 2)
    seen = []
    for _ in range(3):
        found = all_of(lab.answer(request, 9, accepted=False), AppendRequest)
        (request,) = (m for m in found if m.destination == 2)
        seen.append((request.previous_index, len(request.entries), request.commit_index))
    assert seen == [(8, 0, 8), (6, 0, 6), (2, 0, 2)]


# Terms


def test_a_term_far_beyond_the_own_one_is_taken_in_steps() -> None:
    """One such frame used to use up all terms; two put a server out of its cluster's reach."""
    lab = Lab(term_step_max=10)
    for _ in range(3):
        assert not lab.ask_vote(term=2**62).accepted
        assert not lab.append(term=11).accepted
    assert lab.core.term == 10
    assert lab.append(term=10).accepted
    lab.wait(TIMING.election_timeout_max_s)
    own = lab.core.term  # it has stood for election in the meantime
    assert lab.append(term=own + 10).accepted
    assert not lab.append(term=own + 11).accepted
    assert lab.core.term == own + 10


def test_a_leader_comes_nearer_to_the_far_term_of_a_member() -> None:
    lab = leader(term_step_max=10)
    refused = AppendResponse(
        source=2, destination=1, term=2**62, sequence=0, next_index=1, accepted=False
    )
    lab.tell(refused)
    assert (lab.core.state, lab.core.term) == (State.FOLLOWER, 11)
    lab.tell(refused)
    assert lab.core.term == 11


def test_own_elections_are_no_steps() -> None:
    lab = Lab(term_step_max=1)
    for term in range(1, 9):
        lab.wait(TIMING.election_timeout_max_s)
        lab.wait(TIMING.election_timeout_max_s)
        assert lab.core.term > term
    before = lab.core.term
    assert lab.append(term=before + 1).accepted


@pytest.mark.parametrize("shortest", [0.0, 0.05, 0.15, 0.3])
def test_steps_gain_on_those_that_stand_again_and_again(shortest: float) -> None:
    """A minority that was ahead used to stay ahead, and neither side had a majority."""
    timing = replace(TIMING, election_timeout_min_s=shortest, election_timeout_max_s=0.3)
    limits = Limits(term_step_max=0)
    shared = Shared(server_id=1, stored=Stored(), timing=timing, limits=limits, now=0.0)
    terms = Terms(shared)
    ahead, distances = 1000, [1000]
    for turn in range(10):
        ahead += round(0.3 / (shortest or 0.3))
        shared.advance(0.31 * turn)
        shared.journal.set_term(terms.reach(ahead), None)
        distances.append(ahead - shared.journal.term)
    assert distances == sorted(set(distances), reverse=True)


def test_a_term_of_no_member_is_taken_by_who_has_heard_no_member_for_long_or_is_none() -> None:
    """It may have missed a change of the members, and be needed by the present ones."""
    lab = Lab()
    assert not lab.ask_vote(source=9, term=5).accepted
    assert not lab.append(source=9, term=5).accepted
    lab.wait(0.9 * TIMING.election_timeout_min_s)
    lab.ask_vote(source=3, term=0)  # a member is heard
    lab.wait(2 * TIMING.election_timeout_max_s - 0.1)
    assert not lab.append(source=9, term=5).accepted
    lab.wait(0.2)
    assert lab.append(source=9, term=5).accepted


def test_who_is_invited_comes_to_any_term_in_steps() -> None:
    lab = Lab(Stored(), server_id=4)
    lab.core.receive_message(
        LeaveRequest(source=1, destination=4, term=2**40, last_log_index=0, commit_index=0)
    )
    assert lab.core.term == 2**20
    request = JoinRequest(
        source=1,
        destination=4,
        term=2**20 + 1,
        configuration=configuration(1, 2, 3),
        last_log_index=9,
        commit_index=9,
    )
    assert not one(lab.tell(request), JoinResponse).accepted
    lab.wait(TIMING.election_timeout_max_s)
    assert one(lab.tell(request), JoinResponse).accepted
    assert not all_of(lab.sent, VoteRequest)


# Leaving


def told_to_leave(**settings: object) -> Lab:
    lab = Lab(**settings)  # type: ignore[arg-type]
    lab.append(term=1, entries=entries(1, 1))
    leave = LeaveRequest(source=2, destination=1, term=1, last_log_index=2, commit_index=0)
    assert one(lab.tell(leave), LeaveResponse).accepted
    return lab


def stands(lab: Lab, seconds: float = 20.0) -> bool:
    """Whether it stands, if all others are silent for long."""
    for _ in range(int(2 * seconds)):
        lab.wait(0.5)
    return lab.core.state is State.CANDIDATE


# A silence in which a server that was told to leave does not stand; soon after, it does
QUIET = 2 * TIMING.election_timeout_max_s - 0.5


def will_not_be_there(lab: Lab) -> Lab:
    """The configuration without it is in its log; whether that is committed is unknown."""
    lab.append(term=1, previous=(2, 1), entries=[Entry(1, configuration(2, 3, index=3))])
    return lab


def test_who_was_told_to_leave_does_not_depose_a_leader_that_says_nothing_more() -> None:
    """A JRaft leader no longer talks to a removed server, and gives way to any higher term."""
    lab = will_not_be_there(told_to_leave())
    assert not stands(lab)
    assert lab.core.term == 1
    assert lab.events.count(Left()) == 1
    lab.append(term=1, previous=(3, 1))  # it was only slow
    assert not stands(lab)


def test_who_was_told_to_leave_waits_for_others_and_stands_if_it_is_still_a_member() -> None:
    """The order may have been cancelled, or its leader be gone, without a trace of it."""
    lab = told_to_leave()
    assert not stands(lab, QUIET)
    assert stands(lab)
    assert Left() not in lab.events


def test_who_was_told_to_leave_votes() -> None:
    lab = told_to_leave()
    lab.wait(1.5)
    assert lab.ask_vote(source=3, term=2, last=(2, 1)).accepted
    assert not stands(lab, QUIET)


def test_an_order_to_leave_is_void_when_a_later_leader_keeps_the_server() -> None:
    lab = told_to_leave()
    lab.wait(1.5)
    lab.append(source=3, term=2, previous=(2, 1))
    assert stands(lab)


def test_an_order_to_leave_stands_when_a_later_leader_goes_on_with_it() -> None:
    lab = told_to_leave()
    without = Entry(2, configuration(2, 3, index=3))
    lab.wait(1.5)
    lab.append(source=3, term=2, previous=(2, 1), entries=[without])
    lab.append(source=3, term=2, previous=(3, 2))
    assert not stands(lab)


@pytest.mark.parametrize(
    ("term", "last", "needed"), [(2, (1, 1), True), (2, (2, 1), False), (1, (1, 1), False)]
)
def test_who_was_told_to_leave_stands_if_nobody_else_can_be_elected(
    term: int, last: tuple[int, int], needed: bool
) -> None:
    """It alone has the last entry: the leader is dead, and the others' logs are shorter."""
    lab = told_to_leave()
    lab.wait(1.5)
    assert lab.ask_vote(source=3, term=term, last=last).accepted is (last == (2, 1))
    assert stands(lab, QUIET) is needed


def removed(*, pre_vote: bool = False) -> Lab:
    """It was told that its removal is committed, and has one entry after that."""
    lab = Lab(pre_vote=pre_vote)
    without = Entry(1, configuration(2, 3, index=1))
    lab.append(term=1, entries=[without, Entry(1, b"later")])
    lab.append(term=1, previous=(2, 1), commit=1)
    assert lab.events.count(Left()) == 1
    lab.wait(5.0)
    return lab


def test_who_was_removed_stands_once_more_if_nobody_can_be_elected_without_its_log() -> None:
    """A server that does not know of the committed removal wants its vote (thesis, 4.2.2)."""
    lab = removed()
    assert lab.core.next_deadline() is None
    assert not lab.ask_vote(source=3, term=2, last=(1, 1)).accepted
    votes = all_of(lab.wait(TIMING.election_timeout_max_s), VoteRequest)
    assert {vote.destination for vote in votes} == {2, 3}
    lab.vote(2)
    assert lab.core.state is State.CANDIDATE  # it does not vote for itself
    requests = all_of(lab.vote(3), AppendRequest)
    assert lab.core.state is State.LEADER
    for _ in range(2):
        requests = [more for each in requests for more in all_of(lab.accept(each), AppendRequest)]
    assert lab.core.state is State.FOLLOWER
    assert lab.core.commit_index == 3
    assert lab.ask_vote(source=3, term=5, last=(3, 3)).accepted
    assert not stands(lab)
    assert lab.events.count(Left()) == 1


@pytest.mark.parametrize("then", ["silence", "entries", "an order to leave"])
def test_who_was_removed_stands_no_more_when_all_is_silent_or_somebody_leads(then: str) -> None:
    lab = removed(pre_vote=True)
    for peer in (2, 3):
        lab.core.reachable(peer, frozenset(Extension))
    question = PreVoteRequest(
        source=3, destination=1, term=1, sequence=1, last_log_index=1, last_log_term=1
    )
    assert not one(lab.tell(question), PreVoteResponse).accepted
    deadline = lab.core.next_deadline()
    assert deadline is not None
    assert deadline - lab.now <= TIMING.election_timeout_max_s
    match then:
        case "entries":
            lab.append(term=2, previous=(1, 1), entries=[Entry(2, b"")])
        case "an order to leave":
            order = LeaveRequest(source=2, destination=1, term=2, last_log_index=2, commit_index=0)
            assert one(lab.tell(order), LeaveResponse).accepted
        case _:
            for _ in range(3):
                lab.wait(TIMING.election_timeout_max_s)
    for _ in range(3):
        lab.wait(TIMING.election_timeout_max_s)
    assert lab.core.next_deadline() is None
    assert not lab.core.addressees  # nor does its node dial them for ever
    assert lab.core.term == 1 + (then != "silence")
    assert lab.events.count(Left()) == 1


def test_who_has_left_does_not_take_over_leadership() -> None:
    lab = told_to_leave()
    transfer = TransferRequest(source=2, destination=1, term=1, last_log_index=2)
    assert not one(lab.tell(transfer), TransferResponse).accepted


# Duels


def duel(*, last: tuple[int, int]) -> tuple[float, float]:
    """The time for a candidate to stand again, before another of its term was heard and after."""
    lab = Lab(log=(1, 1), term=1)
    lab.wait(2.0)
    assert lab.core.state is State.CANDIDATE
    before = lab.core.next_deadline()
    for _ in range(3):  # the network repeats it
        assert not lab.ask_vote(source=3, term=lab.core.term, last=last).accepted
    after = lab.core.next_deadline()
    assert before is not None
    assert after is not None
    return before - lab.now, after - lab.now


def test_a_candidate_lets_another_of_its_term_stand_first_that_has_a_better_log() -> None:
    """With only these two left, each would otherwise keep overtaking the other by a term."""
    before, after = duel(last=(3, 1))
    assert before <= TIMING.election_timeout_max_s < after <= 2 * TIMING.election_timeout_max_s


def test_a_voter_who_is_no_candidate_gives_way_to_nobody() -> None:
    lab = Lab(log=(1, 1), term=1)
    assert lab.ask_vote(source=2, term=2, last=(2, 1)).accepted
    before = lab.core.next_deadline()
    assert not lab.ask_vote(source=3, term=2, last=(3, 1)).accepted
    assert lab.core.next_deadline() == before


@pytest.mark.parametrize("last", [(2, 1), (1, 1)])
def test_a_candidate_goes_on_if_the_others_log_is_no_better(last: tuple[int, int]) -> None:
    before, after = duel(last=last)
    assert before == after


# Impossible input


def told_of(lab: Lab) -> str:
    """The reported fault; the server goes on."""
    (fault,) = (event for event in lab.events if isinstance(event, PeerFault))
    assert fault.peer == 2
    assert fault.error.code is ErrorCode.CONTRADICTION
    refused = lab.sent[-1]
    assert isinstance(refused, RaftResponse)
    assert not refused.accepted
    assert lab.log == [1, 1, 1]
    assert lab.append(term=3, previous=(3, 1), entries=entries(3)).accepted
    return str(fault.error)


def committed() -> Lab:
    lab = Lab()
    lab.append(term=1, entries=entries(1, 1, 1), commit=2)
    lab.wait(0.1)
    return lab


@pytest.mark.parametrize("previous", [1, 2])
def test_who_denies_that_a_committed_entry_was_before_is_refused_and_told(
    previous: int,
) -> None:
    lab = committed()
    lab.tell(append_request(3, previous=(previous, 2)))
    assert f"leader 2 of term 3 has another entry {previous}, which" in told_of(lab)


def test_who_overwrites_a_committed_entry_is_refused_and_reported() -> None:
    lab = committed()
    lab.tell(append_request(3, previous=(1, 1), terms=(2,)))
    assert "has another entry 2" in told_of(lab)


def test_who_snapshots_another_committed_entry_is_refused_and_reported() -> None:
    lab = committed()
    snapshot = Snapshot(2, 2, configuration(1, 2, 3))
    lab.tell(replace(chunk(0), snapshot=snapshot))
    assert "has another entry 2" in told_of(lab)


def test_what_is_not_committed_may_be_overwritten_and_nonsense_is_refused() -> None:
    lab = committed()
    (refused,) = lab.tell(append_request(3, previous=(2, 9)))  # of a future term
    assert not refused.accepted  # type: ignore[attr-defined]
    (taken,) = lab.tell(append_request(3, previous=(2, 1), terms=(3,)))
    assert taken.accepted  # type: ignore[attr-defined]
    assert lab.log == [1, 1, 3]


def append_request(
    term: int, *, previous: tuple[int, int], terms: tuple[int, ...] = ()
) -> AppendRequest:
    return AppendRequest(
        source=2,
        destination=1,
        term=term,
        previous_index=previous[0],
        previous_term=previous[1],
        commit_index=0,
        entries=entries(*terms),
    )


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        (Stored(first_index=7, entries=entries(1, 1)), "hole"),
        (Stored(first_index=7), "hole"),
        (Stored(first_index=2, entries=entries(1, 1, 1)), "beyond its log, which ends at 4"),
        (Stored(first_index=3, entries=entries(1, 1, 2)), "of term 2 at 5"),
        (Stored(first_index=6, commit_index=6), "ends at 5, and 6 was committed"),
        (Stored(first_index=6, applied_index=8, entries=entries(1, 1)), "ends at 7, and 8"),
    ],
)
def test_a_store_that_lacks_something_is_no_store(stored: Stored, complaint: str) -> None:
    """It used to be accepted silently: committed entries could be outvoted."""
    snapshot = Snapshot(5, 1, configuration(1, 2, 3))
    with pytest.raises(ValueError, match=complaint):
        Lab(replace(stored, term=2, snapshot=snapshot))

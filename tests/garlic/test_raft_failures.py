"""A store that fails: messages that depend on it never leave, and the server stops."""

from __future__ import annotations

from typing import Any

import pytest
from raft_lab import Lab, all_of, entries, founders

from culm.garlic.raft import Entry, Lost, Persist, ReadSnapshot, Snapshot, SnapshotChunk, State
from culm.garlic.raft.effects import WriteSnapshot
from culm.garlic.raft.messages import AppendRequest, AppendResponse, VoteRequest, VoteResponse
from culm.machine import Closed, ContractErrorCode, LocalProtocolError, StoreFailed, Ticket

FULL = OSError("the disk is full")


def held(lab: Lab, message: Any) -> Any:
    """The effect that has to be completed before `message` is answered."""
    lab.hold = True
    assert lab.tell(message) == []
    (effect,) = lab.pending
    return effect


def fail(lab: Lab, effect: Any, *lost: Lost) -> None:
    """Let it fail; nothing leaves then, nor as time passes and messages come."""
    told = len(lab.events)
    lab.core.fail(effect.ticket, FULL)
    assert lab.drain() == []
    assert lab.events[told:] == [StoreFailed(effect=effect, error=FULL), *lost, Closed()]
    assert lab.core.state is State.CLOSED
    assert lab.core.next_deadline() is None
    assert lab.wait(100.0) == []
    assert lab.tell(vote_request(term=99)) == []
    assert lab.core.next_effect() is None
    assert len(lab.events) == told + 2 + len(lost)


def vote_request(term: int = 1) -> VoteRequest:
    return VoteRequest(source=2, destination=1, term=term, last_log_index=9, last_log_term=1)


def append_request() -> AppendRequest:
    return AppendRequest(
        source=2,
        destination=1,
        term=1,
        previous_index=0,
        previous_term=0,
        commit_index=0,
        entries=entries(1, 1),
    )


def test_a_vote_that_is_not_stored_is_not_given() -> None:
    lab = Lab()
    effect = held(lab, vote_request())
    assert isinstance(effect, Persist)
    assert effect.voted_for == 2
    fail(lab, effect)
    assert all_of(lab.sent, VoteResponse) == []


def test_entries_that_are_not_stored_are_not_confirmed() -> None:
    lab = Lab()
    fail(lab, held(lab, append_request()))
    assert all_of(lab.sent, AppendResponse) == []


def test_a_candidate_that_cannot_store_its_own_vote_asks_for_none() -> None:
    lab = Lab()
    lab.hold = True
    assert lab.wait(2.0) == []
    (effect,) = lab.pending
    fail(lab, effect)
    assert all_of(lab.sent, VoteRequest) == []


def test_a_leader_does_not_count_itself_for_what_it_has_not_stored() -> None:
    lab = Lab(founders(1, 2, 3))
    lab.settle(lab.lead())
    committed = lab.core.commit_index
    lab.hold = True
    index, term = lab.core.propose([b"precious"])
    requests = all_of(lab.drain(), AppendRequest)
    (effect,) = lab.pending
    assert isinstance(effect, Persist)
    fail(lab, effect, Lost(index=index, term=term, count=1, certain=False))
    lab.accept(requests[0])  # one of two peers has it: with us a majority, if we had it
    assert lab.core.commit_index == committed
    assert Entry(lab.core.term, b"precious") not in lab.applied


def test_a_read_snapshot_is_answered_with_a_chunk_of_it() -> None:
    effect = ReadSnapshot(ticket=Ticket(1), snapshot=Snapshot(), offset=0, size=4)
    for result in (
        False,
        b"abcd",
        OSError(),
        SnapshotChunk(b"abcde", True),
        SnapshotChunk(b"", False),
        SnapshotChunk("abcd", True),  # type: ignore[arg-type]
        SnapshotChunk(b"abcd", 1),  # type: ignore[arg-type]
    ):
        assert not effect.accepts(result)
    for right in (None, SnapshotChunk(b"abcd", False), SnapshotChunk(b"", True)):
        assert effect.accepts(right)


def test_a_written_snapshot_is_answered_with_a_bool() -> None:
    effect = WriteSnapshot(ticket=Ticket(1), snapshot=Snapshot(), offset=0, data=b"", done=True)
    assert effect.accepts(True)
    assert effect.accepts(False)
    for result in (None, 1, 0, "yes", OSError()):
        assert not effect.accepts(result)


@pytest.mark.parametrize("answer", [FULL, False, True, "nonsense", 0, b"", [], object()])
def test_nothing_but_none_says_that_it_is_stored(answer: object) -> None:
    lab = Lab()
    effect = held(lab, vote_request())
    with pytest.raises(LocalProtocolError) as caught:
        lab.core.complete(effect.ticket, answer)
    assert caught.value.code is ContractErrorCode.WRONG_RESULT
    assert lab.drain() == []
    (response,) = lab.release()
    assert isinstance(response, VoteResponse)
    assert response.accepted


def test_what_is_done_after_a_failure_has_no_consequences() -> None:
    """The other effects may still be answered, each once, and with a fitting answer."""
    lab = Lab(log=(1, 1), term=1)
    lab.hold = True
    request = AppendRequest(
        source=2,
        destination=1,
        term=1,
        previous_index=2,
        previous_term=1,
        commit_index=2,
        entries=entries(1),
    )
    assert lab.tell(request) == []
    written, applied = lab.pending
    fail(lab, written)
    with pytest.raises(LocalProtocolError) as caught:
        lab.core.complete(applied.ticket, FULL)
    assert caught.value.code is ContractErrorCode.WRONG_RESULT
    lab.core.complete(applied.ticket, None)
    for ticket in (written.ticket, applied.ticket):
        with pytest.raises(LocalProtocolError) as caught:
            lab.core.complete(ticket, None)
        assert caught.value.code is ContractErrorCode.UNKNOWN_TICKET
    assert lab.drain() == []

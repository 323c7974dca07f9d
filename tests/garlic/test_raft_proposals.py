"""The fate of proposed values: each is reported once, and truly."""

from __future__ import annotations

import pytest
from raft_lab import Lab, configuration, entries, one

from culm.garlic.raft import Committed, ErrorCode, Lost, Server, Snapshot, Stored, WriteSnapshot
from culm.garlic.raft.log import RaftLog
from culm.garlic.raft.messages import AppendRequest, SnapshotRequest, SnapshotResponse
from culm.garlic.raft.proposals import Proposals
from culm.machine import Closed, LocalProtocolError


def outcomes(lab: Lab) -> list[object]:
    return [event for event in lab.events if isinstance(event, Committed | Lost)]


def deposed(*values: bytes) -> tuple[Lab, tuple[int, int]]:
    """A leader whose proposals have reached no other server, and that hears of another term."""
    lab = Lab()
    lab.settle(lab.lead())
    where = lab.core.propose(values)
    lab.drain()
    assert outcomes(lab) == []
    return lab, where


def test_what_a_majority_has_is_committed_as_a_whole() -> None:
    lab, (index, term) = deposed(b"a", b"b", b"c")
    assert (index, term) == (2, 1)
    lab.settle(lab.drain() or lab.wait(0.9))
    assert outcomes(lab) == [Committed(index=2, term=1, count=3)]


def test_nothing_is_said_of_nothing() -> None:
    lab, where = deposed()
    lab.settle(lab.wait(0.9))
    assert where == (2, 1)
    assert outcomes(lab) == []


def test_the_end_of_leadership_decides_nothing() -> None:
    lab, _ = deposed(b"a", b"b")
    lab.append(source=2, term=2, previous=(1, 1))
    assert outcomes(lab) == []
    # The new leader has received them after all, and commits them with an entry of its own.
    lab.append(source=2, term=2, previous=(3, 1), entries=entries(2), commit=4)
    assert outcomes(lab) == [Committed(index=2, term=1, count=2)]


def test_what_is_overwritten_is_lost_when_that_is_committed_and_not_before() -> None:
    lab, _ = deposed(b"a", b"b")
    lab.append(source=2, term=2, previous=(1, 1), entries=entries(2, 2, 2))
    assert outcomes(lab) == []
    lab.append(source=2, term=2, previous=(4, 2), commit=2)
    assert outcomes(lab) == [Lost(index=2, term=1, count=2, certain=True)]


def test_a_new_leader_may_have_got_the_first_of_several() -> None:
    lab, _ = deposed(b"a", b"b", b"c")
    lab.append(source=2, term=2, previous=(2, 1), entries=entries(2, 2), commit=2)
    told = Committed(index=2, term=1, count=1)
    assert outcomes(lab) == [told]  # the others are open
    lab.append(source=2, term=2, previous=(4, 2), commit=3)
    assert outcomes(lab) == [told, Lost(index=3, term=1, count=2, certain=True)]


def test_what_was_proposed_in_a_row_is_told_of_together() -> None:
    lab, _ = deposed(b"a")
    assert [lab.core.propose(values) for values in ([b"b"], [], [b"c", b"d"])] == [
        (3, 1),
        (4, 1),
        (4, 1),
    ]
    lab.settle(lab.drain() or lab.wait(0.9))
    assert outcomes(lab) == [Committed(index=2, term=1, count=4)]
    assert lab.core.propose([b"e"]) == (6, 1)
    lab.settle(lab.drain() or lab.wait(0.9))
    assert outcomes(lab)[1:] == [Committed(index=6, term=1, count=1)]


def test_what_was_proposed_in_two_terms_is_told_of_apart() -> None:
    """The later one has the lower index: its predecessors were cut off."""
    waiting, log = Proposals(), RaftLog(Stored())
    for first, last, term in ((3, 4, 1), (5, 6, 1), (4, 4, 3), (5, 5, 3)):
        waiting.add(first, last, term)
    log.append(entries(1, 1, 1, 1, 1, 5))
    assert list(waiting.settle(log, 2)) == []
    assert list(waiting.settle(log, 5)) == [
        Committed(index=3, term=1, count=3),
        Lost(index=4, term=3, count=2, certain=True),
    ]
    waiting.add(6, 6, 3)
    assert list(waiting.settle(log, 6)) == [
        Lost(index=6, term=1, count=1, certain=True),
        Lost(index=6, term=3, count=1, certain=True),
    ]
    assert not waiting


def test_what_follows_a_later_term_that_is_committed_is_lost_before_the_log_is_as_long() -> None:
    """No further proposal is needed for that: terms never fall along a log."""
    lab, _ = deposed(b"a")
    assert lab.core.propose([b"b", b"c"]) == (3, 1)
    lab.drain()
    lab.append(source=2, term=2, previous=(1, 1), entries=entries(2))
    assert outcomes(lab) == []  # the new leader's entry may still be replaced
    lab.append(source=2, term=2, previous=(2, 2), commit=2)
    assert outcomes(lab) == [
        Lost(index=2, term=1, count=3, certain=True),
    ]


def test_all_that_wait_beyond_what_is_committed_are_told_of_in_their_order() -> None:
    lab, _ = deposed(b"a")
    assert [lab.core.propose([value]) for value in (b"b", b"c")] == [(3, 1), (4, 1)]
    lab.drain()
    lab.append(source=2, term=2, previous=(2, 1), entries=entries(2), commit=3)
    assert outcomes(lab) == [
        Committed(index=2, term=1, count=1),
        Lost(index=3, term=1, count=2, certain=True),
    ]


def committed_elsewhere() -> Lab:
    """A server that hears that its value is committed, while its store is at work."""
    lab, _ = deposed(b"a")
    lab.hold = True
    lab.core.receive_message(
        AppendRequest(
            source=2,
            destination=1,
            term=2,
            previous_index=2,
            previous_term=1,
            commit_index=2,
            entries=entries(2),
        )
    )
    lab.drain()
    assert lab.core.commit_index == 2 > lab.core.applied_index
    assert outcomes(lab) == []
    return lab


def test_what_is_committed_is_told_when_it_is_applied_here() -> None:
    lab = committed_elsewhere()
    while lab.core.applied_index < 2:
        lab.release()
    assert outcomes(lab) == [Committed(index=2, term=1, count=1)]


def test_what_is_committed_and_not_applied_is_not_lost_when_the_server_stops() -> None:
    lab = committed_elsewhere()
    lab.core.close()
    lab.drain()
    assert outcomes(lab) == [Committed(index=2, term=1, count=1)]


def test_a_snapshot_hides_what_has_become_of_them() -> None:
    lab, _ = deposed(b"a")
    request = SnapshotRequest(
        source=2,
        destination=1,
        term=2,
        sequence=1,
        snapshot=Snapshot(9, 2, configuration(1, 2, 3)),
        offset=0,
        data=b"all",
        done=True,
        commit_index=9,
    )
    lab.hold = True
    messages = lab.tell(request)
    while lab.pending:
        effect = lab.pending.pop(0)
        lab.do(effect, True if isinstance(effect, WriteSnapshot) else None)
        messages += lab.drain()
    assert one(messages, SnapshotResponse).accepted
    assert outcomes(lab) == [Lost(index=2, term=1, count=1, certain=False)]


def test_who_is_closed_cannot_tell() -> None:
    lab, _ = deposed(b"a")
    lab.core.close()
    lab.drain()
    assert lab.events[-2:] == [Lost(index=2, term=1, count=1, certain=False), Closed()]


def test_founders_start_from_the_first_configuration() -> None:
    servers = [Server(number, f"tcp://lab:{number}") for number in (1, 2, 3)]
    stored = Stored.founding(servers)
    assert stored.snapshot.index == 0
    assert stored.snapshot.configuration.servers == tuple(servers)
    assert Lab(stored).core.configuration.ids == {1, 2, 3}


def test_what_waits_beyond_a_later_term_is_lost_before_the_log_is_as_long() -> None:
    waiting, log = Proposals(), RaftLog(Stored())
    waiting.add(5, 6, 1)
    waiting.add(4, 4, 3)
    log.append(entries(1, 1, 2))
    assert list(waiting.settle(log, 2)) == []
    assert list(waiting.settle(log, 3)) == [Lost(index=5, term=1, count=2, certain=True)]
    assert len(waiting) == 1


def test_as_many_bytes_may_wait_as_the_limit_says_until_they_are_committed() -> None:
    lab = Lab(proposal_size_max=4)
    lab.settle(lab.lead())
    lab.core.propose([b"ab"])
    lab.core.propose([b"cd"])
    with pytest.raises(LocalProtocolError) as refused:
        lab.core.propose([b"e"])
    assert refused.value.code is ErrorCode.QUEUE_FULL
    lab.settle(lab.drain() or lab.wait(0.9))
    lab.core.propose([b"efgh"])

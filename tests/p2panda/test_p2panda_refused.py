"""Entries that are forked by their author, or left out for another reason, hold up nothing else."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey
from p2panda_faults import creation, signed, update
from p2panda_nodes import Node, connect
from p2panda_victim import Victim

from culm.bamboo import LogKey
from culm.bamboo.entry import decode
from culm.machine import Closed
from culm.p2panda import (
    Mode,
    OperationLeftOut,
    OperationStored,
    Reason,
    ReplicatorLimits,
    SessionEnded,
)
from culm.p2panda.effects import NewOperation
from culm.p2panda.messages import SendEntry, SyncDone
from culm.p2panda.operation import decode as decode_operation
from culm.testing.link import MachinePair
from culm.wire.multihash import YASMF

FORKER = SigningKey(b"p" * 32)


def branch(name: str, count: int, log_id: int = 9) -> list[SendEntry]:
    """A log of so few entries that they have backlinks alone, each an update of the one before."""
    said = [signed(creation(name), log_id)]
    hashes = [YASMF.hash(said[0].entry)]
    for seqnum in range(2, count + 1):
        lipmaa = hashes[0] if seqnum == 4 else None
        said.append(
            signed(update(hashes[-1]), log_id, seqnum, backlink=hashes[-1], lipmaalink=lipmaa)
        )
        hashes.append(YASMF.hash(said[-1].entry))
    return said


def keep(node: Node, said: list[SendEntry]) -> None:
    """Let a node come across this branch first."""
    document_id = YASMF.hash(said[0].entry)
    news = []
    for each in said:
        entry = decode(each.entry, family=YASMF)
        news.append(NewOperation(entry, decode_operation(each.operation), document_id))
    node.store.append(news)


def left_out(link: MachinePair) -> list[tuple[LogKey, int]]:
    events = [*link.left.events, *link.right.events]
    return [(each.log, each.seqnum) for each in events if isinstance(each, OperationLeftOut)]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("logs", "count"), [(1, 5), (300, 4)])
def test_what_one_author_has_forked_keeps_no_two_nodes_apart(logs: int, count: int, mode: Mode):
    limits = ReplicatorLimits(left_out_max=3, batch_count_max=8)
    left, right = Node(1), Node(2)
    for log_id in range(logs):
        keep(left, branch("one", 1, log_id))
        keep(right, branch("two", count, log_id))
    for _ in range(3):
        ours, theirs = left.create(name="ours"), right.create(name="theirs")
        link = connect(left, right, mode=mode, limits=limits)
        for node in (left, right):
            assert {ours, theirs} <= node.documents().keys()
        events = [*link.left.events, *link.right.events]
        assert not [each for each in events if isinstance(each, SessionEnded) and each.error]
        assert not [each for each in events if isinstance(each, Closed) and each.error]


def test_of_a_forked_log_one_entry_is_told_in_each_session():
    victim = Victim(batch_count_max=1)
    keep(victim.node, branch("one", 1))
    for session_id in range(2):
        victim.begin(session_id=session_id)
        said = [SendEntry(session_id, each.entry, each.operation) for each in branch("two", 5)[1:]]
        events = victim.tell(*said)
        (told,) = events
        assert isinstance(told, OperationLeftOut)
        assert (told.seqnum, told.reason) == (2, Reason.WRONG_LINK)
        victim.tell(SyncDone(session_id, False))


def test_what_is_passed_over_costs_no_signature(monkeypatch: pytest.MonkeyPatch):
    verified: list[int] = []

    def count(entries: list[object]) -> list[bool]:
        verified.append(len(entries))
        return [True] * len(entries)

    monkeypatch.setattr("culm.p2panda.intake.signatures_are_valid", count)
    victim = Victim(batch_count_max=1)
    keep(victim.node, branch("one", 1))
    victim.begin()
    victim.tell(*branch("two", 5)[1:])
    assert sum(verified) == 1


def test_a_log_goes_on_once_another_peer_has_brought_what_was_left_out():
    first, second = Victim(), Victim()
    second.node = first.node
    for each in (first, second):
        each.begin()
    said = branch("one", 5)
    assert [type(each) for each in first.tell(said[0], said[2])] == [
        OperationStored,
        OperationLeftOut,
    ]
    second.tell(*said[:4])
    assert [type(each) for each in first.tell(said[4])] == [OperationStored]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("place", range(3))
def test_an_entry_in_whose_place_the_store_has_another_one_is_told(place: int, together: bool):
    victim = Victim()
    keep(victim.node, branch("one", 3))
    victim.begin()
    said = branch("two", 5)[place:]
    events = victim.tell(*said) if together else [e for each in said for e in victim.tell(each)]
    (told,) = events
    assert isinstance(told, OperationLeftOut)
    assert (told.seqnum, told.reason) == (place + 1, Reason.FORK)


def test_the_signature_of_an_entry_in_a_place_that_is_taken_is_verified():
    victim = Victim()
    keep(victim.node, branch("one", 3))
    victim.begin()
    other = branch("two", 3)[1]
    forged = SendEntry(0, other.entry[:-64] + bytes(64), other.operation)
    assert victim.code(forged) is Reason.BAD_SIGNATURE


def test_a_fork_within_one_batch_is_told():
    victim = Victim()
    victim.begin()
    one, two = branch("one", 1), branch("two", 1)
    assert [type(each) for each in victim.tell(*one, *one, *two)] == [
        OperationStored,
        OperationLeftOut,
    ]
    assert victim.entries() == {one[0].entry}

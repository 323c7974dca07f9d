"""Several writes to the log under way: their order is kept, and one may fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from raft_lab import Lab, all_of, entries, founders
from test_raft_follower_reads import CALM
from test_raft_simulation import caught

from culm.garlic import MemoryStore
from culm.garlic.raft import Committed, Persist
from culm.garlic.raft.journal import Journal
from culm.garlic.raft.messages import AppendRequest, AppendResponse, Message
from culm.machine import Closed, LocalProtocolError, StoreFailed, Ticket
from culm.testing.raft_store_model import Values


def writing(count: int, **settings: object) -> tuple[Lab, list[Persist]]:
    """A lone leader that proposes `count` values in as many turns; no write is done."""
    lab = Lab(founders(1), **settings)  # type: ignore[arg-type]
    lab.wait(2.0)
    lab.hold = True
    for number in range(count):
        lab.core.propose([b"%d" % number])
        lab.drain()
    return lab, [one for one in lab.pending if isinstance(one, Persist)]


@dataclass
class Follower:
    """A follower whose writes are held; the requests of leader 2, or 3 in term 2."""

    lab: Lab

    def tell(self, previous: int, *terms: int, term: int = 1, commit: int = 0) -> list[Message]:
        return self.lab.tell(
            AppendRequest(
                source=term + 1,
                destination=1,
                term=term,
                sequence=previous + 10 * term,
                previous_index=previous,
                previous_term=min(previous, 1),
                commit_index=commit,
                entries=entries(*terms),
            )
        )

    @property
    def writes(self) -> list[Persist]:
        return [one for one in self.lab.pending if isinstance(one, Persist)]

    def done(self, write: Persist) -> list[AppendResponse]:
        self.lab.pending.remove(write)
        self.lab.do(write)
        return all_of(self.lab.drain(), AppendResponse)


def follower(**settings: object) -> Follower:
    lab = Lab(**settings)  # type: ignore[arg-type]
    lab.append(term=1, entries=entries(1))
    lab.hold = True
    return Follower(lab)


def test_one_write_is_under_way_unless_more_are_allowed() -> None:
    _, writes = writing(3)
    assert [write.first_index for write in writes] == [2]


def test_each_write_has_what_came_after_the_one_before_it_and_so_many_are_under_way() -> None:
    lab, writes = writing(5, writes_max=3)
    found = [(one.first_index, [entry.data for entry in one.entries]) for one in writes]
    assert found == [(2, [b"0"]), (3, [b"1"]), (4, [b"2"])]
    lab.pending.clear()
    lab.do(writes[0])
    lab.drain()
    later = [one for one in lab.pending if isinstance(one, Persist)]
    assert [[entry.data for entry in one.entries] for one in later] == [[b"3", b"4"]]


def test_one_write_at_least_may_be_under_way() -> None:
    lab, writes = writing(3, writes_max=0)
    assert len(writes) == 1
    while lab.pending:
        lab.release()
        lab.drain()
    assert lab.core.commit_index == 4


def test_a_write_counts_when_all_before_it_are_done() -> None:
    lab, writes = writing(3, writes_max=3)
    for write in (writes[2], writes[1]):
        lab.do(write)
        lab.drain()
        assert lab.core.commit_index == 1
    lab.pending.clear()
    lab.do(writes[0])
    lab.drain()
    assert lab.core.commit_index == 4
    assert committed(lab) == []
    while lab.core.applied_index < 4:
        lab.release()
    assert committed(lab) == [Committed(index=2, term=1, count=3)]


def committed(lab: Lab) -> list[Committed]:
    return [event for event in lab.events if isinstance(event, Committed)]


def test_answers_leave_in_the_order_of_writes() -> None:
    one = follower(writes_max=3)
    one.tell(1, 1)
    one.tell(2, 1)
    first, second = one.writes
    assert one.done(second) == []
    assert [answer.next_index for answer in one.done(first)] == [3, 4]


@pytest.mark.parametrize("writes_max", [1, 3])
def test_what_a_later_write_replaces_is_not_durable(writes_max: int) -> None:
    one = follower(writes_max=writes_max)
    one.tell(1, 1, 1, 1)
    one.tell(2, 2, term=2, commit=3)
    first = one.writes[0]
    assert first.first_index == 2
    one.done(first)
    one.lab.hold = False
    for effect in [effect for effect in one.lab.pending if not isinstance(effect, Persist)]:
        one.lab.pending.remove(effect)
        one.lab.do(effect)
    one.lab.drain()
    assert len(one.lab.applied) <= 2
    assert one.lab.core.log.term_at(3) == 2
    one.lab.release()
    assert [entry.term for entry in one.lab.applied] == [1, 1, 2]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failed_write_stops_the_server_whatever_the_others_do(failing: int) -> None:
    lab, writes = writing(3, writes_max=3)
    sent = len(lab.sent)
    if failing == 2:
        lab.do(writes[0])
        lab.drain()
        sent = len(lab.sent)
    lab.core.fail(writes[failing].ticket, OSError("no space"))
    lab.drain()
    assert [type(event) for event in lab.events][-1] is Closed
    assert any(isinstance(event, StoreFailed) for event in lab.events)
    committed = lab.core.commit_index
    for write in writes[failing + 1 :]:
        lab.do(write)
        lab.drain()
    assert lab.core.commit_index == committed == (2 if failing == 2 else 1)
    assert len(lab.sent) == sent
    with pytest.raises(LocalProtocolError):
        lab.core.complete(writes[failing].ticket, None)


def test_a_follower_that_could_not_write_acknowledges_nothing_behind_that() -> None:
    one = follower(writes_max=3)
    one.tell(1, 1)
    one.tell(2, 1)
    first, second = one.writes
    one.done(second)
    one.lab.core.fail(first.ticket, OSError("no space"))
    assert one.lab.drain() == []


def test_a_store_refuses_to_write_behind_a_hole() -> None:
    store = MemoryStore(Values(), founders(1))
    ticket: Ticket[None] = Ticket(0)

    def write(first: int) -> Persist:
        return Persist(
            ticket=ticket,
            term=1,
            voted_for=1,
            commit_index=0,
            first_index=first,
            entries=entries(1),
        )

    store.perform(write(1))
    with pytest.raises(ValueError, match="is written from 3"):
        store.perform(write(3))
    assert len(store.load().entries) == 1
    store.perform(write(2))


# Faults that the simulator would notice


def test_canary_a_write_that_is_counted_when_it_is_begun_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Journal.written

    def all_of_them(self: Journal, write: Any) -> None:
        self._done.update(self._writes)
        written(self, write)

    monkeypatch.setattr(Journal, "written", all_of_them)
    assert caught(CALM, size=3, seeds=60, seconds=1.5, check_sends=True)

"""Input that comes once, late or again: while the store is at work, and after a session's end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import SCHEMA
from p2panda_victim import Victim

from culm.bamboo import LogKey
from culm.bamboo.entry import Entry, sign
from culm.machine import Closed, Effect
from culm.p2panda import (
    Action,
    Operation,
    OperationLeftOut,
    OperationStored,
    Reason,
    SessionEnded,
    SessionLive,
    intake,
)
from culm.p2panda.effects import (
    LocateOperations,
    LookUp,
    ReadOperations,
)
from culm.p2panda.messages import Have, SendEntry, SyncDone
from culm.wire.multihash import YASMF

KEYS = [SigningKey(bytes([number]) * 32) for number in range(1, 5)]
LOGS = [LogKey(bytes(key.verify_key), 0) for key in KEYS]


def created(key: SigningKey, name: str = "x") -> SendEntry:
    """The first entry of a log, and of a document."""
    payload = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"name": name}).encode()
    return SendEntry(
        0, sign(key, family=YASMF, log_id=0, seqnum=1, payload=payload).encode(), payload
    )


def updated(key: SigningKey, first: SendEntry) -> SendEntry:
    """The second one."""
    id = YASMF.hash(first.entry)
    operation = Operation(
        action=Action.UPDATE, schema_id=SCHEMA, previous=(id,), fields={"name": "y"}
    )
    payload = operation.encode()
    entry = sign(key, family=YASMF, log_id=0, seqnum=2, payload=payload, backlink=id)
    return SendEntry(0, entry.encode(), payload)


ONE, TWO, THREE = (created(key) for key in KEYS[:3])
NEXT = updated(KEYS[0], ONE)
FORGED = SendEntry(0, ONE.entry[:-1] + bytes([ONE.entry[-1] ^ 1]), ONE.operation)


class Slow(Victim):
    """A victim whose store works on request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.waiting: list[Effect[Any]] = []

    def run(self) -> list[Any]:
        found: list[Any] = []
        while True:
            found += iter(self.machine.next_event, None)
            asked = list(iter(self.machine.next_effect, None))
            self.waiting += asked
            data = self.machine.data_to_send()
            if not asked and not data:
                return found

    def answer_one(self, *kinds: type[Effect[Any]]) -> list[Any]:
        """Answer the first pending effect of one of these kinds."""
        effect = next(each for each in self.waiting if isinstance(each, kinds))
        self.waiting.remove(effect)
        self.machine.complete(effect.ticket, self.node.store.perform(effect))
        return self.run()

    def answer(self, *kinds: type[Effect[Any]]) -> list[Any]:
        """Answer all pending effects, and those that follow, if they are of these kinds."""
        found, kinds = list[Any](), kinds or (Effect,)
        while any(isinstance(each, kinds) for each in self.waiting):
            found += self.answer_one(*kinds)
        return found


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("known_max", [1, 100])
def test_an_entry_that_comes_twice_is_stored_and_told_once(mode: int, known_max: int) -> None:
    victim = Slow(logs_known_max=known_max)
    victim.begin(mode)
    victim.answer()
    if mode == 0:
        victim.tell(Have(0, ()))
    told = victim.tell(ONE, ONE, TWO, ONE, TWO)
    told += victim.answer()
    told += victim.tell(TWO, ONE, NEXT, NEXT)
    told += victim.answer()
    stored = [(each.log, each.seqnum) for each in told if isinstance(each, OperationStored)]
    assert stored == [(LOGS[0], 1), (LOGS[1], 1), (LOGS[0], 2)]
    assert len(told) == len(stored)
    found = victim.node.store.read_new((SCHEMA,), count_max=9, size_max=1 << 20)
    assert [each.entry for each in found] == [ONE.entry, TWO.entry, NEXT.entry]


def test_a_session_that_is_over_is_blamed_for_what_it_has_brought() -> None:
    """Its end is reported once all its input has been checked."""
    victim = Slow()
    victim.begin(0)
    victim.answer()
    assert victim.tell(Have(0, ()), TWO, FORGED, SyncDone(0, False)) == []
    told = victim.answer()
    assert [type(each) for each in told] == [OperationStored, SessionEnded]
    assert told[1].error.code is Reason.BAD_SIGNATURE


def test_nothing_more_is_taken_from_a_session_that_was_spoilt_and_has_ended() -> None:
    victim = Slow(batch_count_max=1)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()), FORGED, TWO)
    told = victim.answer_one(LookUp)  # about the first: the second has its turn after the end
    told += victim.tell(SyncDone(0, False)) + victim.answer()
    assert [type(each) for each in told] == [SessionEnded]
    assert victim.entries() == set()


def live(**options: Any) -> Slow:
    """In live mode, with three documents that the peer has not mentioned."""
    victim = Slow(documents=3, **options)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()))
    victim.answer()
    told = victim.tell(SyncDone(0, True)) + victim.answer()
    assert SessionLive(session_id=0) in told
    return victim


def ours(victim: Victim) -> list[SendEntry]:
    found = victim.node.store.read_new((SCHEMA,), count_max=9, size_max=1 << 20)
    return [SendEntry(0, each.entry, each.operation) for each in found]


def test_what_the_peer_passes_on_in_live_mode_may_be_ours() -> None:
    victim = live(repeated_max=1)
    assert victim.tell(*ours(victim)) + victim.answer() == []


def asked(effects: Sequence[Effect[Any]]) -> Iterator[tuple[LogKey, ...]]:
    return (each.logs for each in effects if isinstance(each, LookUp))


def test_as_many_logs_are_known_as_the_limit_says() -> None:
    victim = Slow(logs_known_max=1)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()))
    looked_up = []
    for entry in (ONE, NEXT, TWO, ONE):
        victim.tell(entry)
        looked_up += asked(victim.waiting)
        victim.answer()
    assert looked_up == [(LOGS[0],), (), (LOGS[1],), (LOGS[0],)]


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[LogKey]:
    """The logs of entries whose signatures are verified."""
    logs: list[LogKey] = []
    verify = intake.signatures_are_valid

    def counted(entries: Sequence[Entry]) -> Any:
        logs.extend(entry.log for entry in entries)
        return verify(entries)

    monkeypatch.setattr(intake, "signatures_are_valid", counted)
    return logs


def test_no_signature_is_verified_in_vain(verified: list[LogKey]) -> None:
    """Not of entries already here, nor of those after an invalid one."""
    victim = Slow(batch_count_max=1)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()), TWO, TWO, FORGED, THREE)
    victim.answer()
    assert verified == [LOGS[1], LOGS[0]]


def test_no_signature_is_verified_again_after_a_conflict(verified: list[LogKey]) -> None:
    victim, other = Slow(), Slow()
    other.node = victim.node
    for each in (victim, other):
        each.begin(0)
        each.answer()
    victim.tell(Have(0, ()), ONE, TWO)
    victim.answer_one(LookUp)
    other.tell(Have(0, ()), created(KEYS[0], name="a fork"))
    other.answer()
    assert verified == [LOGS[0], LOGS[1], LOGS[0]]
    told = victim.answer()
    assert [type(each) for each in told] == [OperationLeftOut, OperationStored]
    assert verified == [LOGS[0], LOGS[1], LOGS[0]]


def read_at_once(victim: Slow) -> list[int]:
    """The number of spans read at a time."""
    counts: list[int] = []
    while victim.waiting:
        effect = victim.waiting[0]
        assert not isinstance(effect, LocateOperations)
        if isinstance(effect, ReadOperations):
            counts.append(len(effect.spans))
        victim.answer_one(Effect)
    return counts


def test_documents_are_read_together_up_to_the_limit() -> None:
    victim = Slow(documents=5, spans_max=2)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()))
    assert read_at_once(victim) == [2, 2, 1]


def test_a_document_of_just_as_many_logs_is_read_at_once() -> None:
    victim = Slow(spans_max=2)
    document = victim.node.create(name="shared")
    other = type(victim.node)(2, victim.node.store)
    other.author.update(document, {"name": "theirs"})
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()))
    assert read_at_once(victim) == [2]


def test_what_is_read_after_the_goodbye_goes_nowhere() -> None:
    victim = Slow(documents=3)
    victim.begin(0)
    victim.answer()
    victim.tell(Have(0, ()))
    while not any(isinstance(each, ReadOperations) for each in victim.waiting):
        victim.answer_one(Effect)
    victim.machine.close()
    assert victim.answer_one(ReadOperations) == [Closed()]


def test_the_end_of_a_connection_is_not_told_of_each_session() -> None:
    victim = Victim()
    victim.begin()
    victim.machine.close()
    (event,) = victim.run()
    assert event == Closed()


def test_a_peer_that_has_lost_a_live_session_gets_another() -> None:
    """As when a line stalled until one side gave up a session that the other took for agreed."""
    victim = Victim(documents=1)
    for number, session_id in enumerate((0, 0, 1), 1):
        victim.said.clear()
        victim.begin(0, session_id)
        events = victim.tell(Have(session_id, ()), SyncDone(session_id, True))
        assert SessionLive(session_id=session_id) in events
        sent = [each.session_id for each in victim.said if isinstance(each, SendEntry)]
        assert sent == [session_id] * number
        victim.said.clear()
        victim.node.create(name=f"live {number}")
        victim.machine.stored()
        victim.run()
        assert [type(each) for each in victim.said] == [SendEntry]

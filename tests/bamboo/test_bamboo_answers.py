"""The values that answer an effect of a log store."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from culm.bamboo.answers import stored_size
from culm.bamboo.effects import (
    AddFork,
    AppendEntries,
    DiscardStaged,
    FinishPayload,
    LogStatus,
    ReadEntries,
    ReadEntry,
    ReadHashes,
    ReadLog,
    ReadLogs,
    ReadPayload,
    WriteEffect,
    WritePayload,
)
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import StoreError, StoreErrorCode
from culm.bamboo.store import MemoryStore
from culm.effects import Answer
from culm.machine import Effect, Ticket
from culm.machines.sample_logs import make_log
from culm.testing.store_asking import RandomEffects
from culm.wire.multihash import YAMF, YASMF, HashFamily

TICKET: Ticket[Any] = Ticket(1)
NEWS = make_log(YAMF, 7)
LOG = NEWS[0].entry.log
OTHER = make_log(YAMF, 8)[0].entry.log
FORK = ForkProof(NEWS[4].entry, make_log(YAMF, 7, branch=b"other")[4].entry)
OTHER_FORK = ForkProof(*(make_log(YAMF, 8, branch=branch)[4].entry for branch in (b"", b"x")))


def stored(count: int = len(NEWS)) -> MemoryStore:
    store = MemoryStore(family=YAMF)
    store.append(LOG, NEWS[:count])
    return store


STORE = stored()
THIRD = STORE.entries(LOG, 3, 3, payload_size_max=100)[0]
NO_PAYLOAD = THIRD._replace(payload=None)
HEAD = STORE.head(LOG)
assert HEAD is not None
STATUS = LogStatus(None, HEAD, HEAD, STORE.entry(LOG, HEAD.seqnum), NO_PAYLOAD, {1: THIRD.hash})


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
def test_whatever_a_store_says_is_an_answer(family: HashFamily) -> None:
    store, walker = MemoryStore(family=family), RandomEffects(family, Random(1))
    for _ in range(2000):
        effect = walker.next_effect()
        assert effect.accepts(store.perform(effect)), effect


WRONG: list[tuple[Effect[Any], list[Any]]] = [
    (
        ReadLogs(ticket=TICKET, after=LOG, count_max=2),
        [
            None,
            (OTHER,),
            [LOG],  # not beyond it
            [OTHER, OTHER],
            [OTHER, OTHER._replace(log_id=300), OTHER._replace(log_id=301)],
            [tuple(OTHER)],
            [OTHER._replace(log_id=True)],
            [OTHER._replace(log_id=1 << 64)],
            [OTHER._replace(author=b"short")],
            [OTHER._replace(author="a" * 32)],
        ],
    ),
    (
        ReadEntry(ticket=TICKET, log=LOG, seqnum=3),
        [
            False,
            [NO_PAYLOAD],
            tuple(NO_PAYLOAD),
            THIRD,  # the payload was not asked for
            STORE.entry(LOG, 4),
            NO_PAYLOAD._replace(seqnum=True),
            NO_PAYLOAD._replace(encoded=None),
            NO_PAYLOAD._replace(encoded=b""),
            NO_PAYLOAD._replace(encoded=THIRD.encoded[:-1]),
            NO_PAYLOAD._replace(encoded=THIRD.encoded + b"\0"),
            NO_PAYLOAD._replace(encoded=b"\2" + THIRD.encoded[1:]),
            NO_PAYLOAD._replace(encoded=bytearray(THIRD.encoded)),
            NO_PAYLOAD._replace(encoded=NEWS[3].entry.encode()),
            NO_PAYLOAD._replace(encoded=make_log(YAMF, 8)[2].entry.encode()),
            NO_PAYLOAD._replace(encoded=make_log(YASMF, 7)[2].entry.encode()),
            NO_PAYLOAD._replace(hash=b"\0" * 66),
            NO_PAYLOAD._replace(payload_size=15),
            NO_PAYLOAD._replace(payload_stored=15),
            NO_PAYLOAD._replace(payload_stored=-1),
            NO_PAYLOAD._replace(payload_stored=3),  # and complete
            NO_PAYLOAD._replace(payload_complete=1),
            NO_PAYLOAD._replace(payload_begun=1),
            THIRD._replace(payload=None, payload_begun=True),  # and complete
        ],
    ),
    (
        ReadEntries(
            ticket=TICKET,
            log=LOG,
            start=3,
            end=5,
            count_max=2,
            size_max=2 * len(THIRD.encoded) + 50,
            payload_size_max=20,
        ),
        [
            None,
            NO_PAYLOAD,
            (THIRD,),
            [None],
            [THIRD, OSError()],
            [THIRD, THIRD],
            STORE.entries(LOG, 3, 5),
            STORE.entries(LOG, 5, 6),
            STORE.entries(LOG, 4, 4, payload_size_max=100),  # a payload of 21 bytes
            [THIRD._replace(payload=b"x" * 13)],
            [THIRD._replace(payload="x" * 14)],
            [THIRD._replace(payload_complete=False)],
            STORE.entries(LOG, 2, 3),
            STORE.entries(LOG, 4, 5)[::-1],
        ],
    ),
    (
        ReadHashes(ticket=TICKET, log=LOG, seqnums=(1, 3)),
        [None, [], {2: THIRD.hash}, {3: None}, {3: b""}, {3: THIRD.hash[:-1]}, {"3": THIRD.hash}],
    ),
    (
        ReadLog(ticket=TICKET, log=LOG, entry=3, hashes=(1,)),
        [
            None,
            tuple(STATUS),
            STATUS._replace(fork=OTHER_FORK),
            STATUS._replace(head=3),
            STATUS._replace(head=None),  # and a last entry
            STATUS._replace(newest=False),
            STATUS._replace(last=NO_PAYLOAD),
            STATUS._replace(entry=STATUS.last),
            STATUS._replace(hashes=[]),
            STATUS._replace(hashes={2: THIRD.hash}),
            STATUS._replace(hashes={1: b""}),
        ],
    ),
    (
        ReadPayload(ticket=TICKET, log=LOG, seqnum=3, offset=0, size=5),
        [None, "", bytearray(b""), memoryview(b""), b"123456", [b"1"]],
    ),
]


@pytest.mark.parametrize(("effect", "wrong"), WRONG, ids=lambda value: type(value).__name__)
def test_what_is_no_answer_to_a_read(effect: Effect[Any], wrong: list[Any]) -> None:
    assert effect.accepts(STORE.perform(effect))
    for value in (*wrong, OSError(), "nonsense", object(), True, 0.5):
        assert not effect.accepts(value), value


WRITES: list[WriteEffect] = [
    AppendEntries(ticket=TICKET, log=LOG, entries=NEWS[1:4]),
    WritePayload(ticket=TICKET, log=LOG, seqnum=3, offset=0, data=b""),
    FinishPayload(ticket=TICKET, log=LOG, seqnum=3),
    DiscardStaged(ticket=TICKET, log=LOG, seqnum=3),
    AddFork(ticket=TICKET, log=LOG, proof=FORK),
]


@pytest.mark.parametrize("effect", WRITES, ids=lambda effect: type(effect).__name__)
def test_what_is_no_answer_to_a_write(effect: WriteEffect) -> None:
    assert effect.accepts(None)
    for value in (OSError(), False, True, 0, "nonsense", b"", [], (), object(), THIRD, StoreError):
        assert not effect.accepts(value), value
    for code in StoreErrorCode:
        assert effect.accepts(StoreError(code, LOG, 3)) == (code in effect.REFUSALS)
        assert not effect.accepts(StoreError(code, OTHER, 3))
        assert not effect.accepts(StoreError(code, LOG, 9))


def test_a_refusal_that_no_other_writer_causes_is_a_failure() -> None:
    """A fork can always be kept; a store refuses a payload in the way the interface defines."""
    forks = AddFork(ticket=TICKET, log=OTHER, proof=FORK)
    with pytest.raises(StoreError):
        STORE.perform(forks)
    payload = DiscardStaged(ticket=TICKET, log=OTHER, seqnum=1)
    refusal = STORE.perform(payload)
    assert isinstance(refusal, StoreError)
    assert payload.accepts(refusal)


class Machine:
    def __init__(self) -> None:
        self.told: list[object] = []

    def next_event(self) -> None:
        return None

    def next_effect(self) -> Effect[Any] | None:
        return None

    def complete(self, ticket: Ticket[Any], result: object) -> None:
        self.told.append(("complete", ticket, result))

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        self.told.append(("fail", ticket, error))


class FullStore(MemoryStore):
    full = OSError("the disk is full")

    def append(self, log: LogKey, entries: Any) -> None:
        raise self.full


def test_a_machine_is_told_the_result_the_refusal_or_the_failure() -> None:
    machine, store = Machine(), FullStore(family=YAMF)
    for effect in (
        ReadEntry(ticket=TICKET, log=LOG, seqnum=3),
        AppendEntries(ticket=TICKET, log=LOG, entries=NEWS),
        FinishPayload(ticket=TICKET, log=LOG, seqnum=3),
    ):
        Answer.of(effect, store.perform).give(machine)
    entry, append, finish = machine.told
    assert entry == ("complete", TICKET, None)
    assert append == ("fail", TICKET, FullStore.full)
    assert finish[:2] == ("complete", TICKET)  # type: ignore[index]
    assert isinstance(finish[2], StoreError)  # type: ignore[index]


def test_no_entries_take_no_bytes() -> None:
    assert stored_size([], LogKey(bytes(32), 0)) == 0

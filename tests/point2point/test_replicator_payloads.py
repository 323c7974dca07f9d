"""Large payloads on their way into the store: every state, and its consequences."""

from __future__ import annotations

from itertools import product

import pytest
from replicator_support import news_of

from culm.bamboo.effects import DiscardStaged, FinishPayload, ReadPayload
from culm.bamboo.entry import LogKey
from culm.bamboo.records import NewEntry
from culm.bamboo.staging import (
    CONCLUSIONS,
    TASKS,
    Arrival,
    Conclusion,
    Kept,
    StagedPayload,
    Task,
    Verdict,
    Writing,
)
from culm.bamboo.store import MemoryStore
from culm.bamboo.verify import PayloadVerifier
from culm.effects import StoreWork
from culm.machine import Event
from culm.point2point.replication.events import LogSynced, PayloadProgress
from culm.wire.multihash import YAMF

(NEW,) = news_of((200,))
RIGHT = NEW.payload or b""
WRONG = bytes(200)
OVER = LogSynced(log=NEW.entry.log, seqnum=1)  # the report at the end


class Staged:
    """A payload, the store that it goes into, and the results."""

    def __init__(self, kept: Kept, data: bytes, *, verifier: bool) -> None:
        self.store = MemoryStore(family=YAMF)
        self.store.append(self.log, [NewEntry(NEW.entry)])
        self.work = StoreWork()
        self.kinds: list[type] = []  # of the effects
        self.over = 0
        self.payload = StagedPayload(
            NEW.entry,
            work=self.work,
            over=self._end,
            progress=PayloadProgress,
            verifier=PayloadVerifier(NEW.entry) if verifier else None,
        )
        if kept is Kept.OTHER:
            self.store.write_payload(self.log, 1, 0, b"\xff" * 100)
        self.take(data[:64])
        if kept is Kept.LESS:
            self.store.discard_payload(self.log, 1)
        self.take(data[64:150])
        self.kinds.clear()

    @property
    def log(self) -> LogKey:
        return NEW.entry.log

    def _end(self, payload: StagedPayload) -> list[Event]:
        assert payload.done
        self.over += 1
        return [OVER]

    def take(self, data: bytes) -> None:
        self.payload.take(data)
        self.run()

    def run(self) -> None:
        while (effect := self.work.next_effect()) is not None:
            self.kinds.append(type(effect))
            self.work.complete(effect.ticket, self.store.perform(effect))

    def events(self) -> list[Event]:
        return list(iter(self.work.next_event, None))


def test_every_pair_of_states_has_something_that_follows() -> None:
    assert TASKS.keys() == set(product(Arrival, Kept))
    assert CONCLUSIONS.keys() == set(product(Kept, Verdict))
    assert set(TASKS.values()) == set(Task)
    assert set(CONCLUSIONS.values()) == set(Conclusion)


@pytest.mark.parametrize("kept", Kept)
@pytest.mark.parametrize("arrival", [Arrival.COMING, Arrival.STOPPED, Arrival.WRONG])
def test_what_is_not_whole(arrival: Arrival, kept: Kept) -> None:
    staged = Staged(kept, RIGHT, verifier=False)
    if arrival is Arrival.STOPPED:
        staged.payload.stop()
    elif arrival is Arrival.WRONG:
        staged.payload.take_back()
    staged.run()
    task = TASKS[arrival, kept]
    assert staged.kinds == ([DiscardStaged] if task is Task.DISCARD else [])
    assert staged.over == (task is not Task.WAIT)
    assert staged.payload.writing is (Writing.IDLE if task is Task.WAIT else Writing.LEFT)
    assert not staged.work.unwritten_size
    staged.events()
    assert staged.work.all_told


@pytest.mark.parametrize(("kept", "verdict"), CONCLUSIONS)
def test_what_is_whole(kept: Kept, verdict: Verdict) -> None:
    data = WRONG if verdict is Verdict.WRONG else RIGHT
    staged = Staged(kept, data, verifier=verdict is Verdict.WRONG)
    staged.take(data[150:])
    staged.kinds.clear()
    staged.payload.finish(verified=verdict is Verdict.RIGHT)
    staged.run()
    match CONCLUSIONS[kept, verdict]:
        case Conclusion.FINISH:
            expected: list[type] = [FinishPayload]
        case Conclusion.READ_BACK:
            expected = [ReadPayload, FinishPayload]
        case Conclusion.START_OVER:
            expected = [DiscardStaged]
        case Conclusion.FETCH_AGAIN:
            expected = []
    assert staged.kinds == expected
    stored = FinishPayload in expected
    assert staged.over == 1
    assert staged.payload.writing is (Writing.STORED if stored else Writing.LOST)
    assert staged.events()[-1] == OVER
    assert staged.work.all_told
    kept_entry = staged.store.entry(staged.log, 1)
    assert kept_entry is not None
    assert kept_entry.payload_complete is stored


def test_what_is_read_back_and_wrong_is_fetched_again() -> None:
    staged = Staged(Kept.SAME, WRONG, verifier=False)
    staged.take(WRONG[150:])
    staged.payload.finish(verified=False)
    staged.kinds.clear()
    staged.run()
    assert staged.kinds == [ReadPayload, DiscardStaged]
    assert staged.payload.writing is Writing.LOST


def test_what_somebody_else_has_finished_stays() -> None:
    """Although our peer's payload was wrong from our position on."""
    staged = Staged(Kept.SAME, RIGHT, verifier=False)
    staged.store.write_payload(staged.log, 1, 150, RIGHT[150:])
    staged.store.finish_payload(staged.log, 1)
    staged.payload.take_back()
    staged.run()
    kept = staged.store.entry(staged.log, 1)
    assert kept is not None
    assert kept.payload_complete

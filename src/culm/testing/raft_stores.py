"""The duties of every store of Garlic Farm, as a suite of tests for any implementation.

Subclass `RaftStoreSuite`, define how a store is made, found again after a restart and, if it
outlives that, after a crash, and let pytest collect it::

    class TestMyStore(RaftStoreSuite):
        def make_store(self, machine, founding):
            return MyStore(machine, founding)

The suite has tests of one rule each, a random walk that compares the store, step by step,
with a simple model, and crashes at every point that `crash` offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

from culm.garlic.raft import (
    Apply,
    Compact,
    Entry,
    ReadSnapshot,
    Snapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.store import MemoryStore, Store
from culm.machine import Effect
from culm.testing.raft_store_model import (
    FOUNDING,
    LIFE,
    TICKET,
    UNREADABLE,
    Kept,
    RandomLife,
    Values,
    chunk,
    entries_of,
    persist,
    steps,
)

_WALKS = 6
_WALK_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Crashed:
    """A store that was opened again after a crash, with its new state machine.

    returned: number of calls of `perform` that had returned before the crash.
    """

    store: Store
    machine: Values
    returned: int


class _Trial:
    """A store that does effects, its state machine, and the state that it has to keep."""

    def __init__(self, suite: _Suite, founding: Stored = FOUNDING) -> None:
        self._suite = suite
        self.machine = Values()
        self.store = suite.make_store(self.machine, founding)
        self.kept = Kept(snapshot=founding.snapshot)
        self.check(self.store)

    def do(self, effect: Effect[Any]) -> Any:
        """Do `effect`; returns its result, which must be one that the effect accepts."""
        before = self.machine.snapshot()
        result = self.store.perform(effect)
        assert effect.accepts(result), (effect, result)
        self.kept = steps(self.kept, effect, before)[-1]
        return result

    def keep(self, effect: Effect[Any]) -> None:
        """Do `effect`, and check that its results are there after a restart."""
        self.do(effect)
        self.reopen()

    def reopen(self) -> None:
        """Check that the store has its state after a restart."""
        machine = Values()
        store = self._suite.reopen(self.store, machine, FOUNDING)
        if store is not self.store:
            self.store, self.machine = store, machine
        self.check(store)

    def check(self, store: Store) -> None:
        """Check that the store loads its state, as often as it is asked."""
        for _ in range(2):
            self.machine.become([b"nothing that was kept"])
            found = store.load()
            difference = self.kept.difference(found, self.machine.snapshot())
            assert difference is None, difference


class _Suite:
    """The stores for the tests."""

    def make_store(self, machine: Values, founding: Stored) -> Store:
        """A new store, another one at each call."""
        raise NotImplementedError

    def reopen(self, store: Store, machine: Values, founding: Stored) -> Store:
        """The same store as it is found after a restart; the old one is no longer used."""
        return store

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        """A new store that does `effects`, crashes at that point, and is opened again.

        Points are counted from 0, as finely as the store can be interrupted, the time
        before its first effect included; ``None`` if all was done before that point.  The
        store is founded with `FOUNDING` and was loaded before its first effect.
        """
        return None


class _LogRules(_Suite):
    """Term, vote, commit index and log."""

    def test_it_is_a_store(self) -> None:
        assert isinstance(_Trial(self).store, Store)

    def test_a_new_store_has_what_it_was_founded_with(self) -> None:
        for founding in (FOUNDING, Stored()):
            _Trial(self, founding)
        _Trial(self).reopen()

    def test_term_vote_and_commit_index_are_kept(self) -> None:
        run = _Trial(self)
        for term, vote, commit in ((1, None, 0), (1, 3, 0), (2, None, 0), (2**62, 2**32 - 1, 0)):
            run.keep(persist(term, vote, commit))
        run.keep(persist(2**62, 1, 2, 1, entries_of(2**62, b"a", b"b")))
        run.keep(persist(2**62, 1, 1))

    def test_entries_are_kept_in_order(self) -> None:
        run = _Trial(self)
        run.keep(persist(1, 1, 0, 1, entries_of(1, b"a", b"", b"a", b"\x00" * 5000)))
        run.keep(persist(1, 1, 2, 5, entries_of(1, *(b"%d" % number for number in range(500)))))

    def test_an_entry_may_hold_a_configuration(self) -> None:
        run = _Trial(self)
        data = FOUNDING.snapshot.configuration
        for entry in (Entry(1, data), Entry(1, replace(data, log_index=2, servers=()))):
            run.keep(persist(1, 1, 0, run.kept.last_index + 1, [*entries_of(1, b"a"), entry]))

    def test_new_entries_take_the_place_of_all_from_there_on(self) -> None:
        run = _Trial(self)
        run.do(persist(1, 1, 0, 1, entries_of(1, b"a", b"b", b"c", b"d")))
        run.keep(persist(2, 1, 0, 2, entries_of(2, b"B")))
        assert run.kept.last_index == 2
        run.keep(persist(2, 1, 0, 3, entries_of(2, b"C")))

    def test_a_cut_needs_no_new_entries(self) -> None:
        run = _Trial(self)
        run.do(persist(1, 1, 0, 1, entries_of(1, b"a", b"b")))
        for first in (2, 1, 1):
            run.keep(persist(1, 1, 0, first))

    def test_without_a_first_index_the_log_stays(self) -> None:
        run = _Trial(self)
        run.do(persist(1, 1, 0, 1, entries_of(1, b"a", b"b")))
        run.keep(persist(2, None, 1))
        assert run.kept.last_index == 2

    def test_what_is_no_effect_of_a_core_is_refused(self) -> None:
        run = _Trial(self)
        try:
            run.store.perform(Effect(ticket=TICKET))
        except TypeError:
            run.reopen()
        else:
            raise AssertionError("not refused")


class _SnapshotRules(_Suite):
    """The state machine, and snapshots taken, read and received."""

    def _applied(self) -> _Trial:
        run = _Trial(self)
        run.do(persist(1, 1, 0, 1, entries_of(1, b"a", b"b", b"c", b"d")))
        run.do(persist(1, 1, 4))
        run.do(Apply(ticket=TICKET, first_index=1, entries=entries_of(1, b"a", b"b", b"c")))
        return run

    def test_values_are_applied_in_order_and_configurations_are_not(self) -> None:
        run = _Trial(self)
        entries = entries_of(1, b"a", b"b", b"a")
        entries.insert(1, Entry(1, FOUNDING.snapshot.configuration))
        run.do(persist(1, 1, 0, 1, entries))
        run.do(persist(1, 1, 4))
        run.do(Apply(ticket=TICKET, first_index=1, entries=entries[:3]))
        assert run.machine.values == [b"a", b"b"]
        run.do(Apply(ticket=TICKET, first_index=4, entries=entries[3:]))
        assert run.machine.values == [b"a", b"b", b"a"]
        run.reopen()
        assert run.machine.values == []

    def test_a_snapshot_has_the_state_of_then_and_leaves_the_log(self) -> None:
        run = self._applied()
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        run.keep(Apply(ticket=TICKET, first_index=4, entries=entries_of(1, b"d")))
        assert run.machine.values == [b"a", b"b", b"c"]

    def test_compacting_drops_no_entry_after_the_index(self) -> None:
        run = self._applied()
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        for index in (0, 1, 3, 2, 3):
            run.keep(Compact(ticket=TICKET, index=index))
        run.keep(persist(2, 1, 4, 5, entries_of(2, b"e")))
        run.keep(persist(2, 1, 4, 4, entries_of(2, b"D")))

    def test_a_log_may_be_compacted_to_its_end(self) -> None:
        run = self._applied()
        run.do(Apply(ticket=TICKET, first_index=4, entries=entries_of(1, b"d")))
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(4)))
        run.keep(Compact(ticket=TICKET, index=4))
        run.keep(persist(2, 1, 4, 5, entries_of(2, b"e")))

    def test_a_snapshot_is_read_in_pieces_to_its_end(self) -> None:
        run = self._applied()
        snapshot = _snapshot(3)
        run.keep(TakeSnapshot(ticket=TICKET, snapshot=snapshot))
        image = b"a\nb\nc"
        for size in (1, 2, 3, 5, 100):
            for offset in range(len(image) + 1):
                data = image[offset : offset + size]
                done = offset + size >= len(image)
                assert run.do(_read(snapshot, offset, size)) == SnapshotChunk(data, done)

    def test_an_empty_snapshot_ends_at_once(self) -> None:
        run = _Trial(self)
        assert run.do(_read(FOUNDING.snapshot, 0, 10)) == SnapshotChunk(b"", True)

    def test_only_the_snapshot_that_is_there_is_read(self) -> None:
        run = self._applied()
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(2)))
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        for snapshot in (FOUNDING.snapshot, _snapshot(2), _snapshot(3, 7), _snapshot(9)):
            assert run.do(_read(snapshot, 0, 10)) is None

    def test_a_received_snapshot_replaces_snapshot_log_and_state(self) -> None:
        run = self._applied()
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        before = list(run.machine.values)
        assert run.do(chunk(_snapshot(20, 5), 0, b"x\n")) is True
        assert run.do(chunk(_snapshot(20, 5), 2, b"")) is True
        assert run.machine.values == before
        assert run.do(chunk(_snapshot(20, 5), 2, b"y", done=True)) is True
        assert run.machine.values == [b"x", b"y"]
        assert run.do(_read(_snapshot(3), 0, 10)) is None
        assert run.do(_read(_snapshot(20, 5), 0, 10)) == SnapshotChunk(b"x\ny", True)
        run.reopen()
        run.keep(persist(5, 1, 20, 21, entries_of(5, b"z")))

    def test_a_snapshot_may_come_in_one_piece_and_be_empty(self) -> None:
        run = self._applied()
        assert run.do(chunk(_snapshot(20, 5), 0, b"", done=True)) is True
        assert run.machine.values == []
        run.reopen()

    def test_a_snapshot_that_is_none_changes_nothing(self) -> None:
        run = self._applied()
        run.do(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        before = list(run.machine.values)
        for cut in (None, 1, len(UNREADABLE)):
            if cut is not None:
                run.do(chunk(_snapshot(20, 5), 0, UNREADABLE[:cut]))
            rest = chunk(_snapshot(20, 5), cut or 0, UNREADABLE[cut or 0 :], done=True)
            assert run.do(rest) is False
            assert run.machine.values == before
        assert run.do(_read(_snapshot(3), 0, 10)) == SnapshotChunk(b"a\nb\nc", True)
        run.reopen()
        assert run.do(chunk(_snapshot(20, 5), 0, b"x", done=True)) is True
        run.reopen()

    def test_the_first_chunk_drops_what_has_come_before(self) -> None:
        run = self._applied()
        run.do(chunk(_snapshot(20, 5), 0, b"of another"))
        run.do(chunk(_snapshot(21, 5), 0, b"x\n"))
        run.keep(chunk(_snapshot(21, 5), 2, b"y", done=True))
        assert run.machine.values == [b"x", b"y"]

    def test_a_chunk_that_does_not_follow_is_not_used(self) -> None:
        run = self._applied()
        run.do(chunk(_snapshot(20, 5), 0, b"x\n"))
        for offset, done in ((1, False), (3, False), (3, True)):
            effect = chunk(_snapshot(20, 5), offset, b"wrong", done=done)
            assert run.store.perform(effect) is False
        run.reopen()

    def test_half_a_snapshot_is_none_after_a_restart(self) -> None:
        run = self._applied()
        run.do(chunk(_snapshot(20, 5), 0, b"x\n"))
        before = run.store
        run.reopen()
        if run.store is not before:
            assert run.do(chunk(_snapshot(20, 5), 2, b"v")) is False, "half of it is kept"
        run.do(chunk(_snapshot(20, 5), 0, b"u\n"))
        run.keep(chunk(_snapshot(20, 5), 2, b"v", done=True))
        assert run.machine.values == [b"u", b"v"]


class RaftStoreSuite(_LogRules, _SnapshotRules):
    """Tests for a `culm.garlic.store.Store`; see the module."""

    def test_a_random_walk_agrees_with_a_simple_model(self) -> None:
        for seed in range(_WALKS):
            random = Random(seed)
            run, life = _Trial(self), RandomLife(random)
            for step in range(_WALK_LENGTH):
                effect = life.next_effect()
                before = run.machine.snapshot()
                run.do(effect)
                life.did(effect, before)
                if random.random() < 0.1 and not life.kept.incoming:
                    applied = list(run.machine.values)
                    run.reopen()
                    run.machine.become(applied)  # the node applies the log again
                    assert run.kept.last_index == life.kept.last_index, (seed, step)

    def test_a_crash_leaves_what_had_returned_or_a_beginning_of_the_next_effect(self) -> None:
        history = _history()
        for point in count():
            crashed = self.crash(LIFE, point)
            if crashed is None:
                break
            crashed.machine.become([b"nothing that was kept"])
            found = crashed.store.load()
            image = crashed.machine.snapshot()
            kept, state, allowed = history[crashed.returned]
            differences = [each.difference(found, image) for each in (kept, *allowed)]
            assert None in differences, (point, crashed.returned, differences)
            self._goes_on(crashed, state)

    def _goes_on(self, crashed: Crashed, state: list[bytes]) -> None:
        """Check that the interrupted effect and all later ones can be done."""
        done = crashed.returned
        while done < len(LIFE) and isinstance(again := LIFE[done], WriteSnapshot) and again.offset:
            done -= 1
        crashed.machine.become(state)
        for effect in LIFE[done:]:
            assert effect.accepts(crashed.store.perform(effect))
        found = crashed.store.load()
        difference = _history()[-1][0].difference(found, crashed.machine.snapshot())
        assert difference is None, (crashed.returned, difference)


def _history() -> list[tuple[Kept, list[bytes], list[Kept]]]:
    """The durable state and the state machine's values after none, one, two... effects of `LIFE`,
    and the durable states on the way through the next effect."""
    machine = Values()
    twin = MemoryStore(machine, FOUNDING)
    twin.load()
    kept = Kept()
    found: list[tuple[Kept, list[bytes], list[Kept]]] = []
    for effect in LIFE:
        state = machine.snapshot()
        allowed = steps(kept, effect, state)
        found.append((kept, list(machine.values), allowed))
        twin.perform(effect)
        kept = allowed[-1]
    return [*found, (kept, list(machine.values), [])]


def _snapshot(index: int, term: int = 1) -> Snapshot:
    return Snapshot(index, term, FOUNDING.snapshot.configuration)


def _read(snapshot: Snapshot, offset: int, size: int) -> ReadSnapshot:
    return ReadSnapshot(ticket=TICKET, snapshot=snapshot, offset=offset, size=size)

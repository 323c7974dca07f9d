"""The duties of every store of Garlic Farm, as a suite of tests for any implementation.

Subclass `RaftStoreSuite`, define how a store is made, found again after a restart and, if it
outlives that, after a crash, and let pytest collect it::

    class TestMyStore(RaftStoreSuite):
        def make_store(self, machine, founding):
            return MyStore(machine, founding)

The suite has tests of one rule each, a random walk that compares the store, step by step,
with one in memory, and crashes at every point that `crash` offers.
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
    RandomLife,
    Values,
    chunk,
    entries_of,
    persist,
    ways_through,
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


class _Twin:
    """A store in memory that does the same effects; it keeps the entries that others may drop."""

    def __init__(
        self, suite: RaftStoreSuite, founding: Stored, effects: Sequence[Effect[Any]] = ()
    ):
        self.machine = Values()
        self._make = suite.make_model
        self._store = self._make(self.machine, founding)
        self._compacted = 0
        for effect in effects:
            self.do(effect)

    def do(self, effect: Effect[Any]) -> object:
        if isinstance(effect, Compact):
            self._compacted = max(self._compacted, effect.index)
            return None
        return self._store.perform(effect)

    def restart(self) -> None:
        """Lose all that is not durable."""
        self._store = self._make(self.machine, self._store.load())

    def content(self) -> tuple[Stored, bytes]:
        """Its durable state, and the snapshot of its state machine, which stays as it is."""
        values = self.machine.values
        stored, image = _loaded(self._store, self.machine)
        self.machine.become(values)
        return stored, image

    def matched(self, found: Stored) -> tuple[Stored, bytes]:
        """Its content, with the beginning of the log and the applied index of `found` if it may."""
        stored, image = self.content()
        last = max(self._compacted + 1, stored.first_index)
        first = min(max(found.first_index, stored.first_index), last)
        entries = tuple(stored.entries[first - stored.first_index :])
        applied = found.applied_index if found.applied_index == stored.snapshot.index else 0
        return replace(stored, first_index=first, entries=entries, applied_index=applied), image


def _loaded(store: Store, machine: Values) -> tuple[Stored, bytes]:
    """The state that a store loads, and that of its state machine then."""
    machine.become([b"nothing that was kept"])
    found = store.load()
    return replace(found, entries=tuple(found.entries)), machine.snapshot()


class _Trial:
    """A store that does effects, its state machine, and its twin in memory."""

    def __init__(self, suite: RaftStoreSuite, founding: Stored = FOUNDING) -> None:
        self._suite = suite
        self.machine = Values()
        self.store = suite.make_store(self.machine, founding)
        self.twin = _Twin(suite, founding)
        self.check()

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        stored, _ = self.twin.content()
        return stored.first_index + len(stored.entries) - 1

    def do(self, effect: Effect[Any]) -> Any:
        """Do `effect`; returns its result, which must be that of the twin."""
        result = self.store.perform(effect)
        assert effect.accepts(result), (effect, result)
        assert result == self.twin.do(effect), effect
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
            self.twin.restart()
        self.check()

    def check(self) -> None:
        """Check that the store loads its state, as often as it is asked."""
        for _ in range(2):
            found = _loaded(self.store, self.machine)
            assert found == self.twin.matched(found[0])
        self.become(self.machine.values)

    def become(self, values: Sequence[bytes]) -> None:
        """Replace the applied values: a node that starts may apply some again."""
        self.machine.become(values)
        self.twin.machine.become(values)


class RaftStoreSuite:
    """Tests for a `culm.garlic.store.Store`; see the module."""

    def make_store(self, machine: Values, founding: Stored) -> Store:
        """A new store, another one at each call."""
        raise NotImplementedError

    def reopen(self, store: Store, machine: Values, founding: Stored) -> Store:
        """The same store as it is found after a restart; the old one is no longer used."""
        return store

    def make_model(self, machine: Values, founding: Stored) -> Store:
        """The store in memory with which it is compared."""
        return MemoryStore(machine, founding)

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        """A new store that does `effects`, crashes at that point, and is opened again.

        Points are counted from 0, as finely as the store can be interrupted, the time
        before its first effect included; ``None`` if all was done before that point.  The
        store is founded with `FOUNDING` and was loaded before its first effect.
        """
        return None

    # Term, vote, commit index and log

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
            run.keep(persist(1, 1, 0, run.last_index + 1, [*entries_of(1, b"a"), entry]))

    def test_new_entries_take_the_place_of_all_from_there_on(self) -> None:
        run = _Trial(self)
        run.do(persist(1, 1, 0, 1, entries_of(1, b"a", b"b", b"c", b"d")))
        run.keep(persist(2, 1, 0, 2, entries_of(2, b"B")))
        assert run.last_index == 2
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
        assert run.last_index == 2

    def test_what_is_no_effect_of_a_core_is_refused(self) -> None:
        run = _Trial(self)
        try:
            run.store.perform(Effect(ticket=TICKET))
        except TypeError:
            run.reopen()
        else:
            raise AssertionError("not refused")

    # The state machine, and snapshots taken, read and received

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
        run.keep(TakeSnapshot(ticket=TICKET, snapshot=_snapshot(3)))
        for size in (1, 2, 3, 5, 100):
            for offset in range(6):
                run.do(_read(_snapshot(3), offset, size))

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

    # All of them

    def test_a_random_walk_agrees_with_a_simple_model(self) -> None:
        for seed in range(_WALKS):
            random = Random(seed)
            run, life = _Trial(self), RandomLife(random)
            for _ in range(_WALK_LENGTH):
                run.do(life.next_effect(run.twin.content()[0]))
                if random.random() < 0.1 and not life.incoming:
                    applied = run.machine.values
                    run.reopen()
                    run.become(applied)  # the node applies the log again

    def test_a_crash_leaves_what_had_returned_or_a_beginning_of_the_next_effect(self) -> None:
        for point in count():
            crashed = self.crash(LIFE, point)
            if crashed is None:
                break
            found = _loaded(crashed.store, crashed.machine)
            done, ways = LIFE[: crashed.returned], ways_through(LIFE[crashed.returned :])
            allowed = [_Twin(self, FOUNDING, [*done, *way]).matched(found[0]) for way in ways]
            assert found in allowed, (point, crashed.returned)
            self._goes_on(crashed)

    def _goes_on(self, crashed: Crashed) -> None:
        """Check that the interrupted effect and all later ones can be done."""
        done = crashed.returned
        crashed.machine.become(_Twin(self, FOUNDING, LIFE[:done]).machine.values)
        while done < len(LIFE) and isinstance(again := LIFE[done], WriteSnapshot) and again.offset:
            done -= 1
        for effect in LIFE[done:]:
            assert effect.accepts(crashed.store.perform(effect))
        found = _loaded(crashed.store, crashed.machine)
        assert found == _Twin(self, FOUNDING, LIFE).matched(found[0]), crashed.returned


def _snapshot(index: int, term: int = 1) -> Snapshot:
    return Snapshot(index, term, FOUNDING.snapshot.configuration)


def _read(snapshot: Snapshot, offset: int, size: int) -> ReadSnapshot:
    return ReadSnapshot(ticket=TICKET, snapshot=snapshot, offset=offset, size=size)

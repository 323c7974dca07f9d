"""Every store in culm does the work of a store; broken ones are found out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from garlic_cluster import Cluster, server
from raft_file_store import CANARIES, FileStore, FileStoreSuite

from culm.garlic.raft import (
    Apply,
    Compact,
    Configuration,
    Entry,
    Persist,
    ReadSnapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.store import MemoryStore, Store, recover
from culm.machine import Effect, Ticket
from culm.testing.raft_store_model import UNREADABLE, Values
from culm.testing.raft_stores import RaftStoreSuite

TESTS = [name for name in dir(RaftStoreSuite) if name.startswith("test_")]


class PlainStore:
    """The plainest store: a value that is replaced by each effect."""

    def __init__(self, machine: Values, founding: Stored) -> None:
        self._machine = machine
        self._stored = founding
        self._image = machine.snapshot()
        self._incoming = b""

    def load(self) -> Stored:
        self._machine.restore(self._image)
        return self._stored

    def perform(self, effect: Effect[Any]) -> object:
        stored, first = self._stored, self._stored.first_index
        match effect:
            case Persist(term=term, voted_for=vote, commit_index=commit, first_index=begin):
                stored = replace(stored, term=term, voted_for=vote, commit_index=commit)
                if begin is not None:
                    entries = [*stored.entries[: begin - first], *effect.entries]
                    stored = replace(stored, entries=entries)
            case Apply():
                values = [entry.data for entry in effect.entries if isinstance(entry.data, bytes)]
                self._machine.become([*self._machine.values, *values])
            case TakeSnapshot(snapshot=snapshot):
                stored = replace(stored, snapshot=snapshot)
                self._image = self._machine.snapshot()
            case ReadSnapshot(snapshot=snapshot, offset=offset, size=size):
                rest = self._image[offset:]
                there = snapshot == stored.snapshot
                return SnapshotChunk(rest[:size], len(rest) <= size) if there else None
            case WriteSnapshot(snapshot=snapshot, offset=offset, data=data):
                self._incoming = self._incoming[:offset] + data
                if effect.done and self._incoming.startswith(UNREADABLE):
                    return False
                if effect.done:
                    self._image = self._incoming
                    self._machine.restore(self._image)
                    stored = replace(
                        stored, snapshot=snapshot, first_index=snapshot.index + 1, entries=()
                    )
                self._stored = stored
                return True
            case _:
                raise TypeError
        self._stored = stored
        return None


class TestMemoryStore(RaftStoreSuite):
    def make_store(self, machine: Values, founding: Stored) -> Store:
        return MemoryStore(machine, founding)

    def make_model(self, machine: Values, founding: Stored) -> Store:
        return PlainStore(machine, founding)


class TestFileStore(FileStoreSuite):
    """Loses everything unsynced at a crash."""


@pytest.mark.parametrize("kind", CANARIES, ids=lambda kind: kind.__name__)
def test_a_broken_store_is_found_out(kind: type[FileStore]) -> None:
    suite = FileStoreSuite()
    suite.kind = kind
    with pytest.raises(AssertionError):
        getattr(suite, f"test_{CANARIES[kind]}")()


def test_every_rule_that_can_be_broken_alone_is() -> None:
    broken = {f"test_{name}" for name in CANARIES.values()}
    assert set(TESTS) - broken == {
        # Broken only together with another one, or only with more than one line.
        "test_it_is_a_store",
        "test_a_log_may_be_compacted_to_its_end",
        "test_a_random_walk_agrees_with_a_simple_model",
        "test_a_snapshot_may_come_in_one_piece_and_be_empty",
        "test_an_empty_snapshot_ends_at_once",
    }


# A lost majority


def survivor(*, snapshot: bool = False, machine: Values | None = None) -> MemoryStore:
    """The store of one of three servers, with a value that was not committed."""
    store = MemoryStore(machine or Values(), Stored.founding(map(server, (1, 2, 3))))
    entries = [
        Entry(3, Configuration(1, 0, tuple(map(server, (1, 2, 3))))),
        *(Entry(3, b"%d" % number) for number in range(5)),
    ]
    store.perform(
        Persist(
            ticket=Ticket(1),
            term=4,
            voted_for=2,
            commit_index=4,
            first_index=1,
            entries=entries,
        )
    )
    if snapshot:
        recover(store, map(server, (1, 2, 3)))
    return store


def alone(store: MemoryStore, machine: Values) -> Cluster:
    """A cluster of the survivor, which leads."""
    cluster = Cluster()
    member = cluster.add(1, store.load())
    member.store, member.machine = store, machine
    assert cluster.leader() is member
    return cluster


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_one_server_has_is_enough_for_a_new_cluster(snapshot: bool) -> None:
    machine = Values()
    store = survivor(snapshot=snapshot, machine=machine)
    stored = recover(store, [server(1)])
    assert stored.snapshot.configuration.ids == {1}
    assert (stored.snapshot.index, stored.snapshot.term, stored.term) == (6, 3, 4)
    assert stored.entries == ()
    cluster = alone(store, machine)
    cluster.members[1].node.propose([b"new"])
    cluster.run(0.1)
    assert cluster.members[1].machine.values == [b"0", b"1", b"2", b"3", b"4", b"new"]
    cluster.add(7)
    cluster.members[1].node.add_server(server(7))
    assert cluster.run(5.0, lambda: len(cluster.members[7].machine.values) == 6)


def test_a_recovery_that_was_interrupted_is_done_by_the_next_one() -> None:
    class Power(MemoryStore):
        fails = True

        def perform(self, effect: Effect[object]) -> object:
            if self.fails and isinstance(effect, Compact):
                raise OSError("no power")
            return super().perform(effect)

    store = Power(Values(), survivor().load())
    with pytest.raises(OSError, match="power"):
        recover(store, [server(1)])
    store.fails = False
    assert recover(store, [server(1)]) == recover(survivor(), [server(1)])


def test_a_recovery_applies_every_value_at_its_index() -> None:
    class Numbered(Values):
        def __init__(self) -> None:
            super().__init__()
            self.numbered: list[tuple[int, bytes]] = []

        def apply(self, index: int, value: bytes) -> None:
            super().apply(index, value)
            self.numbered.append((index, value))

    machine = Numbered()
    recover(MemoryStore(machine, survivor().load()), [server(1)])
    assert machine.numbered == [(number + 2, b"%d" % number) for number in range(5)]


@pytest.mark.parametrize("applied", range(7))
def test_a_recovery_applies_nothing_again_that_a_state_machine_on_disk_has(applied: int) -> None:
    class OnDisk(MemoryStore):
        def load(self) -> Stored:
            return replace(super().load(), applied_index=applied)

    machine = Values()
    recover(OnDisk(machine, survivor().load()), [server(1)])
    assert machine.values == [b"%d" % number for number in range(max(0, applied - 1), 5)]


def test_a_new_store_is_recovered_to_an_empty_cluster() -> None:
    stored = recover(MemoryStore(Values()), [server(1)])
    assert (stored.snapshot.index, stored.snapshot.configuration.ids) == (0, {1})

"""Stores of a node's log and snapshots: the interface, and one in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from culm.garlic.raft import (
    Apply,
    Compact,
    Configuration,
    Entry,
    Persist,
    ReadSnapshot,
    Server,
    Snapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.machine import Effect, Ticket


@runtime_checkable
class StateMachine(Protocol):
    """The state machine that the log feeds; deterministic: equal values make equal states.

    Values and images may come from anybody who can speak with a server.  Their meaning depends on
    their bytes alone: not on the stack, the memory or the Python of one server.  So read JSON
    with `culm.wire.json.read_json`.
    """

    def apply(self, index: int, value: bytes) -> None:
        """Apply the committed value of this index.  Must not fail."""
        ...

    def snapshot(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, image: bytes) -> None:
        """Replace the state by that of a snapshot.

        Raises `ValueError` for an image that no `snapshot` has made, and may have lost its state
        then: stores use `restored`.
        """
        ...


@runtime_checkable
class Store(Protocol):
    """Performs the effects of a node, and loads the state from which it starts."""

    def load(self) -> Stored:
        """The state from which a node starts; the state machine then has that of the snapshot."""
        ...

    def perform(self, effect: Effect[Any]) -> object:
        """Perform an effect of the core; returns the result for `complete`."""
        ...


class MemoryStore:
    """Keeps everything in memory: for tests, and for nodes that may forget."""

    def __init__(self, machine: StateMachine, stored: Stored | None = None) -> None:
        stored = stored if stored is not None else Stored()
        self._machine = machine
        self._term = stored.term
        self._voted_for = stored.voted_for
        self._commit_index = stored.commit_index
        self._snapshot: Snapshot = stored.snapshot
        self._first_index = stored.first_index
        self._entries: list[Entry] = list(stored.entries)
        self._image = machine.snapshot()
        self._incoming = bytearray()

    def load(self) -> Stored:
        self._machine.restore(self._image)
        return Stored(
            term=self._term,
            voted_for=self._voted_for,
            commit_index=self._commit_index,
            snapshot=self._snapshot,
            first_index=self._first_index,
            entries=tuple(self._entries),
        )

    def perform(self, effect: Effect[Any]) -> object:
        match effect:
            case Persist():
                self._persist(effect)
            case Apply():
                for index, entry in enumerate(effect.entries, effect.first_index):
                    if isinstance(entry.data, bytes):
                        self._machine.apply(index, entry.data)
            case TakeSnapshot():
                self._snapshot, self._image = effect.snapshot, self._machine.snapshot()
            case Compact():
                del self._entries[: max(0, effect.index + 1 - self._first_index)]
                self._first_index = max(self._first_index, effect.index + 1)
            case ReadSnapshot():
                return self._read(effect)
            case WriteSnapshot():
                return self._write(effect)
            case _:
                raise TypeError(f"not an effect of a Raft core: {effect}")
        return None

    def _persist(self, effect: Persist) -> None:
        end = self._first_index + len(self._entries)
        if effect.first_index is not None and effect.first_index > end:
            raise ValueError(f"the log ends before {end}, and is written from {effect.first_index}")
        self._term, self._voted_for = effect.term, effect.voted_for
        self._commit_index = effect.commit_index
        if effect.first_index is not None:
            del self._entries[effect.first_index - self._first_index :]
            self._entries.extend(effect.entries)

    def _read(self, effect: ReadSnapshot) -> SnapshotChunk | None:
        if effect.snapshot != self._snapshot:
            return None
        end = effect.offset + effect.size
        return SnapshotChunk(self._image[effect.offset : end], end >= len(self._image))

    def _write(self, effect: WriteSnapshot) -> bool:
        if effect.offset == 0:
            self._incoming.clear()
        if effect.offset != len(self._incoming):
            return False
        self._incoming += effect.data
        if not effect.done:
            return True
        image = bytes(self._incoming)
        self._incoming.clear()
        if not restored(self._machine, image):
            return False
        self._snapshot, self._image = effect.snapshot, image
        self._entries.clear()
        self._first_index = effect.snapshot.index + 1
        return True


def restored(machine: StateMachine, image: bytes) -> bool:
    """Let a state machine take the state of a snapshot; if it cannot, it is as before.

    Returns whether it could.  A store tries a received image so before it replaces anything.
    """
    before = machine.snapshot()
    try:
        machine.restore(image)
    except ValueError:
        machine.restore(before)
        return False
    return True


def recover(store: Store, servers: Iterable[Server]) -> Stored:
    """Make a cluster of `servers` from the store of one, when a majority is lost for good.

    All of its log is taken for committed, applied (from ``applied_index`` on), and put into a
    snapshot whose configuration is `servers`.  Called again after a crash on the way, it
    continues.  Returns the state from which that server starts; the others start empty, with
    ``Stored()``, and get the snapshot.

    **This gives up the promises of Raft.**  Entries that were committed and are not in this log are
    lost; entries in it that were never committed become so.  And no other server of the old cluster
    may ever start again with its old store, or there would be two clusters.
    """
    stored = store.load()
    snapshot, first = stored.snapshot, stored.first_index
    entries = stored.entries[max(0, snapshot.index + 1 - first) :]
    index, term, latest = snapshot.index, snapshot.term, snapshot.configuration
    applied = max(index, stored.applied_index)
    if rest := entries[applied - index :]:
        store.perform(Apply(ticket=Ticket(0), first_index=applied + 1, entries=rest))
    if entries:
        index, term = index + len(entries), entries[-1].term
    for entry in entries:
        latest = entry.data if isinstance(entry.data, Configuration) else latest
    made = Configuration(latest.log_index, latest.last_log_index, tuple(servers))
    store.perform(TakeSnapshot(ticket=Ticket(0), snapshot=Snapshot(index, term, made)))
    store.perform(Compact(ticket=Ticket(0), index=index))
    return store.load()

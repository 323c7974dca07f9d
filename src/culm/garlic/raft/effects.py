"""Work that a Raft core leaves to its store and to its state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from culm.garlic.raft.model import Entry, Snapshot
from culm.machine import Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist(Effect[None]):
    """Write `term`, `voted_for` and `commit_index`; then the log.

    If `first_index` is given, `entries` replace everything in the log from there on.
    Complete (no result) when all of it would survive a crash.  After
    a crash on the way any prefix of this may be there: term, vote and commit index
    first, then the cut, then the entries in order.

    With `Limits.writes_max` above 1 several may be under way: the store does them in the order in
    which they were handed out, and none after one that has failed, so that a crash leaves a prefix
    of all of them.  They may be completed in any order.
    """

    term: int
    voted_for: int | None
    commit_index: int
    first_index: int | None
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Effect[None]):
    """Apply committed entries to the state machine, in order; complete when done.

    Entries that hold a `Configuration` are included only so that indexes count up.
    """

    first_index: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot(Effect[None]):
    """Write the state machine's state, which is that of ``snapshot.index``.

    Complete when it would survive a crash.  Nothing is applied until then: a store that
    needs time for it takes a copy, and writes on its own (the previous snapshot and the
    log must then be kept until it is done).
    """

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Effect[None]):
    """Entries up to `index` are no longer needed, since a snapshot stands for them."""

    index: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """The result of `ReadSnapshot`; `done` if the snapshot ends with `data`."""

    data: bytes
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot(Effect[SnapshotChunk | None]):
    """Read at most `size` bytes at `offset` of this snapshot.

    Complete with a `SnapshotChunk`, or with ``None`` if the snapshot is gone.
    """

    snapshot: Snapshot
    offset: int
    size: int

    def accepts(self, result: object) -> TypeGuard[SnapshotChunk | None]:
        if result is None:
            return True
        if type(result) is not SnapshotChunk or type(result.done) is not bool:
            return False
        data = result.data
        # Nothing but the end may be empty: the next chunk would be the same one.
        return type(data) is bytes and len(data) <= self.size and (result.done or len(data) > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot(Effect[bool]):
    """Write a chunk of a snapshot from the leader.

    Offset 0 starts a new one and drops any part of another.  With `done` the snapshot is
    complete: it replaces the store's snapshot and log at once, and the state machine's state.
    Complete with ``True`` when it would survive a crash, with ``False`` if it cannot be used (it is
    then sent again): it is tried before it replaces anything.
    """

    snapshot: Snapshot
    offset: int
    data: bytes
    done: bool

    def accepts(self, result: object) -> TypeGuard[bool]:
        return type(result) is bool


RaftEffect: TypeAlias = Persist | Apply | TakeSnapshot | Compact | ReadSnapshot | WriteSnapshot

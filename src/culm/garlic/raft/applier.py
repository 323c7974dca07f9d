"""From committed entries to the state machine, and from there to snapshots."""

from __future__ import annotations

from culm.effects import StoreWork
from culm.garlic.raft.effects import Apply, Compact, TakeSnapshot
from culm.garlic.raft.journal import Journal
from culm.garlic.raft.limits import Limits
from culm.garlic.raft.model import Snapshot

__all__ = ["Applier"]


class Applier:
    """Applies in order, one `Apply` at a time, what is committed and durable here."""

    __slots__ = ("_busy", "_compact_to", "_journal", "_limits", "_work", "applied_index")

    def __init__(
        self,
        journal: Journal,
        work: StoreWork,
        limits: Limits,
        applied_index: int,
    ) -> None:
        self._journal = journal
        self._work = work
        self._limits = limits
        self.applied_index = max(
            journal.log.snapshot.index, min(applied_index, journal.commit_index)
        )
        self._busy = False
        self._compact_to: int | None = None

    @property
    def busy(self) -> bool:
        """Whether the state machine is at work."""
        return self._busy

    def next_effect(self) -> Apply | Compact | TakeSnapshot | None:
        if self._compact_to is not None:
            index, self._compact_to = self._compact_to, None
            return self._work.hand_out(Compact, lambda _: None, index=index)
        if self._busy:
            return None
        journal, limits, applied = self._journal, self._limits, self.applied_index
        if 0 < limits.snapshot_distance <= applied - journal.log.snapshot.index:
            return self._take_snapshot()
        if applied == journal.commit_index:
            return None
        last = min(journal.commit_index, journal.stable_index, applied + limits.apply_entries_max)
        if last <= applied:
            return None
        self._busy = True
        return self._work.hand_out(
            Apply,
            lambda _: self._applied(last),
            first_index=applied + 1,
            entries=journal.log.slice(applied + 1, last),
        )

    def _applied(self, last: int) -> None:
        self._busy = False
        self.applied_index = last

    def _take_snapshot(self) -> TakeSnapshot:
        index = self.applied_index
        term = self._journal.log.term_at(index)
        assert term is not None
        snapshot = Snapshot(index, term, self._journal.membership.at(index))
        self._busy = True
        return self._work.hand_out(TakeSnapshot, lambda _: self._taken(snapshot), snapshot=snapshot)

    def _taken(self, snapshot: Snapshot) -> None:
        self._busy = False
        self._compact_to = self._journal.log.compact(snapshot, self._limits.trailing_entries)
        self._journal.membership.compact(snapshot)

    def reset(self, index: int) -> None:
        """The state machine has the state of a snapshot at `index`."""
        self.applied_index = index

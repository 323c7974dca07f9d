"""From committed entries to the state machine, and from there to snapshots."""

from __future__ import annotations

from collections.abc import Callable

from culm.effects import StoreWork
from culm.garlic.raft.effects import Apply, Compact, TakeSnapshot
from culm.garlic.raft.journal import Journal
from culm.garlic.raft.limits import Limits
from culm.garlic.raft.model import Snapshot
from culm.garlic.raft.progress import Lag


class Applier:
    """Applies committed, locally durable entries in order, one `Apply` at a time."""

    def __init__(
        self, journal: Journal, work: StoreWork, limits: Limits, applied_index: int
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

    def next_effect(
        self, lag_of_others: Callable[[], Lag] | None
    ) -> Apply | Compact | TakeSnapshot | None:
        """The next effect for the store; a leader puts a snapshot off while it sends one."""
        if self._compact_to is not None:
            index, self._compact_to = self._compact_to, None
            return self._work.hand_out(Compact, lambda _: None, index=index)
        if self._busy:
            return None
        journal, limits, applied = self._journal, self._limits, self.applied_index
        distance = applied - journal.log.snapshot.index
        if 0 < limits.snapshot_distance <= distance:
            lag = lag_of_others() if lag_of_others else Lag(sending=False, reached=applied)
            if not lag.sending or distance >= limits.catch_up_entries:
                return self._take_snapshot(lag.reached)
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

    def _take_snapshot(self, lowest: int) -> TakeSnapshot:
        index = self.applied_index
        term = self._journal.log.term_at(index)
        assert term is not None
        snapshot = Snapshot(index, term, self._journal.membership.at(index))
        self._busy = True
        wanted = min(index - lowest, self._limits.catch_up_entries)
        trailing = max(wanted, self._limits.trailing_entries)
        return self._work.hand_out(
            TakeSnapshot, lambda _: self._taken(snapshot, trailing), snapshot=snapshot
        )

    def _taken(self, snapshot: Snapshot, trailing: int) -> None:
        self._busy = False
        self._compact_to = self._journal.log.compact(snapshot, trailing)
        self._journal.membership.compact(snapshot)

    def reset(self, index: int) -> None:
        """The state machine has the state of a snapshot at `index`."""
        self.applied_index = index

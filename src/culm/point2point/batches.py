"""Entries that came in, on their way into the store in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from culm.bamboo.effects import AppendEntries
from culm.bamboo.store import NewEntry, StoreError
from culm.machine import Event
from culm.point2point.desk import Desk, Slot
from culm.point2point.readahead import ENTRY_SIZE
from culm.point2point.replication_events import EntryStored, ReplicatorLimits
from culm.point2point.request import Request
from culm.point2point.staging import Staging

if TYPE_CHECKING:
    from culm.point2point.replica import Replica

__all__ = ["Batches"]


@dataclass(slots=True)
class _Batch:
    """Entries that go into the store in one step; `staging` goes on with the last of them."""

    slot: Slot
    news: list[NewEntry] = field(default_factory=list)
    size: int = 0
    staging: Staging | None = None


class Batches:
    """The entries of one request, in order.

    A batch waits until the payload before it is complete: if entries behind it were stored,
    nobody would see after a crash that it was on its way.  And it waits until the batch before
    it is stored: once the store has refused one, what comes behind it would be left without
    what it is verified with.
    """

    def __init__(
        self, request: Request, replica: Replica, *, desk: Desk, limits: ReplicatorLimits
    ) -> None:
        self._request = request
        self._replica = replica
        self._desk = desk
        self._limits = limits
        self._batch: _Batch | None = None
        self._waiting: deque[_Batch] = deque()
        self._appending = False  # a batch that the store has not confirmed
        self._refused = False  # the store has not taken a batch
        self._unfinished: Staging | None = None  # which has to be over before the next batch

    @property
    def open(self) -> bool:
        """Whether there are entries that have not been handed to the store."""
        return self._batch is not None

    def add(self, news: Sequence[NewEntry]) -> None:
        """Take entries, of which only the last may be staged."""
        while news and not self._refused:
            if self._batch is None:
                self._batch = self._new_batch()
            news = self._fill(self._batch, news)

    def _fill(self, batch: _Batch, news: Sequence[NewEntry]) -> Sequence[NewEntry]:
        """Add entries until the batch is full; returns the others."""
        limits, size, count, full = self._limits, batch.size, 0, False
        count_max = limits.batch_count_max - len(batch.news)
        for new in news:
            size += ENTRY_SIZE + len(new.payload or b"")
            count += 1
            full = size >= limits.batch_size_max or count >= count_max
            if full:
                break
        batch.news += news[:count]
        self._desk.unwritten_size += size - batch.size
        batch.size = size
        if full and not batch.news[-1].staged:
            self.close()
        return news[count:]

    def _new_batch(self) -> _Batch:
        self._replica.writing += 1
        return _Batch(self._desk.reserve())

    def close(self, staging: Staging | None = None) -> None:
        """No more entries for this batch; of its last one `staging` may still get more."""
        if self._batch is None and self._refused and staging is not None:
            staging.begun(stored=False)
        if self._batch is not None:
            self._batch.staging = staging
            self._waiting.append(self._batch)
            self._batch = None
        self._append()

    def wait_for(self, staging: Staging) -> None:
        """Let a payload whose entry is stored have its turn."""
        self.close()
        self._batch = self._new_batch()
        self.close(staging)

    def flush(self) -> None:
        """Write what is complete, unless the store is still busy with the batch before.

        A slow store gets few large batches this way, and a fast one gets small ones soon.
        """
        if not self._appending:
            self.close()

    def _append(self) -> None:
        """Hand the next batch to the store, unless what comes before it is not complete there."""
        while self._waiting and self._unfinished is None and not self._appending:
            batch = self._waiting.popleft()
            if not batch.news:
                self._wait_for(batch)
                continue
            if self._refused:
                self._drop(batch)
                continue
            self._unfinished = batch.staging
            self._appending = True
            self._desk.ask(
                AppendEntries,
                partial(self._answered, batch),
                log=self._replica.log,
                entries=tuple(batch.news),
            )

    def _wait_for(self, batch: _Batch) -> None:
        """The batch is nothing but the turn of a payload whose entry is stored."""
        batch.slot.events = []
        if batch.staging is None or batch.staging.ended:
            self._replica.written()
        else:
            self._unfinished = batch.staging

    def _drop(self, batch: _Batch) -> None:
        """The batch must not be stored."""
        self._desk.unwritten_size -= batch.size
        batch.slot.events = []
        if batch.staging is not None:
            self._unfinished = batch.staging
            batch.staging.begun(stored=False)
        else:
            self._replica.written()

    def payload_over(self, staging: Staging) -> None:
        """All that has come of a payload is in the store."""
        if staging is self._unfinished:
            self._unfinished = None
            self._append()
            self._replica.written()

    def _answered(self, batch: _Batch, result: object) -> None:
        self._appending = False
        self._desk.unwritten_size -= batch.size
        refused = isinstance(result, StoreError)
        if isinstance(result, StoreError):
            self._refused = True
            self._save(result, batch)
        else:
            batch.slot.events = self._appended(batch.news)
        if batch.staging is not None:
            batch.staging.begun(stored=not refused)
        else:
            self._replica.written()
        self._append()

    def _appended(self, batch: list[NewEntry]) -> list[Event]:
        log = self._replica.log
        events: list[Event] = [
            EntryStored(
                log=log,
                seqnum=entry.seqnum,
                payload_size=entry.payload_size,
                payload_stored=payload is not None and not staged,
            )
            for entry, payload, staged in batch
        ]
        return events + self._replica.stored(batch)

    def _save(self, refusal: StoreError, batch: _Batch) -> None:
        """Keep what comes before the entry that the store does not take."""
        valid = [new for new in batch.news if new.entry.seqnum < refusal.seqnum]
        if valid:
            self._desk.ask(
                AppendEntries,
                lambda result: self._saved(valid, batch.slot, result),
                log=self._replica.log,
                entries=tuple(valid),
            )
        else:
            batch.slot.events = []
        self._replica.contradicted(self._request, refusal, [new.entry for new in batch.news])

    def _saved(self, batch: list[NewEntry], slot: Slot, result: object) -> None:
        slot.events = [] if isinstance(result, StoreError) else self._appended(batch)

"""Entries that came in, on their way into the store in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from culm.bamboo.effects import AppendEntries, ReadEntries
from culm.bamboo.store import NewEntry, StoredEntry, StoreError
from culm.effects import Place, StoreWork
from culm.point2point.handles import Request
from culm.point2point.replication.events import EntryStored, ReplicatorLimits
from culm.point2point.replication.payloads import StagedPayload
from culm.point2point.replication.readahead import ENTRY_SIZE

if TYPE_CHECKING:
    from culm.point2point.replication.replica import Replica

__all__ = ["Batches"]


@dataclass(slots=True)
class _Batch:
    """Entries that go into the store in one step; `staging` goes on with the last of them."""

    place: Place
    news: list[NewEntry] = field(default_factory=list)
    size: int = 0
    staging: StagedPayload | None = None
    full: bool = False

    def take(self, news: Sequence[NewEntry], limits: ReplicatorLimits) -> int:
        """Add the first of `news`, until it is full; returns how many."""
        count, count_max = 0, limits.batch_count_max - len(self.news)
        for new in news:
            self.size += ENTRY_SIZE + len(new.payload or b"")
            count += 1
            self.full = self.size >= limits.batch_size_max or count >= count_max
            if self.full:
                break
        self.news += news[:count]
        return count

    def go_on_with(self, staging: StagedPayload | None) -> None:
        """Of the payload of its last entry there may come more."""
        self.staging = staging


class Batches:
    """The entries of one request, in order.

    A batch waits until the payload before it is complete: if entries behind it were stored,
    nobody would see after a crash that it was on its way.  And it waits until the batch before
    it is stored: once the store has refused one, what comes behind it would be left without
    what it is verified with.
    """

    def __init__(
        self, request: Request, replica: Replica, *, work: StoreWork, limits: ReplicatorLimits
    ) -> None:
        self._request = request
        self._replica = replica
        self._work = work
        self._limits = limits
        self._batch: _Batch | None = None
        self._waiting: deque[_Batch] = deque()
        self._appending = False  # a batch that the store has not confirmed
        self._refused = False  # the store has not taken a batch
        self._unfinished: StagedPayload | None = None  # which has to be over before the next batch

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
        before = batch.size
        count = batch.take(news, self._limits)
        self._work.hold(batch.size - before)
        if batch.full and not batch.news[-1].staged:
            self.close()
        return news[count:]

    def _new_batch(self) -> _Batch:
        self._replica.write()
        return _Batch(self._work.reserve())

    def close(self, staging: StagedPayload | None = None) -> None:
        """No more entries for this batch; of its last one `staging` may still get more."""
        if self._batch is None and self._refused and staging is not None:
            staging.begun(needed=False)
        if self._batch is not None:
            self._batch.go_on_with(staging)
            self._waiting.append(self._batch)
            self._batch = None
        self._append()

    def wait_for(self, staging: StagedPayload) -> None:
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
            self._work.ask(
                AppendEntries,
                partial(self._answered, batch),
                log=self._replica.log,
                entries=tuple(batch.news),
            )

    def _wait_for(self, batch: _Batch) -> None:
        """The batch is nothing but the turn of a payload whose entry is stored."""
        batch.place.fill()
        if batch.staging is None or batch.staging.done:
            self._replica.written()
        else:
            self._unfinished = batch.staging

    def _drop(self, batch: _Batch) -> None:
        """The batch must not be stored."""
        self._work.release(batch.size)
        batch.place.fill()
        if batch.staging is not None:
            self._unfinished = batch.staging
            batch.staging.begun(needed=False)
        else:
            self._replica.written()

    def payload_over(self, staging: StagedPayload) -> None:
        """All that has come of a payload is in the store."""
        if staging is self._unfinished:
            self._unfinished = None
            self._append()
            self._replica.written()

    def _answered(self, batch: _Batch, result: object) -> None:
        self._appending = False
        self._work.release(batch.size)
        if isinstance(result, StoreError):
            self._refused = True
            self._save(result, batch)
            if batch.staging is not None:
                batch.staging.begun(needed=False)
        else:
            self._appended(batch.news, batch.place, batch.staging)
        if batch.staging is None:
            self._replica.written()
        self._append()

    def _appended(self, batch: list[NewEntry], place: Place, staging: StagedPayload | None) -> None:
        """Tell of the entries; of those without their payloads the store may have had these."""
        log, news = self._replica.log, self._replica.stored(batch)
        complete: set[int] = {each.entry.seqnum for each in batch if _is_whole(each)}

        def fill() -> None:
            stored = (
                EntryStored(
                    log=log,
                    seqnum=each.entry.seqnum,
                    payload_size=each.entry.payload_size,
                    payload_stored=each.entry.seqnum in complete,
                )
                for each in batch
            )
            place.fill([*stored, *news])
            if staging is not None:
                staging.begun(needed=staging.entry.seqnum not in complete)

        rows = _rows(each.entry.seqnum for each in batch if not _is_whole(each))
        waiting = len(rows)

        def got(found: list[StoredEntry]) -> None:
            nonlocal waiting
            waiting -= 1
            complete.update(each.seqnum for each in found if each.payload_complete)
            if not waiting:
                fill()

        for first, last in rows:
            count_max = last - first + 1
            self._work.ask(ReadEntries, got, log=log, start=first, end=last, count_max=count_max)
        if not rows:
            fill()

    def _save(self, refusal: StoreError, batch: _Batch) -> None:
        """Keep what comes before the entry that the store does not take."""
        valid = [new for new in batch.news if new.entry.seqnum < refusal.seqnum]
        if valid:
            self._work.ask(
                AppendEntries,
                lambda result: self._saved(valid, batch.place, result),
                log=self._replica.log,
                entries=tuple(valid),
            )
        else:
            batch.place.fill()
        self._replica.contradicted(self._request, refusal, [new.entry for new in batch.news])

    def _saved(self, batch: list[NewEntry], place: Place, result: object) -> None:
        if isinstance(result, StoreError):
            place.fill()
        else:
            self._appended(batch, place, None)


def _is_whole(new: NewEntry) -> bool:
    return new.payload is not None and not new.staged


def _rows(seqnums: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as rows of neighbours."""
    rows: list[tuple[int, int]] = []
    for seqnum in seqnums:
        if rows and rows[-1][1] == seqnum - 1:
            rows[-1] = rows[-1][0], seqnum
        else:
            rows.append((seqnum, seqnum))
    return rows

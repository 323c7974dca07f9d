"""A log store made without a thought for speed, to compare others with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.bamboo.store import LogStore
from culm.wire.multihash import HashFamily
from stored_entries import head_of, stored_form


@dataclass
class _Row:
    entry: Entry
    payload: bytes
    complete: bool
    begun: bool = False

    def write(self, data: bytes) -> None:
        self.payload += data
        self.begun |= bool(data) and not self.complete

    def finish(self) -> None:
        self.complete, self.begun = True, False

    def discard(self) -> None:
        self.payload, self.complete = b"", False

    def discard_staged(self) -> None:
        self.payload = self.payload if self.complete else b""


class ModelStore(LogStore):
    """A `LogStore` that is easy to believe."""

    def __init__(self, family: HashFamily) -> None:
        self._family = family
        self._rows: dict[tuple[LogKey, int], _Row] = {}
        self._forks: dict[LogKey, ForkProof] = {}

    @property
    def family(self) -> HashFamily:
        return self._family

    def _of(self, log: LogKey) -> list[_Row]:
        rows = [row for (of, _), row in self._rows.items() if of == log]
        return sorted(rows, key=lambda row: row.entry.seqnum)

    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        logs = sorted({log for log, _ in self._rows} | set(self._forks))
        return [log for log in logs if after is None or log > after][:count_max]

    def head(self, log: LogKey) -> Head | None:
        head = None
        for number, row in enumerate(self._of(log), 1):
            if row.entry.seqnum == number:
                head = head_of(NewEntry(row.entry))
        return head

    def newest(self, log: LogKey) -> Head | None:
        rows = self._of(log)
        return head_of(NewEntry(rows[-1].entry)) if rows else None

    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        return next(iter(self.entries(log, seqnum, seqnum)), None)

    def entries(
        self,
        log: LogKey,
        start: int = 1,
        end: int | None = None,
        *,
        count_max: int | None = None,
        size_max: int | None = None,
        payload_size_max: int | None = None,
    ) -> list[StoredEntry]:
        found: list[StoredEntry] = []
        size = 0
        for row in self._of(log):
            entry = row.entry
            if entry.seqnum < start or (end is not None and entry.seqnum > end):
                continue
            whole = NewEntry(entry, row.payload if row.complete else None)
            stored = stored_form(whole, len(row.payload) if row.begun else None)
            inline = row.complete and payload_size_max is not None
            if inline and len(row.payload) <= (payload_size_max or 0):
                stored = stored._replace(payload=row.payload)
            size += len(stored.encoded) + len(stored.payload or b"")
            full = count_max is not None and len(found) >= count_max
            if found and (full or (size_max is not None and size > size_max)):
                break
            found.append(stored)
        return found

    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        return {n: self._rows[log, n].entry.hash() for n in seqnums if (log, n) in self._rows}

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        row = self._rows.get((log, seqnum))
        return row.payload[offset : offset + size] if row is not None else b""

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        rows = dict(self._rows)
        for new in entries:
            seqnum, size = new.entry.seqnum, len(new.payload or b"")
            fork = self._forks.get(log)
            if new.entry.log != log or new.entry.family is not self._family:
                raise StoreError(StoreErrorCode.WRONG_LOG, log, seqnum)
            if fork is not None and seqnum >= fork.seqnum:
                raise StoreError(StoreErrorCode.FORKED, log, seqnum)
            row = rows.get((log, seqnum), _Row(new.entry, b"", False))
            if row.entry != new.entry:
                raise StoreError(StoreErrorCode.CONFLICT, log, seqnum)
            fits = size <= new.entry.payload_size if new.staged else size == new.entry.payload_size
            if new.payload is not None and not fits:
                raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
            if new.payload is not None and not row.complete and not (new.staged and row.payload):
                row = _Row(new.entry, new.payload, not new.staged, new.staged)
            rows[log, seqnum] = row
        given = {new.entry.seqnum for new in entries}
        for (of, seqnum), row in rows.items():
            before = rows.get((of, seqnum - 1))
            new = {seqnum - 1, seqnum} & given if of == log else None
            if new and before is not None and before.entry.hash() != row.entry.backlink:
                raise StoreError(StoreErrorCode.CONFLICT, log, max(new))
        self._rows = rows

    def _row(self, log: LogKey, seqnum: int) -> _Row:
        row = self._rows.get((log, seqnum))
        if row is None:
            raise StoreError(StoreErrorCode.UNKNOWN_ENTRY, log, seqnum)
        return row

    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        row = self._row(log, seqnum)
        if offset != len(row.payload):
            raise StoreError(StoreErrorCode.WRONG_OFFSET, log, seqnum)
        if len(row.payload + data) > row.entry.payload_size:
            raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
        row.write(data)

    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        row = self._row(log, seqnum)
        if len(row.payload) != row.entry.payload_size:
            raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
        row.finish()

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        self._row(log, seqnum).discard()

    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        self._row(log, seqnum).discard_staged()

    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        if proof.log != log or proof.first.family is not self._family:
            raise StoreError(StoreErrorCode.WRONG_LOG, log, proof.seqnum)
        known = self._forks.get(log)
        if known is None or proof.seqnum < known.seqnum:
            self._forks[log] = proof
            for key in [key for key in self._rows if key[0] == log and key[1] >= proof.seqnum]:
                del self._rows[key]

    def fork(self, log: LogKey) -> ForkProof | None:
        return self._forks.get(log)

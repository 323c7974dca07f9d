"""Checking a store: every entry and every payload is verified anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from culm.bamboo import LogKey, LogStore, StoredEntry, audit_log, decode
from culm.wire.errors import DecodeError
from culm_io.programs.directory.records import PAYLOAD_SIZE_MAX

__all__ = ["LogReport", "check_log"]

_READ_SIZE_MAX = 1 << 20
_FAULTS_MAX = 100


@dataclass(slots=True)
class LogReport:
    """The numbers of entries, of whole payloads, and of the last unbroken entry, and faults."""

    entries: int = 0
    payloads: int = 0
    unbroken: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, seqnum: int | None, fault: str) -> None:
        """Report a fault, unless there are very many."""
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(f"entry {seqnum}: {fault}")


def check_log(
    store: LogStore,
    log: LogKey,
    on_entry: Callable[[int, int], object] = lambda done, total: None,
) -> LogReport:
    """Verify all that `store` has of `log`: signatures, links, sizes and hashes of payloads.

    What the store keeps beside an entry, such as its hash, has to be what the entry says.
    `on_entry` is told which entry has been looked at, and which one is the last.
    """
    report = LogReport()
    head, newest = store.head(log), store.newest(log)
    last = 0 if newest is None else newest.seqnum
    rows = _rows(store, log, report, lambda seqnum: on_entry(seqnum, last))
    for verdict in audit_log(log, rows, family=store.family, sparse=head != newest):
        if verdict.reasons:
            report.add(verdict.seqnum, ", ".join(reason.name.lower() for reason in verdict.reasons))
    if (unbroken := 0 if head is None else head.seqnum) != report.unbroken:
        report.add(report.unbroken, f"the end of the unbroken log, not entry {unbroken}")
    return report


def _rows(
    store: LogStore, log: LogKey, report: LogReport, on_entry: Callable[[int], object]
) -> Iterator[tuple[bytes, bytes | None]]:
    seqnum = 1
    while entries := store.entries(
        log, seqnum, size_max=_READ_SIZE_MAX, payload_size_max=PAYLOAD_SIZE_MAX
    ):
        for entry in entries:
            report.entries += 1
            report.payloads += entry.payload_complete
            report.unbroken += entry.seqnum == report.unbroken + 1
            if not _agrees(entry, store):
                report.add(entry.seqnum, "not what the store keeps beside it")
            yield entry.encoded, entry.payload
            on_entry(entry.seqnum)
        seqnum = entries[-1].seqnum + 1


def _agrees(stored: StoredEntry, store: LogStore) -> bool:
    try:
        entry = decode(stored.encoded, family=store.family)
    except DecodeError:
        return True  # for the audit to tell
    kept = stored.seqnum, stored.hash, stored.payload_size
    return kept == (entry.seqnum, entry.hash(), entry.payload_size)

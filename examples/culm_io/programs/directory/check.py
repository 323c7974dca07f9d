"""Checking a store: every entry and every payload is verified anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from culm.bamboo import LogKey, LogStore, audit_log
from culm_io.programs.directory.records import PAYLOAD_SIZE_MAX

__all__ = ["LogReport", "check_log"]

_READ_SIZE_MAX = 1 << 20
_FAULTS_MAX = 100


@dataclass(slots=True)
class LogReport:
    """The number of entries, the number of whole payloads, and faults."""

    entries: int = 0
    payloads: int = 0
    faults: list[str] = field(default_factory=list)


def check_log(
    store: LogStore,
    log: LogKey,
    on_entry: Callable[[int, int], object] = lambda done, total: None,
) -> LogReport:
    """Verify all that `store` has of `log`: signatures, links, sizes and hashes of payloads.

    `on_entry` is told which entry has been looked at, and which one is the last.
    """
    report = LogReport()
    newest = store.newest(log)
    last = 0 if newest is None else newest.seqnum
    sparse = store.head(log) != newest
    rows = _rows(store, log, report, lambda seqnum: on_entry(seqnum, last))
    for verdict in audit_log(log, rows, family=store.family, sparse=sparse):
        if verdict.reasons and len(report.faults) < _FAULTS_MAX:
            reasons = ", ".join(reason.name.lower() for reason in verdict.reasons)
            report.faults.append(f"entry {verdict.seqnum}: {reasons}")
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
            yield entry.encoded, entry.payload
            on_entry(entry.seqnum)
        seqnum = entries[-1].seqnum + 1

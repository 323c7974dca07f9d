"""What publishing and fetching say on stdout: objects that are written as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from culm.bamboo import Head, LogKey, LogStore
from directory.fetch import Fetched
from directory.materialise import Materialised
from directory.publish import Published
from directory.records import Record
from directory.scan import Findings
from directory.sparse import Certified
from directory.survey import survey_log

__all__ = ["log_id", "of_entry", "of_fetch", "of_findings", "of_publish", "of_update"]


def log_id(log: LogKey) -> str:
    """A log as options and reports name it."""
    return f"{log.author.hex()}/{log.log_id}"


def of_publish(done: Published, head: Head | None, error: Exception | None) -> dict[str, Any]:
    """What has come of publishing."""
    return {
        "log": log_id(done.log),
        "entries": done.entries,
        "payload_bytes": done.payload_bytes,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "skipped": len(done.findings.skipped),
        "hard_links": len(done.findings.hard_links),
        "failed": len(done.findings.failed),
        **_of_head(head),
        "error": None if error is None else str(error),
    }


def of_findings(findings: Findings) -> Iterator[str]:
    """What people should know of a directory that was published, a line each."""
    for kind, paths in (
        ("left out", findings.skipped),
        ("a further name", findings.hard_links),
        ("cannot read", findings.failed),
    ):
        for path, reason in paths.items():
            yield f"{kind} {os.fsdecode(path)!r}: {reason}"


def of_update(
    store: LogStore, log: LogKey | None, fetched: Fetched, made: Materialised
) -> dict[str, Any]:
    """How things stand."""
    head = None if log is None else store.head(log)
    return {
        "log": None if log is None else log_id(log),
        "entries": fetched.entries,
        "payload_bytes": fetched.payload_bytes,
        "written": made.written,
        "unchanged": made.unchanged,
        "removed": made.removed,
        "failed": len(made.failed),
        **_of_head(head),
    }


def _of_head(head: Head | None) -> dict[str, Any]:
    return {
        "head": 0 if head is None else head.seqnum,
        "head_hash": None if head is None else head.hash.hex(),
    }


def of_fetch(
    store: LogStore, log: LogKey | None, fetched: Fetched, made: Materialised
) -> dict[str, Any]:
    """What has come of fetching a log."""
    survey = None if log is None else survey_log(store, log, payload_size_max=0)
    return {
        **of_update(store, log, fetched, made),
        "missing": 0 if survey is None else survey.lacking + survey.left_out,
        **_of_network(fetched),
    }


def of_entry(
    log: LogKey | None,
    fetched: Fetched,
    certified: Certified | None,
    records: Sequence[Record] | None,
) -> dict[str, Any]:
    """What has come of fetching one entry."""
    stored = None if certified is None else certified.stored
    return {
        "log": None if log is None else log_id(log),
        "entry": None if stored is None else stored.seqnum,
        "hash": None if stored is None else stored.hash.hex(),
        "records": None if records is None else [_of_record(record) for record in records],
        "certificate_path": [] if certified is None else certified.path,
        "certificate_above": [] if certified is None else certified.above,
        "entries": fetched.entries,
        "payload_bytes": fetched.payload_bytes,
        **_of_network(fetched),
    }


def _of_network(fetched: Fetched) -> dict[str, Any]:
    size, failure = fetched.wire_bytes, fetched.failure
    return {
        "wire_bytes": size,
        "compression_ratio": round(fetched.payload_bytes / size, 3) if size else None,
        "code": None if failure is None else failure.code,
        "error": None if failure is None else failure.text,
    }


def _of_record(record: Record) -> dict[str, Any]:
    """The fields of a record; paths as text, of which bytes that are none are escaped."""
    values = asdict(record).items()
    return {
        "kind": record.kind,
        **{
            k: v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v
            for k, v in values
        },
    }

"""The results of publishing and fetching on stdout: objects that are written as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from culm.bamboo import Head, LogKey, LogStore
from culm_io.programs.directory.fetch import Fetched
from culm_io.programs.directory.materialise import Materialised
from culm_io.programs.directory.publish import Published
from culm_io.programs.directory.records import Record
from culm_io.programs.directory.scan import Findings
from culm_io.programs.directory.sparse import Certified
from culm_io.programs.directory.survey import survey_log
from culm_io.programs.tables import Table, size_of

__all__ = [
    "log_id",
    "of_entry",
    "of_export",
    "of_fetch",
    "of_findings",
    "of_offers",
    "of_publish",
    "of_update",
    "table_of_entries",
    "table_of_paths",
]


def log_id(log: LogKey) -> str:
    """A log as options and reports name it."""
    return f"{log.author.hex()}/{log.log_id}"


def of_publish(done: Published, head: Head | None, error: str | None) -> dict[str, Any]:
    """The result of publishing."""
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
        "error": error,
    }


def of_findings(findings: Findings) -> Iterator[str]:
    """Notes for people on a published directory, a line each."""
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
    """The result of fetching a log."""
    survey = None if log is None else survey_log(store, log, payload_size_max=0)
    return {
        **of_update(store, log, fetched, made),
        "missing": 0 if survey is None else survey.lacking + survey.left_out,
        **_of_network(fetched),
    }


def of_export(
    log: LogKey, made: Materialised, *, entry: int, head: int, missing: int
) -> dict[str, Any]:
    """The result of writing the files of a stored log, as they were at `entry`."""
    return {
        "log": log_id(log),
        "entry": entry,
        "head": head,
        "written": made.written,
        "unchanged": made.unchanged,
        "removed": made.removed,
        "failed": len(made.failed),
        "missing": missing,
    }


def of_entry(
    log: LogKey | None,
    fetched: Fetched,
    certified: Certified | None,
    records: Sequence[Record] | None,
) -> dict[str, Any]:
    """The result of fetching one entry."""
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


def of_offers(
    store: LogStore, server: tuple[str, int], found: Fetched, wanted: LogKey | None
) -> Iterator[dict[str, Any]]:
    """The server's part of each log, and ours; or why it is unknown."""
    where = {"dry_run": True, "server": f"{server[0]}:{server[1]}"}
    failure = found.failure
    if failure is not None:
        yield {**where, "log": None, "code": failure.code, "error": failure.text}
        return
    for log, offered in found.offered.items():
        if wanted not in (None, log):
            continue
        head = store.head(log)
        here = 0 if head is None else head.seqnum
        yield {
            **where,
            "log": log_id(log),
            "offered": offered,
            "here": here,
            "would_fetch": max(0, offered - here),
            "code": None,
            "error": None,
        }


def table_of_paths(log: LogKey, lines: Sequence[dict[str, Any]]) -> Table:
    """The findings of `list_paths`, for people."""
    rows = []
    for line in lines:
        arrow = f" -> {line['target']}" if "target" in line else ""
        mtime = line.get("mtime")
        rows.append(
            (
                line["kind"],
                f"{line['mode']:03o}" if "mode" in line else "",
                size_of(line["size"]) if line["kind"] == "file" else "",
                "" if mtime is None else _time_of(mtime),
                line["entry"],
                "here" if line["here"] else "missing",
                line["path"] + arrow,
            )
        )
    columns = ("kind", "mode", "bytes", "changed (UTC)", "entry", "content", "path")
    return Table(f"log {log_id(log)}", columns, rows, key="path")


def _time_of(nanoseconds: int) -> str:
    try:
        when = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{nanoseconds} ns"
    return when.strftime("%Y-%m-%d %H:%M:%S")


def table_of_entries(log: LogKey, lines: Sequence[dict[str, Any]]) -> Table:
    """The findings of `list_entries`, for people."""
    rows = []
    for line in lines:
        records = line["records"]
        says = line["fault"] if line["fault"] else _said(records)
        content = "here" if line["here"] else "missing"
        rows.append((line["entry"], size_of(line["payload_size"]), content, says))
    return Table(f"log {log_id(log)}", ("entry", "bytes", "content", "says"), rows)


def _said(records: Sequence[dict[str, Any]]) -> str:
    if len(records) > 3:
        return f"{_said(records[:2])}, and {len(records) - 2} more"
    return ", ".join(_of_one(record) for record in records)


def _of_one(record: dict[str, Any]) -> str:
    text = f"{record['kind']} {record['path']}"
    if record.get("chunks", 1) > 1:
        text += f", chunk {record['chunk'] + 1} of {record['chunks']}"
    if record.get("kept") is not None:
        first, last = record["kept"]
        text += f", as in entries {first} to {last}"
    return text

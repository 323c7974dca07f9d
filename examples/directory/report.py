"""What fetching says on stdout: objects that are written as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from culm.bamboo import LogKey, LogStore
from directory.fetch import Fetched
from directory.materialise import Materialised
from directory.records import Record
from directory.sparse import Certified
from directory.survey import survey_log

__all__ = ["log_id", "of_entry", "of_fetch", "of_update"]


def log_id(log: LogKey) -> str:
    """A log as options and reports name it."""
    return f"{log.author.hex()}/{log.log_id}"


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
    log: LogKey | None, fetched: Fetched, certified: Certified | None, record: Record | None
) -> dict[str, Any]:
    """What has come of fetching one entry."""
    stored = None if certified is None else certified.stored
    return {
        "log": None if log is None else log_id(log),
        "entry": None if stored is None else stored.seqnum,
        "hash": None if stored is None else stored.hash.hex(),
        "record": None if record is None else _of_record(record),
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

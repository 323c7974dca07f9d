"""Captures as qlog: JSON text sequences by the main schema, with an event schema of ours.

The first record describes the trace; every other one is an event, with its time in
milliseconds: since 1970 if the capture says when it began, otherwise since its beginning.  All are
of the schema `EVENT_SCHEMA`:

===================== ======================================================================
culm:bytes_received   bytes from the peer, or that it sends no more (``eof``)
culm:bytes_sent       bytes for the peer
culm:event            an event of the machine, with its state after it
culm:effect           work for the store
culm:answer           the store's answer
culm:time             the time that the machine was told
culm:deadline         the time at which it wants to be told
culm:call             another call of its user
===================== ======================================================================

``data`` has ``step``, the number of the step, ``handle`` where it is not the machine that was
called, and the parts of the step; ``raised`` is the error of a call that was refused.  Calls that
took nothing are left out.  The first record has what tools for earlier drafts look for, too.
Source: draft-ietf-quic-qlog-main-schema (``RawInfo``, ``TraceSeq``, "JSON Text Sequences").
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from culm.capture.records import Capture, Header, Step
from culm.capture.text import is_idle, kind_of, plain, title_of

EVENT_SCHEMA = "urn:culm:qlog:events:culm-01"

_SEPARATOR, _END = b"\x1e", b"\n"

# Where qlog's name is not that of the kind.
_NAMES = {"received": "bytes_received", "sent": "bytes_sent"}


def qlog(capture: Capture) -> Iterator[bytes]:
    """The records, in pieces.  Raises `CaptureError` as the capture does."""
    yield _record(_file(capture.header))
    at = capture.header.began or 0.0
    for number, step in enumerate(capture, 1):
        at += step.after
        if not is_idle(step):
            data = {"step": number, **_data(step)}
            kind = kind_of(step)
            name = f"culm:{_NAMES.get(kind, kind)}"
            yield _record({"time": round(at * 1e3, 3), "name": name, "data": data})


def _record(value: dict[str, Any]) -> bytes:
    return _SEPARATOR + json.dumps(value, separators=(",", ":")).encode() + _END


def _file(header: Header) -> dict[str, Any]:
    # Times since 1970 are the default of every draft, which spell other ones differently.
    common: dict[str, Any] = {}
    if header.began is None:
        common["time_format"] = "relative_to_epoch"
        common["reference_time"] = {"clock_type": "monotonic", "epoch": "unknown"}
    if header.session:
        common["group_id"] = header.session
    return {
        **_OF_EARLIER_DRAFTS,
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": title_of(header),
        "description": f"recorded by culm {header.culm} on Python {header.python}",
        "trace": {
            "common_fields": common,
            "vantage_point": {"name": header.machine, "type": _vantage(header)},
            "event_schemas": [EVENT_SCHEMA],
            "config": plain(dict(header.config)),
            "redacted": sorted(each.value for each in header.redacted),
        },
    }


# Their tools ask for these; later ones pass over them.
_OF_EARLIER_DRAFTS = {"qlog_version": "0.3", "qlog_format": "JSON-SEQ"}

_VANTAGES = {
    "CLIENT": "client",
    "DIALLER": "client",
    "PROACTIVE": "client",
    "SERVER": "server",
    "LISTENER": "server",
    "REACTIVE": "server",
}


def _vantage(header: Header) -> str:
    return _VANTAGES.get(header.role, "unknown")


def _data(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {"handle": step.on} if step.on else {}
    match kind_of(step):
        case "received" if step.name == "receive_eof":
            data["eof"] = True
        case "received" if step.arguments:
            data |= _raw(step.arguments[0])
            if "source" in step.keywords:
                data["source"] = plain(step.keywords["source"])
        case "sent" if step.name == "data_to_send":
            data |= _raw(step.result)
        case "sent":
            data["datagrams"] = plain(step.result)
        case "event":
            data |= {"event": plain(step.result), "state": step.state}
        case "effect":
            data["effect"] = plain(step.result)
        case "time" if step.arguments:
            data["now"] = plain(step.arguments[0])
        case "deadline":
            data["deadline"] = plain(step.result)
        case _:
            data |= {"call": step.name, "arguments": plain(step.arguments)}
            data |= {"keywords": plain(step.keywords), "result": plain(step.result)}
    if step.error is not None:
        data["raised"] = plain(step.error)
    return data


def _raw(value: Any) -> dict[str, Any]:
    """``RawInfo``, or the mark of omitted bytes."""
    if isinstance(value, bytes):
        return {"raw": {"length": len(value), "data": value.hex()}}
    return {"raw": plain(value)}

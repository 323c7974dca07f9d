"""The viewer: captures as one page that needs nothing else.

The page has the steps that did something, in the order of time, with the fields of all bytes; of
long captures it has a window.  Its data are JSON, compressed, in a script that the page reads; its
script and style are files of this package.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from typing import Any

from culm.capture.dissect import Field, StepFields, with_fields
from culm.capture.meeting import Place, Side, arrivals, in_order, outline
from culm.capture.records import Capture, Step
from culm.capture.text import (
    bytes_words,
    kind_of,
    plain,
    plain_parts,
    short_words,
    title_of,
    words_of,
)
from culm.capture.values import to_value

__all__ = ["STEPS_MAX", "page"]

_BYTES_SAID = 32  # at most, of a value that may be a text
_BYTES_MAX = 1 << 16
"""Bytes of one piece that the page shows; of a longer one it has the beginning."""


STEPS_MAX = 100_000
"""How many steps a page shows, unless more are asked for."""

Open = Callable[[], Capture]
"""Opens a capture, from its beginning."""


def page(captures: Mapping[str, Open], *, first: int = 1, count: int = STEPS_MAX) -> str:
    """The page of several captures of the same conversation, or of one.

    captures: by the names under which they are shown; each is read twice.
    first, count: the steps that are shown, of those of all sides that did something, in order.

    Raises `CaptureError` as they do.  In memory are the steps that are shown, and a few numbers of
    each other.
    """
    sides, torn = [], []
    for name, open_it in captures.items():
        capture = open_it()
        sides.append(outline(name, capture.header, capture))
        torn.append(capture.torn)
    moved = arrivals(sides)
    last = max(first, 1) - 1
    shown = list(islice(in_order(sides, moved), last, last + count))
    places = {place: row for row, place in enumerate(shown)}
    rows: list[list[Any]] = [[] for _ in shown]
    about = []
    for index, (side, open_it) in enumerate(zip(sides, captures.values(), strict=True)):
        wanted = [number for which, number in shown if which == index]
        before = _fill(side, index, open_it(), wanted, places, rows)
        about.append({**_about(side, torn[index]), **before})
    for place, arrived in moved.items():
        if place in places and arrived in places:
            rows[places[place]][-1]["to"] = places[arrived]
            rows[places[arrived]][-1]["from"] = places[place]
    window = [last + 1, len(rows), sum(len(side.busy) for side in sides)]
    title = " and ".join(dict.fromkeys(title_of(side.header) for side in sides))
    return _filled(title, {"sides": about, "steps": rows, "window": window})


def _fill(
    side: Side,
    index: int,
    capture: Capture,
    wanted: Sequence[int],
    places: Mapping[Place, int],
    rows: list[list[Any]],
) -> dict[str, Any]:
    """Make the rows of a side; its state, its deadline and its time before them, if it has any."""
    before: dict[str, Any] = {}
    if not wanted:
        return before
    for number, (step, parts) in enumerate(with_fields(capture.header, capture), 1):
        row = places.get((index, number))
        if row is not None:
            rows[row] = _row(side, index, number, step, parts)
        elif number < wanted[0]:
            before |= _changed(step)
        if number >= wanted[-1]:
            break
    return before


def _changed(step: Step) -> dict[str, Any]:
    """What a step tells of the time after it."""
    kind = kind_of(step)
    if kind == "deadline":
        return {"due": plain(step.result)}
    if kind == "time" and step.arguments:
        return {"now": plain(step.arguments[0])}
    return {} if step.state is None else {"state": step.state}


def _filled(title: str, data: Mapping[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = b64encode(deflate.compress(text) + deflate.flush()).decode()
    parts = files("culm.capture").joinpath("viewer")
    content = {
        "title": escape(title),
        "style": parts.joinpath("viewer.css").read_text(encoding="utf-8"),
        "script": parts.joinpath("viewer.js").read_text(encoding="utf-8"),
        "data": packed,
    }
    empty = parts.joinpath("page.txt").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: content[mark[1]], empty)


def _about(side: Side, torn: int) -> dict[str, Any]:
    header = side.header
    return {
        "name": side.name,
        "machine": header.machine,
        "session": header.session,
        "config": plain(dict(header.config)),
        "culm": header.culm,
        "python": header.python,
        "began": header.began,
        "redacted": sorted(each.value for each in header.redacted),
        "torn": torn,
        "steps": side.steps,
    }


def _row(
    side: Side, index: int, number: int, step: Step, bytes_moved: Sequence[StepFields]
) -> list[Any]:
    """Side, number, time, kind, label, and what there is besides."""
    kind = kind_of(step)
    more: dict[str, Any] = {}
    if step.on:
        more["on"] = side.links.get(step.on, step.on)
    if step.state is not None:
        more["state"] = step.state
    if fault := _fault(step):
        more["fault"] = fault
    if bytes_moved:
        more["bytes"] = [_moved(each) for each in bytes_moved]
        faults = (each.fault for each in bytes_moved if each.fault is not None)
        found = next((each for each in faults if not each.is_short), None)
        if found is not None:
            more.setdefault("fault", f"{found.code}: {found.message}")
    else:
        more["call"] = plain_parts(step)
    if kind == "deadline":
        more["deadline"] = plain(step.result)
    return [index, number, round(side.times[number - 1], 6), kind, _label(step, bytes_moved), more]


def _label(step: Step, moved: Sequence[StepFields]) -> str:
    if moved:
        return ", ".join(_counted(name for part in moved for name in _names(part.fields)))
    match kind_of(step):
        case "received" if step.name == "receive_eof":
            return "end of the stream"
        case "event" | "effect":
            return short_words(step.result)
        case "time" if step.arguments:
            return words_of(step.arguments[0])
        case "deadline":
            return words_of(step.result)
        case "answer":
            answers = [*step.arguments, *step.keywords.values()][1:]  # after the ticket
            return short_words(answers[0]) if answers and answers[0] is not None else "done"
        case _:
            given = [short_words(each) for each in (*step.arguments, *step.keywords.values())]
            return f"{step.name.removeprefix('!')}({', '.join(given)})"


_CARRIERS = frozenset({"WRITE", "box"})
"""Packets that are named after the messages in them."""


def _names(fields: Sequence[Field]) -> Iterator[str]:
    for each in fields:
        if each.name in _CARRIERS:
            carried = [name for part in each.inside for name in _names(part.inside)]
            yield from carried or [each.name]
        elif each.name:
            yield each.name


def _counted(names: Iterable[str]) -> Iterator[str]:
    """Names in a row that are the same, once, with their number."""
    last, count = "", 0
    for name in (*names, ""):
        if name == last:
            count += 1
            continue
        if last:
            yield last if count == 1 else f"{count} x {last}"
        last, count = name, 1


def _fault(step: Step) -> str | None:
    """The error that a call raised, or that a machine has ended with."""
    if step.error is not None:
        return words_of(step.error)
    result = step.result
    if step.name == "next_event" and isinstance(result, dict):
        fields = result.get("fields")
        error = fields.get("error") if isinstance(fields, dict) else None
        return None if error is None else words_of(error)
    return None


def _moved(found: StepFields) -> dict[str, Any]:
    data = found.moved.data
    shown: dict[str, Any] = {
        "size": len(data),
        "data": b64encode(data[:_BYTES_MAX]).decode(),
        "fields": [_field(each) for each in found.fields],
    }
    if found.moved.peer is not None:
        shown["peer"] = short_words(found.moved.peer)
    if found.fault is not None:
        shown["fault"] = [found.fault.offset, found.fault.code, found.fault.message]
    return shown


def _field(field: Field) -> list[Any]:
    value = field.value
    words = None
    if value is not None:
        words = _field_words(value)
    inside = [_field(each) for each in field.inside]
    return [field.name, field.offset, field.size, words, inside, int(field.continues)]


def _field_words(value: object) -> str:
    if isinstance(value, bytes):
        return bytes_words(value) if len(value) <= _BYTES_SAID else words_of(value)
    if type(value) is str:
        return value
    return words_of(value if type(value) is int else to_value(value))

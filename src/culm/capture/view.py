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
from itertools import accumulate, chain, islice, takewhile
from typing import Any

from culm.capture.dissect import DissectionFault, Field, Flows, Moved, Split
from culm.capture.meeting import Place, Side, arrivals, in_order, outline
from culm.capture.records import Capture, Step
from culm.capture.shown import FIELDS_MAX, fault_row, field_rows, label_of
from culm.capture.tape import MADE
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
# The page's share of one step; of more it has the beginning.
_BYTES_MAX = 1 << 16  # of a piece of bytes
_VALUE_MAX = 1 << 12  # of a call and its outcome: characters, or that number of further items
_HEX_MAX = 64  # of bytes in that
_TEXT_SIZE_MAX = 1 << 27  # characters of all steps as JSON


STEPS_MAX = 100_000
"""How many steps a page shows, unless more are asked for."""

Open = Callable[[], Capture]
"""Opens a capture, from its beginning."""


def page(captures: Mapping[str, Open], *, first: int = 1, count: int = STEPS_MAX) -> str:
    """The page of several captures of the same conversation, or of one.

    captures: by the names under which they are shown; each is read twice.
    first, count: the steps that are shown, of those of all sides that did something, in order; less
        if a page does not have room for them.

    Raises `CaptureError` as they do.  In memory are the steps that are shown, up to 128 MiB of text
    for each side, and a few numbers of each other.
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
    rows: list[str] = [""] * len(shown)
    about = []
    for index, (side, open_it) in enumerate(zip(sides, captures.values(), strict=True)):
        wanted = [number for which, number in shown if which == index]
        before = _fill(side, index, open_it(), wanted, places, rows)
        about.append({**_about(side, torn[index]), **before})
    rows = _with_room(rows)
    for place, arrived in moved.items():
        one, other = places.get(place, len(rows)), places.get(arrived, len(rows))
        if max(one, other) < len(rows):
            rows[one] = _extended(rows[one], "to", other)
            rows[other] = _extended(rows[other], "from", one)
    window = [last + 1, len(rows), sum(len(side.busy) for side in sides)]
    title = " and ".join(dict.fromkeys(title_of(side.header) for side in sides))
    return _filled(title, {"sides": about, "window": window}, rows)


def _with_room(rows: list[str]) -> list[str]:
    """The first rows, as many as there is room for on a page."""
    sizes = accumulate(map(len, rows))
    full = (at for at, size in enumerate(sizes) if size > _TEXT_SIZE_MAX or not rows[at])
    return rows[: max(next(full, len(rows)), 1)]


def _extended(row: str, name: str, number: int) -> str:
    """A row whose last part, which is a map, has one name more."""
    begun = row.removesuffix("}]")
    return f'{begun}{"" if begun.endswith("{") else ","}"{name}":{number}}}]'


def _fill(
    side: Side,
    index: int,
    capture: Capture,
    wanted: Sequence[int],
    places: Mapping[Place, int],
    rows: list[str],
) -> dict[str, Any]:
    """Make the rows of a side; its state, its deadline and its time before them, if it has any."""
    before: dict[str, Any] = {}
    size = 0
    if not wanted:
        return before
    for number, (step, parts) in enumerate(Flows(capture.header).told(capture), 1):
        row = places.get((index, number))
        if row is not None:
            rows[row] = _json(_row(side, index, number, step, parts))
            size += len(rows[row])
        elif number < wanted[0]:
            before |= _changed(step)
        if number >= wanted[-1] or size > _TEXT_SIZE_MAX:
            break
    return before


def _changed(step: Step) -> dict[str, Any]:
    """The state after a step, as far as it tells."""
    kind = kind_of(step)
    if kind == "deadline":
        return {"due": plain(step.result)}
    if kind == "time" and step.arguments:
        return {"now": plain(step.arguments[0])}
    return {} if step.state is None else {"state": step.state}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _filled(title: str, data: Mapping[str, Any], rows: Sequence[str]) -> str:
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    text = chain([_json(data).removesuffix("}"), ',"steps":['], _listed(rows), ["]}"])
    pieces = [deflate.compress(each.encode(errors="replace")) for each in text]
    packed = b64encode(b"".join(pieces) + deflate.flush()).decode()
    parts = files("culm.capture").joinpath("viewer")
    content = {
        "title": escape(title),
        "style": parts.joinpath("viewer.css").read_text(encoding="utf-8"),
        "script": parts.joinpath("viewer.js").read_text(encoding="utf-8"),
        "data": packed,
    }
    empty = parts.joinpath("page.txt").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: content[mark[1]], empty)


def _listed(rows: Sequence[str]) -> Iterator[str]:
    return (f",{row}" if at else row for at, row in enumerate(rows))


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


def _row(side: Side, index: int, number: int, step: Step, parts: Iterable[Split]) -> list[Any]:
    """Side, number, time, kind, label, and what there is besides."""
    kind = kind_of(step)
    more: dict[str, Any] = {}
    if step.on:
        more["on"] = side.links.get(step.on, step.on)
    if step.state is not None:
        more["state"] = step.state
    if fault := _fault(step):
        more["fault"] = fault
    faults: list[DissectionFault] = []
    moved: list[dict[str, Any]] = []
    label = label_of(_fields(parts, moved, faults))
    if moved:
        more["bytes"] = moved
        if faults:
            more.setdefault("fault", f"{faults[0].code}: {faults[0].message}")
    else:
        more["call"] = _cut(plain_parts(step), [_VALUE_MAX])
        label = _label(step)
    if kind == "deadline":
        more["deadline"] = _cut(plain(step.result), [_VALUE_MAX])
    return [index, number, round(side.times[number - 1], 6), kind, label, more]


def _cut(value: Any, room: list[int]) -> Any:
    """The beginning of a value, as far as there is room."""
    room[0] -= 8
    if isinstance(value, str):
        kept = value[: max(room[0], 8)]
        room[0] -= len(kept)
        return value if len(kept) == len(value) else f"{kept}…"
    if isinstance(value, list):
        items = [_cut(each, room) for each in takewhile(lambda _: room[0] > 0, value)]
        return items if len(items) == len(value) else [*items, "…"]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"hex"} and isinstance(digits := value["hex"], str):
        room[0] -= min(len(digits), 2 * _HEX_MAX)
        short = {"hex": digits[: 2 * _HEX_MAX], "size": len(digits) // 2}
        return value if len(digits) <= 2 * _HEX_MAX else short
    rest = takewhile(lambda _: room[0] > 0, value.items())
    return {_cut(key, room): _cut(each, room) for key, each in rest}


def _fields(
    parts: Iterable[Split], moved: list[dict[str, Any]], faults: list[DissectionFault]
) -> Iterator[Field]:
    """All fields; beside that what is shown of them, and the faults, are noted."""
    for part in parts:
        fields = iter(part.fields)
        begun = list(islice(fields, FIELDS_MAX + 1))
        yield from chain(begun, fields)
        moved.append(_moved(part.moved, begun, part.fault))
        if part.fault is not None and not part.fault.is_short:
            faults.append(part.fault)


def _label(step: Step) -> str:
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
            name = step.name.removeprefix("!")
            if name.startswith(MADE):
                name = f"{MADE}{name.rpartition(':')[2]}"
            return f"{name}({', '.join(given)})"


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


def _moved(moved: Moved, fields: Sequence[Field], fault: DissectionFault | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "size": len(moved.data),
        "data": b64encode(moved.data[:_BYTES_MAX]).decode(),
        "fields": field_rows(fields, _field_words, len(moved.data)),
    }
    if moved.peer is not None:
        shown["peer"] = short_words(moved.peer)
    if fault is not None:
        shown["fault"] = fault_row(fault)
    return shown


def _field_words(value: object) -> str:
    if isinstance(value, bytes):
        return bytes_words(value) if len(value) <= _BYTES_SAID else words_of(value)
    if type(value) is str:
        return value
    return words_of(value if type(value) is int else to_value(value))

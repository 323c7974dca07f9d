"""Large captures, decoded by several tasks: the rows that one task alone would make.

A step's number and time, and the connection that its handle stands for, depend on all blocks before
it, but on little of them: an outline of each block, which one pass puts together (`places_of`).
With its place each block is decoded by itself, datagrams included (`rows_of_block`).  Messages in a
stream depend on all bytes before them in their direction: these go to a task for each direction of
each connection (`messages_of`), which follows them as the whole capture's dissection would.

So one pass over numbers is left for a capture, and one over bytes for a direction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import cbor2

from culm.capture.dissect import Flows, Passed, Split, bytes_of, tells_keys
from culm.capture.errors import CaptureError
from culm.capture.links import note_links
from culm.capture.records import Header, Step, records_in
from culm.spark.capture_files import KIND, CaptureFault
from culm.spark.capture_rows import (
    BLOCKS,
    CAPTURED,
    Clock,
    block_rows,
    common_columns,
    rows_of_step,
)
from culm.spark.columns import row_batches, schema_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

_Rows = Iterator[dict[str, Any]]
_Waiting = deque[dict[str, Any] | None]
"""For each step that has no rows yet, what they have in common; ``None`` if it gets none."""

# Outlines and places are CBOR: only this module reads them.
_OUTLINES = (*((name, kind) for name, kind in BLOCKS if name != "entry"), ("outline", "binary"))
_PLACES = (*((name, kind) for name, kind in CAPTURED), ("place", "binary"))
_PIECES = (
    ("file", "string"),
    ("flow", "binary"),
    ("number", "bigint"),
    ("data", "binary"),
    ("about", "binary"),
)
# The settings on which the fields of bytes depend.
_SETTINGS = ("dialect", "role")


def decode_parts(blocks: DataFrame) -> DataFrame:
    """The rows `CAPTURED` of captures, of which one task decodes but a part."""
    from pyspark.sql import functions as f

    outlines = _mapped(blocks, lambda rows: map(outline_of, rows), _OUTLINES)
    in_order = outlines.repartition("file").sortWithinPartitions("file", "block")
    found = _mapped(in_order, places_of, _PLACES)
    faults = found.filter(f.col("fault").isNotNull()).drop("place")
    places = found.filter(f.col("place").isNotNull()).select("file", "block", "place")
    sound = blocks.filter(f.col("fault").isNull()).select("file", "block", "entry")
    placed = sound.join(places, ["file", "block"])
    steps = _mapped(placed, _each(rows_of_block), CAPTURED)
    pieces = _mapped(placed, _each(pieces_of_block), _PIECES)
    by_flow = ("file", "flow")
    flows = pieces.repartition(*by_flow).sortWithinPartitions(*by_flow, "number")
    return steps.union(_mapped(flows, messages_of, CAPTURED)).union(faults)


def _mapped(
    frame: DataFrame, work: Callable[[_Rows], _Rows], columns: Sequence[tuple[str, str]]
) -> DataFrame:
    return frame.mapInArrow(partial(_work, work=work, columns=columns), schema_text(columns))


def _work(
    batches: Iterator[pyarrow.RecordBatch],
    *,
    work: Callable[[_Rows], _Rows],
    columns: Sequence[tuple[str, str]],
) -> Iterator[pyarrow.RecordBatch]:
    return row_batches(work(block_rows(batches)), columns)


def _each(work: Callable[[dict[str, Any]], _Rows]) -> Callable[[_Rows], _Rows]:
    return lambda rows: (found for row in rows for found in work(row))


def outline_of(row: dict[str, Any]) -> dict[str, Any]:
    """The properties of a block needed to place those after it: `_OUTLINES`."""
    header: Header | None = None
    said: dict[str, Any] = {"steps": 0, "micros": 0, "moved": 0, "comes_first": False}
    links: dict[int, int] = {}
    uses: set[int] = set()
    try:
        for found in records_in(row["entry"] or b"") if row["fault"] is None else ():
            if isinstance(found, Header):
                if header is None:
                    header = found
                    said |= {"header": _short(found), "comes_first": not said["steps"]}
                continue
            note_links(found.result, links)
            if found.on not in links:
                uses.add(found.on)
            if "keys" not in said and tells_keys(found):
                said["keys"] = [said["steps"], said["moved"], found.result]
            said["steps"] += 1
            said["micros"] += round(found.after * 1e6)
            said["moved"] += sum(len(each.data) for each in bytes_of(found))
    except CaptureError:
        said["is_bad"] = True
    said |= {"links": links, "uses": list(uses)}
    kept = {name: row[name] for name in ("file", "block", "fault", "block_end")}
    return kept | {"outline": cbor2.dumps(said)}


def places_of(outlines: Iterable[dict[str, Any]]) -> _Rows:
    """For each block its place, and a row for each fault, from outlines in order: `_PLACES`."""
    for _, blocks in groupby(outlines, itemgetter("file")):
        known: dict[str, Any] | None = None
        is_whole = True
        rest = iter(blocks)
        while (run := _Stretch(known, is_whole=is_whole)).take(rest):
            yield from run.places()
            known, is_whole = run.known, False


class _Stretch:
    """The blocks up to the next fault.

    known: the header, if one has been read.
    """

    def __init__(self, known: dict[str, Any] | None, *, is_whole: bool) -> None:
        self.known = known
        self._is_whole = is_whole
        self._said = known  # by all rows: the facts known at the first step
        self._blocks: list[dict[str, Any]] = []
        self._links: dict[int, int] = {}
        self._keys: list[Any] | None = None
        self._steps = self._micros = self._moved = 0
        self._fault: dict[str, Any] | None = None

    def take(self, rows: Iterator[dict[str, Any]]) -> bool:
        """Take blocks up to a fault; whether there was anything."""
        for row in rows:
            outline = cbor2.loads(row["outline"])
            self._note(row, outline)
            fault = CaptureFault.BAD_RECORD.value if outline.get("is_bad") else row["fault"]
            if fault is not None:
                named = {name: row[name] for name in ("file", "block", "block_end")}
                self._fault = named | {"kind": KIND, "fault": fault}
                break
        return bool(self._blocks)

    def _note(self, row: dict[str, Any], outline: dict[str, Any]) -> None:
        if self.known is None and "header" in outline:
            self.known = outline["header"]
            if not self._steps and (outline["comes_first"] or not outline["steps"]):
                self._said = self.known
        if self._keys is None and "keys" in outline:
            number, moved, result = outline["keys"]
            self._keys = [self._steps + number, self._moved + moved, result]
        self._blocks.append(
            {
                "file": row["file"],
                "block": row["block"],
                "is_sound": row["fault"] is None,
                "number": self._steps,
                "micros": self._micros,
                "moved": self._moved,
                "links": {on: self._links[on] for on in outline["uses"] if on in self._links},
            }
        )
        self._links |= outline["links"]
        self._steps += outline["steps"]
        self._micros += outline["micros"]
        self._moved += outline["moved"]

    def places(self) -> _Rows:
        """The places of its blocks, and a row for its fault."""
        said = self._said
        names = {} if said is None else {name: said[name] for name in ("machine", "session")}
        common: dict[str, Any] = {
            "names": names,
            "run": self._blocks[0]["block"],
            "end": [self._steps, self._moved],
            "keys": self._keys,
        }
        if self._is_whole:
            common["header"] = said
        for each in self._blocks:
            if each.pop("is_sound"):
                place = cbor2.dumps(common | each)
                yield {"file": each["file"], "block": each["block"], "place": place}
        if self._fault is not None:
            yield names | self._fault


def rows_of_block(row: dict[str, Any]) -> _Rows:
    """The rows of a block's steps, but for messages in streams and their faults."""
    place, header = _place_of(row)
    flows = Flows(header or Header())
    for common, step in _steps_of(row, place, header):
        parts = (
            Split(each) if each.peer is None else flows.datagram(each) for each in bytes_of(step)
        )
        yield from (common | found for found in rows_of_step(step, parts))


def pieces_of_block(row: dict[str, Any]) -> _Rows:
    """The bytes that a block's steps have moved in streams: `_PIECES`."""
    place, header = _place_of(row)
    said = {name: place[name] for name in ("end", "keys")} | {"header": place.get("header")}
    links: dict[int, int] = place["links"]
    number, moved = place["number"], place["moved"]
    for common, step in _steps_of(row, place, header):
        before = moved
        for each in bytes_of(step):
            moved += len(each.data)
            if each.peer is None:
                flow = [place["run"], int(links.get(each.on, each.on)), each.received]
                yield {
                    "file": row["file"],
                    "flow": cbor2.dumps(flow),
                    "number": number,
                    "data": each.data,
                    "about": cbor2.dumps(said | {"common": common, "moved": before}),
                }
        number += 1


def messages_of(pieces: Iterable[dict[str, Any]]) -> _Rows:
    """The rows of messages in streams, and of faults in these, from pieces in order."""
    for (_, flow), those in groupby(pieces, itemgetter("file", "flow")):
        yield from _messages_of_flow(those, is_received=cbor2.loads(flow)[2])


def _messages_of_flow(pieces: Iterator[dict[str, Any]], *, is_received: bool) -> _Rows:
    first = next(pieces)
    header = _header_in(cbor2.loads(first["about"])) or Header()
    waiting: _Waiting = deque()
    steps = _steps_of_flow(chain([first], pieces), waiting, is_received=is_received)
    for step, parts in Flows(header).told(steps):
        rows = islice(rows_of_step(step, parts), 1, None)  # that of the step itself is elsewhere
        if (common := waiting.popleft()) is not None:
            yield from (common | row for row in rows)


def _steps_of_flow(
    pieces: Iterable[dict[str, Any]], waiting: _Waiting, *, is_received: bool
) -> Iterator[Step | Passed]:
    """The steps that have moved the pieces, and the one that has told the keys, in its place."""
    about: dict[str, Any] = {}
    keys_told = False
    for piece in pieces:
        about = cbor2.loads(piece["about"])
        keys = about["keys"]
        if keys is not None and keys[0] < piece["number"] and not keys_told:
            yield from _telling(keys, waiting)
            keys_told = True
        yield Passed(piece["number"], about["moved"])
        waiting.append(about["common"])
        yield _moving(piece["data"], is_received=is_received)
    if about["keys"] is not None and not keys_told:
        yield from _telling(about["keys"], waiting)
    yield Passed(*about["end"])


def _telling(keys: Sequence[Any], waiting: _Waiting) -> Iterator[Step | Passed]:
    number, moved, result = keys
    yield Passed(number, moved)
    waiting.append(None)
    yield Step(0.0, 0, "next_event", [], {}, result)


def _moving(data: bytes, *, is_received: bool) -> Step:
    if is_received:
        return Step(0.0, 0, "receive_data", [data], {}, None)
    return Step(0.0, 0, "data_to_send", [], {}, data)


def _place_of(row: dict[str, Any]) -> tuple[dict[str, Any], Header | None]:
    place: dict[str, Any] = cbor2.loads(row["place"])
    return place, _header_in(place)


def _header_in(about: dict[str, Any]) -> Header | None:
    said = about.get("header")
    return None if said is None else Header(**said)


def _short(header: Header) -> dict[str, Any]:
    """The part of a header that rows need."""
    config = {name: str(header.config[name]) for name in _SETTINGS if name in header.config}
    said = {name: getattr(header, name) for name in ("machine", "session", "began")}
    return said | {"config": config}


def _steps_of(
    row: dict[str, Any], place: dict[str, Any], header: Header | None
) -> Iterator[tuple[dict[str, Any], Step]]:
    """The steps of a block, each with its common columns, up to a record that is none."""
    links: dict[int, int] = place["links"]
    clock = None if header is None else Clock(place["micros"], header.began)
    number = place["number"]
    try:
        for at, found in enumerate(records_in(row["entry"] or b"")):
            if not isinstance(found, Step):
                continue
            number += 1
            note_links(found.result, links)
            common = {"file": row["file"], "block": row["block"], "row": at, **place["names"]}
            if header is not None:
                common["step"] = number
            yield common | common_columns(found, links, clock), found
    except CaptureError:
        return  # its place has told of that

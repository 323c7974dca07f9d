"""The rows of captures: one for each step, each message, and each broken rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from culm.capture.dissect import DissectionFault, Field, Flows, Moved, Split, bytes_of
from culm.capture.links import link_of, note_links
from culm.capture.records import Header, Step
from culm.capture.text import PARTS, is_idle, kind_of, plain, plain_parts, short_words
from culm.spark.columns import bigint
from culm.spark.dissection import FIELDS, field_rows

if TYPE_CHECKING:
    import pyarrow

#: The columns of `decode_captures`.
CAPTURED = (
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("machine", "string"),
    ("session", "string"),
    ("step", "bigint"),
    ("at", "double"),
    ("time", "double"),
    ("part", "int"),
    ("what", "string"),
    ("kind", "string"),
    ("call", "string"),
    ("handle", "bigint"),
    ("link", "bigint"),
    ("state", "string"),
    ("received", "boolean"),
    ("peer", "string"),
    ("name", "string"),
    ("code", "string"),
    ("within", "string"),
    ("offset", "int"),
    ("size", "int"),
    ("continues", "boolean"),
    ("said", "string"),
    ("data", "binary"),
    ("fields", FIELDS),
    ("fault", "string"),
    ("block_end", "bigint"),
)
#: The columns of blocks.
BLOCKS = (
    ("file", "string"),
    ("block", "bigint"),
    ("entry", "binary"),
    ("fault", "string"),
    ("block_end", "bigint"),
)


def block_rows(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows, each of which is no object of Python before its turn."""
    for batch in batches:
        for start in range(len(batch)):
            yield from batch.slice(start, 1).to_pylist()


@dataclass(slots=True)
class Clock:
    """The time of steps.

    micros: since the recorder began, without the errors of sums of seconds.
    began: the wall clock's time then, if it is known.
    """

    micros: int = 0
    began: float | None = None

    def columns(self, step: Step) -> dict[str, Any]:
        """The time of the next step."""
        self.micros += round(step.after * 1e6)
        at = self.micros / 1e6
        return {"at": at, "time": None if self.began is None else self.began + at}


def step_rows(header: Header | None, steps: Iterable[Step]) -> Iterator[Iterator[dict[str, Any]]]:
    """For each step its rows, without the place in a file; take them before the next.

    header: of the capture; ``None`` if something is missing before the first step.
    """
    links: dict[int, int] = {}
    clock = None if header is None else Clock(began=header.began)
    for step, parts in Flows(header or Header()).told(steps):
        note_links(step.result, links)
        common = common_columns(step, links, clock)
        # One at a time: a step of a stranger may have very many.
        yield map(common.__or__, rows_of_step(step, parts))


def common_columns(step: Step, links: dict[int, int], clock: Clock | None) -> dict[str, Any]:
    """The common columns of all rows of a step."""
    common: dict[str, Any] = {"handle": bigint(step.on), "call": step.name}
    if (link := link_of(step.on, links)) is not None:
        common["link"] = bigint(link)
    return common if clock is None else {**common, **clock.columns(step)}


_Fault = tuple[Moved, DissectionFault]


def rows_of_step(step: Step, parts: Iterable[Split]) -> Iterator[dict[str, Any]]:
    """The rows of a step, numbered: itself, its messages, what is wrong with it."""
    faults: list[_Fault] = []
    rows = chain([_step_row(step)], _message_rows(parts, faults), _broken_rules(step, faults))
    return ({"part": part, **row} for part, row in enumerate(rows))


def _step_row(step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {
        "what": "step",
        "kind": "idle" if is_idle(step) else kind_of(step),
        "name": _name_of(step.result),
        "state": step.state,
    }
    moved = list(islice(bytes_of(step), 2))
    if len(moved) == 1 and moved[0].peer is None:  # that is all there is to say
        return row | _moved(moved[0]) | {"data": moved[0].data}
    names = PARTS
    if len(moved) == 1:
        row |= _moved(moved[0]) | {"data": moved[0].data}
        names = ("keywords", "error")
    said = plain_parts(step, names)
    return row | {"said": json.dumps(said) if said else None}


def _name_of(value: Any) -> str | None:
    """The class of a result, without its module."""
    mark = value.get("") if isinstance(value, dict) else None
    return mark.rpartition(":")[2] if isinstance(mark, str) and ":" in mark else None


def _moved(moved: Moved) -> dict[str, Any]:
    peer = None if moved.peer is None else short_words(moved.peer)
    return {"received": moved.received, "peer": peer, "size": len(moved.data)}


def _message_rows(parts: Iterable[Split], faults: list[_Fault]) -> Iterator[dict[str, Any]]:
    for part in parts:
        for message, within in _messages(part.fields, None):
            yield _moved(part.moved) | {
                "what": "message",
                "name": message.name,
                "within": within,
                "offset": message.offset,
                "size": message.size,
                "continues": message.continues,
                "fields": list(field_rows([message], part.moved.data)),
            }
        if part.fault is not None and not part.fault.is_short:
            faults.append((part.moved, part.fault))


# Packets that carry messages of the layer above.
_CARRIERS = frozenset({"WRITE", "box"})


def _messages(fields: Iterable[Field], within: str | None) -> Iterator[tuple[Field, str | None]]:
    """The messages in some bytes, and after a packet those that it carries."""
    for each in fields:
        yield each, within
        if each.name in _CARRIERS:
            for part in each.inside:
                yield from _messages(part.inside, each.name)


def _broken_rules(step: Step, faults: list[_Fault]) -> Iterator[dict[str, Any]]:
    if step.error is not None:
        yield {"what": "refused", **_error(step.error)}
    fields = step.result.get("fields") if isinstance(step.result, dict) else None
    if step.name == "next_event" and isinstance(fields, dict) and fields.get("error") is not None:
        yield {"what": "violation", "state": step.state, **_error(fields["error"])}
    for moved, fault in faults:
        yield _moved(moved) | {
            "what": "violation",
            "code": fault.code,
            "offset": fault.offset,
            "said": json.dumps({"message": fault.message}),
        }


def _error(error: Any) -> dict[str, Any]:
    """The class of an error, its code and its message."""
    parts: Mapping[str, Any] = error if isinstance(error, dict) else {}
    code = parts.get("code")
    name = _name_of(parts) or parts.get("type")
    return {
        "name": name if isinstance(name, str) else None,
        "code": str(code["member"]) if isinstance(code, dict) and "member" in code else None,
        "said": json.dumps({"message": plain(parts.get("message"))}),
    }

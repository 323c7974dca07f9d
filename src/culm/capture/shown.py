"""How pages show bytes: by a label, and by fields.

The playground has this in a browser, without the libraries that values of captures need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from culm.capture.dissect import DissectionFault, Field

FIELDS_MAX = 1 << 12
"""How many fields of a piece of bytes are shown."""
_CARRIERS = frozenset({"WRITE", "box"})
"""Packets that are named after the messages in them."""


def label_of(fields: Iterable[Field]) -> str:
    """The names of the fields, in order."""
    return ", ".join(_counted(_names(fields)))


def _names(fields: Iterable[Field]) -> Iterator[str]:
    for each in fields:
        if each.name in _CARRIERS:
            carried = [name for part in each.inside for name in _names(part.inside)]
            yield from carried or [each.name]
        elif each.name:
            yield each.name


def _counted(names: Iterable[str]) -> Iterator[str]:
    """Names in a row that are the same, once, with their number."""
    last, count = "", 0
    for name in chain(names, ("",)):
        if name == last:
            count += 1
            continue
        if last:
            yield last if count == 1 else f"{count} x {last}"
        last, count = name, 1


def field_rows(
    fields: Iterable[Field],
    words: Callable[[object], str],
    end: int,
    room: list[int] | None = None,
) -> list[Any]:
    """Fields for JSON: name, offset, size, value in words, fields inside, whether each goes on.

    words: for a value that is not ``None``.
    end: of the last of them.
    room: how many more there is room for, by default `FIELDS_MAX`; one stands for all others.
    """
    room = [FIELDS_MAX] if room is None else room
    shown: list[Any] = []
    for field in fields:
        if room[0] <= 0:
            shown.append(["…", field.offset, end - field.offset, None, [], 0])
            break
        room[0] -= 1
        value = None if field.value is None else words(field.value)
        inside = field_rows(field.inside, words, field.offset + field.size, room)
        shown.append([field.name, field.offset, field.size, value, inside, int(field.continues)])
    return shown


def fault_row(fault: DissectionFault) -> list[Any]:
    """The fault of bytes for JSON: offset, code, message."""
    return [fault.offset, fault.code, fault.message]

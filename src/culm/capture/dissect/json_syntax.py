"""JSON: nested values, by their names there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from culm.capture.dissect.fields import FieldReader
from culm.capture.dissect.xenc import DEPTH_MAX
from culm.ssb.v8json import JsonValue, parse

__all__ = ["take_json"]

_MEMBER = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*")\s*:', re.DOTALL)
_BEGIN = re.compile(rb"[\s,]*([\[{])")
_END = re.compile(rb"\s*[\]}]")
_SCALAR = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*"|[^\s,\]}]+)', re.DOTALL)

Reading = Callable[[str, JsonValue], Any]


def take_json(reader: FieldReader, name: str, reading: Reading = lambda _, value: value) -> None:
    """Take a value that fills the rest.

    reading: makes the shown value of a value and its name.
    """
    parse(reader.peek(reader.left), depth_max=DEPTH_MAX)
    _take_value(reader, name, reading, 0)
    rest = reader.left
    if rest:
        reader.add("", rest)


def _take_value(reader: FieldReader, name: str, reading: Reading, before: int) -> None:
    at = reader.at + before
    begin = _BEGIN.match(reader.data, at, reader.end)
    if begin is None:
        found = _SCALAR.match(reader.data, at, reader.end)
        if found is None:
            reader.add(name, reader.left + 1)
            return
        value = parse(found[1])
        reader.add(name, found.end() - reader.at, reading(name, value))
        return
    with reader.group(name):
        reader.add("", begin.end() - reader.at)
        index = 0
        while (end := _END.match(reader.data, reader.at, reader.end)) is None and reader.left:
            member = _MEMBER.match(reader.data, reader.at, reader.end) if begin[1] == b"{" else None
            if member is None:
                _take_value(reader, f"{index}", reading, 0)
            else:
                key = parse(member[1])
                _take_value(reader, str(key), reading, member.end() - reader.at)
            index += 1
        reader.add("", end.end() - reader.at if end is not None else 1)

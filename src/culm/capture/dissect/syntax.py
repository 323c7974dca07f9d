"""CBOR and JSON: nested values, by their names there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from culm.capture.dissect.fields import FieldReader
from culm.capture.dissect.xenc import DEPTH_MAX, check_depth
from culm.kernels import cbor as _kernel
from culm.ssb.v8json import JsonValue, parse
from culm.wire import cbor
from culm.wire.errors import DecodeError, WireErrorCode

__all__ = ["Inner", "take_cbor", "take_json"]

_HEAD_SIZE_MAX = 9

Inner = Mapping[str, Callable[[FieldReader], object]]
"""How to split the bytes under a name."""


# CBOR.


def take_cbor(
    reader: FieldReader,
    name: str,
    names: Sequence[str] = (),
    inner: Inner | None = None,
    depth: int = 0,
) -> None:
    """Take an item.

    names: those of its own items, if it is an array.
    inner: how to split byte strings, by name.
    """
    check_depth(reader, depth)
    kind, argument, size = _kernel.head(reader.peek(_HEAD_SIZE_MAX), 0)
    if size == _kernel.TRUNCATED:
        reader.add(name, reader.left + 1)
    if size < 0:
        raise DecodeError(WireErrorCode.BAD_VALUE, reader.at, "no item of CBOR")
    if kind in (cbor.ARRAY, cbor.MAP):
        with reader.group(name):
            reader.add("", size)
            for index in range(argument):
                if kind == cbor.ARRAY:
                    own = names[index] if index < len(names) else f"{index}"
                    take_cbor(reader, own, (), inner, depth + 1)
                else:
                    _take_pair(reader, inner, depth)
    elif kind == cbor.BYTES and inner is not None and name in inner:
        with reader.group(name):
            reader.add("", size)
            with reader.within(argument, alone=True):
                inner[name](reader)
    elif kind in (cbor.BYTES, cbor.TEXT):
        content = reader.peek(size + argument)[size:]
        value = content if kind == cbor.BYTES else content.decode(errors="replace")
        reader.add(name, size + argument, value)
    else:
        value, end = cbor.decode_first(reader.data, reader.at, 0)
        reader.add(name, max(size, end - reader.at), value)


def _take_pair(reader: FieldReader, inner: Inner | None, depth: int) -> None:
    key, end = cbor.decode_first(reader.data, reader.at, 0)
    if end < 0:
        take_cbor(reader, "key", (), None, depth + 1)
        take_cbor(reader, "value", (), inner, depth + 1)
        return
    with reader.group(str(key)):
        reader.add("", end - reader.at)
        take_cbor(reader, str(key), (), inner, depth + 1)


# JSON.

_SIGN = re.compile(rb"[\s,]*")
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

"""CBOR, XENC and JSON: values inside each other, by the names that they have there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from culm.capture.dissect.fields import FieldReader
from culm.kernels import cbor as _kernel
from culm.ssb.v8json import JsonValue, parse
from culm.wire import cbor, xenc
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

__all__ = ["Inner", "take_cbor", "take_json", "take_xenc"]

_DEPTH_MAX = 64
_HEAD_SIZE_MAX = 9

Inner = Mapping[str, Callable[[FieldReader], object]]
"""How to split the bytes under a name."""


def _check_depth(reader: FieldReader, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise DecodeError(WireErrorCode.LIMIT_EXCEEDED, reader.at, "nested too deep")


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
    _check_depth(reader, depth)
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
        return
    with reader.group(str(key)):
        reader.add("", end - reader.at)
        take_cbor(reader, str(key), (), inner, depth + 1)


# XENC.

_NUMBER = re.compile(rb"i-?[0-9]+e|t-?[0-9]+\.[0-9]+e")
_OCTETS = re.compile(rb"([0-9]{1,19}):")
_BEGINS_OCTETS = frozenset(b"0123456789")


def take_xenc(reader: FieldReader, name: str, depth: int = 0, before: int = 0) -> None:
    """Take a value.

    before: bytes in front of it that belong to its name.
    """
    _check_depth(reader, depth)
    first = reader.data[reader.at + before : reader.end][:1]
    if first in (b"l", b"d"):
        with reader.group(name):
            reader.add("", before + 1)
            index = 0
            while reader.peek(1) != b"e":
                key, size = (f"{index}", 0) if first == b"l" else _key(reader)
                take_xenc(reader, key, depth + 1, size)
                index += 1
            reader.add("", 1)
        return
    size = before + _scalar_size(reader, before)
    encoded = reader.peek(size)[before:]
    reader.add(name, size, xenc.decode(encoded) if size <= reader.left else None)


def _scalar_size(reader: FieldReader, before: int) -> int:
    """Bytes of the number or the octets after `before` bytes; more than there are if they end."""
    at = reader.at + before
    if at < reader.end and reader.data[at] in _BEGINS_OCTETS:
        found = _OCTETS.match(reader.data, at, reader.end)
        if found is not None:
            return found.end() - at + int(found[1])
    elif (found := _NUMBER.match(reader.data, at, reader.end)) is not None:
        return found.end() - at
    return reader.left + 1


def _key(reader: FieldReader) -> tuple[str, int]:
    found = _OCTETS.match(reader.data, reader.at, reader.end)
    if found is None:
        reader.add("key", reader.left + 1)
        raise Truncated(reader.end)
    key = reader.data[found.end() : found.end() + int(found[1])]
    return key.decode("latin-1"), found.end() - reader.at + int(found[1])


# JSON.

_SIGN = re.compile(rb"[\s,]*")
_MEMBER = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*")\s*:', re.DOTALL)
_BEGIN = re.compile(rb"[\s,]*([\[{])")
_END = re.compile(rb"\s*[\]}]")
_SCALAR = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*"|[^\s,\]}]+)', re.DOTALL)

Reading = Callable[[str, JsonValue], Any]


def take_json(reader: FieldReader, name: str, reading: Reading = lambda _, value: value) -> None:
    """Take a value that fills the rest.

    reading: makes of a value and its name what is to be shown.
    """
    parse(reader.peek(reader.left), depth_max=_DEPTH_MAX)
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

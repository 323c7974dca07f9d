"""XENC: nested values, by their names there."""

from __future__ import annotations

import re

from culm.capture.dissect.fields import FieldReader
from culm.wire import xenc
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

DEPTH_MAX = 64
_NUMBER = re.compile(rb"i-?[0-9]+e|t-?[0-9]+\.[0-9]+e")
_OCTETS = re.compile(rb"([0-9]{1,19}):")
_BEGINS_OCTETS = frozenset(b"0123456789")


def check_depth(reader: FieldReader, depth: int) -> None:
    """Raise `DecodeError` for values that are nested too deep."""
    if depth > DEPTH_MAX:
        raise DecodeError(WireErrorCode.LIMIT_EXCEEDED, reader.at, "nested too deep")


def take_xenc(reader: FieldReader, name: str, depth: int = 0, before: int = 0) -> None:
    """Take a value.

    before: bytes in front of it that belong to its name.
    """
    check_depth(reader, depth)
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

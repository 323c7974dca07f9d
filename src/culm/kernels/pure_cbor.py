"""Canonical CBOR: plain code that specifies what `culm.kernels._cbor` does fast.

It takes numbers, byte strings, text, arrays, maps with text as keys, floats, booleans and null,
each in its shortest form, and the keys of a map in ascending order.  It reserves no memory for
sizes that are merely declared.  Source: RFC 8949, sections 3 and 4.2.1.

A fault in the data is reported as a negative number in the place of an end, after the index of the
byte at which it was seen; `culm.wire.cbor` turns it into an error.  Items are read in their order,
so the fault is the first one.  A mistake in the call raises ``ValueError``: a negative index, or a
depth of arrays and maps inside each other that is not from 0 to `DEPTH_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite as _isfinite
from struct import Struct
from typing import Any

UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, OTHER = range(8)

# Faults.
TRUNCATED = -1
LONG_NUMBER = -2  # in more bytes than it needs
LONG_FLOAT = -3
BAD_HEAD = -4  # an indefinite length, or a head without a meaning
TAGGED = -5
UNKNOWN_SIMPLE = -6
TOO_DEEP = -7
KEY_NO_TEXT = -8
KEY_ORDER = -9  # not above the one before
NO_UTF8 = -10

DEPTH_MAX = 255

_SIMPLE = {20: False, 21: True, 22: None}
_DIRECT_MAX = 23  # a larger argument follows the head, in this many bytes:
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
_LEAST = {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}  # less needs no argument of that width
_FLOATS = {2: Struct(">e"), 4: Struct(">f"), 8: Struct(">d")}
_NAN = b"\x7e\x00"


class _Fault(Exception):
    """A fault, and its place."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__(at, number)
        self.at = at
        self.number = number


def head(data: bytes, at: int) -> tuple[int, int, int]:
    """The kind (major type) of the item at `at`, its argument, and where its head ends.

    The bytes of a float count as part of its head, and its argument is 0.  If there is a fault: 0,
    the index and the fault.
    """
    if at < 0:
        raise ValueError("the index is negative")
    try:
        return _head(data, at)
    except _Fault as fault:
        return 0, fault.at, fault.number


def decode(data: bytes, at: int, depth_max: int) -> tuple[Any, int]:
    """The item at `at`, and where it ends; if there is a fault, its index and its number."""
    if at < 0:
        raise ValueError("the index is negative")
    if not 0 <= depth_max <= DEPTH_MAX:
        raise ValueError(f"a depth is 0..{DEPTH_MAX}")
    try:
        return _item(data, at, depth_max)
    except _Fault as fault:
        return fault.at, fault.number


def fields(fronts: list[bytes], values: tuple[Any, ...], other: Callable[[Any], bytes]) -> bytes:
    """For each value the bytes in front of it, and its encoding.

    other: encodes what is no byte string, no text, no integer from 0 to 2^63 - 1, no number with a
        point that needs 64 bits, no truth value and not ``None``.
    """
    if type(fronts) is not list or type(values) is not tuple:
        raise TypeError("a list and a tuple")
    if len(fronts) != len(values):
        raise ValueError("as many values as fronts")
    parts: list[bytes] = []
    for front, value in zip(fronts, values, strict=True):
        if type(front) is not bytes:
            raise TypeError(f"Expected bytes, got {type(front).__name__}")
        parts.append(front)
        if value is None or value is True or value is False:
            parts.append({None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value])
        elif type(value) is bytes:
            parts += _encoded_head(BYTES, len(value)), value
        elif type(value) is int and 0 <= value < 1 << 63:
            parts.append(_encoded_head(UNSIGNED, value))
        elif type(value) is float and _needs_64_bits(value):
            parts += b"\xfb", _FLOATS[8].pack(value)
        elif type(value) is str and (text := _utf8(value)) is not None:
            parts += _encoded_head(TEXT, len(text)), text
        else:
            written = other(value)
            if type(written) is not bytes:
                raise TypeError(f"Expected bytes, got {type(written).__name__}")
            parts.append(written)
    return b"".join(parts)


def _needs_64_bits(value: float) -> bool:
    if not _isfinite(value):
        return False
    try:
        (single,) = _FLOATS[4].unpack(_FLOATS[4].pack(value))
    except OverflowError:
        return True
    return bool(single != value)


def _utf8(text: str) -> bytes | None:
    """``None`` for a text with halves of surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _encoded_head(kind: int, argument: int) -> bytes:
    if argument <= _DIRECT_MAX:
        return bytes([kind << 5 | argument])
    code, width = next(each for each in _WIDTHS.items() if not argument >> 8 * each[1])
    return bytes([kind << 5 | code]) + argument.to_bytes(width, "big")


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    if at >= len(data):
        raise _Fault(len(data), TRUNCATED)
    kind, argument, behind = data[at] >> 5, data[at] & 31, at + 1
    if kind == TAG:
        raise _Fault(at, TAGGED)
    if argument <= _DIRECT_MAX:
        if kind == OTHER and argument not in _SIMPLE:
            raise _Fault(at, UNKNOWN_SIMPLE)
        return kind, argument, behind
    width = _WIDTHS.get(argument)
    if width is None or (kind == OTHER and width == 1):
        raise _Fault(at, BAD_HEAD)
    behind += width
    if behind > len(data):
        raise _Fault(len(data), TRUNCATED)
    encoded = data[at + 1 : behind]
    if kind == OTHER:
        if not _is_shortest_float(encoded):
            raise _Fault(at, LONG_FLOAT)
        return kind, 0, behind
    argument = int.from_bytes(encoded, "big")
    if argument < _LEAST[width]:
        raise _Fault(at, LONG_NUMBER)
    return kind, argument, behind


def _item(data: bytes, at: int, depth_left: int) -> tuple[Any, int]:
    kind, argument, behind = _head(data, at)
    if kind == UNSIGNED:
        return argument, behind
    if kind == NEGATIVE:
        return -1 - argument, behind
    if kind in (BYTES, TEXT):
        return _string(kind, argument, data, behind)
    if kind == OTHER:
        if behind == at + 1:
            return _SIMPLE[argument], behind
        return _FLOATS[behind - at - 1].unpack_from(data, at + 1)[0], behind
    if not depth_left:
        raise _Fault(at, TOO_DEEP)
    nested = _array if kind == ARRAY else _map
    return nested(argument, data, behind, depth_left - 1)


def _string(kind: int, size: int, data: bytes, at: int) -> tuple[bytes | str, int]:
    end = at + size
    if end > len(data):
        raise _Fault(len(data), TRUNCATED)
    octets = data[at:end]
    if kind == BYTES:
        return octets, end
    try:
        return octets.decode(), end
    except UnicodeDecodeError:
        raise _Fault(at, NO_UTF8) from None


def _array(count: int, data: bytes, at: int, depth_left: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while len(items) < count:
        item, at = _item(data, at, depth_left)
        items.append(item)
    return items, at


def _map(count: int, data: bytes, at: int, depth_left: int) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    last: str | None = None
    while len(items) < count:
        kind, size, behind = _head(data, at)
        if kind != TEXT:
            raise _Fault(at, KEY_NO_TEXT)
        key, behind = _string(kind, size, data, behind)
        assert isinstance(key, str)
        if last is not None and key <= last:
            raise _Fault(at, KEY_ORDER)
        items[key], at = _item(data, behind, depth_left)
        last = key
    return items, at


def _is_shortest_float(encoded: bytes) -> bool:
    width = len(encoded)
    (value,) = _FLOATS[width].unpack(encoded)
    if value != value:
        return encoded == _NAN
    if width == 2:
        return True
    try:
        shorter = _FLOATS[width // 2].pack(value)
    except OverflowError:
        return True
    return bool(_FLOATS[width // 2].unpack(shorter)[0] != value)

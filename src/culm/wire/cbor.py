"""Canonical CBOR (RFC 8949, section 4.2.1): found in a stream while it comes in, and decoded.

`Scanner` looks at the heads of an item, refuses what is not canonical, too large or too deep as
soon as that can be known, and says where the item ends.  What it has found cbor2 gets to decode: it
never sees tags, indefinite lengths, or sizes that nobody has the bytes for.  `decode` does both in
one go for what is there as a whole.

Of the order of keys in maps, and of duplicates among them, only `decode` says something.
"""

from __future__ import annotations

from functools import lru_cache
from operator import lt
from struct import Struct
from typing import Any, Protocol

import cbor2

from culm.buffer import Buffer
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

__all__ = [
    "DEPTH_MAX",
    "Scanner",
    "decode",
    "decode_rest",
    "decode_scanned",
    "encode",
    "encode_head",
]

#: How many arrays and maps may be inside each other by default.
DEPTH_MAX = 16

UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, OTHER = range(8)

_SIMPLE = {20: False, 21: True, 22: None}
_DIRECT_MAX = 23  # a larger argument stands behind the head, in so many bytes:
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}
_LEAST = {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}  # less needs no argument of that width
_FLOATS = {2: Struct(">e"), 4: Struct(">f"), 8: Struct(">d")}
_NAN = b"\x7e\x00"


class Octets(Protocol):
    """Bytes that can be asked for by their index."""

    def __getitem__(self, index: int, /) -> int: ...


class Scanner:
    """Where one item ends, of which more and more comes in.

    size_max: bytes that the item may have.  What it declares counts as soon as it is declared:
        a string with all its bytes, an array with one byte for each item.
    depth_max: how many arrays and maps may be inside each other.
    pairs: how many pairs there are in the maps so far.
    """

    __slots__ = ("_at", "_depth_max", "_open", "_owed", "_size_max", "pairs")

    def __init__(self, *, size_max: int, depth_max: int = DEPTH_MAX) -> None:
        self._size_max = size_max
        self._depth_max = depth_max
        self._at = 0  # where the next head stands
        self._open = [1]  # items that are still to begin: of the whole, then of each open array
        self._owed = 1  # the sum of them
        self.pairs = 0

    def scan(self, data: Octets, end: int) -> int | None:
        """Go on in `data`, which begins with the item and has `end` bytes by now.

        Returns the size of the item once it is whole.  Raises `DecodeError`, the same for every
        chunking: ``LIMIT_EXCEEDED``, ``NON_CANONICAL``, ``BAD_TYPE``.
        """
        at, open, owed = self._at, self._open, self._owed
        while owed and at < end:
            kind, argument = data[at] >> 5, data[at] & 31
            behind = at + 1
            if argument > _DIRECT_MAX or kind >= TAG:
                behind += _width(kind, argument, at)
                if behind > end:
                    break
                argument = _read(kind, data, at, behind)
            owed -= 1
            open[-1] -= 1
            if kind in (ARRAY, MAP):
                if len(open) > self._depth_max:
                    raise _too_much(at, f"over {self._depth_max} arrays inside each other")
                if kind == MAP:
                    self.pairs += argument
                    argument *= 2
                owed += argument
                open.append(argument)
            elif kind in (BYTES, TEXT):
                behind += argument
            if behind + owed > self._size_max:
                raise _too_much(at, f"over {self._size_max} bytes")
            while open and not open[-1]:
                open.pop()
            at = behind
        self._at, self._owed = at, owed
        return at if not owed and at <= end else None


def encode(value: Any) -> bytes:
    """The canonical encoding of a value that is made of what CBOR has itself."""
    return cbor2.dumps(value, canonical=True)


@lru_cache(maxsize=4096)
def encode_head(kind: int, argument: int) -> bytes:
    """What an item of that major type (0 to 7) begins with."""
    if argument <= _DIRECT_MAX:
        return bytes([kind << 5 | argument])
    width = next((width for width in (1, 2, 4) if argument >> 8 * width == 0), 8)
    return bytes([kind << 5 | 24 + width.bit_length() - 1]) + argument.to_bytes(width, "big")


def decode(data: Buffer, *, depth_max: int = DEPTH_MAX) -> Any:
    """Decode bytes that are one canonical item and nothing else.

    Keys of maps are text, and ascend as text does, which is the order of RFC 8949 only among keys
    of one length.  Raises `Truncated`, and `DecodeError` with ``TRAILING_DATA``,
    ``LIMIT_EXCEEDED`` (`depth_max`), ``NON_CANONICAL``, ``BAD_TYPE``, ``BAD_VALUE`` (no UTF-8).
    """
    return decode_rest(data if isinstance(data, bytes) else bytes(data), 0, depth_max=depth_max)


def decode_rest(data: bytes, at: int, *, depth_max: int = DEPTH_MAX) -> Any:
    """The same for what stands from `at` on."""
    values, end = _read_items(data, at, 1, depth_max)
    if end < len(data):
        raise DecodeError(WireErrorCode.TRAILING_DATA, end, "bytes follow the item")
    return values[0]


def _read_items(data: bytes, at: int, count: int, depth_left: int) -> tuple[list[Any], int]:
    """So many items one after the other, and where they end."""
    values: list[Any] = []
    end = len(data)
    while len(values) < count:
        if at >= end:
            raise Truncated(end)
        kind, argument = data[at] >> 5, data[at] & 31
        behind = at + 1
        if argument == 24 and kind < TAG and behind < end and data[behind] > _DIRECT_MAX:
            argument = data[behind]  # by far the most frequent of the longer ones
            behind += 1
        elif argument > _DIRECT_MAX or kind >= TAG:
            behind += _width(kind, argument, at)
            if behind > end:
                raise Truncated(end)
            if kind != OTHER:
                argument = _read(kind, data, at, behind)
        if kind == UNSIGNED:
            values.append(argument)
        elif kind <= TEXT and kind != NEGATIVE:
            at, behind = behind, behind + argument
            if behind > end:
                raise Truncated(end)
            octets = data[at:behind]
            values.append(octets if kind == BYTES else _text(octets, at))
        elif kind == NEGATIVE:
            values.append(-1 - argument)
        elif kind == OTHER:
            values.append(_read_other(data, at, behind))
        else:
            value, behind = _read_nested(kind, argument, data, at, behind, depth_left)
            values.append(value)
        at = behind
    return values, at


def _read_nested(
    kind: int, argument: int, data: bytes, at: int, behind: int, depth_left: int
) -> tuple[Any, int]:
    """An array or a map, and where it ends."""
    if not depth_left:
        raise _too_much(at, "too many arrays inside each other")
    if kind == ARRAY:
        return _read_items(data, behind, argument, depth_left - 1)
    flat, behind = _read_items(data, behind, 2 * argument, depth_left - 1)
    keys = flat[::2]
    if not set(map(type, keys)) <= {str}:
        raise DecodeError(WireErrorCode.BAD_TYPE, at, "a key that is no text")
    if len(keys) > 1 and not all(map(lt, keys, keys[1:])):
        raise DecodeError(WireErrorCode.NON_CANONICAL, at, "keys do not ascend")
    return dict(zip(keys, flat[1::2], strict=True)), behind


def _read_other(data: bytes, at: int, behind: int) -> bool | float | None:
    """A simple value, or a float."""
    if behind == at + 1:
        return _SIMPLE[data[at] & 31]
    encoded = data[at + 1 : behind]
    if not _is_shortest_float(encoded):
        raise DecodeError(WireErrorCode.NON_CANONICAL, at, "a float in too many bytes")
    (value,) = _FLOATS[len(encoded)].unpack(encoded)
    return float(value)


def _text(octets: bytes, at: int) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(WireErrorCode.BAD_VALUE, at, str(error)) from None


def decode_scanned(encoded: bytes) -> Any:
    """Decode an item that a `Scanner` has found; `DecodeError` (``BAD_VALUE``) for no UTF-8."""
    try:
        return cbor2.loads(encoded)
    except cbor2.CBORDecodeError as error:
        raise DecodeError(WireErrorCode.BAD_VALUE, 0, str(error)) from None


def _width(kind: int, argument: int, at: int) -> int:
    """How many bytes of the argument follow the head; raises what cannot stand there."""
    if kind == TAG:
        raise DecodeError(WireErrorCode.BAD_TYPE, at, "a tag")
    if kind == OTHER and argument <= _DIRECT_MAX:
        if argument not in _SIMPLE:
            raise DecodeError(WireErrorCode.BAD_TYPE, at, f"simple value {argument}")
        return 0
    width = _WIDTHS.get(argument)
    if width is None or (kind == OTHER and width == 1):
        raise DecodeError(WireErrorCode.NON_CANONICAL, at, f"additional information {argument}")
    return width


def _read(kind: int, data: Octets, at: int, behind: int) -> int:
    """The argument behind a head, which is as short as it can be."""
    encoded = bytes([data[index] for index in range(at + 1, behind)])
    width = len(encoded)
    if kind == OTHER:
        if width and not _is_shortest_float(encoded):
            raise DecodeError(WireErrorCode.NON_CANONICAL, at, "a float in too many bytes")
        return 0
    argument = int.from_bytes(encoded, "big")
    if argument < _LEAST[width]:
        raise DecodeError(WireErrorCode.NON_CANONICAL, at, f"{argument} in {width} bytes")
    return argument


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


def _too_much(at: int, message: str) -> DecodeError:
    return DecodeError(WireErrorCode.LIMIT_EXCEEDED, at, message)

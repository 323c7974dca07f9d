"""Values straight to CBOR: the bytes that `to_value` and `cbor.encode` give, in one pass.

Recording is paid for by every call in production.  So for each class the bytes between the values
of its fields are made once, and only the values are written; what is not frequent goes the long
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import Any

from culm.capture.values import MARK, Special, class_form, to_value
from culm.wire import cbor
from culm.wire.cbor import ARRAY, BYTES, MAP, TEXT, encode_head

__all__ = ["DOUBLE", "UINT_MAX", "Encoder", "encode_float", "encode_int", "encode_map"]

Write = Callable[[Any], bytes]

UINT_MAX = 1 << 64
DOUBLE = b"\xfb"
"""What stands in front of the 64 bits of a number with a point."""

_pack = Struct(">d").pack
# A number from 1 on that is no multiple of 2^-23 does not fit into 32 bits.
_TO_SINGLE = float(1 << 23)
_NOTHING = b"\xf6"
_TUPLE = cbor.encode({MARK: "tuple", "items": []})[:-1]
_SMALL = [encode_head(0, number) for number in range(1 << 10)]


def _text(value: str) -> bytes:
    encoded = value.encode()
    return encode_head(TEXT, len(encoded)) + encoded


def _in_order(names: Iterable[str]) -> list[str]:
    """As canonical maps have them."""
    return sorted(names, key=lambda name: (len(name.encode()), name.encode()))


def encode_map(value: Mapping[str, Any], encode: Callable[[Any], bytes]) -> bytes:
    """The encoding of a mapping as a map, whatever its keys are."""
    return b"".join([front + encode(value[name]) for front, name in _fronts(tuple(value))])


@lru_cache(maxsize=4096)
def _fronts(names: tuple[str, ...]) -> list[tuple[bytes, str]]:
    """What a map with these keys has in front of each value, in order."""
    ordered = _in_order(names)
    fronts = [_text(each) for each in ordered]
    fronts[0] = encode_head(MAP, len(names)) + fronts[0]
    return list(zip(fronts, ordered, strict=True))


class Encoder:
    """Encodes values.

    special: see `culm.capture.values.to_value`.
    """

    def __init__(self, special: Special) -> None:
        self._special = special
        self._writers: dict[type, Write] = {
            type(None): lambda _: _NOTHING,
            bytes: _write_bytes,
            bool: _write_bool,
            float: encode_float,
            int: encode_int,
            str: _text,
            list: self._write_list,
            tuple: lambda value: _TUPLE + self._write_list(value),
        }

    def encode(self, value: object) -> bytes:
        """The encoding of a value."""
        kind = type(value)
        write = self._writers.get(kind)
        if write is None:
            write = self._writers[kind] = self._writer_of(kind)
        return write(value)

    def _write_list(self, value: Sequence[Any]) -> bytes:
        return encode_head(ARRAY, len(value)) + b"".join(map(self.encode, value))

    def _writer_of(self, kind: type) -> Write:
        if issubclass(kind, Enum):
            return _enum_writer(self._long_way)
        form = class_form(kind)
        if form is None:
            return self._long_way
        return self._record_writer(*form)

    def _long_way(self, value: object) -> bytes:
        return cbor.encode(to_value(value, self._special))

    def _record_writer(self, name: str, part: str, names: Sequence[str], plain: bool) -> Write:
        """What writes records, with the bytes in front of each field."""
        if not plain or not names:
            return self._long_way
        head = b"\xa2" + _text(MARK) + _text(name) + _text(part)
        (first, name_of_first), *rest = _fronts(tuple(names))
        encode = self.encode
        fronts = [head + first, *(front for front, _ in rest)]
        parts_of = attrgetter(name_of_first, *(each for _, each in rest))
        if not rest:
            return lambda value: fronts[0] + encode(parts_of(value))

        def write(value: Any) -> bytes:
            written = map(encode, parts_of(value))
            return b"".join(chain.from_iterable(zip(fronts, written, strict=True)))

        return write


def _write_bytes(value: bytes) -> bytes:
    return encode_head(BYTES, len(value)) + value


def _write_bool(value: bool) -> bytes:
    return b"\xf5" if value else b"\xf4"


def encode_float(value: float) -> bytes:
    """The encoding of a number with a point; most times need all of its bits."""
    if 1.0 <= value < UINT_MAX and value * _TO_SINGLE % 1.0:
        return DOUBLE + _pack(value)
    return cbor.encode(value)


def encode_int(value: int) -> bytes:
    """The encoding of an integer."""
    if 0 <= value < 1 << 10:
        return _SMALL[value]
    if 0 <= value < UINT_MAX:
        return cbor.encode(value)
    return cbor.encode(to_value(value))


def _enum_writer(write: Write) -> Write:
    """Members are few, and always the same."""
    members: dict[Any, bytes] = {}

    def write_member(value: Any) -> bytes:
        found = members.get(value)
        if found is None:
            found = members[value] = write(value)
        return found

    return write_member

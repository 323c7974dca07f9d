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
from typing import Any, cast

from culm.capture.values import MARK, Special, class_form, constants_of, to_value
from culm.kernels import cbor as _kernel
from culm.wire import cbor
from culm.wire.cbor import ARRAY, BYTES, MAP, TEXT, encode_head

__all__ = ["DOUBLE", "UINT_MAX", "Encoder", "encode_float", "encode_map", "encode_uint"]

Write = Callable[[Any], bytes]

UINT_MAX = 1 << 64
DOUBLE = b"\xfb"
"""What stands in front of the 64 bits of a number with a point."""

_pack = Struct(">d").pack
_LARGE = 1 << 12
# A number from 1 on that is no multiple of 2^-23 does not fit into 32 bits.
_TO_SINGLE = float(1 << 23)
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
        self._writers = _Writers(self._writer_of)
        self._writers |= {
            type(None): {None: b"\xf6"}.__getitem__,
            bytes: _write_bytes,
            bool: {False: b"\xf4", True: b"\xf5"}.__getitem__,
            float: encode_float,
            int: _INTS.__getitem__,
            str: _text,
            list: self._write_list,
            tuple: lambda value: _TUPLE + self._write_list(value),
        }
        self._records: dict[type, tuple[Sequence[bytes], Callable[[Any], tuple[Any, ...]]]] = {}

    def encode(self, value: object) -> bytes:
        """The encoding of a value."""
        return self._writers[type(value)](value)

    def pieces(self, value: object) -> Sequence[bytes]:
        """The same in pieces: large bytes, or those in a field, are not copied."""
        kind = type(value)
        if kind is bytes and len(data := cast(bytes, value)) >= _LARGE:
            return encode_head(BYTES, len(data)), data
        if kind in self._records:
            fronts, parts_of = self._records[kind]
            parts = parts_of(value)
            if any(type(each) is bytes and len(each) >= _LARGE for each in parts):
                written = zip(map(_alone, fronts), map(self.pieces, parts), strict=True)
                return [*chain.from_iterable(chain.from_iterable(written))]
        return (self.encode(value),)

    def _write_list(self, value: Sequence[Any]) -> bytes:
        writers = self._writers
        written = [writers[type(each)](each) for each in value]
        return encode_head(ARRAY, len(value)) + b"".join(written)

    def _writer_of(self, kind: type) -> Write:
        if issubclass(kind, Enum):
            return self._member_writer()
        form = class_form(kind)
        if form is None:
            return self._long_way
        return self._record_writer(kind, *form)

    def _member_writer(self) -> Write:
        """Members are few, always the same, and slow to hash."""
        known: dict[str, bytes] = {}

        def write(value: Any) -> bytes:
            found = known.get(value.name)
            if found is None:
                found = known[value.name] = self._long_way(value)
            return found

        return write

    def _constant_writer(self, kind: type) -> Write:
        """Objects that a module keeps under a name are few, and written by that name."""
        known = [(each, self._long_way(each)) for _, each in constants_of(kind)]

        def write(value: Any) -> bytes:
            for each, encoded in known:
                if each is value:
                    return encoded
            return self._long_way(value)

        return write

    def _long_way(self, value: object) -> bytes:
        return cbor.encode(to_value(value, self._special))

    def _record_writer(
        self, kind: type, name: str, part: str, names: Sequence[str], plain: bool
    ) -> Write:
        """What writes records, with the bytes in front of each field."""
        if not plain or not names:
            return self._constant_writer(kind) if constants_of(kind) else self._long_way
        head = b"\xa2" + _text(MARK) + _text(name) + _text(part)
        (first, name_of_first), *rest = _fronts(tuple(names))
        fronts = [head + first, *(front for front, _ in rest)]
        parts_of = attrgetter(name_of_first, *(each for _, each in rest))
        if not rest:
            only = parts_of
            self._records[kind] = fronts, lambda value: (only(value),)
            return lambda value: fronts[0] + self.encode(only(value))
        self._records[kind] = fronts, parts_of
        other = self.encode

        def write(value: Any) -> bytes:
            return _kernel.fields(fronts, parts_of(value), other)

        return write


def _alone(front: bytes) -> tuple[bytes]:
    return (front,)


def _write_bytes(value: bytes) -> bytes:
    return encode_head(BYTES, len(value)) + value


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


class _Writers(dict[type, Write]):
    """What writes values, by their class; what is not there is made, and kept."""

    def __init__(self, make: Callable[[type], Write]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, kind: type) -> Write:
        found = self[kind] = self._make(kind)
        return found


class _Ints(dict[int, bytes]):
    """The encodings of small integers, and of all others when they are asked for."""

    def __missing__(self, key: int) -> bytes:
        return encode_int(key)


_INTS = _Ints(enumerate(_SMALL))
encode_uint = _INTS.__getitem__
"""The encoding of an integer that is rarely large."""

"""Values straight to CBOR: the bytes that `to_value` and `cbor.encode` give, in one pass.

Recording is paid for by every call in production.  So for each class the bytes between the values
of its fields are made once, and only the values are written; what is not frequent goes the long
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, cast

from culm.capture.values import MARK, Special, class_form, constants_of, to_value
from culm.kernels import cbor as _kernel
from culm.machines.memory import size_of
from culm.wire import cbor
from culm.wire.cbor import ARRAY, BYTES, MAP, TEXT, encode_head

__all__ = ["Encoder", "fronts_of_map"]

Write = Callable[[Any], bytes]

_UINT_MAX = 1 << 64
_LARGE = 1 << 12
_TUPLE = cbor.encode({MARK: "tuple", "items": []})[:-1]
_SMALL = [encode_head(0, number) for number in range(1 << 10)]


def _text(value: str) -> bytes:
    encoded = value.encode()
    return encode_head(TEXT, len(encoded)) + encoded


def _in_order(names: Iterable[str]) -> list[str]:
    """As canonical maps have them."""
    return sorted(names, key=lambda name: (len(name.encode()), name.encode()))


@lru_cache(maxsize=4096)
def fronts_of_map(names: tuple[str, ...]) -> list[tuple[bytes, str]]:
    """What a map with these keys has in front of each value, in order."""
    ordered = _in_order(names)
    fronts = [_text(each) for each in ordered]
    if fronts:
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
            float: cbor.encode,
            int: _INTS.__getitem__,
            str: _text,
            list: self._write_list,
            tuple: lambda value: _TUPLE + self._write_list(value),
        }
        self._records: dict[type, tuple[Sequence[bytes], Callable[[Any], tuple[Any, ...]]]] = {}

    def encode(self, value: object) -> bytes:
        """The encoding of a value."""
        return self._writers[type(value)](value)

    def any_large(self, values: Sequence[Any]) -> bool:
        """Whether one of them is large, or has large bytes in a field."""
        if max(map(size_of, values)) >= _LARGE:
            return True
        records = self._records
        if records.keys().isdisjoint(map(type, values)):
            return False
        found = (records[type(each)][1](each) for each in values if type(each) in records)
        return any(map(self.any_large, found))

    def pieces(self, value: object) -> Sequence[bytes]:
        """The same in pieces: large bytes, or those in a field, are not copied."""
        kind = type(value)
        if kind is bytes and len(data := cast(bytes, value)) >= _LARGE:
            return encode_head(BYTES, len(data)), data
        if kind in self._records:
            fronts, parts_of = self._records[kind]
            parts = parts_of(value)
            if self.any_large(parts):
                written = zip(map(_alone, fronts), map(self.pieces, parts), strict=True)
                return [*chain.from_iterable(chain.from_iterable(written))]
        return (self.encode(value),)

    def _write_list(self, value: Sequence[Any]) -> bytes:
        if not value:
            return b"\x80"
        return _kernel.fields(_fronts_of_items(len(value)), tuple(value), self.encode)

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
            found = known.get(value._name_)  # `name` is looked up by code of the class
            if found is None:
                found = known[value._name_] = self._long_way(value)
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
        (first, name_of_first), *rest = fronts_of_map(tuple(names))
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


def _fronts_of_items(count: int) -> list[bytes]:
    """What stands before each item of an array."""
    return _FEW_ITEMS[count] if count < len(_FEW_ITEMS) else _fronts_of_many(count)


def _fronts_of_many(count: int) -> list[bytes]:
    return [encode_head(ARRAY, count), *[b""] * (count - 1)]


_FEW_ITEMS = [_fronts_of_many(count) for count in range(8)]


def _alone(front: bytes) -> tuple[bytes]:
    return (front,)


def _write_bytes(value: bytes) -> bytes:
    return encode_head(BYTES, len(value)) + value


def encode_int(value: int) -> bytes:
    """The encoding of an integer."""
    if 0 <= value < 1 << 10:
        return _SMALL[value]
    if 0 <= value < _UINT_MAX:
        return encode_head(0, value)
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

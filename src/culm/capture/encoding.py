"""How values are written as CBOR: the bytes that `to_value` and `cbor.encode` give, in one pass.

Recording is paid for by every call in production.  So for each class the bytes between the values
of its fields are made once, and `culm.kernels.cbor.Records` writes the values; the rest goes
the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import EnumType
from functools import lru_cache
from operator import attrgetter
from typing import Any

from culm.capture.values import MARK, Special, class_form, constants_of, to_value
from culm.kernels import cbor as _kernel
from culm.wire import cbor
from culm.wire.cbor import MAP, TEXT, encode_head

__all__ = ["Forms", "encode", "fronts_of_map"]

Encode = Callable[[Any], bytes]
_TUPLE = cbor.encode({MARK: "tuple", "items": []})[:-1]


def _text(value: str) -> bytes:
    encoded = value.encode()
    return encode_head(TEXT, len(encoded)) + encoded


@lru_cache(maxsize=4096)
def fronts_of_map(names: tuple[str, ...]) -> list[tuple[bytes, str]]:
    """The bytes of a map with these keys in front of each value, in the order of canonical maps."""
    ordered = sorted(names, key=lambda name: (len(name.encode()), name.encode()))
    fronts = [_text(each) for each in ordered]
    if fronts:
        fronts[0] = encode_head(MAP, len(names)) + fronts[0]
    return list(zip(fronts, ordered, strict=True))


class Forms(dict[type, Any]):
    """How values are written, by their class; missing forms are made, and kept.

    special: see `culm.capture.values.to_value`.
    """

    def __init__(self, special: Special) -> None:
        super().__init__({list: b"", tuple: _TUPLE, float: cbor.encode, str: _text})
        self._special = special

    def __missing__(self, kind: type) -> Any:
        found = self[kind] = self._form_of(kind)
        return found

    def _form_of(self, kind: type) -> Any:
        if isinstance(kind, EnumType):
            return self._by_identity(kind.__members__.values())
        record = class_form(kind)
        if record is None:
            return self._long_way
        name, part, names, plain = record
        if plain and names:
            return _form_of_record(name, part, names)
        # Objects that a module keeps under a name are few, and written by that name.
        constants = [each for _, each in constants_of(kind)]
        return self._by_identity(constants) if constants else self._long_way

    def _by_identity(self, known: Iterable[Any]) -> tuple[tuple[tuple[Any, bytes], ...], Encode]:
        return tuple((each, self._long_way(each)) for each in known), self._long_way

    def _long_way(self, value: object) -> bytes:
        return cbor.encode(to_value(value, self._special))


def encode(value: object, forms: Forms) -> bytes:
    """The encoding of a value."""
    records = _kernel.Records(forms, None, 0, 1 << 62)
    records.note(None, [b""], (value,), b"")
    return b"".join(records.take())


def _form_of_record(
    name: str, part: str, names: Sequence[str]
) -> tuple[list[bytes], Callable[[Any], Any]]:
    """The bytes in front of each field, and a function that gives the fields of a record."""
    head = b"\xa2" + _text(MARK) + _text(name) + _text(part)
    fronts, ordered = map(list, zip(*fronts_of_map(tuple(names)), strict=True))
    return [head + fronts[0], *fronts[1:]], attrgetter(*ordered)

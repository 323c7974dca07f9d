"""Canonical CBOR: the specification of `culm.kernels._cbor`, in plain code.

It takes numbers, byte strings, text, arrays, maps with text as keys, floats, booleans and null,
each in its shortest form, and the keys of a map in ascending order.  It reserves no memory for
sizes that are merely declared.  Source: RFC 8949, sections 3 and 4.2.1.

A fault in the data is reported as a negative number in the place of an end, after the index of the
byte at which it was seen; `culm.wire.cbor` turns it into an error.  Items are read in their order,
so the fault is the first one.  A mistake in the call raises ``ValueError``: a negative index, or a
depth of nested arrays and maps that is not from 0 to `DEPTH_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite as _isfinite
from struct import Struct
from typing import Any

from culm.kernels.noting import noted_calls as noted_calls

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
_LEAP_MAX = 1 << 53  # of a clock, in microseconds: 285 years


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


class Records:
    """Records that wait to be taken, one after the other.

    forms: how values are written, by their class: those that are no byte string, no text, no
        integer from 0 to 2^63 - 1, no float that needs 64 bits, no truth value and not
        ``None``.

        - A list of bytes and a function: the bytes in front of each field, and a function that
          gives a value's fields (several in a tuple, one as it is), which are written in turn.
        - Pairs in a tuple and a function: the few objects that are always the same, each with
          its encoding, and a function that encodes the others.
        - Bytes: those, and then an array of the value's items.
        - A function: encodes the value.

    clock: the time in seconds; ``None`` for none.
    size_max: the number of bytes from which the records should be taken.
    piece_min: byte strings of that size are not copied.
    """

    def __init__(
        self,
        forms: Mapping[type, Any],
        clock: Callable[[], float] | None,
        size_max: int,
        piece_min: int,
    ) -> None:
        self._forms, self._clock = forms, clock
        self._size_max, self._piece_min = size_max, piece_min
        self._pieces: list[bytes] = []
        self._before, self._rest = 0, bytearray()  # bytes in pieces, and those in none yet
        self._last = 0.0 if clock is None else float(clock())

    def __len__(self) -> int:
        return self._before + len(self._rest)

    def micros(self) -> int:
        """Microseconds since this was last asked or written; 0 if the clock went back."""
        if self._clock is None:
            return 0
        before, self._last = self._last, float(self._clock())
        leap = (self._last - before) * 1e6 + 0.5
        return int(min(leap, _LEAP_MAX)) if leap >= 1 else 0

    def put(self, record: bytes) -> bool:
        """Add a record; returns whether the records should be taken."""
        _check_bytes(record)
        self._write_raw(record)
        return len(self) >= self._size_max

    def note(
        self, head: bytes | None, fronts: list[bytes], values: tuple[Any, ...], tail: bytes
    ) -> bool:
        """Add a record: its head and the microseconds, its fields with their fronts, and its tail.

        Without a head, no time is written.  Returns whether the records should be taken.  Whatever
        a form or the clock raises, nothing has been added.
        """
        if type(fronts) is not list or type(values) is not tuple:
            raise TypeError("a list and a tuple")
        _check_bytes(tail)
        micros = 0
        if head is not None:
            _check_bytes(head)
            micros = self.micros()
        if len(fronts) != len(values):
            raise ValueError("as many values as fronts")
        begun, size = len(self._pieces), len(self._rest)
        try:
            if head is not None:
                self._write_raw(head + _encoded_head(UNSIGNED, micros))
            self._write_fields(fronts, values)
            self._write_raw(tail)
        except BaseException:
            self._forget(begun, size)
            raise
        return len(self) >= self._size_max

    def take(self) -> list[bytes]:
        """The records, in pieces, of which none is empty; none waits then."""
        self._cut()
        taken, self._pieces, self._before = self._pieces, [], 0
        return taken

    def _cut(self) -> None:
        if self._rest:
            self._add_piece(bytes(self._rest))
            self._rest.clear()

    def _add_piece(self, data: bytes) -> None:
        self._pieces.append(data)
        self._before += len(data)

    def _forget(self, begun: int, size: int) -> None:
        """Take back a record; before it there were `begun` pieces, and `size` bytes in none."""
        if len(self._pieces) > begun:
            self._rest = bytearray(self._pieces[begun])
            self._before -= sum(map(len, self._pieces[begun:]))
            del self._pieces[begun:]
        del self._rest[size:]

    def _write_raw(self, data: bytes) -> None:
        if len(data) >= self._piece_min:
            self._cut()
            self._add_piece(data)
        else:
            self._rest += data

    def _write_fields(self, fronts: list[bytes], values: tuple[Any, ...]) -> None:
        for front, value in zip(fronts, values, strict=True):
            _check_bytes(front)
            self._write_raw(front)
            self._write(value)

    def _write(self, value: Any) -> None:
        if value is None or value is True or value is False:
            self._write_raw({None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value])
        elif type(value) is bytes:
            self._write_raw(_encoded_head(BYTES, len(value)))
            self._write_raw(value)
        elif type(value) is int and 0 <= value < 1 << 63:
            self._write_raw(_encoded_head(UNSIGNED, value))
        elif type(value) is float and _needs_64_bits(value):
            self._write_raw(b"\xfb" + _FLOATS[8].pack(value))
        elif type(value) is str and (text := _utf8(value)) is not None:
            self._rest += _encoded_head(TEXT, len(text)) + text
        else:
            self._write_by_form(value, self._forms[type(value)])

    def _write_by_form(self, value: Any, form: Any) -> None:
        if _is(form, bytes):
            items = tuple(value)
            self._write_raw(form + _encoded_head(ARRAY, len(items)))
            for each in items:
                self._write(each)
            return
        if not _is(form, tuple):
            self._write_raw(_check_bytes(form(value)))
            return
        first, second = form
        if _is(first, list):
            parts = second(value)
            self._write_fields(first, parts if len(first) != 1 else (parts,))
            return
        known = next((encoded for each, encoded in first if each is value), None)
        self._write_raw(_check_bytes(second(value)) if known is None else known)


def _is(value: Any, kind: type) -> bool:
    return type(value) is kind


def _check_bytes(data: Any) -> bytes:
    if type(data) is not bytes:
        raise TypeError(f"Expected bytes, got {type(data).__name__}")
    return data


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

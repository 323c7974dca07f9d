"""XENC: the specification of `culm.kernels._xenc`, in plain code.

XENC is Bencode with timestamps: integers ``i-12e``, octet strings ``5:hello``, lists
``l...e``, dictionaries ``d<octets><value>...e`` and timestamps
``t<seconds>.<nanoseconds>e``.  Values are int, bytes, list, dict with bytes as keys, and
for a timestamp a tuple of two ints.

Neither function recurses.  Bytes that do not decode raise ``ValueError(code, offset,
message)``, where `code` is the number of a `culm.wire.errors.WireErrorCode`.

Source: aji/ircd-oxide, manual/dev-xenc.md and src/xenc.rs.
"""

# pyright: standard
# In strict mode Pyright loses the type of a container's items in a loop: a list of anything.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["decode", "encode"]

_TRUNCATED = 1
_NON_CANONICAL = 2
_BAD_TYPE = 3
_BAD_VALUE = 6
_TRAILING_DATA = 7
_LIMIT_EXCEEDED = 8

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DIGITS_MAX = 19
_NANOSECONDS_MAX = 999_999_999
_DIGITS = frozenset(b"0123456789")
_END = object()  # marks the end of a list or dictionary among the values to be encoded


def encode(value: Any, depth_max: int) -> bytes:
    """The canonical encoding of `value`: keys sorted bytewise, numbers without zeros in front.

    Raises `TypeError` for values without an encoding, and `ValueError` for numbers out of range
    and for lists and dictionaries nested more than `depth_max` deep.
    """
    out = bytearray()
    todo: list[Any] = [value]
    depth = 0
    while todo:
        value = todo.pop()
        if value is _END:
            depth -= 1
            out += b"e"
        elif isinstance(value, bytes):
            out += b"%d:%b" % (len(value), value)
        elif isinstance(value, int) and not isinstance(value, bool):
            out += b"i%de" % _checked_int(value)
        elif isinstance(value, tuple):
            out += b"t%d.%de" % _checked_time(value)
        elif isinstance(value, list | dict):
            depth += 1
            if depth > depth_max:
                raise ValueError(f"nested more than {depth_max} deep")
            todo.append(_END)
            if isinstance(value, list):
                out += b"l"
                todo += reversed(value)
            else:
                out += b"d"
                for key in _sorted_keys(value):
                    todo += (value[key], key)
        else:
            raise TypeError(f"no XENC for {type(value).__name__}")
    return bytes(out)


def decode(
    data: bytes, depth_max: int, values_max: int, timestamp: Callable[[int, int], Any]
) -> Any:
    """The one value of which `data` is an encoding; keys may come in any order.

    `depth_max` bounds the nesting, `values_max` the number of values (keys not counted),
    and with them the memory: under 300 bytes a value besides the octets.  `timestamp`
    makes a timestamp of its seconds and nanoseconds.
    """
    size = len(data)
    stack: list[tuple[Any, bytes | None]] = []  # the containers around `container`
    container: list[Any] | dict[Any, Any] | None = None
    key: bytes | None = None
    values = offset = 0
    value: Any
    while True:
        if offset >= size:
            _fail(_TRUNCATED, size, "more bytes are needed")
        first = data[offset]
        if first == 0x65 and container is not None and key is None:  # e
            value = container
            container, key = stack.pop()
            offset += 1
        elif isinstance(container, dict) and key is None:
            if first not in _DIGITS:
                _fail(_BAD_TYPE, offset, "a key must be an octet string")
            start = offset
            key, offset = _octets(data, offset)
            if key in container:
                _fail(_BAD_VALUE, start, "a key comes twice")
            continue
        else:
            values += 1
            if values > values_max:
                _fail(_LIMIT_EXCEEDED, offset, f"more than {values_max} values")
            if first == 0x6C or first == 0x64:  # l, d
                if len(stack) >= depth_max:
                    _fail(_LIMIT_EXCEEDED, offset, f"nested more than {depth_max} deep")
                stack.append((container, key))
                container, key = ([] if first == 0x6C else {}), None
                offset += 1
                continue
            value, offset = _scalar(data, offset, timestamp)
        if container is None:
            break
        if isinstance(container, dict):
            container[key] = value
            key = None
        else:
            container.append(value)
    if offset != size:
        _fail(_TRAILING_DATA, offset, "bytes after the value")
    return value


def _scalar(data: bytes, offset: int, timestamp: Callable[[int, int], Any]) -> tuple[Any, int]:
    """The value at `offset`, which is no container, and the offset after it."""
    first = data[offset]
    if first in _DIGITS:
        return _octets(data, offset)
    if first == 0x69:  # i
        return _int(data, offset + 1, 0x65)
    if first != 0x74:  # t
        _fail(_BAD_TYPE, offset, "no value starts with this byte")
    seconds, offset = _int(data, offset + 1, 0x2E)
    start = offset
    if data[offset : offset + 1] == b"-":
        _fail(_BAD_VALUE, offset, "nanoseconds have no sign")
    nanoseconds, offset = _int(data, offset, 0x65)
    if nanoseconds > _NANOSECONDS_MAX:
        _fail(_BAD_VALUE, start, "more nanoseconds than a second has")
    return timestamp(seconds, nanoseconds), offset


def _fail(code: int, offset: int, message: str) -> NoReturn:
    raise ValueError(code, offset, message)


def _int(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The number at `start` that ends with the byte `end`, and the offset after it."""
    offset = digits = start + (data[start : start + 1] == b"-")
    while offset < len(data) and data[offset] in _DIGITS:
        offset += 1
        if offset - digits > _DIGITS_MAX:
            _fail(_BAD_VALUE, start, "a number of more than 64 bits")
    if offset == len(data):
        _fail(_TRUNCATED, offset, "more bytes are needed")
    if data[offset] != end or offset == digits:
        _fail(_BAD_VALUE, offset, "not a byte of a number")
    if data[digits] == 0x30 and (offset - start > 1):
        _fail(_NON_CANONICAL, start, "zeros in front of a number, or minus zero")
    value = int(data[start:offset])
    if not _INT_MIN <= value <= _INT_MAX:
        _fail(_BAD_VALUE, start, "a number of more than 64 bits")
    return value, offset + 1


def _octets(data: bytes, start: int) -> tuple[bytes, int]:
    """The octet string at `start`, where there is a digit, and the offset after it."""
    size, offset = _int(data, start, 0x3A)
    if size > len(data) - offset:
        _fail(_TRUNCATED, len(data), "more bytes are needed")
    return data[offset : offset + size], offset + size


def _checked_int(value: int) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValueError("a number of more than 64 bits")
    return value


def _checked_time(value: tuple[Any, ...]) -> tuple[int, int]:
    if len(value) != 2 or not all(type(part) is int for part in value):
        raise TypeError("a timestamp is a tuple of two ints")
    seconds, nanoseconds = value
    if not 0 <= nanoseconds <= _NANOSECONDS_MAX:
        raise ValueError("nanoseconds out of range")
    return _checked_int(seconds), nanoseconds


def _sorted_keys(value: dict[Any, Any]) -> list[bytes]:
    """The keys from last to first."""
    for key in value:
        if not isinstance(key, bytes):
            raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    return sorted(value, reverse=True)

"""VarU64: the specification of `culm.kernels._varu64`, in plain code.

A first byte below 248 is the number itself; 248..255 announce 1..8 further bytes, which
hold it big-endian.  The canonical encoding of a number is its shortest one.  Source:
AljoschaMeyer/varu64.

Kernels know nothing of the rest of culm: a fault in the data is a negative number in the
result, which `culm.wire.varu64` turns into an error.  Wrong calls raise: ``OverflowError`` for
a number that is not 0..2**64-1, ``TypeError`` for anything but an integer or a buffer,
``BufferError`` for a buffer that is not contiguous,
``ValueError`` for a negative offset or count.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from operator import index
from typing import NoReturn, Protocol

Buffer = bytes | bytearray | memoryview


class Decode(Protocol):
    """The decoder that `decoder` makes."""

    def __call__(
        self, data: Buffer, offset: int = 0, *, canonical: bool = False
    ) -> tuple[int, int]: ...


# Faults: there are too few bytes; the encoding is longer than needed.
TRUNCATED = -1
NON_CANONICAL = -2

_MAX = 2**64 - 1
_WIDE = 248


def size(value: int) -> int:
    """The size of the canonical encoding of `value`: 1..9 bytes."""
    return len(encode(value))


def encode(value: int) -> bytes:
    """The canonical encoding of `value`."""
    value = index(value)
    if not 0 <= value <= _MAX:
        raise OverflowError(f"a VarU64 is 0..2**64-1, not {value}")
    if value < _WIDE:
        return bytes([value])
    octets = (value.bit_length() + 7) // 8
    return bytes([_WIDE - 1 + octets]) + value.to_bytes(octets, "big")


def decode(data: Buffer, offset: int, canonical: bool) -> tuple[int, int]:
    """The number that starts at `offset`, and where it ends.

    Instead of the end there is a fault, and 0 instead of the number, if the bytes are too
    few or, if only a `canonical` encoding will do, too many.
    """
    octets = _octets(data, offset)
    if offset >= len(octets):
        return 0, TRUNCATED
    first = octets[offset]
    if first < _WIDE:
        return first, offset + 1
    end = offset + 1 + first - (_WIDE - 1)
    if end > len(octets):
        return 0, TRUNCATED
    value = int.from_bytes(octets[offset + 1 : end], "big")
    if canonical and size(value) != end - offset:
        return 0, NON_CANONICAL
    return value, end


def decoder(fail: Callable[[Buffer, int, int], NoReturn]) -> Decode:
    """`decode` for those who want an error: ``fail(data, offset, fault)`` is to raise it.

    The result is called for every number that a protocol reads, so that it should not be
    wrapped once more.
    """

    def decode_or_fail(
        data: Buffer, offset: int = 0, *, canonical: bool = False
    ) -> tuple[int, int]:
        value, end = decode(data, offset, canonical)
        if end < 0:
            fail(data, offset, end)
        return value, end

    return decode_or_fail


def encode_many(values: Iterable[int]) -> bytes:
    """The encodings of `values`, one after another.  Fastest for an ``array('Q')``."""
    return b"".join(map(encode, values))


def decode_many(
    data: Buffer, offset: int, count: int | None, canonical: bool
) -> tuple[list[int], int, int]:
    """`count` numbers from `offset` on, where they end, and 0.

    Without a count: all that there are up to the end of the data.  At a fault: the
    numbers before it, where the one at fault starts, and the fault.
    """
    octets = _octets(data, offset)
    if count is not None and count < 0:
        raise ValueError("count is negative")
    values: list[int] = []
    while offset != len(octets) if count is None else len(values) < count:
        value, end = decode(octets, offset, canonical)
        if end < 0:
            return values, offset, end
        values.append(value)
        offset = end
    return values, offset, 0


def decode_array(
    data: Buffer, offset: int, count: int | None, canonical: bool
) -> tuple[array[int], int, int]:
    """Like `decode_many`, with the numbers in an ``array('Q')``."""
    values, end, fault = decode_many(data, offset, count, canonical)
    return array("Q", values), end, fault


def _octets(data: Buffer, offset: int) -> bytes | memoryview:
    if offset < 0:
        raise ValueError("offset is negative")
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous")
    return view.cast("B")

"""VarU64: numbers of 0..2**64-1 in 1..9 bytes, the small ones in one.

A first byte below 248 is the number itself; 248..255 announce 1..8 further bytes, which
hold it big-endian.  The shortest encoding of a number is its canonical one: encoders always
give that, and `canonical` decoding insists on it.  Source: AljoschaMeyer/varu64.

Numbers out of range are refused with ``OverflowError``.  Data may be any contiguous
buffer (``BufferError`` otherwise); offsets count its bytes, and a negative one is a
``ValueError``.  Bytes that are not an encoding raise

- `Truncated`, with the index of the first byte that is missing, which is the data's size,
- `DecodeError` (``NON_CANONICAL``), with the index of the number's first byte.
"""

from __future__ import annotations

from array import array
from typing import NoReturn

from culm.buffer import Buffer
from culm.kernels import varu64 as _kernel
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

MAX = 2**64 - 1
FIRST_LONG = 248
"""First bytes from here on announce further bytes."""


def _fail(data: Buffer, offset: int, fault: int) -> NoReturn:
    if fault == _kernel.TRUNCATED:
        raise Truncated(memoryview(data).nbytes, "a VarU64 is cut short")
    raise DecodeError(WireErrorCode.NON_CANONICAL, offset, "a VarU64 is longer than needed")


#: ``size(value)``: how many bytes the encoding of `value` takes.
size = _kernel.size

#: ``encode(value)``: the canonical encoding of `value`.
encode = _kernel.encode

#: ``encode_many(values)``: the encodings of `values`, one after another; fastest for an
#: ``array('Q')``.
encode_many = _kernel.encode_many

#: ``decode(data, offset=0, *, canonical=False)``: the number that starts at `offset`, and
#: the index of the byte after it.
decode = _kernel.decoder(_fail)


def decode_many(
    data: Buffer, offset: int = 0, count: int | None = None, *, canonical: bool = False
) -> tuple[list[int], int]:
    """`count` numbers from `offset` on, and the index of the byte after them.

    Without a count: all numbers up to the end of the data.  Memory grows with the data,
    not with the count.
    """
    values, end, fault = _kernel.decode_many(data, offset, count, canonical)
    if fault:
        _fail(data, end, fault)
    return values, end


def decode_array(
    data: Buffer, offset: int = 0, count: int | None = None, *, canonical: bool = False
) -> tuple[array[int], int]:
    """Like `decode_many`, several times as fast, with the numbers in an ``array('Q')``."""
    values, end, fault = _kernel.decode_array(data, offset, count, canonical)
    if fault:
        _fail(data, end, fault)
    return values, end

"""STLV: a type, a length and that many bytes (AljoschaMeyer/stlv).

The encoding is the concatenation of the type as a VarU64, the length of the value in
bytes as a VarU64, and the value.  It is canonical if both VarU64s are.
"""

from __future__ import annotations

from culm.buffer import Buffer
from culm.wire import varu64
from culm.wire.errors import DecodeError, Truncated, WireErrorCode


def encode(type: int, value: Buffer) -> bytes:
    """Encode canonically; `type` is in ``0 .. 2**64 - 1``."""
    return b"".join((varu64.encode(type), varu64.encode(memoryview(value).nbytes), value))


def decode(
    data: Buffer, offset: int = 0, *, canonical: bool = True, size_max: int = varu64.MAX
) -> tuple[int, bytes, int]:
    """Decode the item at `offset`: type, value, and the index just after it.

    `size_max` bounds the length that is declared, so that a value too long is refused
    before any of it has arrived.

    Raises `Truncated`, or `DecodeError` with ``NON_CANONICAL`` (only if `canonical`) or
    ``LIMIT_EXCEEDED``.
    """
    type, length_at = varu64.decode(data, offset, canonical=canonical)
    size, start = varu64.decode(data, length_at, canonical=canonical)
    if size > size_max:
        raise DecodeError(
            WireErrorCode.LIMIT_EXCEEDED, length_at, f"value of {size} bytes, at most {size_max}"
        )
    end = start + size
    if end > len(data):
        raise Truncated(len(data))
    return type, bytes(data[start:end]), end

"""Functions that cut bytes into messages, for `Codec.messages`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from culm.wire import cbor
from culm.wire.errors import DecodeError

_SIZE_MAX = 1 << 24


def lines(data: bytes) -> list[bytes]:
    """Lines, each with its end."""
    return data.splitlines(keepends=True)


def cbor_items(data: bytes) -> list[bytes]:
    """Consecutive items of CBOR; from the first byte that begins none, the rest together."""
    return _cut(data, _cbor_size)


def sized(header_size: int, size_at: slice, extra: int = 0) -> Callable[[bytes], list[bytes]]:
    """Messages with a header, whose bytes `size_at`, plus `extra`, count the bytes after it."""

    def size_of(data: bytes) -> int | None:
        if len(data) < header_size:
            return None
        return header_size + int.from_bytes(data[size_at], "big") + extra

    return measured(size_of)


def measured(size_of: Callable[[bytes], int | None]) -> Callable[[bytes], list[bytes]]:
    """Messages whose size `size_of` tells from their first bytes; ``None`` where none begins."""
    return lambda data: _cut(data, size_of)


def _cbor_size(data: bytes) -> int | None:
    try:
        return cbor.Scanner(size_max=_SIZE_MAX).scan(data, len(data))
    except DecodeError:
        return None


def _cut(data: bytes, size_of: Callable[[bytes], int | None]) -> list[bytes]:
    starts = [0]
    while starts[-1] < len(data) and (size := size_of(data[starts[-1] :])):
        starts.append(min(len(data), starts[-1] + size))
    if starts[-1] < len(data):
        starts.append(len(data))
    return [data[start:end] for start, end in pairwise(starts)]

"""Fingerprints of sets of items: the specification of `culm.kernels._fingerprint`.

A monoid is a number; its states are bytes, those of a set the combination of its items'.
All three are groups, so that items can be taken away again:

- ``SUM``: the sum modulo 2**128 of the items' XXH3-128; 16 bytes, big-endian.
- ``XOR``: their exclusive or; 16 bytes, big-endian.
- ``LTHASH``: 1024 sums modulo 2**16, two bytes each, little-endian, of the items' BLAKE3
  drawn out to 2048 bytes.

Wrong calls raise: ``ValueError`` for an unknown monoid, a state or an item of a wrong size,
offsets that do not ascend inside the buffer; ``TypeError`` for anything but a buffer.

Sources: XXH3, doc/xxhash_spec.md of Cyan4973/xxHash; BLAKE3, the paper, section 2; sums of
hashes, Bellare and Micciancio 1997.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import reduce
from itertools import pairwise
from struct import Struct

import xxhash
from blake3 import blake3

Buffer = bytes | bytearray | memoryview

SUM = 0
XOR = 1
LTHASH = 2

#: How many bytes an item has at most: one chunk of BLAKE3.
ITEM_SIZE_MAX = 1024

_STATE_SIZES = {SUM: 16, XOR: 16, LTHASH: 2048}
_LANES = Struct("<1024H")


def xxh3_128(data: Buffer) -> int:
    """The XXH3 hash of `data` with 128 bits, seed 0."""
    return xxhash.xxh3_128_intdigest(bytes(memoryview(data)))


def neutral(kind: int) -> bytes:
    """The state of the empty set."""
    _check_kind(kind)
    return bytes(_STATE_SIZES[kind])


def _check_bytes(item: object) -> None:
    if not isinstance(item, bytes):
        raise TypeError(f"an item is bytes, not {type(item).__name__}")


def lift(kind: int, item: bytes) -> bytes:
    """The state of one item, of at most `ITEM_SIZE_MAX` bytes."""
    _check_kind(kind)
    _check_bytes(item)
    if len(item) > ITEM_SIZE_MAX:
        raise ValueError(f"an item has at most {ITEM_SIZE_MAX} bytes")
    if kind == LTHASH:
        return blake3(item).digest(length=_STATE_SIZES[LTHASH])
    return xxhash.xxh3_128_digest(item)


def lift_many(kind: int, data: Buffer, size: int) -> bytes:
    """The state of the items of `size` bytes each that `data` is made of."""
    _check_kind(kind)
    if not 1 <= size <= ITEM_SIZE_MAX:
        raise ValueError(f"an item has 1 to {ITEM_SIZE_MAX} bytes")
    if len(memoryview(data)) % size:
        raise ValueError("the items do not fill the buffer")
    return _lift_all(kind, data, range(0, len(data) + 1, size))


def lift_cut(kind: int, data: Buffer, offsets: array[int]) -> bytes:
    """The state of the items between the `offsets` (64-bit numbers) into `data`."""
    _check_kind(kind)
    if any(cut > len(data) for cut in offsets) or any(a > b for a, b in pairwise(offsets)):
        raise ValueError("offsets ascend and stay inside the buffer")
    if any(b - a > ITEM_SIZE_MAX for a, b in pairwise(offsets)):
        raise ValueError(f"an item has at most {ITEM_SIZE_MAX} bytes")
    return _lift_all(kind, data, offsets)


def combine(kind: int, first: bytes, second: bytes) -> bytes:
    """The state of two sets without a common item, taken together."""
    _check_states(kind, first, second)
    if kind == SUM:
        return _of(_number(first) + _number(second))
    if kind == XOR:
        return _of(_number(first) ^ _number(second))
    return _numbers([a + b for a, b in _lanes(first, second)])


def subtract(kind: int, first: bytes, second: bytes) -> bytes:
    """The state that, combined with `second`, gives `first`."""
    _check_states(kind, first, second)
    if kind == SUM:
        return _of(_number(first) - _number(second))
    if kind == XOR:
        return _of(_number(first) ^ _number(second))
    return _numbers([a - b for a, b in _lanes(first, second)])


def _check_kind(kind: int) -> None:
    if kind not in _STATE_SIZES:
        raise ValueError(f"no monoid has the number {kind}")


def _check_states(kind: int, *states: bytes) -> None:
    _check_kind(kind)
    if any(len(state) != _STATE_SIZES[kind] for state in states):
        raise ValueError(f"a state of this monoid has {_STATE_SIZES[kind]} bytes")


def _lift_all(kind: int, data: Buffer, cuts: Iterable[int]) -> bytes:
    view = memoryview(data)
    states = (lift(kind, bytes(view[start:stop])) for start, stop in pairwise(cuts))
    return reduce(lambda total, state: combine(kind, total, state), states, neutral(kind))


def _number(state: bytes) -> int:
    return int.from_bytes(state, "big")


def _of(number: int) -> bytes:
    return (number % 2**128).to_bytes(16, "big")


def _lanes(first: bytes, second: bytes) -> Iterable[tuple[int, int]]:
    return zip(_LANES.unpack(first), _LANES.unpack(second), strict=True)


def _numbers(lanes: Iterable[int]) -> bytes:
    return _LANES.pack(*[lane % 2**16 for lane in lanes])

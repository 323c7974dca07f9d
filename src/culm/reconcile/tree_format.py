"""The serialised form of a tree, which can be used in place, without parsing.

All numbers are little-endian, except the states and the sizes of items (see below).

| At | Bytes | |
| --- | --- | --- |
| 0 | 8 | ``culmtree`` |
| 8 | 2 | the version of the format, 1 |
| 10 | 1 | the monoid: 0 is xxh3-sum, 1 xxh3-xor, 2 blake3-lthash |
| 11 | 1 | 1 if items are of varying size, else 0 |
| 12 | 2 | the size of all items, or the greatest that they may have |
| 16 | 8 | the count of items |
| 64 | | the four sections |

Bytes that are not mentioned are zero.  Each section is followed by zeros up to a multiple of 64
bytes:

1. the slots of all items, ascending: the item, zeros up to the size above, for varying sizes
   its size (two bytes, big-endian), zeros up to a multiple of 8 bytes;
2. the lowest 64 bits of each item's state;
3. the first slot of each block of 64 items (the last block may be shorter);
4. the state of all items before each block, and that of all items.

Nothing in it depends on the tree's history: equal sets have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from culm.buffer import Buffer
from culm.kernels import tree as _kernel
from culm.reconcile.monoids import ITEM_SIZE_MAX, MONOIDS, Monoid
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

VERSION = 1
HEADER_SIZE = 64

_MAGIC = b"culmtree"
_HEADER = Struct("<8sHBBH2xQ40x")
_ALIGNMENT = 64
_SHORT_SIZE = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """The header's content, from which the places of the sections follow."""

    monoid: Monoid
    item_size: int
    varying: bool
    count: int

    @property
    def slot_size(self) -> int:
        """The bytes that an item takes."""
        return _round_up(self.item_size + (2 if self.varying else 0), 8)

    @property
    def block_count(self) -> int:
        """The number of blocks of items, the last one perhaps incomplete."""
        return -(-self.count // _kernel.BLOCK)

    @property
    def section_sizes(self) -> tuple[int, int, int, int]:
        """The bytes of each section, without its padding."""
        return (
            self.count * self.slot_size,
            self.count * _SHORT_SIZE,
            self.block_count * self.slot_size,
            (self.block_count + 1) * len(self.monoid.neutral.state),
        )

    def encode(self) -> bytes:
        """The header."""
        number = self.monoid.kernel_number
        return _HEADER.pack(_MAGIC, VERSION, number, self.varying, self.item_size, self.count)

    @classmethod
    def decode(cls, data: memoryview) -> Shape:
        """Decode the header; raises `DecodeError` if it is invalid, or of another version."""
        if len(data) < HEADER_SIZE:
            raise Truncated(len(data))
        magic, version, number, varying, item_size, count = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise DecodeError(WireErrorCode.BAD_TYPE, 0, "this is no tree")
        if version != VERSION:
            raise DecodeError(WireErrorCode.BAD_TYPE, 8, f"version {version} is unknown")
        monoids = {monoid.kernel_number: monoid for monoid in MONOIDS.values()}
        if number not in monoids:
            raise DecodeError(WireErrorCode.BAD_VALUE, 10, f"no monoid has the number {number}")
        if varying > 1:
            raise DecodeError(WireErrorCode.BAD_VALUE, 11, "neither of one size nor varying")
        if not 1 <= item_size <= ITEM_SIZE_MAX:
            raise DecodeError(WireErrorCode.BAD_VALUE, 12, f"items of {item_size} bytes")
        shape = cls(monoids[number], item_size, bool(varying), count)
        if shape.encode() != bytes(data[:HEADER_SIZE]):
            raise DecodeError(WireErrorCode.NON_CANONICAL, 14, "bytes that should be zero")
        return shape


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def sections(data: Buffer) -> tuple[Shape, list[memoryview]]:
    """Find the four sections; takes the same time for any size.

    Raises `DecodeError` if the header, the size, or the padding between sections is wrong.  The
    content of sections is not checked.
    """
    view = memoryview(data).cast("B")
    shape = Shape.decode(view)
    found: list[memoryview] = []
    at = HEADER_SIZE
    for size in shape.section_sizes:
        end = at + _round_up(size, _ALIGNMENT)
        if end > len(view):
            raise Truncated(len(view))
        found.append(view[at : at + size])
        if any(view[at + size : end]):
            raise DecodeError(WireErrorCode.NON_CANONICAL, at + size, "padding is zeros")
        at = end
    if at < len(view):
        raise DecodeError(WireErrorCode.TRAILING_DATA, at, "bytes after the tree")
    return shape, found


def pieces(items: _kernel.View, shape: Shape, piece_size: int) -> Iterator[bytes]:
    """The bytes of a tree, in pieces of about `piece_size`; `items` must not change meanwhile."""
    yield shape.encode()
    step = max(1, piece_size // shape.slot_size)
    slots, shorts, lowest, states = shape.section_sizes
    for start in range(0, shape.count, step):
        yield items.slots(start, min(step, shape.count - start))
    yield _padding(slots)
    for start in range(0, shape.count, step):
        yield items.shorts(start, min(step, shape.count - start))
    yield _padding(shorts)
    for start in range(0, shape.block_count, step):
        yield items.blocks(start, min(start + step, shape.block_count))[0]
    yield _padding(lowest)
    step = max(1, piece_size // len(shape.monoid.neutral.state))
    for start in range(0, shape.block_count + 1, step):
        yield items.blocks(start, min(start + step, shape.block_count + 1))[1]
    yield _padding(states)


def _padding(size: int) -> bytes:
    return bytes(-size % _ALIGNMENT)

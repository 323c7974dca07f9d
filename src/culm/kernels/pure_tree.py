"""Fingerprint trees: the specification of `culm.kernels._tree`.

A set of items (byte strings in their natural order) with the state of a monoid of
`culm.kernels.pure_fingerprint` for any range of them.  Here it is a sorted list, and all
sums are made when they are asked for.

Ranges are rings.  One of keys, from `start` up to, not including, `stop`, runs over the end
if `start` is not below `stop`; from a key to itself it is everything.  Bounds are any
byte strings.  One of ranks is a `start` and a `count`, and runs over the end, too.

Wrong calls raise: ``TypeError`` for anything but bytes, ``ValueError`` for an item of a wrong
size, ranks out of range, data that is not ascending, ``IndexError`` for a rank that no item
has.

A slot is how an item lies in a file: the item, zeros up to the largest size, for items of
varying size the size in two bytes, big-endian, and zeros up to a multiple of 8 bytes.  A short
is the lowest 64 bits of an item's state: of the hash, or its first four numbers of 16 bits.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import overload

from culm.kernels import pure_fingerprint as fingerprints
from culm.kernels.pure_exchange import Exchange

__all__ = ["BLOCK", "WIDTH", "Exchange", "Frozen", "Snapshot", "Tree", "View", "sort"]

Buffer = bytes | bytearray | memoryview

#: How many entries a node of the compiled tree has at most, if not said otherwise.
WIDTH = 40
#: How many items stand between two known sums of a frozen tree.
BLOCK = 64

_WIDTH_MIN = 4
_WIDTH_MAX = 64
_PAIR_ITEMS_MAX = 1 << 24
_SHORT_MAX = 2**64 - 1


class View:
    """The queries that a tree, a snapshot and a frozen tree answer."""

    _kind: int
    _item_size: int
    _varying: bool
    _items: Sequence[bytes]

    def __init__(self) -> None:
        raise TypeError("only trees, their snapshots and frozen trees are views")

    def _set_up(self, kind: int, item_size: int, varying: bool) -> None:
        fingerprints.neutral(kind)
        if not 1 <= item_size <= fingerprints.ITEM_SIZE_MAX:
            raise ValueError(f"an item has 1 to {fingerprints.ITEM_SIZE_MAX} bytes")
        self._kind, self._item_size, self._varying = kind, item_size, bool(varying)

    @property
    def kind(self) -> int:
        """The number of the monoid."""
        return self._kind

    @property
    def item_size(self) -> int:
        """The size of all items, or of the largest there may be."""
        return self._item_size

    @property
    def varying(self) -> bool:
        """Whether items may have any size up to that."""
        return self._varying

    def still(self) -> View:
        """An unchanging view: of a tree a snapshot, else itself."""
        return self

    # The sums of the items before a place: all that a frozen tree does in another way.

    def _below(self, bound: bytes) -> int:
        return bisect_left(self._items, bound)

    def _first(self, rank: int) -> bytes:
        return self._state_of(self._items[:rank])

    def _state_of(self, items: Sequence[bytes]) -> bytes:
        state = fingerprints.neutral(self._kind)
        for item in items:
            state = self._combine(state, fingerprints.lift(self._kind, item))
        return state

    def _combine(self, first: bytes, second: bytes) -> bytes:
        return fingerprints.combine(self._kind, first, second)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: bytes) -> bool:
        self._check_item(item)
        rank = self._below(item)
        return rank < len(self) and self._items[rank] == item

    def rank(self, bound: bytes) -> int:
        """The number of items below `bound`."""
        _check_bytes(bound)
        return self._below(bound)

    def range(self, start: bytes, stop: bytes) -> tuple[int, int]:
        """The range of ranks, as start and count, that the range of keys is."""
        first, last = self.rank(start), self.rank(stop)
        if start < stop:
            return first, last - first
        return first, len(self) - first + last

    def fingerprint(self, start: bytes, stop: bytes) -> tuple[int, bytes]:
        """The count and the state of the items in a range of keys."""
        first, last = self.rank(start), self.rank(stop)
        count, state = last - first, self._first(last)
        if start >= stop:
            count += len(self)
            state = self._combine(state, self._first(len(self)))
        return count, fingerprints.subtract(self._kind, state, self._first(first))

    def sum(self, start: int, count: int) -> bytes:
        """The state of the items in a range of ranks."""
        (first, last), (_, rest) = self._cut(start, count)
        state = fingerprints.subtract(self._kind, self._first(last), self._first(first))
        return self._combine(state, self._first(rest))

    def select(self, rank: int) -> bytes:
        """The item at `rank`, counted from 0."""
        if not 0 <= rank < len(self):
            raise IndexError(f"no item has the rank {rank}")
        return self._items[rank]

    def read(self, start: int, count: int) -> list[bytes]:
        """The items in a range of ranks."""
        halves = self._cut(start, count)
        return [item for first, last in halves for item in self._items[first:last]]

    def slots(self, start: int, count: int) -> bytes:
        """The slots of the items in a range of ranks."""
        return b"".join(map(self._slot, self.read(start, count)))

    def shorts(self, start: int, count: int) -> bytes:
        """The shorts of the items in a range of ranks, 8 bytes each, little-endian."""
        return b"".join(
            short.to_bytes(8, "little")
            for first, last in self._cut(start, count)
            for short in self._shorts(first, last)
        )

    def find(self, start: int, count: int, short: int, mask: int) -> bytes | None:
        """The first item in a range of ranks whose short is `short` in the bits of `mask`."""
        _check_words(short, mask)
        for first, last in self._cut(start, count):
            for at, own in enumerate(self._shorts(first, last), first):
                if not (own ^ short) & mask:
                    return self._items[at]
        return None

    def find_pair(
        self, start: int, count: int, short: int, mask: int
    ) -> tuple[bytes, bytes] | None:
        """Two items in a range of ranks whose states combine to one of that short.

        In the bits of `mask`, which is a row of ones at the low end.  The one that stands
        later is the first one that has a partner before it, and that is its first.  There are
        at most 2**24 items in the range, and 8 bytes are needed for each, and 8 to 16 more.
        """
        if count > _PAIR_ITEMS_MAX:
            raise ValueError(f"pairs are looked for among at most {_PAIR_ITEMS_MAX} items")
        _check_words(short, mask)
        seen: dict[int, int] = {}
        halves = self._cut(start, count)
        ranks = [rank for first, last in halves for rank in range(first, last)]
        shorts = [own for first, last in halves for own in self._shorts(first, last)]
        for rank, own in zip(ranks, shorts, strict=True):
            wanted = self._partner(short, own) & mask
            if wanted in seen:
                return self._items[seen[wanted]], self._items[rank]
            seen.setdefault(own & mask, rank)
        return None

    def blocks(self, first: int, last: int) -> tuple[bytes, bytes]:
        """Of the blocks from `first` up to `last`: the lowest slots, and the states before them.

        There is one block more than are begun, without a slot: the state before it is of all.
        """
        if not 0 <= first <= last <= -(-len(self) // BLOCK) + 1:
            raise ValueError("no such blocks")
        starts = [min(BLOCK * block, len(self)) for block in range(first, last)]
        lowest = [self.slots(start, 1) for start in starts if start < len(self)]
        return b"".join(lowest), b"".join(map(self._first, starts))

    def _check_item(self, item: bytes) -> None:
        _check_bytes(item)
        if len(item) > self._item_size or (not self._varying and len(item) < self._item_size):
            most = "at most " if self._varying else ""
            raise ValueError(f"an item has {most}{self._item_size} bytes, not {len(item)}")

    def _cut(self, start: int, count: int) -> list[tuple[int, int]]:
        """Cut a ring's range at its end."""
        size = len(self)
        if not (0 <= start <= size and 0 <= count <= size):
            raise ValueError(f"no range of {size} items: {count} from {start} on")
        stop = min(start + count, size)
        return [(start, stop), (0, start + count - stop)]

    def _slot(self, item: bytes) -> bytes:
        slot = item.ljust(self._item_size, b"\0")
        if self._varying:
            slot += len(item).to_bytes(2, "big")
        return slot.ljust(_stride(self._item_size, self._varying), b"\0")

    def _shorts(self, first: int, last: int) -> list[int]:
        return [self._short_of(item) for item in self._items[first:last]]

    def _short_of(self, item: bytes) -> int:
        state = fingerprints.lift(self._kind, item)
        if self._kind == fingerprints.LTHASH:
            return int.from_bytes(state[:8], "little")
        return int.from_bytes(state[8:], "big")

    def _partner(self, short: int, other: int) -> int:
        if self._kind == fingerprints.XOR:
            return short ^ other
        if self._kind == fingerprints.SUM:
            return (short - other) & _SHORT_MAX
        lanes = range(0, 64, 16)
        return sum((((short >> at) - (other >> at)) % 2**16) << at for at in lanes)


class Snapshot(View):
    """A tree as it was when this was made."""

    def __init__(self, tree: Tree) -> None:
        _check_tree(tree)
        self._set_up(tree._kind, tree._item_size, tree._varying)
        self._items = list(tree._items)


class Tree(View):
    """A set that changes.

    `item_size` is the size of all items, or of the largest if it is `varying`; `width`, 4 to
    64, how many entries a node has at most.
    """

    def __init__(
        self, kind: int, item_size: int, varying: bool = False, width: int = WIDTH
    ) -> None:
        self._set_up(kind, item_size, varying)
        if not _WIDTH_MIN <= width <= _WIDTH_MAX:
            raise ValueError(f"a node has room for {_WIDTH_MIN} to {_WIDTH_MAX} entries")
        self._list: list[bytes] = []
        self._items = self._list

    @property
    def memory(self) -> int:
        """About how many bytes the items of the tree take, those in its snapshots with them."""
        return sum(map(len, self._items))

    def insert(self, item: bytes) -> bool:
        """Whether `item` was new."""
        self._check_item(item)
        if item in self:
            return False
        self._list.insert(self._below(item), item)
        return True

    def insert_many(self, data: Buffer) -> int:
        """Add the items in `data`; the number of new ones."""
        if self._varying:
            raise ValueError("items of varying size are inserted one by one")
        return sum(map(self.insert, _items_of(data, self._item_size)))

    def discard(self, item: bytes) -> bool:
        """Whether `item` was there."""
        if item not in self:
            return False
        del self._list[self._below(item)]
        return True

    def snapshot(self) -> Snapshot:
        """The tree as it is now, whatever is done to it later."""
        return Snapshot(self)

    def still(self) -> View:
        """A snapshot."""
        return self.snapshot()

    def load(self, data: Buffer, offsets: array[int] | None = None) -> None:
        """Fill the empty tree with the ascending items that `data` is made of.

        Items of varying size lie between the `offsets` (64-bit numbers).
        """
        if self._items:
            raise ValueError("the tree is not empty")
        if offsets is None:
            if self._varying:
                raise ValueError("items of varying size need offsets")
            items = _items_of(data, self._item_size)
        else:
            if any(cut > len(data) for cut in offsets) or any(a > b for a, b in pairwise(offsets)):
                raise ValueError("offsets ascend and stay inside the buffer")
            items = [bytes(data[start:stop]) for start, stop in pairwise(offsets)]
        for item in items:
            self._check_item(item)
        for rank, (item, above) in enumerate(pairwise(items), 1):
            if item >= above:
                raise ValueError(f"item {rank} is not above the one before it")
        self._list.extend(items)


class Frozen(View):
    """A set of `count` items in four sections of bytes, which are read where they are.

    The slots of all items; their shorts; the lowest slot of each block; the state before each
    block, and that of all.  Whatever is in them, nothing outside of them is read.
    """

    def __init__(
        self,
        kind: int,
        item_size: int,
        varying: bool,
        count: int,
        slots: Buffer,
        shorts: Buffer,
        lowest: Buffer,
        states: Buffer,
    ) -> None:
        self._set_up(kind, item_size, varying)
        stride, blocks = _stride(item_size, varying), -(-count // BLOCK)
        self._state_size = len(fingerprints.neutral(kind))
        sizes = (count * stride, count * 8, blocks * stride, (blocks + 1) * self._state_size)
        views = [memoryview(part) for part in (slots, shorts, lowest, states)]
        if any(len(view) != size for view, size in zip(views, sizes, strict=True)):
            raise ValueError("a section has not the size that the count asks for")
        self._slots = _Slots(views[0], count, item_size, self._varying)
        self._items = self._slots
        self._lowest = _Slots(views[2], blocks, item_size, self._varying)
        self._all_shorts, self._states = views[1], views[3]

    def is_sound(self) -> bool:
        """Whether the sections agree with the items; looks at every item."""
        items = self._slots
        return (
            all(self._slot(item) == items.slot(rank) for rank, item in enumerate(items))
            and all(item < above for item, above in pairwise(items))
            and all(
                self._shorts(rank, rank + 1) == [self._short_of(item)]
                for rank, item in enumerate(items)
            )
            and self._are_blocks_sound()
        )

    def _are_blocks_sound(self) -> bool:
        state = fingerprints.neutral(self._kind)
        for block, start in enumerate(range(0, len(self), BLOCK)):
            if self._known(block) != state:
                return False
            if self._lowest.slot(block) != self._slots.slot(start):
                return False
            state = self._combine(state, self._state_of(self._items[start : start + BLOCK]))
        return self._known(len(self._lowest)) == state

    def _below(self, bound: bytes) -> int:
        if not len(self):
            return 0
        start = BLOCK * (bisect_right(self._lowest, bound, 1) - 1)
        return bisect_left(self._items, bound, start, min(start + BLOCK, len(self)))

    def _first(self, rank: int) -> bytes:
        if not len(self):
            return fingerprints.neutral(self._kind)
        block = min(rank // BLOCK, len(self._lowest) - 1)
        return self._first_in(block, rank)

    def _first_in(self, block: int, rank: int) -> bytes:
        start, stop = BLOCK * block, min(BLOCK * block + BLOCK, len(self))
        if 2 * (rank - start) > stop - start:
            behind = self._state_of(self._items[rank:stop])
            return fingerprints.subtract(self._kind, self._known(block + 1), behind)
        return self._combine(self._known(block), self._state_of(self._items[start:rank]))

    def _known(self, block: int) -> bytes:
        start = block * self._state_size
        return bytes(self._states[start : start + self._state_size])

    def _shorts(self, first: int, last: int) -> list[int]:
        view = self._all_shorts
        return [
            int.from_bytes(view[8 * rank : 8 * rank + 8], "little") for rank in range(first, last)
        ]


class _Slots(Sequence[bytes]):
    """The items in a row of slots."""

    def __init__(self, view: memoryview, count: int, item_size: int, varying: bool) -> None:
        self._view, self._count = view, count
        self._item_size, self._varying = item_size, varying
        self._stride = _stride(item_size, varying)

    def slot(self, at: int) -> bytes:
        return bytes(self._view[at * self._stride : (at + 1) * self._stride])

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        slot, size = self.slot(at), self._item_size
        if self._varying:
            size = min(size, int.from_bytes(slot[size : size + 2], "big"))
        return slot[:size]


def sort(data: Buffer, item_size: int) -> bytes:
    """The items that `data` is made of, ascending, each once."""
    if not 1 <= item_size <= fingerprints.ITEM_SIZE_MAX:
        raise ValueError(f"an item has 1 to {fingerprints.ITEM_SIZE_MAX} bytes")
    return b"".join(sorted(set(_items_of(data, item_size))))


def _stride(item_size: int, varying: bool) -> int:
    """The size of a slot in bytes."""
    return -(-(item_size + (2 if varying else 0)) // 8) * 8


def _items_of(data: Buffer, size: int) -> list[bytes]:
    if len(data) % size:
        raise ValueError("the items do not fill the buffer")
    return [bytes(data[start : start + size]) for start in range(0, len(data), size)]


def _check_tree(value: object) -> None:
    if not isinstance(value, Tree):
        raise TypeError(f"a snapshot is of a tree, not of {type(value).__name__}")


def _check_bytes(value: object) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes are needed, not {type(value).__name__}")


def _check_words(*numbers: int) -> None:
    if not all(0 <= number <= _SHORT_MAX for number in numbers):
        raise OverflowError("a short has 64 bits")

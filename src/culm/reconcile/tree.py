"""Fingerprint trees: sets of items that know the fingerprint of each of their ranges.

Items are byte strings of at most `ITEM_SIZE_MAX` bytes, all of the same size or of varying sizes,
in byte order.  The same questions can be asked of a tree that changes (`Tree`), of an earlier
state of it (`TreeSnapshot`), and of a tree in a file (`Frozen`).

    >>> tree = Tree(item_size=3)
    >>> tree.insert(b"one"), tree.insert(b"two"), tree.insert(b"one")
    (True, True, False)
    >>> tree.fingerprint() == tree.monoid.lift_many(b"onetwo", 3)
    True
    >>> tree.read(*tree.range(b"p", b"u"))
    [b'two']

**Ranges lie on a ring.**  A range of keys goes from `start` up to, but not including, `stop`, and
wraps around the end if `start` is not below `stop`; from any key to itself it is the whole ring.
Bounds are byte strings of any size: they need not be items.  A range of ranks is a `start` and a
`count`, and wraps around as well; `View.range` converts the one into the other.  Ranks out of range
raise ``ValueError``.

Source: Meyer, "Range-Based Set Reconciliation" (2023), sections 3 and 4.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate

from culm.arguments import check_int
from culm.buffer import Buffer
from culm.kernels import tree as _trees
from culm.reconcile import tree_format
from culm.reconcile.monoids import DEFAULT, ITEM_SIZE_MAX, Fingerprint, Monoid, named
from culm.reconcile.tree_format import Shape

__all__ = ["ITEM_SIZE_MAX", "Frozen", "Tree", "TreeSnapshot", "View"]

_SHORT_SIZE = 8


class View:
    """The questions that can be asked of a set of items.

    Unless said otherwise, each takes logarithmic time, plus time in proportion to its result.
    """

    __slots__ = ("_kernel", "item_size", "monoid", "varying")

    _kernel: _trees.View
    #: The size of items in bytes; the largest allowed, if they are `varying`.
    item_size: int
    varying: bool
    monoid: Monoid

    def _set_up(self, kernel: _trees.View, item_size: int, varying: bool, monoid: Monoid) -> None:
        self._kernel = kernel
        self.item_size, self.varying, self.monoid = item_size, varying, monoid

    def __len__(self) -> int:
        return len(self._kernel)

    def __contains__(self, item: bytes) -> bool:
        return item in self._kernel

    def rank(self, bound: bytes) -> int:
        """The number of items below `bound`."""
        return self._kernel.rank(bound)

    def select(self, rank: int) -> bytes:
        """The item that has `rank` others below it; raises ``IndexError`` if there is none."""
        return self._kernel.select(rank)

    def range(self, start: bytes, stop: bytes) -> tuple[int, int]:
        """A range of keys as a range of ranks: a start and a count."""
        return self._kernel.range(start, stop)

    def fingerprint(self, start: bytes = b"", stop: bytes = b"") -> Fingerprint:
        """The fingerprint of a range of keys, by default of all items."""
        return Fingerprint._make(self._kernel.fingerprint(start, stop))

    def fingerprint_at(self, start: int, count: int) -> Fingerprint:
        """The fingerprint of a range of ranks."""
        return Fingerprint(count, self._kernel.sum(start, count))

    def read(self, start: int, count: int) -> list[bytes]:
        """The items in a range of ranks."""
        return self._kernel.read(start, count)

    def batches(
        self, start: bytes = b"", stop: bytes = b"", *, count_max: int = 1024
    ) -> Iterator[list[bytes]]:
        """The items in a range of keys, in lists of `count_max` and a shorter last one.

        They are the items at the time of the call, even if the tree changes meanwhile.
        """
        if count_max < 1:
            raise ValueError("a batch has at least one item")
        return _batches(self.still(), start, stop, count_max)

    def shorts(self, start: int, count: int) -> bytes:
        """The lowest 64 bits of the states of the items in a range of ranks.

        8 bytes for each, little-endian; `Monoid.short` gives the same for an item.
        """
        return self._kernel.shorts(start, count)

    def find(self, start: int, count: int, digest: bytes) -> bytes | None:
        """The item in a range of ranks that has this digest, of 1 to 16 bytes, if any.

        This finds the item that a peer lacks: if one of two ranges has one item more than the
        other, the difference of their digests is that item's digest.  Takes time in proportion to
        the range.  Raises ``ValueError`` if the monoid is not additive.
        """
        short, mask = self._short_and_mask(digest)
        item = self._kernel.find(start, count, short, mask)
        if item is not None and not self.monoid.lift(item).state.endswith(digest):
            return None
        return item

    def find_pair(self, start: int, count: int, digest: bytes) -> tuple[bytes, bytes] | None:
        """Two items in a range of ranks that together have this digest, if any.

        Takes time in proportion to the range, of which at most 2**24 items are searched, and up to
        24 bytes of memory for each.  Among n items about ``n * n / 2 ** (8 * len(digest) + 1)``
        pairs have it by chance.  Raises ``ValueError`` if the monoid is not additive.
        """
        short, mask = self._short_and_mask(digest)
        pair = self._kernel.find_pair(start, count, short, mask)
        if pair is None:
            return None
        both = self.monoid.combine(self.monoid.lift(pair[0]), self.monoid.lift(pair[1]))
        return pair if both.state.endswith(digest) else None

    def still(self) -> View:
        """A view that does not change: a snapshot of a tree, otherwise the view itself."""
        return self

    def exchange(
        self, sum_size: int, id_salt: int, *, ranges_max: int, key: bytes = b"", form: int = 0
    ) -> _trees.Exchange:
        """One side of an exchange of compact rounds, see `culm.reconcile.run`."""
        return _trees.Exchange(self._kernel, sum_size, id_salt, ranges_max, key, form)

    def serialise(self, *, piece_size: int = 1 << 20) -> Iterator[bytes]:
        """The set as bytes for `Frozen`, in pieces of about `piece_size`.

        The bytes depend only on the items, their size and the monoid; the format is in
        `culm.reconcile.tree_format`.  A tree may be changed meanwhile.
        """
        shape = Shape(self.monoid, self.item_size, self.varying, len(self))
        return tree_format.pieces(self._still(), shape, piece_size)

    def _still(self) -> _trees.View:
        """The part that does not change while it is being read."""
        return self._kernel

    def _short_and_mask(self, digest: bytes) -> tuple[int, int]:
        if not self.monoid.is_additive:
            raise ValueError(f"digests in {self.monoid.name} have no difference")
        if not 1 <= len(digest) <= self.monoid.digest_size:
            raise ValueError(f"a digest has 1 to {self.monoid.digest_size} bytes")
        size = min(len(digest), _SHORT_SIZE)
        return int.from_bytes(digest[-size:], "big"), 256**size - 1


def _batches(items: View, start: bytes, stop: bytes, count_max: int) -> Iterator[list[bytes]]:
    first, count = items.range(start, stop)
    for done in range(0, count, count_max):
        yield items.read((first + done) % len(items), min(count_max, count - done))


class TreeSnapshot(View):
    """An earlier state of a tree; made by `Tree.snapshot`.

    It keeps the parts of the tree that have changed since, until it is deleted.
    """

    __slots__ = ()


class Tree(View):
    """A set of items that changes.

    An item has `item_size` bytes, or at most that many with `varying`; any other size raises
    ``ValueError``.  Memory for each: the largest size (and two bytes if sizes vary), rounded up to
    a multiple of 8, eight bytes for its hash, and the free space in nodes: a fifth of both after
    loading, about three fifths after insertions in random order.

    The monoid is one of those in `culm.reconcile.monoids`.  With
    ``blake3-lthash`` each node keeps 2048 bytes more: 70 to 130 for each item.
    """

    __slots__ = ("_tree",)

    def __init__(self, *, item_size: int, varying: bool = False, monoid: str = DEFAULT) -> None:
        check_int("item_size", item_size, 1, ITEM_SIZE_MAX)
        chosen = named(monoid)
        self._tree = _trees.Tree(chosen.kernel_number, item_size, varying)
        self._set_up(self._tree, item_size, varying, chosen)

    @property
    def memory(self) -> int:
        """The bytes that the tree and its snapshots take."""
        return self._tree.memory

    def insert(self, item: bytes) -> bool:
        """Add an item; returns whether it is new."""
        return self._tree.insert(item)

    def insert_many(self, data: Buffer) -> int:
        """Add the items in `data`, all of one size; returns the number of new ones."""
        return self._tree.insert_many(data)

    def discard(self, item: bytes) -> bool:
        """Remove an item; returns whether it was there."""
        return self._tree.discard(item)

    def snapshot(self) -> TreeSnapshot:
        """The tree as it is now, untouched by later changes; takes the same time for any size.

        Each node is copied when it changes for the first time afterwards.
        """
        snapshot = TreeSnapshot()
        snapshot._set_up(self._tree.snapshot(), self.item_size, self.varying, self.monoid)
        return snapshot

    def still(self) -> TreeSnapshot:
        """A snapshot."""
        return self.snapshot()

    def load(self, data: Buffer) -> None:
        """Fill the empty tree with the items in `data`, all of one size.

        They must ascend, without duplicates; otherwise ``ValueError`` is raised, and the tree stays
        empty.  `fill` takes them in any order.
        """
        self._tree.load(data)

    def fill(self, data: Buffer) -> None:
        """Fill the empty tree with the items in `data`, all of one size.

        They may be in any order, with duplicates.
        """
        if self.varying:
            raise ValueError("items of varying size are loaded by load_items")
        self._tree.load(_trees.sort(data, self.item_size))

    def load_items(self, items: Iterable[bytes]) -> None:
        """Fill the empty tree with ascending items; otherwise like `load`."""
        loaded = list(items)
        cuts = array("Q", accumulate(map(len, loaded), initial=0))
        self._tree.load(b"".join(loaded), cuts)

    def _still(self) -> _trees.View:
        return self._tree.snapshot()


class Frozen(View):
    """A set in serialised form, used in place: in a memory-mapped file, for example.

    `data` is a result of `View.serialise`; a reference to it is kept.  Opening takes the same time
    for any size.  Raises `culm.wire.errors.DecodeError` for bytes that are not a tree.

    The bytes may come from a stranger: nothing outside of them is ever read.  But a forged tree may
    give wrong answers; `is_sound` checks it.
    """

    __slots__ = ("_frozen",)

    def __init__(self, data: Buffer) -> None:
        shape, sections = tree_format.sections(data)
        number = shape.monoid.kernel_number
        self._frozen = _trees.Frozen(number, shape.item_size, shape.varying, shape.count, *sections)
        self._set_up(self._frozen, shape.item_size, shape.varying, shape.monoid)

    def is_sound(self) -> bool:
        """Whether the bytes are exactly those that a tree of these items would make.

        Looks at every item and hashes it.
        """
        return self._frozen.is_sound()

"""Several disjoint sets as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TypeVar

from culm.kernels import tree as _trees
from culm.reconcile.monoids import Fingerprint
from culm.reconcile.tree import Tree, View

T = TypeVar("T")

_PAIR_ITEMS_MAX = 1 << 12  # the most items that are put into a tree of their own
_CUTS_MAX = 8


class Joined(View):
    """A view of several sets together, without merging them.

    parts: views with the same monoid and items of the same size, which do not change.  No item may
        be in two of them, or the answers are wrong.

    Each question is asked of every part, and the rank of an item is found in a logarithmic number
    of steps.  `exchange`, `serialise` and `shorts`, which look at the whole set, take time in
    proportion to it.  In ranges of more than 4096 items `find_pair` finds only pairs within one
    part, on one side of the ring's end.

    Raises `ValueError` for no parts, or parts of different kinds.
    """

    __slots__ = ("_count", "_cuts", "_parts")

    def __init__(self, parts: Iterable[View]) -> None:
        self._parts = [part.still() for part in parts]
        kinds = {(part.item_size, part.varying, part.monoid.name) for part in self._parts}
        if len(kinds) != 1:
            raise ValueError("sets are joined if they are of one kind")
        first = self._parts[0]
        self.item_size, self.varying, self.monoid = first.item_size, first.varying, first.monoid
        self._count = sum(map(len, self._parts))
        # By rank in the whole: the number of items of each part below it.  The latest places are
        # kept, because a range that is split is asked about again, from the end of one part to the
        # next.
        self._cuts: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: bytes) -> bool:
        return any(item in part for part in self._parts)

    def rank(self, bound: bytes) -> int:
        return self._know([part.rank(bound) for part in self._parts])

    def select(self, rank: int) -> bytes:
        if not 0 <= rank < self._count:
            raise IndexError(f"no item has the rank {rank}")
        places = zip(self._parts, self._cut(rank), strict=True)
        return min(part.select(place) for part, place in places if place < len(part))

    def range(self, start: bytes, stop: bytes) -> tuple[int, int]:
        first, last = self.rank(start), self.rank(stop)
        return first, last - first if start < stop else self._count - first + last

    def fingerprint(self, start: bytes = b"", stop: bytes = b"") -> Fingerprint:
        return self._sum(part.fingerprint(start, stop) for part in self._parts)

    def fingerprint_at(self, start: int, count: int) -> Fingerprint:
        pieces = self._pieces(start, count)
        return self._sum(part.fingerprint_at(low, size) for part, low, size in pieces)

    def read(self, start: int, count: int) -> list[bytes]:
        return [
            item
            for first, last in self._halves(start, count)
            for item in sorted(
                item
                for part, low, size in self._between(first, last)
                for item in part.read(low, size)
            )
        ]

    def shorts(self, start: int, count: int) -> bytes:
        short = self.monoid.short
        return b"".join(short(item).to_bytes(8, "little") for item in self.read(start, count))

    def find(self, start: int, count: int, digest: bytes) -> bytes | None:
        pieces = self._pieces(start, count)
        return _first(part.find(low, size, digest) for part, low, size in pieces)

    def find_pair(self, start: int, count: int, digest: bytes) -> tuple[bytes, bytes] | None:
        if count > _PAIR_ITEMS_MAX:
            pieces = self._pieces(start, count)
            return _first(part.find_pair(low, size, digest) for part, low, size in pieces)
        items = self.read(start, count)
        tree = self._tree(sorted(items))
        # The part is a ring, too: the order here is kept.
        return tree.find_pair(tree.rank(items[0]) if items else 0, count, digest)

    def exchange(
        self, sum_size: int, id_salt: int, *, ranges_max: int, key: bytes = b"", form: int = 0
    ) -> _trees.Exchange:
        whole = self._tree(self.read(0, self._count))
        return whole.exchange(sum_size, id_salt, ranges_max=ranges_max, key=key, form=form)

    def serialise(self, *, piece_size: int = 1 << 20) -> Iterator[bytes]:
        return self._tree(self.read(0, self._count)).serialise(piece_size=piece_size)

    def _tree(self, items: Iterable[bytes]) -> Tree:
        """A tree of ascending items."""
        monoid = self.monoid.name
        tree = Tree(item_size=self.item_size, varying=self.varying, monoid=monoid)
        tree.load_items(items)
        return tree

    def _sum(self, fingerprints: Iterable[Fingerprint]) -> Fingerprint:
        return reduce(self.monoid.combine, fingerprints, self.monoid.neutral)

    # Ranges of ranks in the parts.

    def _pieces(self, start: int, count: int) -> Iterator[tuple[View, int, int]]:
        """The ranges of ranks in the parts that make up a range of the whole."""
        for first, last in self._halves(start, count):
            yield from self._between(first, last)

    def _halves(self, start: int, count: int) -> list[tuple[int, int]]:
        """Cut a ring's range at its end."""
        size = self._count
        if not (0 <= start <= size and 0 <= count <= size):
            raise ValueError(f"no range of {size} items: {count} from {start} on")
        stop = min(start + count, size)
        return [(start, stop), (0, start + count - stop)]

    def _between(self, first: int, last: int) -> Iterator[tuple[View, int, int]]:
        if first < last:
            cuts = zip(self._parts, self._cut(first), self._cut(last), strict=True)
            for part, low, high in cuts:
                if low < high:
                    yield part, low, high - low

    def _cut(self, rank: int) -> list[int]:
        """The number of items of each part among the first `rank` of all."""
        if rank not in self._cuts:
            self._know(self._find_cut(rank))
        return self._cuts[rank]

    def _know(self, places: list[int]) -> int:
        """Remember a cut; returns its rank."""
        rank = sum(places)
        if rank not in self._cuts and len(self._cuts) >= _CUTS_MAX:
            del self._cuts[next(iter(self._cuts))]
        self._cuts[rank] = places
        return rank

    def _find_cut(self, rank: int) -> list[int]:
        """Narrow down the bounds of a cut, with an item of the part whose bounds are widest."""
        below = max((each for each in self._cuts if each <= rank), default=0)
        above = min((each for each in self._cuts if each >= rank), default=self._count)
        low: list[int] = [*self._cuts[below]] if below in self._cuts else [0] * len(self._parts)
        high: list[int] = (
            self._cuts[above] if above in self._cuts else [len(part) for part in self._parts]
        )
        guess = True  # as if items were spread evenly; every other time the middle
        while below < rank < above:
            widths = list(map(int.__sub__, high, low))
            width = max(widths)
            widest = widths.index(width)
            step = width * (rank - below) // (above - below) if guess else width // 2
            guess = not guess
            place = low[widest] + step
            item = self._parts[widest].select(place)
            places: list[int] = [part.rank(item) for part in self._parts]
            count = sum(places)
            if count <= rank:
                low, below = places, count
                if count < rank:  # and so the item itself is below
                    low[widest] += 1
                    below += 1
            else:
                high, above = places, count
        return low if below == rank else high


def join(parts: Sequence[View]) -> View:
    """One view of `parts`, which have no item in common; see `Joined`.

    If at most one of the parts has items, it is that part itself.
    """
    parts = [part.still() for part in parts]
    whole = Joined(parts)
    filled = [part for part in parts if len(part)]
    return whole if len(filled) > 1 else (filled or parts)[0]


def _first(found: Iterable[T | None]) -> T | None:
    return next((each for each in found if each is not None), None)

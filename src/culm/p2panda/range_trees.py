"""The fingerprint trees that a store keeps up to date, one for each set of schemas asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from culm.bamboo.entry import LogKey
from culm.p2panda.items import ITEM_SIZE_MAX, Height, encode_item
from culm.reconcile.tree import Tree, View

__all__ = ["RangeTrees"]


class RangeTrees:
    """Trees of the heights of logs, by the schemas of these and the monoid.

    trees_max: how many there are; the one that was asked for longest ago gives way.
    """

    def __init__(self, *, trees_max: int = 16) -> None:
        self._trees: dict[tuple[frozenset[str], str], Tree] = {}
        self._trees_max = trees_max

    def snapshot(
        self,
        schema_ids: Iterable[str],
        monoid: str,
        heights: Callable[[frozenset[str]], Iterable[Height]],
    ) -> View:
        """The heights of all logs of some schemas, as they are now.

        heights: reads them if there is no tree of them yet.  They go into the tree one by one, so
            that nothing else is held of them.  Any order will do; in that of the logs, by author
            and id, the tree is made soonest, and is least.
        """
        key = frozenset(schema_ids), monoid
        tree = self._trees.pop(key, None)
        if tree is None:
            tree = Tree(item_size=ITEM_SIZE_MAX, varying=True, monoid=monoid)
            for log, seqnum in heights(key[0]):
                tree.insert(encode_item(log, seqnum))
            while self._trees and len(self._trees) >= self._trees_max:
                del self._trees[next(iter(self._trees))]
        self._trees[key] = tree
        return tree.snapshot()

    def grow(self, log: LogKey, schema_id: str, before: int, after: int) -> None:
        """A log of that schema has grown; of height 0 it was not there."""
        for (schema_ids, _), tree in self._trees.items():
            if schema_id in schema_ids:
                if before:
                    tree.discard(encode_item(log, before))
                tree.insert(encode_item(log, after))

    def clear(self) -> None:
        """Forget them: they are read again when they are asked for."""
        self._trees.clear()

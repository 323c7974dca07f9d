"""The fingerprint trees that a store keeps up to date, one for each schema asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from culm.bamboo.entry import LogKey
from culm.p2panda.items import ITEM_SIZE_MAX, Height, encode_item
from culm.reconcile.joined import join
from culm.reconcile.tree import Tree, View

__all__ = ["RangeTrees"]


class RangeTrees:
    """Trees of log heights, by schema and monoid.

    A log has one schema, so all trees together have no more items than there are logs; the sets of
    schemas that peers ask for cost neither memory nor time.
    """

    def __init__(self) -> None:
        self._trees: dict[str, dict[str, Tree]] = {}  # by schema, then by monoid

    def snapshot(
        self,
        schema_ids: Iterable[str],
        monoid: str,
        heights: Callable[[str], Iterable[Height]],
    ) -> View:
        """The current heights of all logs of some schemas.

        heights: reads those of a schema that has no tree yet.  They go into the tree one by one, so
            that no copy is held.  Any order will do; sorted by author and log id, the tree is built
            fastest and is smallest.
        """
        return join([self._tree(each, monoid, heights) for each in sorted(set(schema_ids))])

    def _tree(
        self, schema_id: str, monoid: str, heights: Callable[[str], Iterable[Height]]
    ) -> Tree:
        trees = self._trees.setdefault(schema_id, {})
        if monoid not in trees:
            tree = Tree(item_size=ITEM_SIZE_MAX, varying=True, monoid=monoid)
            for log, seqnum in heights(schema_id):
                tree.insert(encode_item(log, seqnum))
            trees[monoid] = tree
        return trees[monoid]

    def grow(self, log: LogKey, schema_id: str, before: int, after: int) -> None:
        """A log of this schema has grown; a height of 0 means that it was not there."""
        for tree in self._trees.get(schema_id, {}).values():
            if before:
                tree.discard(encode_item(log, before))
            tree.insert(encode_item(log, after))

    def clear(self) -> None:
        """Forget all trees; they are read again when they are needed."""
        self._trees.clear()

"""Log heights: as items of set reconciliation and back, and the trees of a store.

The item of a log is the canonical CBOR of ``[public key as text, log id, sequence number]``.  Items
sort like (public key, log id, sequence number): all keys have the same size, and the greater of
two numbers has the greater canonical encoding.

Sources: seed, "Identifying divergent state"; decisions 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from culm.arguments import check_type
from culm.bamboo.entry import AUTHOR_SIZE, LogKey
from culm.reconcile.joined import join
from culm.reconcile.tree import Tree, View
from culm.wire.cbor import encode_head

_HEX_SIZE = 2 * AUTHOR_SIZE
_FRONT = b"\x83" + encode_head(3, _HEX_SIZE)
_NUMBERS_AT = len(_FRONT) + _HEX_SIZE
_NUMBER_SIZE_MAX = 9

#: The least and the greatest size of an item, in bytes.
ITEM_SIZE_MIN = _NUMBERS_AT + 2
ITEM_SIZE_MAX = _NUMBERS_AT + 2 * _NUMBER_SIZE_MAX


class Height(NamedTuple):
    """The height of a log: its holder has all entries up to `seqnum`."""

    log: LogKey
    seqnum: int


def log_prefix(log: LogKey) -> bytes:
    """The prefix of all items of a log, and of no other log's."""
    author, log_id = log
    return _FRONT + author.hex().encode() + encode_head(0, log_id)


def encode_item(log: LogKey, seqnum: int) -> bytes:
    """The item of a log of this height."""
    return log_prefix(log) + encode_head(0, seqnum)


def decode_item(item: bytes) -> Height:
    """Decode an item made by `encode_item`."""
    author = bytes.fromhex(item[len(_FRONT) : _NUMBERS_AT].decode())
    log_id, at = _number(item, _NUMBERS_AT)
    seqnum, _ = _number(item, at)
    return Height(LogKey(author, log_id), seqnum)


def check_item(name: str, value: bytes) -> None:
    """Raise `TypeError` or `ValueError` unless `value` is an item as `encode_item` makes it."""
    check_type(name, value, bytes)
    try:
        found = decode_item(value)
        right = encode_item(found.log, found.seqnum) == value
    except (ValueError, IndexError):
        right = False
    if not right:
        raise ValueError(f"{name} is not the item of a log height")


def _number(item: bytes, at: int) -> tuple[int, int]:
    """The number that begins at this index, and the index after it."""
    head = item[at]
    if head < 24:
        return head, at + 1
    end = at + 1 + (1 << (head - 24) % 4)
    return int.from_bytes(item[at + 1 : end], "big"), end


class RangeTrees:
    """The trees of log heights, by schema and monoid.

    A log has one schema, so all trees together have no more items than there are logs; the sets of
    schemas that peers ask for cost neither memory nor time.
    """

    def __init__(self) -> None:
        self._trees: dict[str, dict[str, Tree]] = {}  # by schema, then by monoid

    def snapshot(
        self, schema_ids: Iterable[str], monoid: str, heights: Callable[[str], Iterable[Height]]
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

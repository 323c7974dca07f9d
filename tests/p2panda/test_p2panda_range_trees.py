"""The trees that stores keep of the heights of logs."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Iterator
from itertools import accumulate
from random import Random

from culm.bamboo.entry import LogKey
from culm.p2panda.items import Height, encode_item
from culm.p2panda.range_trees import RangeTrees
from culm.reconcile.monoids import DEFAULT, named

LOGS = 5_000


def heights(count: int = LOGS) -> Iterator[Height]:
    """In the order of their logs."""
    for number in range(count):
        yield Height(LogKey(number.to_bytes(32, "big"), number % 8), 1 + number % 20)


def test_a_tree_is_made_without_holding_what_goes_into_it():
    trees = RangeTrees()
    trees.snapshot(["other"], DEFAULT, lambda _: heights(8 * 20))  # what is made once
    tracemalloc.start()
    try:
        view = trees.snapshot(["a"], DEFAULT, lambda _: heights())
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(view) == LOGS
    assert peak - kept < 5 * LOGS


def test_heights_may_come_in_any_order():
    shuffled = list(heights(500))
    Random(4).shuffle(shuffled)
    ordered = RangeTrees().snapshot(["a"], DEFAULT, lambda _: heights(500))
    other = RangeTrees().snapshot(["a"], DEFAULT, lambda _: shuffled)
    items = [encode_item(*height) for height in heights(500)]
    cuts = array("Q", accumulate(map(len, items), initial=0))
    whole = named(DEFAULT).lift_cut(b"".join(items), cuts)
    assert ordered.read(0, 500) == other.read(0, 500) == items
    assert ordered.fingerprint() == other.fingerprint() == whole

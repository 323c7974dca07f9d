"""The trees that stores keep of the heights of logs."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Iterator
from itertools import accumulate
from random import Random

from culm.bamboo.entry import LogKey
from culm.p2panda.heights import Height, RangeTrees, encode_item
from culm.reconcile.monoids import DEFAULT, MONOIDS, named

LOGS = 5_000


def heights(count: int = LOGS) -> Iterator[Height]:
    """In the order of their logs."""
    for number in range(count):
        yield Height(LogKey(number.to_bytes(32, "big"), number % 8), 1 + number % 20)


def test_a_tree_is_made_without_holding_what_goes_into_it():
    trees = RangeTrees()
    trees.snapshot(["other"], DEFAULT, lambda _: heights(8 * 20))  # everything made only once
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


def test_each_log_is_read_once_whatever_sets_of_schemas_are_asked_for():
    schemas = [f"schema {number}" for number in range(6)]
    read: list[str] = []

    def of(schema_id: str) -> Iterator[Height]:
        read.append(schema_id)
        number = schemas.index(schema_id)
        for log, seqnum in heights(20):
            yield Height(LogKey(log.author, 8 * number + log.log_id), seqnum)

    trees = RangeTrees()
    for number in range(1, 1 << len(schemas)):
        wanted = [each for at, each in enumerate(schemas) if number >> at & 1]
        view = trees.snapshot(wanted, DEFAULT, of)
        assert len(view) == 20 * len(wanted)
    assert sorted(read) == schemas
    trees.grow(LogKey(bytes(32), 0), schemas[0], 1, 2)
    assert encode_item(LogKey(bytes(32), 0), 2) in trees.snapshot(schemas, DEFAULT, of)
    assert sorted(read) == schemas


def test_what_was_forgotten_is_read_again():
    trees = RangeTrees()
    assert len(trees.snapshot(["a"], DEFAULT, lambda _: heights(20))) == 20
    trees.clear()
    assert len(trees.snapshot(["a"], DEFAULT, lambda _: heights(30))) == 30


def test_trees_of_several_monoids_grow_together():
    trees = RangeTrees()
    for monoid in MONOIDS:
        trees.snapshot(["a"], monoid, lambda _: heights(20))
    trees.grow(LogKey(bytes(32), 0), "a", 1, 9)
    trees.grow(LogKey(bytes(32), 1), "other", 0, 1)
    views = [trees.snapshot(["a"], monoid, lambda _: []) for monoid in MONOIDS]
    assert {tuple(view.read(0, 20)) for view in views} == {tuple(views[0].read(0, 20))}
    assert encode_item(LogKey(bytes(32), 0), 9) in views[0]

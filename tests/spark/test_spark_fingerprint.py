"""Fingerprints computed by Spark equal those of a node: ranges, and the tree, byte for byte."""

from __future__ import annotations

from random import Random

import pytest
from planted import honest_log

from culm.bamboo.entry import decode
from culm.reconcile import MONOIDS, Frozen, Tree, named
from culm.spark.columns import check_columns
from culm.spark.decode import decode_entries
from culm.spark.errors import ColumnError
from culm.spark.fingerprint import PIECES, RANGES, entry_items, fingerprint, write_tree
from culm.wire.multihash import YASMF


def tree_of(items, size: int, varying: bool, monoid: str) -> Tree:
    tree = Tree(item_size=size, varying=varying, monoid=monoid)
    tree.load_items(sorted(set(items)))
    return tree


def frame_of(spark, items):
    return spark.createDataFrame([(item,) for item in items], "item binary").repartition(3)


def random_items(seed: int, count: int, size: int, varying: bool) -> list[bytes]:
    """Some of them crowded, at both ends of the order, and some of them twice."""
    chance = Random(seed)
    items = []
    for _ in range(count):
        long = chance.randint(1, size) if varying else size
        start = chance.choice([b"", b"", b"\0" * long, b"\xff" * long, b"ab" * long])
        items.append((start[: chance.randint(0, long)] + chance.randbytes(long))[:long])
    return items + items[: count // 5]


CASES = [
    ("xxh3-sum", 32, False, 1500),
    ("xxh3-xor", 5, True, 700),
    ("blake3-lthash", 9, False, 200),
    ("xxh3-sum", 3, False, 1),
]


@pytest.mark.costly
@pytest.mark.parametrize(("monoid", "size", "varying", "count"), CASES)
def test_what_spark_computes_is_what_a_node_would(spark, tmp_path, monoid, size, varying, count):
    items = random_items(count, count, size, varying)
    tree = tree_of(items, size, varying, monoid)
    levels = (0, 1, 3)
    # Small batches, so that a task has many, and blocks span them.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "150")
    try:
        found = fingerprint(
            frame_of(spark, [*items, None]),
            item_size=size,
            varying=varying,
            monoid=monoid,
            levels=levels,
        )
        assert found.whole == tree.fingerprint()
        check_columns(found.tree, PIECES)
        path = tmp_path / "tree"
        assert write_tree(found.tree, str(path)) == path.stat().st_size
        assert path.read_bytes() == b"".join(tree.serialise())
        assert Frozen(path.read_bytes()).is_sound()
        check_columns(found.ranges, RANGES)
        rows = found.ranges.collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        found.close()
    got = [(row.level, bytes(row.range), row["count"], bytes(row.digest)) for row in rows]
    assert sorted(got) == sorted(ranges_of(items, levels, monoid))
    assert {row.monoid for row in rows} == {monoid}


def ranges_of(items, levels, monoid: str):
    """All ranges and their fingerprints, item by item."""
    kind = named(monoid)
    for level in levels:
        for prefix in {item[:level] for item in items}:
            inside = {item for item in items if item[:level] == prefix}
            total = kind.neutral
            for item in inside:
                total = kind.combine(total, kind.lift(item))
            yield level, prefix, len(inside), kind.digest(total)


def test_the_range_of_a_row_is_that_of_a_tree(spark):
    items = random_items(1, 300, 4, False)
    tree = tree_of(items, 4, False, "xxh3-sum")
    found = fingerprint(frame_of(spark, items), item_size=4, levels=(1,))
    for row in found.ranges.collect():
        end = bytes([row.range[0] + 1]) if row.range[0] < 255 else b""
        inside = tree.fingerprint(bytes(row.range), end)
        assert (inside.count, tree.monoid.digest(inside)) == (row["count"], row.digest)
    found.close()


def test_an_empty_set_has_the_tree_of_one(spark, tmp_path):
    found = fingerprint(frame_of(spark, []), item_size=4)
    write_tree(found.tree, str(tmp_path / "tree"))
    assert (tmp_path / "tree").read_bytes() == b"".join(Tree(item_size=4).serialise())
    assert found.ranges.collect() == []


def test_items_of_entries_name_them_and_sort_as_logs_do(spark):
    rows = [*honest_log(1, 300), *honest_log(2, 3, log_id=2**64 - 1)]
    frame = spark.createDataFrame([*rows, (b"?", None)], "entry binary, payload binary")
    items = [row.item for row in entry_items(decode_entries(frame, YASMF)).collect()]
    assert items.count(None) == 1
    entries = [decode(row.entry, family=YASMF) for row in rows]
    wanted = [
        each.author
        + each.log_id.to_bytes(8, "big")
        + each.seqnum.to_bytes(8, "big")
        + YASMF.hash(each.encode())
        for each in entries
    ]
    assert sorted(filter(None, map(bytes_or_none, items))) == sorted(wanted)
    places = {each.author + YASMF.hash(each.encode()): (each.log, each.seqnum) for each in entries}
    order = [places[item[:32] + item[48:]] for item in sorted(wanted)]
    assert order == sorted(order)


def bytes_or_none(value):
    return None if value is None else bytes(value)


def test_pieces_that_do_not_follow_each_other_are_refused(spark, tmp_path):
    pieces = spark.createDataFrame([(0, b"four"), (5, b"")], "offset bigint, data binary")
    with pytest.raises(ValueError, match="begins at 5, and not at 4"):
        write_tree(pieces, str(tmp_path / "tree"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_set_of_items_is_refused(spark):
    with pytest.raises(ColumnError, match="item"):
        fingerprint(spark.createDataFrame([("a",)], "item string"), item_size=1)
    frame = frame_of(spark, [b"four"])
    for wrong in (
        {"item_size": 0},
        {"item_size": 4, "levels": ()},
        {"item_size": 4, "levels": [5]},
    ):
        with pytest.raises(ValueError, match=r"item_size|levels"):
            fingerprint(frame, **wrong)
    with pytest.raises(ValueError, match="monoid"):
        fingerprint(frame, item_size=4, monoid="sum")
    assert set(MONOIDS) == {case[0] for case in CASES}

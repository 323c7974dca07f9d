"""Replicas compared: the result of a set difference, without a look at equal parts."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from culm.spark.columns import check_columns
from culm.spark.errors import ColumnError
from culm.spark.fingerprint import fingerprint
from culm.spark.reconcile import (
    DIVERGENT,
    HOLDERS,
    PLAN,
    divergent_ranges,
    reconcile,
    with_presence,
)

SIZE = 6
LEVELS = (0, 1, 2)


def replicas(seed: int, names: str, count: int, lacking: int) -> dict[str, set[bytes]]:
    chance = Random(seed)
    items = [chance.randbytes(SIZE) for _ in range(count)]
    sets = {name: set(items) for name in names}
    for item in chance.sample(items, lacking):
        for name in chance.sample(names, chance.randrange(1, len(names))):
            sets[name].discard(item)
    return sets


def frames(spark, sets: dict[str, set[bytes]]):
    return {
        name: spark.createDataFrame([(i, len(name) + i[0]) for i in items], "item binary, size int")
        for name, items in sets.items()
    }


def test_three_replicas_are_told_what_each_lacks(spark):
    sets = replicas(1, "abc", 400, 30)
    sets["a"].add(b"\xff" * SIZE)
    found = reconcile(frames(spark, sets), item_size=SIZE, levels=LEVELS)
    check_columns(found.ranges, DIVERGENT)
    check_columns(found.holders, HOLDERS)
    check_columns(found.plan, PLAN)
    union = set().union(*sets.values())
    differing = {item for item in union if any(item not in each for each in sets.values())}

    ranges = {(row.level, bytes(row.range)): row.counts for row in found.ranges.collect()}
    assert ranges == {
        (level, item[:level]): {
            name: sum(each[:level] == item[:level] for each in items)
            for name, items in sets.items()
        }
        for level in LEVELS
        for item in differing
    }
    expanded = {item for item in union if (LEVELS[-1], item[: LEVELS[-1]]) in ranges}
    assert len(expanded) < len(union) / 4
    holders = {bytes(row.item): row for row in found.holders.collect()}
    assert holders.keys() == expanded
    for item, row in holders.items():
        assert row.holders == sorted(name for name in sets if item in sets[name])
        assert sorted([*row.holders, *row.lacking]) == sorted(sets)
        assert (row.copies, row.size) == (len(row.holders), 1 + item[0])

    got = defaultdict(set)
    for row in found.plan.collect():
        item = bytes(row.item)
        assert item in sets[row.source]
        assert item not in got[row.target]
        got[row.target].add(item)
    assert {name: sets[name] | got[name] for name in sets} == dict.fromkeys(sets, union)
    assert all(sets[name].isdisjoint(got[name]) for name in sets)
    assert {bytes(row.item) for row in found.at_risk.collect()} == {
        item for item in union if sum(item in each for each in sets.values()) < 2
    }
    found.close()


def test_equal_replicas_have_nothing_to_tell(spark):
    sets = replicas(2, "ab", 50, 0)
    found = reconcile(frames(spark, sets), item_size=SIZE, levels=LEVELS)
    for frame in (found.ranges, found.holders, found.plan, found.at_risk):
        assert frame.collect() == []
    found.close()


def test_tables_serve_in_place_of_inventories_and_an_empty_replica_lacks_all(spark):
    sets = {"full": {b"a" * SIZE, b"b" * SIZE}, "empty": set()}
    tables = {
        name: fingerprint(frame, item_size=SIZE, levels=(0, 1)).ranges
        for name, frame in frames(spark, sets).items()
    }
    rows = divergent_ranges(tables).collect()
    assert {(row.level, bytes(row.range)): row.counts for row in rows} == {
        (0, b""): {"full": 2, "empty": 0},
        (1, b"a"): {"full": 1, "empty": 0},
        (1, b"b"): {"full": 1, "empty": 0},
    }
    inventories = {name: frame.drop("size") for name, frame in frames(spark, sets).items()}
    found = reconcile(inventories, item_size=SIZE, tables=tables)
    plan = [(row.item, row.size, row.source, row.target) for row in found.plan.collect()]
    assert sorted(plan) == [(item, None, "full", "empty") for item in sorted(sets["full"])]
    found.close()


def test_a_payload_that_a_replica_lacks_is_copied_alone_and_one_that_nobody_has_is_not(spark):
    items = {b"a": 1, b"bb": None, b"ccc": 3}
    kept = {"all": items, "bare": dict.fromkeys(items), "none": {}}
    inventories = {
        name: spark.createDataFrame(
            [(item, payload) for item, payload in held.items()], "item binary, payload_bytes long"
        )
        for name, held in kept.items()
    }
    tables = {
        name: fingerprint(with_presence(frame), item_size=4, varying=True, levels=(0, 2)).ranges
        for name, frame in inventories.items()
    }
    found = reconcile(inventories, item_size=3, varying=True, tables=tables)
    plan = [(bytes(row.item), row.part, row.size, row.target) for row in found.plan.collect()]
    assert sorted(plan) == sorted(
        [(item, "item", None, "none") for item in items]
        + [(item, "payload", size, "bare") for item, size in items.items() if size]
    )
    holders = {bytes(row.item): row for row in found.holders.collect()}
    assert [holders[item].payload_holders for item in items] == [["all"], [], ["all"]]
    assert {bytes(row.item) for row in found.at_risk.collect()} == {b"a", b"ccc"}
    with pytest.raises(ColumnError, match="payload_bytes"):
        reconcile({**inventories, "none": inventories["none"].select("item")}, item_size=3)
    found.close()


def test_what_cannot_be_compared_is_refused(spark):
    frame = spark.createDataFrame([(b"a",)], "item binary")
    table = fingerprint(frame, item_size=1).ranges.persist()
    other = fingerprint(frame, item_size=1, monoid="xxh3-xor").ranges
    with pytest.raises(ValueError, match="other monoids or levels"):
        divergent_ranges({"a": table, "b": other})
    with pytest.raises(ValueError, match="two or more"):
        divergent_ranges({"a": table})
    with pytest.raises(ColumnError, match="monoid"):
        divergent_ranges({"a": table, "b": frame})
    with pytest.raises(ValueError, match="copies"):
        reconcile({"a": frame, "b": frame}, item_size=1, copies_min=3)
    with pytest.raises(ValueError, match="same replicas"):
        reconcile({"a": frame, "b": frame}, item_size=1, tables={"a": table})
    with pytest.raises(ColumnError, match="item"):
        reconcile({"a": frame.selectExpr("item as it"), "b": frame}, item_size=1)

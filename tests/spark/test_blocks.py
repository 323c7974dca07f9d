"""Summaries of blocks: facts about a part of a log without the rest, by a plain twin."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.errors import Reason
from culm.bamboo.links import SEQNUM_MAX, has_lipmaalink, lipmaa
from culm.spark.blocks import (
    BLOCK_BITS,
    LOWEST,
    SIGNED,
    SUMMARY,
    Signed,
    summarise,
)
from culm.spark.columns import arrow_schema
from culm.spark.packed import PACKED, pack, summaries
from culm.spark.reasons import bits

pyarrow = pytest.importorskip("pyarrow")

LOG = b"l" * 40
SIZE = 1 << BLOCK_BITS


def link_of(seqnum: int) -> bytes:
    return b"hash %20d" % seqnum


def signed(seqnum: int, **changes: object) -> Signed:
    """The one honest row of this number."""
    row = Signed(
        LOG,
        seqnum + LOWEST,
        link_of(seqnum),
        lipmaa(seqnum) + LOWEST,
        link_of(seqnum - 1) if seqnum > 1 else None,
        link_of(lipmaa(seqnum)) if has_lipmaalink(seqnum) else None,
        False,
        False,
    )
    return row._replace(**changes)


def whole(block: int) -> list[Signed]:
    last = min((block + 1) * SIZE, SEQNUM_MAX + 1)
    return [signed(seqnum) for seqnum in range(max(1, block * SIZE), last)]


@pytest.mark.parametrize("block", [0, 1, 2, 26, 1000, SEQNUM_MAX >> BLOCK_BITS])
def test_a_whole_block_has_no_faults_and_few_links_that_leave_it(block):
    found = summarise(whole(block))
    assert found.log == LOG
    assert found.block - (LOWEST >> BLOCK_BITS) == block
    assert found.rows == found.entries == len(whole(block))
    assert found.marks == []
    assert found.unbroken is None
    assert (found.forks, found.gaps) == (0, 0)
    assert len(found.links) < 30
    assert (found.links == []) == (block == 0)


@pytest.mark.parametrize("block", [1, 2, 26, 1093, 3280])
def test_what_later_blocks_link_to_is_open(block):
    """Each link that leaves a block leads to an entry that its own block has left open."""
    for link in summarise(whole(block)).links:
        at = (link["target"] - LOWEST) >> BLOCK_BITS
        opens = {each["n"]: each["hashes"] for each in summarise(whole(at)).opens}
        assert opens[link["target"]] == [link["link"]]


def dumb(rows: list[Signed]) -> dict[str, object]:
    """The summary, row by row, with nothing remembered."""
    block = (rows[0].n - LOWEST) >> BLOCK_BITS
    numbers = range(max(1, block * SIZE), (block + 1) * SIZE)
    there = {row.n - LOWEST for row in rows}
    missing = [seqnum for seqnum in numbers if seqnum not in there]

    def hashes(seqnum: int) -> set[bytes]:
        return {row.hash for row in rows if row.n - LOWEST == seqnum}

    back, lipmaas, forks = set(), set(), set()
    for row in rows:
        seqnum = row.n - LOWEST
        if seqnum - 1 in there and row.backlink not in hashes(seqnum - 1):
            back.add((row.n, row.hash))
        target = lipmaa(seqnum)
        if row.lipmaalink and target in there and row.lipmaalink not in hashes(target):
            lipmaas.add((row.n, row.hash))
        if len(hashes(seqnum)) > 1:
            forks.add((row.n, row.hash))
    return {
        "rows": len(rows),
        "entries": len(there),
        "highest": max(there) + LOWEST,
        "forks": len({n for n, _ in forks}),
        "gaps": len([n for n in there if n - 1 in numbers and n - 1 not in there]),
        "unbroken": missing[0] - 1 + LOWEST if missing else None,
        "forked_at": min((n for n, _ in forks), default=None),
        "lied_at": min((row.n for row in rows if row.lied), default=None),
        "ended_at": min((row.n for row in rows if row.ended), default=None),
        "back_at": min((n for n, _ in back), default=None),
        "lipmaa_at": min((n for n, _ in lipmaas), default=None),
        "marks": {
            *((n, hash, bits(Reason.WRONG_BACKLINK)) for n, hash in back),
            *((n, hash, bits(Reason.WRONG_LIPMAALINK)) for n, hash in lipmaas),
            *((n, hash, bits(Reason.FORK)) for n, hash in forks),
        },
    }


@given(
    st.sampled_from([0, 1, 2, 1093]),
    st.sets(st.integers(0, SIZE - 1), max_size=4),
    st.lists(st.integers(0, SIZE - 1), max_size=4),
    st.integers(0, 40),
    st.randoms(use_true_random=False),
)
def test_a_block_with_faults_is_summed_up_as_row_by_row(block, missing, hit, size, chance):
    rows = whole(block)[: chance.choice([size, SIZE])]
    rows = [row for at, row in enumerate(rows) if at not in missing]
    for at in hit:
        if at < len(rows):
            rows[at : at + 1] = changed(rows[at], chance)
    if rows:
        found = summarise(rows)
        wanted = dumb(rows)
        marks = {(mark["n"], mark["hash"], mark["bits"]) for mark in found.marks}
        assert {name: getattr(found, name) for name in wanted} | {"marks": marks} == wanted
        assert len(found.marks) == len(marks)


def changed(row: Signed, chance: Random) -> list[Signed]:
    match chance.randrange(6):
        case 0:
            return [row, row]
        case 1:
            return [row._replace(hash=b"other"), row]
        case 2:
            return [row._replace(backlink=row.backlink and b"other")]
        case 3:
            return [row._replace(lipmaalink=row.lipmaalink and b"other")]
        case 4:
            return [row._replace(ended=True)]
        case _:
            return [row, row._replace(lied=True)]


def tables(rows: list[Signed], size: int) -> Iterator[Any]:
    """The rows in batches of `size`, the way Spark passes them."""
    schema = arrow_schema(SIGNED)
    for start in range(0, len(rows), size):
        values = [row._asdict() for row in rows[start : start + size]]
        yield pyarrow.RecordBatch.from_pylist(values, schema)


def summed_up(batches: Iterator[Any], chance: Random) -> dict[tuple[bytes, int], dict[str, Any]]:
    """Summaries of rows that are packed, shuffled and sorted, by log and block."""
    sent = [row for batch in pack(batches) for row in batch.to_pylist()]
    chance.shuffle(sent)
    sent.sort(key=lambda row: (row["log"], row["block"]))
    schema = arrow_schema(PACKED)
    met = [
        pyarrow.RecordBatch.from_pylist(sent[at : at + 3], schema) for at in range(0, len(sent), 3)
    ]
    rows = [row for batch in summaries(iter(met)) for row in batch.to_pylist()]
    found = {(row["log"], row["block"]): in_order(row) for row in rows}
    assert len(found) == len(rows)
    return found


def in_order(summary: dict[str, Any]) -> dict[str, Any]:
    lists = {name: sorted(map(str, summary[name])) for name in ("marks", "links", "opens")}
    return summary | lists


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0, 1, 2, 1093, SEQNUM_MAX >> BLOCK_BITS]),
            st.sampled_from([3, 40, SIZE]),
            st.sampled_from([0, 0, 1, 30]),
            st.integers(0, 3),
            st.sampled_from(["", "", "doubled", "first", "of other sizes"]),
        ),
        max_size=4,
    ),
    st.sampled_from([7, 10_000]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_packed_blocks_are_summed_up_as_row_by_row(blocks, size, is_shuffled, chance):
    """In whatever order rows come, and though only blocks with faults are gone through."""
    rows: list[Signed] = []
    for log, block, count, start, hits, mood in blocks:
        some = whole(block)[start:count]
        for _ in range(hits if some else 0):
            at = chance.randrange(len(some))
            some[at : at + 1] = changed(some[at], chance)
        match mood:
            case "doubled":
                some += some[:9]
            case "first":
                some = [row._replace(backlink=None, lipmaalink=None) for row in some]
            case "of other sizes":
                some = [row._replace(backlink=row.hash[chance.randrange(9) :]) for row in some]
        rows += [row._replace(log=b"log %d" % log) for row in some]
    if is_shuffled:
        chance.shuffle(rows)
    wanted: dict[tuple[bytes, int], list[Signed]] = defaultdict(list)
    for row in rows:
        wanted[row.log, row.n >> BLOCK_BITS].append(row)
    said = {
        key: summarise(sorted(of, key=lambda row: (row.n, row.hash))) for key, of in wanted.items()
    }
    assert summed_up(tables(rows, size), chance) == {
        key: in_order({name: getattr(found, name) for name, _ in SUMMARY})
        for key, found in said.items()
    }


def test_copies_are_counted_before_they_travel_and_where_they_meet():
    log = whole(0)[:5]
    rows = [*log, *[log[2]] * 300, log[2]._replace(lied=True), log[4]._replace(hash=b"other")]
    [once] = pack(tables(log, 7))
    sent = list(pack(tables(rows, 7)))
    [packed] = sent
    assert len(packed["rows"][0].as_py()) * 5 == len(once["rows"][0].as_py()) * 6
    [found] = next(summaries(iter([*sent, *sent]))).to_pylist()
    assert (found["rows"], found["entries"], found["forks"]) == (2 * len(rows), 5, 1)
    assert found["lied_at"] == log[2].n


@pytest.mark.slow
@pytest.mark.parametrize("size", [10_000, 400_000], ids=["in batches", "in one batch"])
def test_copies_of_an_entry_take_no_memory(size):
    [batch] = tables([signed(1)], 1)
    batch = batch.take(pyarrow.array([0] * size))
    sent = (
        part for _ in range(400_000 // size) for part in list(pack(iter([batch]))) for _ in range(9)
    )
    tracemalloc.start()
    try:
        [found] = next(summaries(sent)).to_pylist()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["rows"] == 9 * 400_000
    assert peak < 40 << 20

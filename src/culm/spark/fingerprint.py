"""Fingerprints of sets of items: of their ranges, and as a tree like that of a node.

Items are the byte strings of `culm.reconcile`, in a column ``item``; `entry_items` makes them from
Bamboo entries.  They are sorted once, over all tasks, and each task sums up its own: batches become
small trees (`culm.reconcile.Frozen`) whose sums are kept, so that nothing is hashed twice.  The
tasks' sums are combined into those of ranges that span several tasks, and show the place of each
task in the whole.  From this every task makes its own part of the serialised tree, whose bytes
equal those of a tree built in one process.

A range is named by the prefix of its items.  *Level* n has one range for each prefix of n bytes;
level 0 is the whole set.  So the ranges of a set depend on its items alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.reconcile import DEFAULT, Fingerprint, Frozen, Monoid, Tree, named
from culm.reconcile.tree_format import HEADER_SIZE, Shape, sections
from culm.spark.columns import check_columns, row_batches, schema_text
from culm.spark.files import written_whole

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

#: The input: the items of a set, in any order; duplicates are allowed.
ITEM = (("item", "binary"),)
#: The rows of `Fingerprinted.ranges`.
RANGES = (
    ("monoid", "string"),
    ("level", "int"),
    ("range", "binary"),
    ("count", "bigint"),
    ("digest", "binary"),
)
#: The rows of `Fingerprinted.tree`.
PIECES = (("offset", "bigint"), ("data", "binary"))
#: Levels for items of entries: all, two bytes of the author, logs, 65,536 entries of a log.
ENTRY_LEVELS = (0, 2, 40, 46)

_CHUNK = (("part", "int"), ("count", "bigint"), ("state", "binary"), ("tree", "binary"))
_SUM = (("level", "int"), ("range", "binary"), ("count", "bigint"), ("state", "binary"))
_BLOCK = 64
_SLOTS, _SHORTS, _LOWEST, _STATES = range(4)

_Batches = Iterator["pyarrow.RecordBatch"]
_Rows = Iterator[dict[str, Any]]


def entry_items(rows: DataFrame) -> DataFrame:
    """Add the ``item`` of each decoded entry: its log, its sequence number in 8 bytes, its hash.

    In byte order items are sorted by log and sequence number, and two variants of an entry are two
    items.  The item is null where the entry could not be decoded.
    """
    from pyspark.sql import functions as f

    check_columns(rows, [("log", "binary"), ("seqnum", "bigint"), ("hash", "binary")])
    return rows.withColumn("item", f.concat("log", _octets(f.col("seqnum")), "hash"))


def _octets(number: Column) -> Column:
    """A number as 8 bytes, big-endian."""
    from pyspark.sql import functions as f

    return f.unhex(f.lpad(f.hex(number), 16, "0"))


@dataclass(frozen=True, slots=True)
class Fingerprinted:
    """The fingerprints of a set.

    `whole` is that of all items, with their number.  `ranges` has a row for each range of the
    given levels (`RANGES`).  `tree` has the pieces of the serialised tree (`PIECES`), in order;
    `write_tree` writes them to a file.  Both are computed from `items`.
    """

    whole: Fingerprint
    ranges: DataFrame
    tree: DataFrame
    items: DataFrame

    def close(self) -> None:
        """Free the disk space of the sorted items; tables used later are computed anew."""
        self.items.unpersist()


def fingerprint(
    items: DataFrame,
    *,
    item_size: int,
    varying: bool = False,
    monoid: str = DEFAULT,
    levels: Sequence[int] = (0,),
) -> Fingerprinted:
    """Fingerprint a set of items of `item_size` bytes, or of at most that if `varying`.

    The items are read twice, once to sample their distribution: write them to a file or persist
    them first.  They are sorted before this returns, and stay on disk until `Fingerprinted.close`
    or the end of the session.  Nulls are skipped, and duplicates count once.  Raises `ColumnError`
    if there is no column ``item``, ``ValueError`` for an unknown monoid or a size or level that no
    item can have.  The job fails with ``ValueError`` if an item has another size
    (`culm.spark.quarantine` sets such rows aside).
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    check_columns(items, ITEM)
    Tree(item_size=item_size, varying=varying)  # raises if there are no such items
    kind = named(monoid)
    if not levels or not all(0 <= level <= item_size for level in levels):
        raise ValueError(f"levels are 0 to {item_size} bytes of an item, and at least one")
    ordered = (
        items.select("item")
        .filter("item is not null")
        .repartitionByRange("item")
        .sortWithinPartitions("item")
        .withColumn("part", f.spark_partition_id())
    )
    chunks = ordered.mapInArrow(
        partial(_chunks, item_size=item_size, varying=varying, monoid=monoid), schema_text(_CHUNK)
    ).persist(StorageLevel.DISK_ONLY)
    parts = _sum_parts(chunks, kind)
    starts = list(accumulate(parts.values(), kind.combine, initial=kind.neutral))
    shape = Shape(kind, item_size, varying, starts[-1].count)
    whole = starts[-1]
    begins = dict(zip(parts, starts, strict=False))
    tree = _pieces(chunks, shape, begins, whole)
    return Fingerprinted(whole, _ranges(chunks, monoid, levels), tree, chunks)


# A chunk is a serialised tree of the items of a batch.


def _chunks(batches: _Batches, *, item_size: int, varying: bool, monoid: str) -> _Batches:
    """Chunks of the sorted items of a partition."""
    return row_batches(_trees(batches, item_size, varying, monoid), _CHUNK)


def _trees(batches: _Batches, item_size: int, varying: bool, monoid: str) -> _Rows:
    last: bytes | None = None
    for batch in batches:
        items = list(dict.fromkeys(batch.column("item").to_pylist()))
        if items and items[0] == last:
            del items[0]
        if not items:
            continue
        last = items[-1]
        tree = Tree(item_size=item_size, varying=varying, monoid=monoid)
        tree.load_items(items)
        count, state = tree.fingerprint()
        data = b"".join(tree.serialise())
        yield {
            "part": batch.column("part")[0].as_py(),
            "count": count,
            "state": state,
            "tree": data,
        }


def _sum_parts(chunks: DataFrame, monoid: Monoid) -> dict[int, Fingerprint]:
    """The fingerprints of all parts that have items, ascending."""
    columns = _CHUNK[:3]
    sums = chunks.select(*dict(columns)).mapInArrow(
        partial(_sum_of_chunks, monoid=monoid.name), schema_text(columns)
    )
    found = {row["part"]: Fingerprint(row["count"], bytes(row["state"])) for row in sums.collect()}
    return dict(sorted(found.items()))


def _sum_of_chunks(batches: _Batches, *, monoid: str) -> _Batches:
    rows = (row for batch in batches for row in batch.to_pylist())
    return row_batches(_merged(rows, named(monoid), ["part"]), _CHUNK[:3])


def _merged(rows: Iterable[dict[str, Any]], monoid: Monoid, key: Sequence[str]) -> _Rows:
    """Merge adjacent rows with the same `key` into one with their sum."""
    run: dict[str, Any] | None = None
    for row in rows:
        if run is not None and all(run[name] == row[name] for name in key):
            count, state = monoid.combine(_sum(run), _sum(row))
            run = {**run, "count": count, "state": state}
            continue
        if run is not None:
            yield run
        run = row
    if run is not None:
        yield run


def _sum(row: dict[str, Any]) -> Fingerprint:
    return Fingerprint(row["count"], row["state"])


# Ranges.


class _PrefixRange(NamedTuple):
    """A range of a level, or the part of it seen so far."""

    prefix: bytes
    sum: Fingerprint


def _ranges(chunks: DataFrame, monoid: str, levels: Sequence[int]) -> DataFrame:
    """The rows `RANGES`."""
    wanted = sorted(set(levels))
    parts = chunks.select("tree").mapInArrow(partial(_range_sums, levels=wanted), schema_text(_SUM))
    together = parts.repartition("level", "range").sortWithinPartitions("level", "range")
    return together.mapInArrow(partial(_range_rows, monoid=monoid), schema_text(RANGES))


def _range_sums(batches: _Batches, *, levels: Sequence[int]) -> _Batches:
    """The sums of all ranges of a partition; the first and the last may continue in others."""
    trees = (Frozen(tree.as_py()) for batch in batches for tree in batch.column("tree"))
    return row_batches(_range_sums_of(trees, levels), _SUM)


def _range_sums_of(trees: Iterable[Frozen], levels: Sequence[int]) -> _Rows:
    begun: dict[int, _PrefixRange] = {}
    for tree in trees:
        for level in levels:
            for found in _ranges_of(tree, level):
                before = begun.get(level)
                if before is not None and before.prefix == found.prefix:
                    both = tree.monoid.combine(before.sum, found.sum)
                    begun[level] = _PrefixRange(found.prefix, both)
                    continue
                if before is not None:
                    yield _range_row(level, before)
                begun[level] = found
    for level, last in begun.items():
        yield _range_row(level, last)


def _range_row(level: int, found: _PrefixRange) -> dict[str, Any]:
    count, state = found.sum
    return {"level": level, "range": found.prefix, "count": count, "state": state}


def _ranges_of(tree: Frozen, level: int) -> Iterator[_PrefixRange]:
    """The ranges of a level, in order; an item shorter than the level is a range by itself."""
    rank = 0
    while rank < len(tree):
        prefix = tree.select(rank)[:level]
        end = _behind(prefix)
        stop = rank + 1 if len(prefix) < level else len(tree) if end is None else tree.rank(end)
        yield _PrefixRange(prefix, tree.fingerprint_at(rank, stop - rank))
        rank = stop


def _behind(prefix: bytes) -> bytes | None:
    """The least upper bound of items that begin with `prefix`; ``None`` if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _range_rows(batches: _Batches, *, monoid: str) -> _Batches:
    """Whole ranges, merged from their sorted parts."""
    kind = named(monoid)
    parts = (row for batch in batches for row in batch.to_pylist())
    rows = (
        {**row, "monoid": monoid, "digest": kind.digest(_sum(row))}
        for row in _merged(parts, kind, ["level", "range"])
    )
    return row_batches(({name: row[name] for name, _ in RANGES} for row in rows), RANGES)


# The serialised tree, see `culm.reconcile.tree_format`.


def _pieces(
    chunks: DataFrame, shape: Shape, begins: dict[int, Fingerprint], whole: Fingerprint
) -> DataFrame:
    """The rows `PIECES`: the header, and each section with its padding."""
    spark: SparkSession = chunks.sparkSession

    def piece(offset: int, data: bytes) -> DataFrame:
        return spark.createDataFrame([(offset, data)], schema_text(PIECES)).coalesce(1)

    frame = piece(0, shape.encode())
    start = HEADER_SIZE
    for section, size in enumerate(shape.section_sizes):
        make = partial(_section_of, section=section, start=start, begins=begins)
        frame = frame.union(
            chunks.select("part", "count", "state", "tree").mapInArrow(make, schema_text(PIECES))
        )
        if section == _STATES:
            frame = frame.union(piece(start + size - len(whole.state), whole.state))
        padding = bytes(-size % _BLOCK)
        if padding:
            frame = frame.union(piece(start + size, padding))
        start += size + len(padding)
    return frame


def _section_of(
    batches: _Batches, *, section: int, start: int, begins: dict[int, Fingerprint]
) -> _Batches:
    """A partition's part of a section that begins at byte `start`."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return row_batches(_section_pieces(rows, section, start, begins), PIECES)


def _section_pieces(
    rows: Iterable[dict[str, Any]], section: int, start: int, begins: dict[int, Fingerprint]
) -> _Rows:
    before: Fingerprint | None = None
    for row in rows:
        if before is None:
            before = begins[row["part"]]
        tree = Frozen(row["tree"])
        data, unit, first = _SECTIONS[section](tree, row["tree"], before)
        if data:
            yield {"offset": start + first * unit, "data": data}
        before = tree.monoid.combine(before, _sum(row))


class _SectionPiece(NamedTuple):
    """Bytes of a section, the size of a unit, and the number of units before them."""

    data: bytes
    unit_size: int
    first: int


def _slots_piece(tree: Frozen, data: bytes, before: Fingerprint) -> _SectionPiece:
    shape, parts = sections(data)
    return _SectionPiece(bytes(parts[_SLOTS]), shape.slot_size, before.count)


def _shorts_piece(tree: Frozen, data: bytes, before: Fingerprint) -> _SectionPiece:
    _, parts = sections(data)
    return _SectionPiece(bytes(parts[_SHORTS]), len(parts[_SHORTS]) // len(tree), before.count)


def _block_starts(tree: Frozen, before: Fingerprint) -> range:
    """The ranks in this tree at which blocks of the whole tree begin."""
    return range(-before.count % _BLOCK, len(tree), _BLOCK)


def _lowest_piece(tree: Frozen, data: bytes, before: Fingerprint) -> _SectionPiece:
    shape, parts = sections(data)
    size = shape.slot_size
    slots = (parts[_SLOTS][size * rank : size * (rank + 1)] for rank in _block_starts(tree, before))
    return _SectionPiece(b"".join(slots), size, -(-before.count // _BLOCK))


def _states_piece(tree: Frozen, data: bytes, before: Fingerprint) -> _SectionPiece:
    states = [
        tree.monoid.combine(before, tree.fingerprint_at(0, rank)).state
        for rank in _block_starts(tree, before)
    ]
    return _SectionPiece(b"".join(states), len(before.state), -(-before.count // _BLOCK))


_SECTIONS: tuple[Callable[[Frozen, bytes, Fingerprint], _SectionPiece], ...] = (
    _slots_piece,
    _shorts_piece,
    _lowest_piece,
    _states_piece,
)


def write_tree(pieces: DataFrame, path: str) -> int:
    """Write the pieces of a tree to a file that `culm.reconcile.Frozen` opens; returns its size.

    They are fetched task by task, so that this process holds few of them at a time.  The file gets
    its name when it is complete.  Raises ``ValueError`` unless each piece begins where the one
    before it ends, as in `Fingerprinted.tree`.
    """
    check_columns(pieces, PIECES)
    size = 0
    with written_whole(path) as file:
        for row in pieces.select("offset", "data").toLocalIterator():
            if row["offset"] != size:
                raise ValueError(f"a piece begins at {row['offset']}, and not at {size}")
            file.write(row["data"])
            size += len(row["data"])
    return size

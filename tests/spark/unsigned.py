"""Rows as verification makes them, of logs that nobody has signed: large ones in no time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.spark.audit import NEEDED
from culm.spark.columns import row_batches, schema_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

SMALL = 10  # entries of a small log


def rows(spark: SparkSession, large: int, small: int, *, missing: int = 0) -> DataFrame:
    """One log of `large` entries, among `small` logs of ten; entry `missing` of it is not there."""
    places = spark.range(large + SMALL * small, numPartitions=8)
    work = partial(_rows, large=large, missing=missing)
    return places.mapInArrow(work, schema_text(NEEDED))


def _rows(
    batches: Iterable[pyarrow.RecordBatch], *, large: int, missing: int
) -> Iterator[pyarrow.RecordBatch]:
    places = (place for batch in batches for place in batch.column("id").to_pylist())
    made = (_row(*_place(place, large)) for place in places if place != missing - 1)
    return row_batches(made, NEEDED)


def _place(place: int, large: int) -> tuple[int, int]:
    """The number of a log, and that of an entry in it."""
    if place < large:
        return 0, place + 1
    log, index = divmod(place - large, SMALL)
    return log + 1, index + 1


def _row(log: int, seqnum: int) -> dict[str, object]:
    target = lipmaa(seqnum)
    return {
        "log": _log(log),
        "seqnum": seqnum,
        "end_of_log": False,
        "lipmaa": target,
        "lipmaalink": _hash(log, target) if has_lipmaalink(seqnum) else None,
        "backlink": _hash(log, seqnum - 1) if seqnum > 1 else None,
        "hash": _hash(log, seqnum),
        "reasons": 0,
    }


def _log(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=32).digest() + bytes(8)


def _hash(log: int, seqnum: int) -> bytes:
    return blake2b(b"%d/%d" % (log, seqnum), digest_size=34).digest()

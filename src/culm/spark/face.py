"""Reading, decoding and verifying in one call each, as most programs need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culm.spark.decode import decode_entries, family_named
from culm.spark.files import absolute
from culm.spark.kinds import KINDS
from culm.spark.source import register
from culm.wire.multihash import YASMF, HashFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, *paths: str, **options: object) -> DataFrame:
    """The rows of archives, files of lines and tables (`culm.spark.reading.ROWS`).

    `options` are those of the format ``culm``, see `culm.spark.options`.
    """
    register(spark)
    reader = spark.read.format("culm").options(
        **{name: str(value) for name, value in options.items()}
    )
    return reader.load([absolute(path) for path in paths])


def decode(
    rows: DataFrame, family: HashFamily | str = YASMF, *, keep: Sequence[str] | None = None
) -> DataFrame:
    """The fields of Bamboo entries, see `culm.spark.decode.decode_entries`.

    `family` may be given by name.  Raises `ValueError` for an unknown one.
    """
    if isinstance(family, str):
        family = family_named(family)
    return decode_entries(rows, family, keep=keep)


def verify(
    rows: DataFrame, kind: str = "bamboo/YASMF", *, keep: Sequence[str] | None = None
) -> DataFrame:
    """The fields of records of a `kind` of `culm.spark.kinds.KINDS`, and the reasons against each.

    They are the input of `culm.spark.audit`.  `keep` names the columns that stay, by default all
    but ``payload``.  Raises `ValueError` for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"a kind is {', '.join(KINDS)}, not {kind}")
    return KINDS[kind].verify(rows, keep)

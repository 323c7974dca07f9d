"""Counts of rows, told while the rows are used for something else.

`observe` adds them to a DataFrame, without a pass of its own: a batch tells them by
``pyspark.sql.Observation``, a stream in each of its ``StreamingQueryProgress`` (`told_in`).  They
have the names of findings, so that `culm.spark.checks.Checks` can judge them, through `outcome_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from culm.bamboo.errors import Reason
from culm.spark.checks import SET_ASIDE, Outcome
from culm.spark.columns import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: The name under which a stream tells them.
NAME = "culm"
#: The number of rows.
ROWS = "ROWS"
#: All names: rows, those that were set aside, and those against which each reason stands.
METRICS = (ROWS, SET_ASIDE, *(reason.name for reason in Reason))


def observe(rows: DataFrame, by: str | Observation = NAME) -> DataFrame:
    """The same rows, verified or audited ones, whose `METRICS` are told as they pass.

    `by` is the name under which a stream tells them, or an ``Observation``.  Raises `ColumnError`
    if there is no ``fault`` or no ``reasons``.
    """
    from pyspark.sql import functions as f

    check_columns(rows, [("fault", "string"), ("reasons", "int")])
    against = (
        f.count_if(f.col("reasons").bitwiseAND(1 << reason) != 0).alias(reason.name)
        for reason in Reason
    )
    faults = f.count("fault").alias(SET_ASIDE)
    return rows.observe(by, f.count(f.lit(1)).alias(ROWS), faults, *against)


def told_in(progress: StreamingQueryProgress, name: str = NAME) -> dict[str, int]:
    """The metrics of a stream's batch; empty if the progress tells of none.

    Over Spark Connect, PySpark 4.3 gives the values and the schema of the row in its place.
    """
    row = progress.observedMetrics.get(name)
    told: dict[str, Any] = {} if row is None else row.asDict()
    if "schema" in told:
        return dict(
            zip((each["name"] for each in told["schema"]["fields"]), told["values"], strict=True)
        )
    return told


def outcome_of(metrics: Mapping[str, int]) -> Outcome:
    """An outcome for `culm.spark.checks.Checks`: ``checks.status(outcome_of(observation.get))``.

    For a stream, `metrics` are ``told_in(progress)``.
    """
    found = {name: metrics[name] for name in METRICS if name != ROWS}
    return Outcome(dict(metrics), found, {NAME: metrics[ROWS]})

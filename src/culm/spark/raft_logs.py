"""Logs of Garlic Farm's servers as columns, and contradictions between them.

Input has a row for each entry in a server's log, as stores keep them: ``server`` (any type), ``at``
(bigint: its index), ``term`` (bigint), ``is_configuration`` (boolean), ``value`` (binary).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from culm.garlic import Limits, decode_configuration
from culm.machine import ProtocolError
from culm.spark.columns import check_columns, free_names, map_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns that an entry needs besides its ``server``.
RAFT_LOG = (
    ("at", "bigint"),
    ("term", "bigint"),
    ("is_configuration", "boolean"),
    ("value", "binary"),
)
#: The columns that `decode_raft_entries` adds.
RAFT_ENTRIES = (("servers", "string"), ("fault", "string"))
#: The possible faults of a log, by itself or beside another one.
VIOLATIONS = {
    "GAP": "the entry before is missing, though there are earlier ones",
    "TERM_WENT_BACK": "the term is less than that of the entry before",
    "LOGS_DISAGREE": "another server has another entry with this index and this term",
}


def decode_raft_entries(frame: DataFrame, *, keep: Sequence[str] | None = None) -> DataFrame:
    """Add the ``servers`` of entries that are configurations, as JSON, and their ``fault``.

    The fault is null, or a name of `culm.garlic.ErrorCode` for a configuration that cannot be
    decoded.  Values of the state machine are not looked at.  Raises `ColumnError` if one of
    `RAFT_LOG` is missing or of another type.
    """
    check_columns(frame, RAFT_LOG)
    kept = free_names(frame, dict(RAFT_ENTRIES)) if keep is None else list(keep)
    return map_rows(frame, _rows, ["is_configuration", "value"], kept, RAFT_ENTRIES)


def _rows(given: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    limits = Limits()
    for row in given:
        if row.get("fault") is not None:
            yield {"fault": row["fault"]}
        elif not row["is_configuration"]:
            yield {}
        else:
            yield _servers(row["value"] or b"", limits)


def _servers(value: bytes, limits: Limits) -> dict[str, Any]:
    try:
        configuration = decode_configuration(value, limits)
    except ProtocolError as error:
        return {"fault": error.code.name}
    servers = {str(server.server_id): server.endpoint for server in configuration.servers}
    return {"servers": json.dumps(servers)}


def raft_violations(frame: DataFrame) -> DataFrame:
    """A row for each entry that must not be in its place: ``server``, ``at``, ``violation``.

    `VIOLATIONS` lists the kinds (Ongaro and Ousterhout 2014, figure 3, "Log Matching").  No
    step gathers a whole log in one task.  Raises `ColumnError` as `decode_raft_entries` does.
    """
    from pyspark.sql import functions as f

    check_columns(frame, RAFT_LOG)
    rows = frame.select("server", "at", "term", "is_configuration", "value")
    # One for each index, however often a log has it, and none after the largest number.
    before = rows.groupBy(
        f.col("server").alias("_server"), f.try_add("at", f.lit(1)).alias("_next")
    ).agg(f.max("term").alias("_term"))
    first = rows.groupBy(f.col("server").alias("_of")).agg(f.min("at").alias("_first"))
    follows = (f.col("server") == f.col("_server")) & (f.col("at") == f.col("_next"))
    linked = rows.join(before, follows, "left").join(first, f.col("server") == f.col("_of"))
    content = f.struct("is_configuration", "value")
    disputed = (
        rows.groupBy(f.col("at").alias("_index"), f.col("term").alias("_in"))
        .agg(f.min(content).alias("_least"), f.max(content).alias("_most"))
        .filter("_least <> _most")
    )
    same = (f.col("at") == f.col("_index")) & (f.col("term") == f.col("_in"))
    found = {
        "GAP": linked.filter(f.col("_next").isNull() & (f.col("at") > f.col("_first"))),
        "TERM_WENT_BACK": linked.filter(f.col("term") < f.col("_term")),
        "LOGS_DISAGREE": rows.join(disputed, same, "left_semi"),
    }
    each = [
        violating.select("server", "at", f.lit(name).alias("violation"))
        for name, violating in found.items()
    ]
    return reduce(lambda one, other: one.union(other), each)

"""Operations of p2panda, the payloads of its entries, as columns.

Entries of p2panda are Bamboo entries with YASMF hashes, for which `culm.spark.decode` and
`culm.spark.audit` serve as they are.  This module decodes the payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

from culm.p2panda import decode
from culm.p2panda.errors import InvalidOperation
from culm.spark.columns import check_columns, free_names, map_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns that `decode_operations` adds; with a ``fault`` all others are null.
OPERATIONS = (
    ("action", "string"),
    ("schema_id", "string"),
    ("previous", "array<binary>"),
    ("fields", "string"),
    ("fault", "string"),
)
#: The fault of a row whose payload is null; others are names of `culm.p2panda.errors.Reason`.
NO_PAYLOAD = "NO_PAYLOAD"


def decode_operations(frame: DataFrame, *, keep: Sequence[str] | None = None) -> DataFrame:
    """Add the fields of the operation in each ``payload``: the columns `OPERATIONS`.

    ``fields`` is JSON, in which bytes are hexadecimal, and numbers that JSON lacks are text:
    ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.  `keep` names the columns that stay, by
    default all but ``payload``.  A fault that is already there stays.  Raises `ColumnError` if
    ``payload`` is missing or of another type.
    """
    check_columns(frame, [("payload", "binary")])
    kept = free_names(frame, [*dict(OPERATIONS), "payload"]) if keep is None else list(keep)
    return map_rows(frame, operation_rows, ["payload"], kept, OPERATIONS)


def operation_rows(given: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The new columns of a batch's rows."""
    for row in given:
        if row.get("fault") is not None:
            yield {"fault": row["fault"]}
        elif row["payload"] is None:
            yield {"fault": NO_PAYLOAD}
        else:
            yield _fields(row["payload"])


def _fields(payload: bytes) -> dict[str, Any]:
    try:
        operation = decode(payload)
    except InvalidOperation as error:
        return {"fault": error.reason.name}
    return {
        "action": operation.action.name,
        "schema_id": operation.schema_id,
        "previous": list(operation.previous),
        "fields": json.dumps(
            {name: _plain(value) for name, value in operation.fields.items()},
            default=bytes.hex,
            allow_nan=False,
        ),
    }


def _plain(value: object) -> object:
    """A value in JSON's types; numbers that JSON lacks are spelled out."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value

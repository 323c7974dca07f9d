"""Records that are verified where they are read: option ``verify`` of the format ``culm``.

Otherwise their bytes go from Python to Java and back, which costs as much as all else but the
signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culm.spark.kinds import Kind
from culm.spark.quarantine import WRONG_KIND
from culm.spark.workers import Batches

if TYPE_CHECKING:
    import pyarrow

#: The columns with the size in bytes of each record, its payload included, and of its payload.
SIZES = (("size", "bigint"), ("payload_bytes", "bigint"))


def verified_columns(given: Sequence[tuple[str, str]], kind: Kind) -> list[tuple[str, str]]:
    """The columns of rows with columns `given` that are verified as a `kind`: all but payloads."""
    made = {*dict(kind.made), "payload"}
    return [*(each for each in (*given, *SIZES) if each[0] not in made), *kind.made]


def verified(batches: Batches, kind: Kind, names: Sequence[str]) -> Batches:
    """Of all rows the columns with these names, among them those that verification gives.

    Records of an archive of another kind have the fault ``WRONG_KIND``.
    """
    made = [name for name, _ in kind.made if name in names]
    kept = [name for name in names if name not in made]
    work = kind.mapper(kept, made)
    return (batch.select(list(names)) for batch in work(_prepared(each, kind) for each in batches))


def _prepared(batch: pyarrow.RecordBatch, kind: Kind) -> pyarrow.RecordBatch:
    """A batch with `SIZES`, and a fault of its own for records of another kind."""
    import pyarrow
    from pyarrow import compute

    def call(name: str, *arguments: object) -> pyarrow.Array:
        return compute.call_function(name, list(arguments))

    entries, payloads = (
        call("binary_length", batch.column(name)).cast("int64") for name in ("entry", "payload")
    )
    given, faults = batch.column("kind"), batch.column("fault")
    is_other = call("coalesce", call("not_equal", given, kind.name), False)
    if is_other.true_count:
        wrong = call("if_else", is_other, WRONG_KIND, pyarrow.scalar(None, pyarrow.string()))
        faults = call("coalesce", faults, wrong)
    columns = {
        **dict(zip(batch.schema.names, batch.columns, strict=True)),
        "fault": faults,
        "size": call("add", entries, call("coalesce", payloads, 0)),
        "payload_bytes": payloads,
    }
    return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

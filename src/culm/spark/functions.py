"""Functions for SQL: decoding and verification of records without Python.

`register_functions` makes them known to a session; each is named after a function of Python, and
returns a struct of the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from culm.bamboo.errors import Reason
from culm.spark.columns import arrow_schema, batch_of, schema_text
from culm.spark.decode import DECODED, VERIFIED, batch_mapper, family_named
from culm.spark.dissection import DISSECTED, dissected_rows
from culm.spark.operations import OPERATIONS, operation_rows
from culm.spark.ssb import MESSAGES, message_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

_Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Function:
    """A function for SQL: its `arguments`, its results, and its work on whole columns.

    Results are structs of columns, or of a type of Spark.
    """

    name: str
    arguments: _Columns
    gives: _Columns | str
    work: Callable[..., pyarrow.Array]
    about: str


def _of_entries(*columns: pyarrow.Array, gives: _Columns) -> pyarrow.Array:
    """Entries, and perhaps their payloads; the last column names their hash families."""
    import pyarrow
    from pyarrow import compute

    *given, families = columns
    names = ("entry", "payload")[: len(given)]
    batch = pyarrow.RecordBatch.from_arrays(given, names=list(names))
    made = [name for name, _ in gives]
    parts: list[pyarrow.RecordBatch] = []
    places: list[pyarrow.Array] = []
    for family in families.unique().to_pylist():
        at = compute.call_function(
            "indices_nonzero", [compute.call_function("equal", [families, family])]
        )
        places.append(at)
        parts += batch_mapper(family_named(family).name, names, (), made)(iter([batch.take(at)]))
    if not parts:
        return _struct(arrow_schema(gives).empty_table().to_batches(max_chunksize=1), gives)
    order = compute.call_function("sort_indices", [pyarrow.concat_arrays(places)])
    return _struct(parts, gives).take(order)


def _of_rows(
    column: pyarrow.Array,
    *,
    name: str,
    make: Callable[[Sequence[dict[str, Any]]], Iterator[dict[str, Any]]],
    gives: _Columns,
) -> pyarrow.Array:
    """Records that are processed one by one."""
    rows = [{name: value} for value in column.to_pylist()]
    return _struct([batch_of(list(make(rows)), arrow_schema(gives))], gives)


def _of_bytes(data: pyarrow.Array, protocols: pyarrow.Array) -> pyarrow.Array:
    """Bytes, and the names of their protocols."""
    import pyarrow

    schema = arrow_schema(DISSECTED)
    pairs = zip(data.to_pylist(), protocols.to_pylist(), strict=True)
    return pyarrow.array([dissected_rows(*each) for each in pairs], pyarrow.struct(list(schema)))


def _struct(batches: Sequence[pyarrow.RecordBatch], gives: _Columns) -> pyarrow.Array:
    import pyarrow

    schema = arrow_schema(gives)
    table = pyarrow.Table.from_batches(
        [batch.select([name for name, _ in gives]).cast(schema) for batch in batches], schema
    )
    columns = [column.combine_chunks() for column in table.columns]
    return pyarrow.StructArray.from_arrays(columns, fields=list(schema))


def _names_of(reasons: pyarrow.Array) -> pyarrow.Array:
    """The names of the reasons in a column of bits, which has few different values."""
    import pyarrow

    coded = reasons.dictionary_encode()
    names = [
        None if number is None else [each.name for each in Reason if number >> each & 1]
        for number in coded.dictionary.to_pylist()
    ]
    return pyarrow.array(names, pyarrow.list_(pyarrow.string())).take(coded.indices)


_ENTRY, _PAYLOAD, _FAMILY = ("entry", "binary"), ("payload", "binary"), ("family", "string")

#: All functions.
FUNCTIONS = (
    Function(
        "culm_decode",
        (_ENTRY, _FAMILY),
        DECODED,
        partial(_of_entries, gives=DECODED),
        "the fields of a Bamboo entry, with hashes of the family `YAMF` or `YASMF`",
    ),
    Function(
        "culm_verify",
        (_ENTRY, _PAYLOAD, _FAMILY),
        VERIFIED,
        partial(_of_entries, gives=VERIFIED),
        "the same, and the reasons against the entry and its payload, which may be null",
    ),
    Function(
        "culm_verify_message",
        (_ENTRY,),
        MESSAGES,
        partial(_of_rows, name="entry", make=message_rows, gives=MESSAGES),
        "the fields of a message of Secure Scuttlebutt, and the reasons against it",
    ),
    Function(
        "culm_decode_operation",
        (_PAYLOAD,),
        OPERATIONS,
        partial(_of_rows, name="payload", make=operation_rows, gives=OPERATIONS),
        "the content of an operation of p2panda",
    ),
    Function(
        "culm_dissect",
        (("data", "binary"), ("protocol", "string")),
        DISSECTED,
        _of_bytes,
        "the fields of the bytes that one side has sent, by a protocol of `culm.capture.dissect`",
    ),
    # Spark refuses to explode the result of a function written in SQL.
    Function(
        "culm_reasons",
        (("reasons", "int"),),
        "array<string>",
        _names_of,
        "the names of the reasons for which bits stand, ascending",
    ),
)


def register_functions(spark: SparkSession) -> None:
    """Make `FUNCTIONS` known to a session, for SQL."""
    from pyspark.sql.functions import arrow_udf

    for function in FUNCTIONS:
        kind = function.gives
        if not isinstance(kind, str):
            kind = f"struct<{schema_text(kind).replace('` ', '`: ')}>"
        spark.udf.register(function.name, arrow_udf(_checked(function), kind))


def _checked(function: Function) -> Callable[..., Any]:
    """The function's work, with an error that names its arguments if it gets others."""

    def work(*columns: pyarrow.Array) -> pyarrow.Array:
        kinds = [kind for _, kind in function.arguments]
        if len(columns) != len(kinds) or not all(map(_fits, columns, kinds)):
            wanted = ", ".join(f"{name} ({kind})" for name, kind in function.arguments)
            raise ValueError(f"{function.name} takes {wanted}")
        # A literal NULL has a type of its own.
        return function.work(
            *(
                each.cast(kind) if str(each.type) == "null" else each
                for each, kind in zip(columns, kinds, strict=True)
            )
        )

    # PySpark would take annotations for those of another kind of function.
    return lambda *columns: work(*columns)


def _fits(column: pyarrow.Array, kind: str) -> bool:
    return kind in str(column.type) or str(column.type) == "null"

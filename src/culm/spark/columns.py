"""Arrow columns as input for the kernels, and the kernels' output as Arrow columns.

Nothing is copied on the way: buffers go in and out as they are.  Work that is done row by row, in
Python, goes through `map_rows` and `row_batches`.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.spark.errors import ColumnError
from culm.spark.workers import Batches, settled

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from pyspark.sql import DataFrame

#: Limit for rows that are broadcast: the driver and every executor hold them in memory.
SENT_MAX = 100_000

#: Limit in bytes for the values of a batch, unless a single value is larger.
BATCH_SIZE = 4 << 20

_ROWS_MAX = 1000
_END_SIZE = 8
_RECORDS_MAX = 1 << 16
# What a byte, and a struct in an array, count for in a batch.
_SIZES: dict[type[Any], int] = {bytes: 1, list: 1 << 8}


class Messages(NamedTuple):
    """The values of a binary column: a buffer, and offsets into it, one more than values."""

    data: memoryview
    offsets: memoryview


def messages(column: pyarrow.Array) -> Messages:
    """The values of a column of any of Arrow's binary types; values of nulls are undefined.

    Raises `ColumnError` for another type.
    """
    import pyarrow

    if pyarrow.types.is_binary_view(column.type) or pyarrow.types.is_fixed_size_binary(column.type):
        column = column.cast(pyarrow.large_binary())
    wide = pyarrow.types.is_large_binary(column.type)
    if not wide and not pyarrow.types.is_binary(column.type):
        raise ColumnError("of entries", "binary", str(column.type))
    _, offsets, data = column.buffers()
    if not len(column) or offsets is None:
        return Messages(memoryview(b""), memoryview(array("i", bytes(4 * (len(column) + 1)))))
    cuts = memoryview(offsets).cast("B").cast("q" if wide else "i")
    window = cuts[column.offset : column.offset + len(column) + 1]
    return Messages(memoryview(data if data is not None else b""), window)


def cuts_of(sizes: Any) -> Any:
    """The places where adjacent values begin, and the end of the last one."""
    import numpy

    cuts: numpy.ndarray[Any, Any] = numpy.zeros(len(sizes) + 1, "int64")
    numpy.cumsum(sizes, out=cuts[1:])
    return cuts


def parts_of(cuts: Any) -> Iterator[slice]:
    """Split values, given by `cuts_of`, into parts of at most `BATCH_SIZE` bytes or one value."""
    import numpy

    start, count = 0, len(cuts) - 1
    while start < count:
        behind = int(numpy.searchsorted(cuts, cuts[start] + BATCH_SIZE, "right"))
        stop = min(max(start + 1, behind - 1), start + _RECORDS_MAX, count)
        yield slice(start, stop)
        start = stop


def validity(present: numpy.ndarray[Any, Any]) -> pyarrow.Buffer:
    """The validity bitmap of a column that has values where `present` is true."""
    import numpy
    import pyarrow

    return pyarrow.py_buffer(numpy.packbits(present, bitorder="little").tobytes())


def fixed(
    values: bytes, size: int, present: numpy.ndarray[Any, Any] | None = None
) -> pyarrow.Array:
    """A binary column of values of `size` bytes each; null where they are not `present`."""
    import numpy
    import pyarrow

    count = len(values) // size
    if len(values) >= 2**31:
        kind, width = pyarrow.large_binary(), "int64"
    else:
        kind, width = pyarrow.binary(), "int32"
    cuts: numpy.ndarray[Any, Any] = numpy.arange(0, len(values) + 1, size, dtype=width)
    bitmap = None if present is None else validity(present)
    buffers = [bitmap, pyarrow.py_buffer(cuts), pyarrow.py_buffer(values)]
    return pyarrow.Array.from_buffers(kind, count, buffers)


def numbers(
    values: bytes | numpy.ndarray[Any, Any],
    kind: str = "int64",
    present: numpy.ndarray[Any, Any] | None = None,
) -> pyarrow.Array:
    """A column of adjacent numbers of numpy's type `kind`.

    Numbers of 2^63 and more become negative, since Spark has no unsigned 64-bit numbers.
    """
    import numpy
    import pyarrow

    plain = numpy.frombuffer(values, kind) if isinstance(values, bytes) else values.astype(kind)
    bitmap = None if present is None else validity(present)
    arrow_type = pyarrow.from_numpy_dtype(plain.dtype)
    buffers = [bitmap, pyarrow.py_buffer(numpy.ascontiguousarray(plain))]
    return pyarrow.Array.from_buffers(arrow_type, len(plain), buffers)


def equal_rows(first: bytes, second: bytes, size: int) -> numpy.ndarray[Any, Any]:
    """For each pair of values, of `size` bytes each, whether they are equal."""
    import numpy

    if first == second:
        return numpy.ones(len(first) // size, bool)
    pair = (numpy.frombuffer(values, "uint8").reshape(-1, size) for values in (first, second))
    return numpy.asarray(numpy.equal(*pair).all(axis=1))


def distinct(
    batch: pyarrow.RecordBatch, names: Sequence[str]
) -> tuple[pyarrow.RecordBatch, pyarrow.Array | None]:
    """These columns without repetition, and the place of each row of `batch` among their rows.

    In place of the latter ``None`` if no two values of the first column are equal, a cheap case.
    """
    import numpy
    import pyarrow

    batch = batch.select(list(names))
    if _end_differently(batch.column(0)):
        return batch, None
    keys: Any = None
    for name in names:
        column = batch.column(name)
        if pyarrow.types.is_binary_view(column.type):
            column = column.cast(pyarrow.large_binary())
        coded = column.dictionary_encode()
        codes = numpy.asarray(coded.indices.fill_null(len(coded.dictionary)))
        if keys is None:
            if len(coded.dictionary) + min(column.null_count, 1) == len(batch):
                return batch, None
            keys = codes.astype("int64")
        else:
            mixed = keys * (len(coded.dictionary) + 1) + codes
            keys = numpy.unique(mixed, return_inverse=True)[1]
    _, first, back = numpy.unique(keys, return_index=True, return_inverse=True)
    return batch.take(pyarrow.array(first)), pyarrow.array(back)


def _end_differently(column: pyarrow.Array) -> bool:
    """Whether no two values have the same last bytes, which is cheaper to find than equal values.

    That is where signatures are.
    """
    import numpy
    import pyarrow
    from pyarrow import compute

    if pyarrow.types.is_binary_view(column.type) or column.null_count:
        return False
    sliced = compute.call_function("binary_slice", [column], compute.SliceOptions(-_END_SIZE))
    data = sliced.buffers()[-1]
    if data is None or data.size != _END_SIZE * len(column):
        return False  # some are shorter
    ends = numpy.sort(numpy.frombuffer(data, "uint64"))
    return not (ends[1:] == ends[:-1]).any()


def check_columns(frame: DataFrame, wanted: Sequence[tuple[str, str]]) -> None:
    """Raise `ColumnError` unless `frame` has these columns, pairs of a name and a type.

    A name that Spark would find twice (by default it ignores case) counts as missing.
    """
    found = dict(frame.dtypes)
    folded = _folder(frame)
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for column in frame.columns:
        alike[folded(column)].append(column)
    for name, kind in wanted:
        if len(same := alike[folded(name)]) > 1:
            raise ColumnError(name, kind, f"ambiguous ({', '.join(same)})")
        if found.get(name) != kind:
            raise ColumnError(name, kind, found.get(name))


def has_column(frame: DataFrame, name: str) -> bool:
    """Whether an optional column exists; raises `ColumnError` if only in another spelling."""
    folded = _folder(frame)
    alike = [column for column in frame.columns if folded(column) == folded(name)]
    if alike and name not in alike:
        raise ColumnError(name, name, f"there as {alike[0]}")
    return bool(alike)


def _folder(frame: DataFrame) -> Callable[[str], str]:
    """A function that folds names which are the same to the session of `frame`."""
    is_exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    return str if is_exact else str.lower


def sent_if_few(frame: DataFrame, most: int = SENT_MAX) -> DataFrame:
    """Broadcast `frame` in joins if it has at most this many rows."""
    from pyspark.sql import functions as f

    return f.broadcast(frame) if frame.count() <= most else frame


def free_names(frame: DataFrame, made: Iterable[str]) -> list[str]:
    """The columns of `frame` that stay: all but those that are `made` anew."""
    folded = _folder(frame)
    taken = set(map(folded, made))
    return [name for name in frame.columns if folded(name) not in taken]


def schema_text(columns: Iterable[tuple[str, str]]) -> str:
    """Names and types as a schema in Spark's notation."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns)


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pyarrow.Schema:
    """The same as an Arrow schema, for the types that rows here have."""
    import pyarrow

    return pyarrow.schema([(name, _arrow_type(kind)) for name, kind in columns])


_NESTED = re.compile(r"(array|struct)<(.*)>")
_PART = re.compile(r"(?:[^,<>]|<(?:[^<>]|<[^<>]*>)*>)+")


def _arrow_type(kind: str) -> pyarrow.DataType:
    import pyarrow

    nested = _NESTED.fullmatch(kind)
    if nested is None:
        plain: dict[str, pyarrow.DataType] = {
            "binary": pyarrow.binary(),
            "string": pyarrow.string(),
            "bigint": pyarrow.int64(),
            "int": pyarrow.int32(),
            "double": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
        }
        return plain[kind]
    if nested[1] == "array":
        return pyarrow.list_(_arrow_type(nested[2]))
    parts = (part.partition(":") for part in _PART.findall(nested[2]))
    return pyarrow.struct([(name, _arrow_type(inner)) for name, _, inner in parts])


def bigint(value: int) -> int | None:
    """A number as Spark has it: from 2^63 on negative; ``None`` if it has more than 64 bits."""
    if not -_HALF <= value < 2 * _HALF:
        return None
    return value - 2 * _HALF if value >= _HALF else value


_HALF = 1 << 63


def row_batches(
    rows: Iterable[dict[str, Any]], columns: Sequence[tuple[str, str]]
) -> Iterator[pyarrow.RecordBatch]:
    """Batches of `rows`, of a few megabytes each at most; values that a row lacks are null."""

    schema = arrow_schema(columns)
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(each) * _SIZES[type(each)] for each in row.values() if type(each) in _SIZES)
        if len(batch) >= _ROWS_MAX or size >= BATCH_SIZE:
            yield batch_of(batch, schema)
            batch, size = [], 0
    yield batch_of(batch, schema)


def batch_of(rows: list[dict[str, Any]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """A batch of rows; in strings, U+FFFD replaces signs that Arrow's text cannot hold."""
    import pyarrow

    try:
        return pyarrow.RecordBatch.from_pylist(rows, schema)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can express
        return pyarrow.RecordBatch.from_pylist(
            [{name: _sound_text(value) for name, value in row.items()} for row in rows], schema
        )


def _sound_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: Makes one row of each row of a batch, in the same order.
RowMaker = Callable[[Sequence[dict[str, Any]]], Iterator[dict[str, Any]]]


def map_rows(
    frame: DataFrame,
    make: RowMaker,
    needed: Sequence[str],
    kept: Sequence[str],
    made: Sequence[tuple[str, str]],
) -> DataFrame:
    """Add columns to each row, which `make` computes from the `needed` ones.

    A column ``fault``, if there is one, is passed to `make`, too.  Raises `ColumnError` if a column
    of `kept` is missing, or ``fault`` is not a string.
    """
    kinds = dict(frame.dtypes)
    check_columns(frame, [(name, kinds.get(name, "any type")) for name in kept])
    taken = list(needed)
    if has_column(frame, "fault"):
        check_columns(frame, [("fault", "string")])
        taken.append("fault")
    work = row_mapper(make, taken, kept, made)
    schema = schema_text([*((name, kinds[name]) for name in kept), *made])
    return frame.select(*dict.fromkeys([*taken, *kept])).mapInArrow(work, schema)


def row_mapper(
    make: RowMaker,
    needed: Sequence[str],
    kept: Sequence[str],
    made: Sequence[tuple[str, str]],
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow``: columns that are `kept`, and those that `make` computes."""
    return partial(_map_batches, make=make, needed=needed, kept=kept, made=made)


def _map_batches(
    batches: Batches,
    *,
    make: RowMaker,
    needed: Sequence[str],
    kept: Sequence[str],
    made: Sequence[tuple[str, str]],
) -> Batches:
    import pyarrow

    schema = arrow_schema(made)
    for batch in settled(batches):
        rows = batch.select(needed).to_pylist()
        new = batch_of(list(make(rows)), schema)
        yield pyarrow.RecordBatch.from_arrays(
            [*(batch.column(name) for name in kept), *new.columns], names=[*kept, *schema.names]
        )

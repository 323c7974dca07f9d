"""Signed rows on their way to the summaries of their blocks, packed and summed up as columns.

Rows of a log mostly lie side by side, in order and without a fault.  So those of a block are packed
into one value before they are shuffled, which costs a thousandth of as many rows, and blocks
without any fault are summed up many at a time.  All others go row by row through
`culm.spark.blocks.summarise`, which says the same of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from culm.spark.blocks import (
    BACK,
    BLOCK_BITS,
    LIPMAA,
    LOWEST,
    SUMMARY,
    Signed,
    span,
    summarise,
)
from culm.spark.columns import arrow_schema, fixed, messages
from culm.spark.workers import Batches, settled

if TYPE_CHECKING:
    import numpy
    import pyarrow

    Array: TypeAlias = numpy.ndarray[Any, Any]

#: The columns of rows that travel: ``rows`` are some of a block's, `_form` of ``width`` each.
PACKED = (("log", "binary"), ("block", "bigint"), ("width", "int"), ("rows", "binary"))

#: The number of rows among which copies are found, and of those that are summed up together.
WINDOW = 1 << 16

_BYTES = ("hash", "backlink", "lipmaalink")
_LARGEST = 2**63 - 1
# The number of parts of blocks that are Python's objects at a time.
_PARTS_MAX = 256


class _Part(NamedTuple):
    """A row of `PACKED`."""

    log: bytes
    block: int
    width: int
    rows: bytes

    @property
    def key(self) -> tuple[bytes, int]:
        return self.log, self.block


@lru_cache(maxsize=64)
def _form(width: int) -> numpy.dtype[Any]:
    """The form of a packed row: of hashes no longer than `width`, and of size -1 for null."""
    import numpy

    return numpy.dtype(
        [
            ("n", "<i8"),
            ("target", "<i8"),
            ("ended", "?"),
            ("sizes", "<i4", (len(_BYTES),)),
            *((name, "u1", (width,)) for name in _BYTES),
            # From here on copies may differ.
            ("lied", "?"),
            ("copies", "<i8"),
        ]
    )


def pack(batches: Batches) -> Batches:
    """Pack the rows of each block (`SIGNED`), copies merged: ``mapInArrow``, before a shuffle.

    Those of a window of `WINDOW` rows are packed together; it is held in memory.
    """
    for window in _windows(settled(batches)):
        yield from _packed(window)


def _windows(batches: Batches) -> Batches:
    """The same rows, `WINDOW` at a time."""
    held: list[pyarrow.RecordBatch] = []
    count = 0
    for batch in batches:
        for start in range(0, len(batch), WINDOW):
            part = batch.slice(start, WINDOW)
            held.append(part)
            count += len(part)
            if count >= WINDOW:
                yield _together(held)
                held, count = [], 0
    if held:
        yield _together(held)


def _together(batches: Sequence[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    import pyarrow

    return pyarrow.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _packed(window: pyarrow.RecordBatch) -> Batches:
    import numpy
    import pyarrow

    logs = window.column("log").dictionary_encode()
    codes = numpy.asarray(logs.indices).astype("int64")
    values = {name: _BinaryColumn(window.column(name)) for name in _BYTES}
    widths = numpy.maximum.reduce([each.sizes for each in values.values()])
    for width in numpy.unique(widths).tolist():
        at = numpy.flatnonzero(widths == width)
        rows = numpy.zeros(len(at), _form(width))
        for name in ("n", "target", "ended", "lied", "copies"):
            rows[name] = window.column(name).to_numpy(zero_copy_only=False)[at]
        for index, name in enumerate(_BYTES):
            rows["sizes"][:, index] = values[name].sizes[at]
            values[name].put(rows[name], at)
        rows, owners = _each_once(rows, codes[at])
        starts = _starts(owners, rows["n"] >> BLOCK_BITS)
        cuts: Array = numpy.append(starts, len(rows)) * rows.itemsize
        data = pyarrow.py_buffer(rows.tobytes())
        yield pyarrow.RecordBatch.from_arrays(
            [
                logs.dictionary.take(pyarrow.array(owners[starts])),
                pyarrow.array(rows["n"][starts] >> BLOCK_BITS),
                pyarrow.array(numpy.full(len(starts), width, "int32")),
                pyarrow.Array.from_buffers(
                    pyarrow.large_binary(), len(starts), [None, pyarrow.py_buffer(cuts), data]
                ).cast(pyarrow.binary()),
            ],
            schema=arrow_schema(PACKED),
        )


class _BinaryColumn:
    """The values of a binary column, ``sizes`` of which are -1 for null."""

    def __init__(self, column: pyarrow.Array) -> None:
        import numpy

        data, offsets = messages(column)
        cuts = numpy.asarray(offsets)
        self._data = numpy.frombuffer(data, "uint8")
        self._starts = cuts[:-1].astype("int64")
        self.sizes = numpy.diff(cuts).astype("int64")
        self.sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1

    def put(self, target: Array, at: Array) -> None:
        """Copy the values at these places, ascending, into rows of bytes."""
        import numpy

        sizes = self.sizes[at]
        for size in numpy.unique(sizes[sizes > 0]).tolist():
            of_size = numpy.flatnonzero(sizes == size)
            starts = self._starts[at[of_size]]
            if starts[-1] - starts[0] == size * (len(starts) - 1):  # with nothing in between
                found = self._data[starts[0] : starts[-1] + size].reshape(-1, size)
            else:
                found = self._data[starts[:, None] + numpy.arange(size)]
            if len(of_size) == len(target):
                target[:, :size] = found
            else:
                target[of_size, :size] = found


def _starts(owners: Array, blocks: Array) -> Array:
    """The places of rows with which another block begins."""
    import numpy

    begins: Array = numpy.ones(len(owners), bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (blocks[1:] != blocks[:-1])
    return numpy.flatnonzero(begins)


def _each_once(rows: Array, owners: Array) -> tuple[Array, Array]:
    """Sort rows by owner and number, and merge and count copies."""
    import numpy

    same = owners[1:] == owners[:-1]
    ascends = rows["n"][1:] >= rows["n"][:-1]
    if not ((owners[1:] > owners[:-1]) | (same & ascends)).all():
        order = numpy.lexsort((rows["n"], owners))
        rows, owners = rows[order], owners[order]
        same = owners[1:] == owners[:-1]
    if not (same & (rows["n"][1:] == rows["n"][:-1])).any():
        return rows, owners
    ends: Array = numpy.zeros((len(rows), 8), "uint8")
    last = rows["hash"][:, -8:]
    ends[:, : last.shape[1]] = last
    order = numpy.lexsort((ends.view("<u8")[:, 0], rows["n"], owners))
    rows, owners = rows[order], owners[order]
    told: Array = rows.view("u1").reshape(len(rows), -1)[:, : rows.dtype.fields["lied"][1]]
    begins: Array = numpy.ones(len(rows), bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (told[1:] != told[:-1]).any(axis=1)
    starts = numpy.flatnonzero(begins)
    merged = rows[starts]
    merged["lied"] = numpy.logical_or.reduceat(rows["lied"], starts)
    merged["copies"] = numpy.add.reduceat(rows["copies"], starts)
    return merged, owners[starts]


def summaries(batches: Batches) -> Batches:
    """Summaries of the blocks of a partition (`PACKED`), sorted by log and block: ``mapInArrow``.

    A block is held in memory, without its copies.
    """
    parts: list[_Part] = []
    count, most = 0, WINDOW
    for part in _parts(settled(batches)):
        if count >= most:
            this = [each for each in parts if each.key == part.key]
            yield from _sum_up([each for each in parts if each.key != part.key])
            parts = _merged(this)
            count = sum(map(_count, parts))
            most = max(WINDOW, 2 * count)
        parts.append(part)
        count += _count(part)
    yield from _sum_up(parts)


def _parts(batches: Batches) -> Iterator[_Part]:
    for batch in batches:
        for start in range(0, len(batch), _PARTS_MAX):
            some = batch.slice(start, _PARTS_MAX)
            columns = [some.column(name).to_pylist() for name, _ in PACKED]
            yield from map(_Part._make, zip(*columns, strict=True))


def _count(part: _Part) -> int:
    return len(part.rows) // _form(part.width).itemsize


def _merged(parts: Sequence[_Part]) -> list[_Part]:
    """The rows of one block, without repetition."""
    found = _by_width(parts, [0] * len(parts))
    return [_Part(*parts[0].key, width, rows.tobytes()) for width, rows, _ in found]


def _by_width(parts: Sequence[_Part], owners: Sequence[int]) -> Iterator[tuple[int, Array, Array]]:
    """The rows of all parts, each once, with the owners of their parts; by their width."""
    import numpy

    for width in sorted({part.width for part in parts}):
        some = [
            (part, owner) for part, owner in zip(parts, owners, strict=True) if part.width == width
        ]
        rows = numpy.frombuffer(b"".join([part.rows for part, _ in some]), _form(width))
        counts = [_count(part) for part, _ in some]
        yield width, *_each_once(rows, numpy.repeat([owner for _, owner in some], counts))


def _sum_up(parts: Sequence[_Part]) -> Batches:
    """The summaries of these blocks, of which all rows are there."""
    import numpy
    import pyarrow

    keys: list[tuple[bytes, int]] = []
    owners = []
    for part in parts:
        if not keys or keys[-1] != part.key:
            keys.append(part.key)
        owners.append(len(keys) - 1)
    found = list(_by_width(parts, owners)) if parts else []
    # A block of several widths has hashes of several kinds.
    seen: Array = numpy.zeros(len(keys), int)
    for _, _, of in found:
        seen[numpy.unique(of)] += 1
    odd: defaultdict[int, list[Signed]] = defaultdict(list)
    for width, rows, of in found:
        starts = _starts(of, of)
        blocks = _Blocks(width, rows, starts)
        plain = blocks.are_plain() & (seen[of[starts]] == 1)
        if plain.any():
            yield blocks.summaries([keys[owner][0] for owner in of[starts].tolist()], plain)
        for at in numpy.flatnonzero(~plain).tolist():
            owner = int(of[starts[at]])
            odd[owner] += _objects(keys[owner][0], rows[blocks.slice(at)])
    schema = arrow_schema(SUMMARY)
    made = []
    for signed in odd.values():
        summary = summarise(sorted(signed, key=lambda row: (row.n, row.hash)))
        made.append({name: getattr(summary, name) for name, _ in SUMMARY})
    if made:
        yield pyarrow.RecordBatch.from_pylist(made, schema)


def _objects(log: bytes, rows: Array) -> Iterator[Signed]:
    for row in rows:
        n, target, ended, sizes, *values, lied, copies = row.tolist()
        hash_, backlink, lipmaalink = (
            None if size < 0 else value[:size].tobytes()
            for size, value in zip(sizes, values, strict=True)
        )
        yield Signed(log, n, hash_ or b"", target, backlink, lipmaalink, ended, lied, copies)


class _Blocks:
    """Whole blocks, each sorted by number, as columns."""

    def __init__(self, width: int, rows: Array, starts: Array) -> None:
        import numpy

        self._width = width
        self._rows = rows
        self._starts = starts
        self._counts: Array = numpy.diff(numpy.append(starts, len(rows)))
        self._block_of: Array = numpy.repeat(numpy.arange(len(starts)), self._counts)
        self._first = rows["n"][starts]
        self._last = rows["n"][starts + self._counts - 1]
        self._low = numpy.maximum(self._first >> BLOCK_BITS << BLOCK_BITS, LOWEST + 1)
        self._has_lipmaalink = rows["sizes"][:, _BYTES.index("lipmaalink")] >= 0

    def slice(self, at: int) -> slice:
        """The places of a block's rows."""
        start = int(self._starts[at])
        return slice(start, start + int(self._counts[at]))

    def are_plain(self) -> Array:
        """Whether a block's numbers are adjacent, each there once, and its links inside right."""
        import numpy

        rows, width = self._rows, self._width
        if not width:
            return numpy.zeros(len(self._starts), bool)
        sizes = rows["sizes"]
        good = ((sizes == width) | ((sizes == -1) & ([[False, True, True]]))).all(axis=1)
        follows: Array = numpy.ones(len(rows), bool)
        follows[self._starts] = False
        adjacent = rows["n"][1:] - 1 == rows["n"][:-1]
        linked = (rows["backlink"][1:] == rows["hash"][:-1]).all(axis=1) & (sizes[1:, 1] == width)
        good[1:] &= ~follows[1:] | (adjacent & linked)
        target, of = rows["target"], self._block_of
        inside = (target >= self._first[of]) & (target <= self._last[of]) & self._has_lipmaalink
        at = numpy.flatnonzero(inside)
        there = self._starts[of[at]] + (target[at] - self._first[of[at]])
        there = numpy.minimum(there, len(rows) - 1)  # where numbers are not adjacent
        good[at] &= (rows["lipmaalink"][at] == rows["hash"][there]).all(axis=1)
        plain: Array = numpy.logical_and.reduceat(good, self._starts)
        return plain

    def summaries(self, logs: Sequence[bytes], plain: Array) -> pyarrow.RecordBatch:
        """What `summarise` finds in blocks that are `plain`."""
        import numpy
        import pyarrow

        low, first, last = (each[plain] for each in (self._low, self._first, self._last))
        begins = first == low
        is_cut = ~begins | (last != (last | (1 << BLOCK_BITS) - 1))
        nothing: Array = numpy.zeros(len(low), "int64")
        columns = {
            "log": pyarrow.array(logs, pyarrow.binary()).filter(pyarrow.array(plain)),
            "block": pyarrow.array(first >> BLOCK_BITS),
            "rows": pyarrow.array(numpy.add.reduceat(self._rows["copies"], self._starts)[plain]),
            "entries": pyarrow.array(self._counts[plain]),
            "highest": pyarrow.array(last),
            "forks": pyarrow.array(nothing),
            "gaps": pyarrow.array((~begins).astype("int64")),
            "unbroken": pyarrow.array(numpy.where(begins, last, low - 1), mask=~is_cut),
            "lied_at": self._first_with("lied", plain),
            "ended_at": self._first_with("ended", plain),
            "links": self._links(plain),
            "opens": self._opens(plain),
        }
        schema = arrow_schema(SUMMARY)
        empty = pyarrow.array([[]] * len(low), schema.field("marks").type)
        columns["marks"] = empty
        arrays = [
            columns[field.name] if field.name in columns else pyarrow.nulls(len(low), field.type)
            for field in schema
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _first_with(self, name: str, plain: Array) -> pyarrow.Array:
        """The number of the first entry of each block for which this is true."""
        import numpy
        import pyarrow

        least = numpy.where(self._rows[name], self._rows["n"], _LARGEST)
        found = numpy.minimum.reduceat(least, self._starts)[plain]
        none = ~numpy.logical_or.reduceat(self._rows[name], self._starts)[plain]
        return pyarrow.array(found, mask=none)

    def _links(self, plain: Array) -> pyarrow.Array:
        """The links that leave their block."""
        import numpy
        import pyarrow

        rows, of = self._rows, self._block_of
        leaves = plain & (self._first == self._low)
        back = self._starts[leaves & (rows["sizes"][self._starts, 1] >= 0)]
        lipmaa = numpy.flatnonzero(
            self._has_lipmaalink & (rows["target"] < self._low[of]) & plain[of]
        )
        at = numpy.concatenate([back, lipmaa])
        links = numpy.concatenate([rows["backlink"][back], rows["lipmaalink"][lipmaa]])
        targets = numpy.concatenate([rows["n"][back] - 1, rows["target"][lipmaa]])
        kinds: Array = numpy.repeat(numpy.array([BACK, LIPMAA], "int32"), [len(back), len(lipmaa)])
        order = numpy.argsort(at, kind="stable")
        at = at[order]
        values = [
            pyarrow.array(rows["n"][at]),
            pyarrow.array(targets[order]),
            self._hashes(links[order]),
            self._hashes(rows["hash"][at]),
            pyarrow.array(kinds[order]),
        ]
        return self._lists("links", values, at, plain)

    def _opens(self, plain: Array) -> pyarrow.Array:
        """The entries to which later blocks can link."""
        import numpy
        import pyarrow

        blocks = self._first >> BLOCK_BITS
        found: list[Array] = [numpy.zeros(0, "int64")]
        for block in numpy.unique(blocks[plain]).tolist():
            some = numpy.flatnonzero(plain & (blocks == block))
            opens = numpy.array(span(block)[2], "int64")
            first, last = (each[some][:, None] for each in (self._first, self._last))
            which, what = numpy.nonzero((opens >= first) & (opens <= last))
            found.append(self._starts[some[which]] + opens[what] - self._first[some[which]])
        at = numpy.sort(numpy.concatenate(found))
        hashes = self._hashes(self._rows["hash"][at])
        single = pyarrow.ListArray.from_arrays(
            pyarrow.array(numpy.arange(len(at) + 1, dtype="int32")), hashes
        )
        return self._lists("opens", [pyarrow.array(self._rows["n"][at]), single], at, plain)

    def _hashes(self, values: Array) -> pyarrow.Array:
        return fixed(values.tobytes(), self._width)

    def _lists(
        self, name: str, values: Sequence[pyarrow.Array], at: Array, plain: Array
    ) -> pyarrow.Array:
        """A column of arrays of structs, from those of the rows at ascending places."""
        import numpy
        import pyarrow

        counts = numpy.bincount(self._block_of[at], minlength=len(self._starts))[plain]
        cuts: Array = numpy.append(0, numpy.cumsum(counts)).astype("int32")
        kind = arrow_schema(SUMMARY).field(name).type
        structs = pyarrow.StructArray.from_arrays(list(values), fields=list(kind.value_type))
        return pyarrow.ListArray.from_arrays(pyarrow.array(cuts), structs, type=kind)

"""Findings on logs from the summaries of their blocks: the second part of an audit in Python.

A log is gone through block by block.  Of all earlier blocks only the entries are remembered to
which later ones can link, 42 at most (`culm.bamboo.links.open_targets`), and their numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from culm.bamboo.entry import AUTHOR_SIZE
from culm.bamboo.errors import Reason
from culm.spark.blocks import BACK, BLOCK_BITS, LOWEST, SUMMARY, span
from culm.spark.columns import arrow_schema
from culm.spark.reasons import bits
from culm.spark.workers import Batches, settled

if TYPE_CHECKING:
    import pyarrow

#: The columns of `culm.spark.audit.Audit.logs`.
LOGS = (
    ("log", "binary"),
    ("author", "binary"),
    ("log_id", "bigint"),
    ("rows", "bigint"),
    ("entries", "bigint"),
    ("height", "bigint"),
    ("verified", "bigint"),
    ("first_fault", "bigint"),
    ("first_fault_reasons", "int"),
    ("forks", "bigint"),
    ("gaps", "bigint"),
    ("invalid_from", "bigint"),
    ("ends_at", "bigint"),
)

#: A row for each log, in which ``blocks`` has its blocks if it is faulty, and one for each entry
#: that is part of a fork or has a wrong link, in which ``marks`` has bits.
FINDINGS = (
    *LOGS,
    ("blocks", "array<bigint>"),
    ("n", "bigint"),
    ("hash", "binary"),
    ("marks", "int"),
)

_NESTED = ("marks", "links", "opens")
_PLAIN = tuple(name for name, _ in SUMMARY if name not in _NESTED)
_SUMS = tuple(_PLAIN.index(name) for name in ("rows", "entries", "forks", "gaps"))
_HIGHEST, _UNBROKEN = _PLAIN.index("highest"), _PLAIN.index("unbroken")
_FIRSTS = ("forked_at", "lied_at", "ended_at", "back_at", "lipmaa_at")
_FIRST_AT = _PLAIN.index(_FIRSTS[0])
_FIRST_BLOCK = LOWEST >> BLOCK_BITS
# What a row on a log and one on an entry leave open.
_NO_MARK = (None,) * 3
_NO_LOG = (None,) * len(LOGS)
_ROWS_MAX = 10_000


class _Block:
    """A row of `SUMMARY`, of which arrays are looked at when they are needed."""

    __slots__ = ("_arrays", "_index", "plain")

    def __init__(self, plain: Sequence[Any], arrays: dict[str, Any], index: int) -> None:
        self.plain = plain
        self._arrays = arrays
        self._index = index

    def array(self, name: str) -> Sequence[dict[str, Any]]:
        counts, column = self._arrays[name]
        found: Sequence[dict[str, Any]] = ()
        if counts[self._index]:
            found = column[self._index].as_py()
        return found


def findings(batches: Batches) -> Batches:
    """The rows `FINDINGS` from all blocks of some logs, sorted by log and block: ``mapInArrow``."""
    schema = arrow_schema(FINDINGS)
    made: list[Sequence[Any]] = []
    for row in _of_logs(_blocks(settled(batches))):
        made.append(row)
        if len(made) >= _ROWS_MAX:
            yield _batch(made, schema)
            made = []
    yield _batch(made, schema)


def _batch(rows: list[Sequence[Any]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _blocks(batches: Batches) -> Iterator[_Block]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _PLAIN]
        arrays = {}
        for name in _NESTED:
            column = batch.column(name)
            arrays[name] = column.value_lengths().to_pylist(), column
        for index, plain in enumerate(zip(*columns, strict=True)):
            yield _Block(plain, arrays, index)


def _of_logs(blocks: Iterator[_Block]) -> Iterator[Sequence[Any]]:
    log: _Log | None = None
    for block in blocks:
        name, number = block.plain[:2]
        if log is None or log.name != name:
            if log is not None:
                yield log.row()
            log = _Log(name)
        yield from log.add(block, number)
    if log is not None:
        yield log.row()


class _Log:
    """Findings on a log, so far."""

    __slots__ = ("_blocks", "_firsts", "_last", "_open", "_sums", "_unbroken", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._blocks = array("q")
        self._sums = [0] * len(_SUMS)
        self._firsts: list[int | None] = [None] * len(_FIRSTS)
        self._unbroken: int | None = None
        self._last: _Block | None = None
        self._open: dict[int, set[bytes]] = {}

    def add(self, block: _Block, number: int) -> Iterator[Sequence[Any]]:
        """Go on with the next block; the rows on its entries."""
        plain = block.plain
        if self._last is not None:
            self._remember(self._last, self._blocks[-1])
            if number != self._blocks[-1] + 1:
                self._end(self._last, self._blocks[-1])
        self._last = block
        self._blocks.append(number)
        for at, index in enumerate(_SUMS):
            self._sums[at] += plain[index]
        for at, first in enumerate(plain[_FIRST_AT:]):
            self._firsts[at] = _least(self._firsts[at], first)
        self._unbroken = _least(self._unbroken, plain[_UNBROKEN])
        wrong = [link for link in block.array("links") if self._is_wrong(link)]
        marks: dict[tuple[int, bytes], int] = {}
        for mark in (*block.array("marks"), *wrong):
            key = mark["n"], mark["hash"]
            marks[key] = marks.get(key, 0) | mark["bits"]
        for (n, hash_), found in marks.items():
            yield (self.name, *_NO_LOG, n, hash_, found)

    def _is_wrong(self, link: dict[str, Any]) -> bool:
        """Whether a link from the last block leads to another entry."""
        there = self._open.get(link["target"])
        is_back = link["bits"] == BACK
        if there is None:
            self._sums[-1] += is_back
            return False
        if link["link"] in there:
            return False
        at = _FIRSTS.index("back_at" if is_back else "lipmaa_at")
        self._firsts[at] = _least(self._firsts[at], link["n"])
        return True

    def _remember(self, block: _Block, number: int) -> None:
        """Keep what can be linked to from behind this block."""
        found = self._open | {each["n"]: set(each["hashes"]) for each in block.array("opens")}
        self._open = {n: found[n] for n in span(number)[2] if n in found}

    def _end(self, block: _Block, number: int) -> None:
        """Note that no block follows on this one."""
        if block.plain[_UNBROKEN] is None:
            self._unbroken = _least(self._unbroken, span(number)[1])

    def row(self) -> Sequence[Any]:
        """The row on the log, after its last block."""
        assert self._last is not None
        self._end(self._last, self._blocks[-1])
        unbroken = self._unbroken if self._blocks[0] == _FIRST_BLOCK else LOWEST
        forked_at, lied_at, ended_at, back_at, lipmaa_at = self._firsts
        invalid = _least(forked_at, lied_at)
        ends = [each - 1 for each in (invalid, back_at, lipmaa_at) if each is not None]
        prefix = min(each for each in (unbroken, ended_at, *ends) if each is not None)
        height = self._last.plain[_HIGHEST]
        first = reasons = blocks = None
        if prefix < height:
            first, blocks = prefix + 1, self._blocks.tolist()
            found = (
                (Reason.FORK, forked_at == first),
                (Reason.PAYLOAD_SIZE_LIE, lied_at == first),
                (Reason.WRONG_BACKLINK, back_at == first),
                (Reason.WRONG_LIPMAALINK, lipmaa_at == first),
                (Reason.GAP, unbroken == prefix),
                (Reason.AFTER_END_OF_LOG, ended_at == prefix),
            )
            reasons = bits(*(reason for reason, is_first in found if is_first))
        rows, entries, forks, gaps = self._sums
        log_id = self.name[AUTHOR_SIZE : AUTHOR_SIZE + 8]
        return (
            self.name,
            self.name[:AUTHOR_SIZE],
            int.from_bytes(log_id, "big", signed=True) if log_id else None,
            rows,
            entries,
            _number(height),
            _number(prefix),
            _number(first),
            reasons,
            forks,
            gaps,
            _number(invalid),
            _number(ended_at),
            blocks,
            *_NO_MARK,
        )


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _number(ordinal: int | None) -> int | None:
    """The sequence number of an ordinal, as Spark has it."""
    return None if ordinal is None else ordinal ^ LOWEST

"""Tables kept on shelves: a change rewrites the shelves that it touches, and no others.

A shelf holds the rows whose keys have the same remainder, in a directory of its own below that of
the batch that wrote it last.  A `ShelfSnapshot` names that batch for each shelf; it is a file, and
gets its name when everything else is complete, so that a batch that is killed has changed nothing.
Files that the last two snapshots do not name are removed.

The number of shelves doubles as the number of rows does: so the cost of a batch of a few rows is
that of a few shelves, whatever the size of the tables.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from culm.spark.columns import schema_text
from culm.spark.files import escaped, exists, open_file, open_system, remove, written_whole
from culm.wire.json import read_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The column that numbers shelves.
SHELF = "_shelf"
_NOWHERE = -1
# The file with the name of shelves.
_NAME = "name"


@dataclass(frozen=True, slots=True)
class ShelfSnapshot:
    """Tables as a batch has left them.

    `written` has for each table and shelf the batch that wrote it last, -1 for an empty one; `rows`
    is the number of rows to hold.
    """

    batch: int
    shelves: int
    rows: int
    written: Mapping[str, Sequence[int]]

    @classmethod
    def empty(cls, batch: int) -> ShelfSnapshot:
        """Tables without rows."""
        return cls(batch, 1, 0, {})

    def places(self, table: str, shelves: Sequence[int] | None = None) -> Iterator[tuple[int, int]]:
        """The batches and shelves, of the given ones or of all, in which the table has rows."""
        written = self.written.get(table, ())
        for shelf in range(len(written)) if shelves is None else shelves:
            if shelf < len(written) and written[shelf] != _NOWHERE:
                yield written[shelf], shelf

    def shelves_of(self, table: str, batch: int) -> list[int]:
        """The shelves of a table that a batch has written."""
        return [shelf for shelf, writer in enumerate(self.written[table]) if writer == batch]

    def all_places(self) -> set[tuple[str, int, int]]:
        """The parts of this snapshot: tables, batches and shelves."""
        return {(table, *place) for table in self.written for place in self.places(table)}


class Shelves:
    """The tables below `path`, with their columns as in `tables`."""

    def __init__(self, path: str, tables: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self._path = path.rstrip("/")
        self._tables = tables

    def newest(self) -> ShelfSnapshot | None:
        """The snapshot of the last batch that is complete."""
        batches = self._batches()
        return self.snapshot(max(batches)) if batches else None

    def snapshot(self, batch: int) -> ShelfSnapshot | None:
        """The snapshot of a batch, if there is one."""
        if batch not in self._batches():
            return None
        with open_file(self._note(batch)) as file:
            return ShelfSnapshot(**read_json(file.read()))

    def read(
        self,
        spark: SparkSession,
        snapshot: ShelfSnapshot,
        table: str,
        shelves: Sequence[int] | None = None,
    ) -> DataFrame:
        """The rows of a table, or of some shelves of it."""
        places = snapshot.places(table, shelves)
        paths = [escaped(self._place(table, batch, shelf)) for batch, shelf in places]
        schema = schema_text(self._tables[table])
        if not paths:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*paths)

    def name(self) -> str:
        """A name that no other shelves have, made at its first use."""
        path = f"{self._path}/{_NAME}"
        if not exists(path):
            with written_whole(path) as file:
                file.write(secrets.token_hex(16).encode())
        with open_file(path) as file:
            return file.read().decode()

    def begin(self, batch: int) -> None:
        """Remove the remains of an earlier run of this batch."""
        remove(self._note(batch))
        remove(f"{self._path}/batch={batch}")
        system, inside = open_system(f"{self._path}/snapshots")
        system.create_dir(inside)

    def write(self, table: str, rows: DataFrame, batch: int) -> set[int]:
        """Write rows to the shelves that they name; returns these shelves."""
        path = f"{self._path}/batch={batch}/{table}"
        whole = rows.select(SHELF, *dict(self._tables[table])).repartition(SHELF)
        whole.write.mode("overwrite").partitionBy(SHELF).parquet(path)
        return {int(name.partition("=")[2]) for name in self._names(path) if "=" in name}

    def commit(
        self,
        before: ShelfSnapshot,
        after: ShelfSnapshot,
        touched: Mapping[str, Sequence[int]],
        now: Mapping[str, set[int]],
    ) -> None:
        """Note that shelves were `touched`, by table; of these, the ones in `now` have rows.

        A change of the number of shelves has touched all of them.
        """
        written: dict[str, list[int]] = {}
        for table in self._tables:
            same = before.shelves == after.shelves
            places = {shelf: batch for batch, shelf in before.places(table)} if same else {}
            places |= dict.fromkeys(touched[table], _NOWHERE)
            places |= dict.fromkeys(now[table], after.batch)
            written[table] = [places.get(shelf, _NOWHERE) for shelf in range(after.shelves)]
        after = replace(after, written=written)
        with written_whole(self._note(after.batch)) as file:
            file.write(json.dumps(asdict(after)).encode())
        self._forget(before, after)

    def _forget(self, before: ShelfSnapshot, after: ShelfSnapshot) -> None:
        """Remove parts that belong to neither of these, and all other snapshots."""
        kept = before.all_places() | after.all_places()
        for batch in self._batches() - {before.batch, after.batch}:
            old = self.snapshot(batch) or ShelfSnapshot.empty(batch)
            for table, writer, shelf in old.all_places() - kept:
                remove(self._place(table, writer, shelf))
            remove(self._note(batch))
        batches = {batch for _, batch, _ in kept}
        for name in self._names(self._path):
            if name.startswith("batch=") and int(name.partition("=")[2]) not in batches:
                remove(f"{self._path}/{name}")

    def _batches(self) -> set[int]:
        return {int(name.removesuffix(".json")) for name in self._names(f"{self._path}/snapshots")}

    def _note(self, batch: int) -> str:
        return f"{self._path}/snapshots/{batch}.json"

    def _place(self, table: str, batch: int, shelf: int) -> str:
        return f"{self._path}/batch={batch}/{table}/{SHELF}={shelf}"

    def _names(self, path: str) -> list[str]:
        """The names in a directory, except hidden ones; none if it does not exist."""
        from pyarrow import fs

        system, inside = open_system(path)
        found = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
        return [each.base_name for each in found if not each.base_name.startswith(".")]


def shelf_of(shelves: int, *key: Column | str) -> Column:
    """The shelf of rows with this key."""
    from pyspark.sql import functions as f

    return f.pmod(f.xxhash64(*key), f.lit(shelves)).cast("int").alias(SHELF)

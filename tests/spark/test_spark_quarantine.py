"""Faulty input: reported row by row, with nothing missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow
import pytest
from planted import honest_log
from pyarrow import compute, parquet
from reads import plan

from culm.spark.archive import write_archive
from culm.spark.columns import BATCH_SIZE, check_columns
from culm.spark.decode import verify_entries
from culm.spark.errors import ColumnError
from culm.spark.quarantine import (
    QUARANTINE,
    check_items,
    check_kind,
    count_faults,
    quarantined,
    sound,
)
from culm.spark.reading import read_split
from culm.spark.source import register
from culm.wire.multihash import YASMF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_table(path: Path, columns: dict, **options) -> None:
    parquet.write_table(pyarrow.table(columns), path, **options)


def faulty_directory(path: Path) -> int:
    """Files of all forms and faults; the number of the log's entries that can be read."""
    log = honest_log(3, 10)
    entries, payloads = [row.entry for row in log], [row.payload for row in log]
    with (path / "good").open("wb") as file:
        write_archive(file, "bamboo/YASMF", log)
    with (path / "of another kind").open("wb") as file:
        write_archive(file, "ssb", log[:2])
    (path / "cut short").write_bytes((path / "good").read_bytes()[:-1])
    (path / "no archive").write_bytes(b"?")
    (path / "lines.jsonl").write_bytes(b"{}\n\n{")
    write_table(path / "good.parquet", {"entry": entries, "payload": payloads}, row_group_size=3)
    write_table(path / "large.parquet", {"entry": pyarrow.array(entries, pyarrow.large_binary())})
    write_table(path / "nulls.parquet", {"entry": [None, entries[0], entries[0][:-1]]})
    write_table(path / "text.parquet", {"entry": ["one", "two"]})
    write_table(path / "numbers.parquet", {"entry": entries, "payload": list(range(10))})
    write_table(path / "other.parquet", {"item": entries})
    data = (path / "good.parquet").read_bytes()
    (path / "cut.parquet").write_bytes(data[:-3])
    page = parquet.ParquetFile(path / "good.parquet").metadata.row_group(1).column(0)
    start = page.dictionary_page_offset or page.data_page_offset
    (path / "page.parquet").write_bytes(data[:start] + b"\xff" * 40 + data[start + 40 :])
    return 31


FAULTS = {
    ("of another kind", "WRONG_KIND"): 2,
    ("cut short", "TRUNCATED_BLOCK"): 1,
    ("no archive", "NO_ARCHIVE"): 1,
    ("nulls.parquet", "NO_ENTRY"): 1,
    ("nulls.parquet", "TRUNCATED"): 1,
    ("text.parquet", "WRONG_TYPE"): 2,
    ("numbers.parquet", "WRONG_TYPE"): 10,
    ("other.parquet", "MISSING_COLUMN"): 10,
    ("cut.parquet", "NO_PARQUET"): 1,
    ("page.parquet", "DAMAGED_ROWS"): 3,
}


def test_a_directory_of_all_faults_is_read_and_each_is_told(spark, tmp_path):
    readable = faulty_directory(tmp_path)
    register(spark)
    rows = spark.read.format("culm").option("split_size", "700").load(str(tmp_path))
    checked = check_kind(rows, "bamboo/YASMF")
    keep = ["entry", "kind", "file", "block", "row"]
    verified = verify_entries(checked, YASMF, keep=keep).persist()
    refused = quarantined(verified)
    assert refused.dtypes == list(QUARANTINE)
    found = refused.collect()
    told = Counter((Path(row.file).name, row.reason) for row in found)
    assert {what: told.pop(what) for what in list(told) if what in FAULTS} == FAULTS
    # Lines are not entries, whether whole or not.
    assert {name for name, _ in told} == {"lines.jsonl"}
    assert told.total() == 2
    assert {row.record for row in found if Path(row.file).name == "lines.jsonl"} == {b"{}", b"{"}
    places = Counter((row.file, row.block, row.row) for row in found)
    assert set(places.values()) == {1}
    # The archive and three tables; of the one with a damaged page, all but three rows.
    assert sound(verified).count() == 10 + 10 + 10 + 1 + 7 == readable + 7
    counts = count_faults(verified)
    assert counts.pop(None) == 38
    assert sum(counts.values()) == len(found)
    verified.unpersist()


@pytest.mark.parametrize("split_size", [1, 1000, 1 << 30])
def test_tables_are_read_once_in_splits_of_any_size(tmp_path, split_size):
    entries = [row.entry for row in honest_log(4, 10)]
    write_table(tmp_path / "a.parquet", {"item": entries}, row_group_size=4)
    splits = plan(str(tmp_path), split_size, "item")
    rows = [row for split in splits for batch in read_split(split) for row in batch.to_pylist()]
    assert [row["entry"] for row in rows] == entries
    assert [row["row"] for row in rows] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert len({row["block"] for row in rows}) == 3


def test_what_is_no_item_is_set_aside(spark):
    values = [(b"four", None), (b"three", None), (None, None), (b"", None), (b"four", "before")]
    frame = spark.createDataFrame(values, "item binary, fault string")

    def faults(found: DataFrame) -> list[str | None]:
        return [row.fault for row in found.collect()]

    fixed = check_items(frame, 4)
    assert faults(fixed) == [None, "WRONG_SIZE", "NO_ITEM", "WRONG_SIZE", "before"]
    assert faults(check_items(frame, 4, varying=True)) == [
        None, "WRONG_SIZE", "NO_ITEM", None, "before"
    ]  # fmt: skip
    assert faults(check_items(frame.drop("fault"), 5)) == [
        "WRONG_SIZE", None, "NO_ITEM", "WRONG_SIZE", "WRONG_SIZE"
    ]  # fmt: skip
    found = quarantined(fixed)
    check_columns(found, QUARANTINE)
    assert [row.record for row in found.collect()] == [b"three", None, b"", b"four"]
    with pytest.raises(ColumnError, match="fault"):
        quarantined(frame.drop("fault"))


@pytest.mark.parametrize("seed", range(3))
def test_a_table_with_a_wrong_byte_has_all_its_rows_or_is_none(tmp_path, seed):
    """Whichever byte it is, of a page or of the file's metadata; and nothing crashes."""
    path = tmp_path / "a.parquet"
    columns = {name: [b"%d" % at for at in range(7)] for name in ("entry", "payload")}
    write_table(path, columns, row_group_size=3)
    data = path.read_bytes()
    chance = Random(seed)
    # The column's type, its repetition and the number of rows in a group are among them.
    for at in [data.rindex(b"\x05entry\0") - 5 - seed, *chance.sample(range(len(data)), 30)]:
        changed = bytearray(data)
        changed[at] = chance.choice([0, 0xFF, data[at] ^ 1, data[at] ^ 0x80])
        path.write_bytes(changed)
        splits = plan(str(path), chance.choice([200, 1 << 20]))
        rows = [row for split in splits for batch in read_split(split) for row in batch.to_pylist()]
        assert len(rows) == 7 or [row["fault"] for row in rows] == ["NO_PARQUET"], at
        assert len({(row["block"], row["row"]) for row in rows}) == len(rows)


def test_a_table_of_two_columns_with_one_name_is_told(tmp_path):
    table = pyarrow.table([[b"a"], [b"b"]], names=["entry", "entry"])
    parquet.write_table(table, tmp_path / "a.parquet")
    [batch] = [batch for split in plan(str(tmp_path)) for batch in read_split(split)]
    assert batch.column("fault").to_pylist() == ["MISSING_COLUMN"]


def read_batches_of(path: Path) -> list[pyarrow.RecordBatch]:
    return [batch for split in plan(str(path)) for batch in read_split(split)]


@pytest.mark.parametrize("stored", [True, False])
def test_a_value_that_a_table_has_once_and_says_often_is_read_little_by_little(tmp_path, stored):
    """A file of a few hundred bytes would make a batch of gigabytes."""
    numbers = pyarrow.array([0, None, 1] * 70, pyarrow.int32())
    values = pyarrow.array([bytes(BATCH_SIZE // 9), b"small"], pyarrow.binary())
    table = pyarrow.table({"entry": pyarrow.DictionaryArray.from_arrays(numbers, values)})
    path = tmp_path / "a.parquet"
    options = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    parquet.write_table(table, path, store_schema=stored, **options)
    assert path.stat().st_size < 1000
    batches = read_batches_of(path)
    assert max(batch.nbytes for batch in batches) < BATCH_SIZE + 20_000
    assert sum(map(len, batches)) == 210
    assert [row for batch in batches for row in batch.column("row").to_pylist()] == list(range(210))
    sizes = [
        size for batch in batches for size in compute.binary_length(batch["entry"]).to_pylist()
    ]
    assert sizes == [BATCH_SIZE // 9, None, 5] * 70


def test_large_payloads_of_a_table_are_read_few_at_a_time(tmp_path):
    payloads = [bytes([at]) * (1 << 19) for at in range(40)]
    columns = {"entry": [b"entry"] * 40, "payload": payloads}
    write_table(tmp_path / "a.parquet", columns, use_dictionary=False, compression="none")
    batches = read_batches_of(tmp_path / "a.parquet")
    assert max(batch.nbytes for batch in batches) < BATCH_SIZE + 1000
    assert [each for batch in batches for each in batch["payload"].to_pylist()] == payloads

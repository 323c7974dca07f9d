"""Archive files read and written by Spark: all rows, all damage, in splits of any size."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from planted import honest_log
from reads import plan, rows_of

from culm.spark.archive import ArchiveHeader, ArchiveWriter, encode_block, read_archive
from culm.spark.errors import OnError, UnreadableError
from culm.spark.reading import ROWS, read_split
from culm.spark.source import register


def archive(path: Path, records, flush_every: int = 3) -> None:
    with path.open("wb") as file, ArchiveWriter(file, "bamboo/YASMF") as writer:
        for number, record in enumerate(records, 1):
            writer.append(*record)
            if number % flush_every == 0:
                writer.flush()


@pytest.fixture
def records():
    log = [tuple(row) for row in honest_log(5, 20)]
    return [*log, (b"no payload", None), (b"", b""), (b"entry", b"")]


@pytest.mark.parametrize("split_size", [1, 100, 1000, 1 << 30])
def test_splits_of_any_size_hold_every_record_once(tmp_path, records, split_size):
    archive(tmp_path / "a.culm", records)
    (tmp_path / "below").mkdir()
    archive(tmp_path / "below" / "b", records[:4])
    archive(tmp_path / ".hidden", records)
    found = rows_of(plan(str(tmp_path), split_size))
    assert all(list(row) == [name for name, _ in ROWS] for row in found)
    assert Counter((row["entry"], row["payload"]) for row in found) == Counter(
        records + records[:4]
    )
    assert {(row["kind"], row["fault"]) for row in found} == {("bamboo/YASMF", None)}
    places = Counter((row["file"], row["block"], row["row"]) for row in found)
    assert set(places.values()) == {1}
    assert {row["file"] for row in found} == {f"{tmp_path}/a.culm", f"{tmp_path}/below/b"}


@pytest.mark.parametrize("split_size", [97, 1 << 30])
def test_what_cannot_be_read_is_a_row(tmp_path, records, split_size):
    archive(tmp_path / "damaged", records)
    data = bytearray((tmp_path / "damaged").read_bytes())
    data[200] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    archive(tmp_path / "truncated", records)
    data = (tmp_path / "truncated").read_bytes()
    (tmp_path / "truncated").write_bytes(data[:-1])
    (tmp_path / "other").write_bytes(b"something else" * 50)
    (tmp_path / "empty").write_bytes(b"")
    found = rows_of(plan(str(tmp_path), split_size))
    faults = Counter((Path(row["file"]).name, row["fault"]) for row in found if row["fault"])
    assert faults == {
        ("damaged", "DAMAGED_BLOCK"): 1,
        ("truncated", "TRUNCATED_BLOCK"): 1,
        ("other", "NO_ARCHIVE"): 1,
        ("empty", "NO_ARCHIVE"): 1,
    }
    assert all(row["entry"] is row["row"] is None for row in found if row["fault"])
    read = Counter(Path(row["file"]).name for row in found if not row["fault"])
    assert read == {"damaged": len(records) - 3, "truncated": len(records) - 2}


def test_a_file_that_is_gone_is_told(tmp_path, records):
    archive(tmp_path / "a", records)
    splits = plan(str(tmp_path))
    (tmp_path / "a").unlink()
    with pytest.raises(UnreadableError, match="bytes 0 to 4274: there is no file"):
        rows_of(splits)
    [row] = rows_of(splits, OnError.QUARANTINE)
    assert row["fault"] == "UNREADABLE"
    assert (row["block"], row["block_end"]) == (0, splits[0].stop)
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        plan(str(tmp_path / "a"))
    with pytest.raises(ValueError, match="split_size"):
        plan(str(tmp_path), 0)


def test_spark_reads_what_spark_has_written(spark, tmp_path, records):
    register(spark)
    target = tmp_path / "archives"
    frame = spark.createDataFrame(records, "entry binary, payload binary").repartition(3)
    for mode in ("append", "overwrite"):
        frame.write.format("culm").option("kind", "bamboo/YASMF").mode(mode).save(str(target))
    found = spark.read.format("culm").option("split_size", "300").load(str(target))
    assert found.dtypes == list(ROWS)
    rows = found.collect()
    assert Counter((bytes(row.entry), row.payload) for row in rows) == Counter(records)
    written = []
    [folder] = target.iterdir()
    for path in folder.iterdir():
        assert path.suffix == ".culm"
        with path.open("rb") as file:
            written += read_archive(file)
    assert Counter(written) == Counter(records)


def test_a_write_that_fails_leaves_nothing_to_read(spark, tmp_path):
    register(spark)
    frame = spark.createDataFrame([(b"one", None), (None, None)], "entry binary, payload binary")
    writer = frame.write.format("culm").option("kind", "ssb").mode("append")
    with pytest.raises(Exception, match="an entry is null"):
        writer.save(str(tmp_path / "target"))
    assert list((tmp_path / "target").iterdir()) == []
    misspelled = frame.write.format("culm").option("kind", "bamboo/YASFM").mode("append")
    with pytest.raises(Exception, match=r"bamboo/YASMF.*no kind bamboo/YASFM"):
        misspelled.save(str(tmp_path / "target"))


def test_what_is_no_file_is_told_and_each_directory_is_read_once(tmp_path, records):
    """Links that lead nowhere or around, pipes, names that are not text: nothing hangs or fails."""
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    archive(folder / "below" / "a", records[:2])
    for name in ("around", "again", "below/up"):
        (folder / name).symlink_to(folder)
    (folder / "aside").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    archive(tmp_path / "elsewhere" / "b", records[2:4])
    (folder / "file").symlink_to(tmp_path / "elsewhere" / "b")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "itself").symlink_to("itself")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"?")
    found = rows_of(plan(str(folder)))
    names = Counter(str(Path(row["file"]).relative_to(folder)) for row in found if row["entry"])
    assert names == {"below/a": 2, "aside/b": 2, "file": 2}
    faults = {Path(row["file"]).name: row["fault"] for row in found if row["fault"]}
    assert faults == dict.fromkeys(["nowhere", "itself", "pipe", "\\xff"], "UNREADABLE")
    assert rows_of(plan(str(folder / "pipe")))[0]["fault"] == "UNREADABLE"


def test_a_block_of_many_records_that_are_empty_is_read_in_parts(tmp_path):
    """A file of a megabyte may hold a hundred thousand, and lists the place of each."""
    count, marker = 150_000, bytes(range(16))
    block = encode_block(marker, count, bytes(4 * count), b"\xff" * 4 * count, b"", b"")
    (tmp_path / "a").write_bytes(ArchiveHeader("ssb", marker).encode() + block)
    [split] = plan(str(tmp_path))
    batches = list(read_split(split))
    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 18_928]
    assert [batch.column("row")[-1].as_py() for batch in batches] == [65_535, 131_071, 149_999]
    assert batches[-1].slice(18_927).to_pylist()[0]["entry"] == b""
    assert batches[-1].column("payload").null_count == 18_928


def test_a_directory_of_nothing_has_no_rows(spark, tmp_path):
    register(spark)
    assert spark.read.format("culm").load(str(tmp_path)).collect() == []

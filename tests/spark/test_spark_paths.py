"""Paths, patterns and options as users of Spark write them."""

from __future__ import annotations

import errno
import gc
import gzip
import os
import weakref
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from reads import plan, rows_of, weather

from culm.spark import options
from culm.spark.archive import write_archive
from culm.spark.errors import ColumnError, sentence_of
from culm.spark.files import is_hidden, open_file
from culm.spark.growing import Growing
from culm.spark.options import READ, Reading, check_known
from culm.spark.partitions import folder_of, names_in, values_of
from culm.spark.paths import expanded, matches
from culm.spark.source import names_of, read_again, register, write
from culm.spark.splits import FileForm, form_of, pack


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.culm", ["a.culm", ".culm"], ["a.culm.gz", "a/b.culm"]),
        ("a?c", ["abc", "a.c"], ["ac", "a/c"]),
        ("[ab]c", ["ac", "bc"], ["cc", "[ab]c"]),
        ("[^ab]c", ["cc"], ["ac", "c"]),
        ("[!ab]c", ["cc"], ["ac"]),
        ("{one,two}.{a,b}", ["one.a", "two.b"], ["one.", "three.a"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b", "ac"]),
        ("a\\*b\\{", ["a*b{"], ["axb{"]),
        ("a+(b).c", ["a+(b).c"], ["aab.c"]),
        ("[a", ["[a"], ["a"]),
    ],
)
def test_patterns_match_as_those_of_hadoop_do(pattern, yes, no):
    assert [matches(pattern, name) for name in (*yes, *no)] == [True] * len(yes) + [False] * len(no)


def test_a_pattern_stands_for_what_exists_and_a_name_for_itself(tmp_path, monkeypatch):
    for name in ("one/a.culm", "two/b.culm", "two/c.jsonl", ".hidden/d.culm", "x[1]/e", "x1/f"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    def found(pattern: str) -> list[str]:
        return [str(Path(each).relative_to(tmp_path)) for each in expanded(f"{tmp_path}/{pattern}")]

    assert found("*/*.culm") == ["one/a.culm", "two/b.culm"]
    assert found("{two,one}/*") == ["one/a.culm", "two/b.culm", "two/c.jsonl"]
    assert found("x[1]") == ["x[1]"]  # an existing path is taken literally
    assert found("x[1]*") == ["x1"]
    assert found("x\\[1\\]/?") == ["x[1]/e"]
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        found("*.parquet")
    monkeypatch.chdir(tmp_path)
    assert expanded("t*/[bc].*") == ["two/b.culm", "two/c.jsonl"]
    assert expanded(f"file://{tmp_path}/on?") == [f"file://{tmp_path}/one"]


def test_a_file_that_is_named_in_several_ways_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n")
    monkeypatch.chdir(tmp_path)
    names = ["in", "in/a.jsonl", f"{tmp_path}/i*", f"file://{tmp_path}/in", "./in//a.jsonl"]
    assert [row["entry"] for row in rows_of(options.plan(Reading(paths=tuple(names))))] == [b"1"]


@pytest.mark.parametrize("given", ["in", "./in", "in/*.jsonl", "in/[ab]*", "in/a.jsonl"])
def test_a_relative_path_means_the_same_to_executors(tmp_path, monkeypatch, given):
    """They work elsewhere; an older stream's note of such a path is recognised, too."""
    folder = tmp_path / "x[1]"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.jsonl").write_bytes(b"1\n")
    monkeypatch.chdir(folder)
    reading = Reading.of({"path": given})
    growing = Growing(reading)
    offset = growing.after({})
    splits = options.plan(reading)
    assert growing.after({"in/a.jsonl": 2}) == offset == {f"{folder}/in/a.jsonl": 2}
    assert growing.between({"in/a.jsonl": 2}, offset) == []
    monkeypatch.chdir("/")
    for found in (splits, growing.between({}, offset)):
        assert [row["entry"] for row in rows_of(found)] == [b"1"]


def files_read(path: Path, **given: str) -> list[str]:
    reading = Reading.of({"path": str(path), **given})
    return [str(Path(split.path).relative_to(path)) for split in options.plan(reading)]


def test_filters_are_those_of_sparks_own_formats(tmp_path):
    (tmp_path / "below").mkdir()
    for number, name in enumerate(["a.culm", "b.jsonl", "below/c.culm"]):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (number * 60, number * 60))
    assert files_read(tmp_path) == ["a.culm", "b.jsonl", "below/c.culm"]
    assert files_read(tmp_path, pathGlobFilter="*.{culm,x}") == ["a.culm", "below/c.culm"]
    assert files_read(tmp_path, recursiveFileLookup="FALSE") == ["a.culm", "b.jsonl"]
    minute = datetime.fromtimestamp(60, UTC).replace(tzinfo=None).isoformat()
    assert files_read(tmp_path, modifiedAfter=minute) == ["below/c.culm"]
    assert files_read(tmp_path, modifiedbefore=minute) == ["a.culm"]
    ahead = datetime.fromtimestamp(60 + 3600, UTC).replace(tzinfo=None).isoformat()
    assert files_read(tmp_path, modifiedAfter=ahead, timeZone="Africa/Lagos") == ["below/c.culm"]
    for name, value in {
        "recursiveFileLookup": "maybe",
        "modifiedAfter": "yesterday",
        "on_io_error": "ignore",
        "split_size": "0",
    }.items():
        with pytest.raises(ValueError, match=name):
            files_read(tmp_path, **{name: value})
    with pytest.raises(ValueError, match="needs a path"):
        Reading.of({})


def test_a_filter_leaves_out_nothing_that_could_not_be_looked_at(tmp_path):
    """A directory that cannot be listed may hold files that the filter wants."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.jsonl").write_bytes(b"{}\n")
    only = {"pathGlobFilter": "*.jsonl", "modifiedAfter": "2000-01-01", "on_io_error": "quarantine"}
    reading = Reading.of({"path": str(tmp_path), **only})
    told = []
    for first in range(4):
        with weather(errno.EIO, first, forever=False):
            told += [(split.path, split.fault) for split in options.plan(reading)]
    assert {(str(tmp_path / each), "UNREADABLE") for each in (".", "below")} <= set(told)
    assert all(fault or path.endswith("a.jsonl") for path, fault in told)


def test_an_option_that_is_not_known_is_refused_with_those_that_are():
    check_known({"PATH": "", "pathglobfilter": ""}, READ, "reading")
    with pytest.raises(
        ValueError, match=r"no option colum for reading; it has block_size_max, column, modified"
    ):
        check_known({"colum": "entry"}, READ, "reading")


def test_small_files_are_packed_and_large_ones_are_not(tmp_path):
    for number in range(1500):
        (tmp_path / f"{number}.jsonl").write_bytes(b"x" * 150)
    splits = plan(str(tmp_path))
    packed = list(pack(splits))
    assert [split for each in packed for split in each] == splits
    assert len(packed) < 100
    large = [splits[0]._replace(stop=1 << 26)] * 5
    assert list(map(len, pack(large))) == [1] * 5
    assert list(pack([])) == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.JSONL", FileForm.LINES),
        ("a.ndjson", FileForm.LINES),
        ("a.b.jsonl", FileForm.LINES),
        ("a.Jsonl.GZ", FileForm.GZIP_LINES),
        ("a.ndjson.gz", FileForm.GZIP_LINES),
        ("A.PARQUET", FileForm.TABLE),
        ("a.gz", FileForm.ARCHIVE),
        ("jsonl", FileForm.ARCHIVE),
        ("dir.jsonl/a.culm", FileForm.ARCHIVE),
    ],
)
def test_names_tell_forms_in_upper_and_lower_case(name, form):
    assert form_of(f"/{name}") is form


def test_lines_that_are_compressed_marked_or_no_utf_8(tmp_path):
    text = b"".join(b'{"n":%d}\n' % number for number in range(50_000))
    packed = gzip.compress(text[:200_000]) + gzip.compress(text[200_000:])
    files = {
        "a.jsonl.gz": packed,
        "b.JSONL": b"\xef\xbb\xbf{}\n[]",
        "c.jsonl": '{"a": 1}\n'.encode("utf-16"),
        "d.jsonl.gz": packed[: len(packed) * 3 // 4],
        "e.jsonl.gz": b"no gzip",
        "f.jsonl.gz": b"",
        "g.ndjson.gz": gzip.compress('{"a": 1}\n'.encode("utf-16")),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    found = rows_of(plan(str(tmp_path), 1000))
    read: dict[str, list] = {name: [] for name in files}
    for row in found:
        read[Path(row["file"]).name].append(row["fault"] or row["entry"])
    whole, cut = read["a.jsonl.gz"], read["d.jsonl.gz"]
    assert whole == text.splitlines()
    assert cut[-1] == "DAMAGED_GZIP"
    assert len(cut) > 25_000
    assert cut[:-1] == whole[: len(cut) - 1]
    assert read["b.JSONL"] == [b"{}", b"[]"]
    assert read["c.jsonl"] == read["g.ndjson.gz"] == ["UTF_16"]
    assert read["e.jsonl.gz"] == ["DAMAGED_GZIP"]
    assert read["f.jsonl.gz"] == []
    [[block]] = [[row["block"] for row in found if row["fault"] == "DAMAGED_GZIP"][:1]]
    assert text[:block].endswith(b"\n")


@pytest.mark.parametrize("value", ["vienna", "a/b=c%:*", "{[x]}", "Ä ö", None])
def test_values_in_the_names_of_directories_come_back(value):
    folder = folder_of({"replica": value, "day": 1})
    assert folder.count("/") == 1
    assert not is_hidden(folder)
    found = values_of(f"/env=x/data/{folder}/part-1/a.culm", ["/env=x/data", "/env=x/d*"])
    assert found == {"replica": value, "day": "1"}
    assert names_in(["/data/replica=a/KIND=b/c"], ["/data"], ["kind"]) == ["replica"]


def test_what_spark_raises_is_said_in_a_line():
    raised = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
OSError: [Errno 110] timed out

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "reading.py", line 7, in read
culm.spark.errors.UnreadableError: a cannot be read: it has timed out

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:642)
"""
    assert sentence_of(RuntimeError(raised)) == "a cannot be read: it has timed out"
    assert sentence_of(ValueError("one line")) == "one line"
    assert sentence_of(ValueError("[CODE] a sentence\n'Project\n")) == "[CODE] a sentence"
    assert sentence_of(ValueError()) == "ValueError"


def archive(path: Path, *entries: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_archive(file, "ssb", [(entry, None) for entry in entries])


def test_spark_reads_lists_patterns_and_views_of_sql(spark, tmp_path):
    register(spark)
    for name in ("a.culm", "b.culm", "c/d.culm"):
        archive(tmp_path / name, name.encode())

    def entries(frame) -> list[bytes]:
        return sorted(bytes(row.entry) for row in frame.collect())

    several = [f"{tmp_path}/[ax].*", f"file://{tmp_path}/c"]
    narrow = spark.read.format("culm").schema("file string, entry binary").load(several)
    assert narrow.dtypes == [("file", "string"), ("entry", "binary")]
    assert entries(narrow) == [b"a.culm", b"c/d.culm"]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING culm OPTIONS (path '{tmp_path}')")
    assert entries(spark.sql("SELECT entry FROM v WHERE file NOT LIKE '%/c/%'")) == [
        b"a.culm",
        b"b.culm",
    ]
    with pytest.raises(Exception, match="no option colum") as raised:
        _ = spark.read.format("culm").option("colum", "x").load(str(tmp_path)).columns
    assert sentence_of(raised.value).startswith("the format culm has no option colum")


def test_all_save_modes_and_directories_by_values(spark, tmp_path):
    target = str(tmp_path / "written")
    rows = [
        (b"%d" % at, b"p" if at % 2 else None, at % 3, "v/w" if at % 2 else None)
        for at in range(12)
    ]
    frame = spark.createDataFrame(rows, "entry binary, payload binary, day int, replica string")
    write(frame, target, kind="ssb", partition_by=["day", "replica"])
    found = spark.read.format("culm").load(target)
    assert found.columns[-2:] == ["day", "replica"]
    said = [(bytes(row.entry), row.payload, int(row.day), row.replica) for row in found.collect()]
    assert Counter(said) == Counter(rows)
    with pytest.raises(FileExistsError, match="already"):
        write(frame, target, kind="ssb")
    with pytest.raises(ValueError, match="a mode is one of"):
        write(frame, target, kind="ssb", mode="upsert")
    with pytest.raises(ColumnError, match="column year is missing"):
        write(frame, target, kind="ssb", mode="append", partition_by=["year"])
    write(frame, target, kind="ssb", mode="ignore")
    write(frame.select("entry"), target, kind="ssb", mode="append")
    assert spark.read.format("culm").load(target).groupBy("day").count().count() == 4


def test_columns_of_other_types_are_refused_before_anything_is_read():
    from pyspark.sql.types import StringType, StructField, StructType

    with pytest.raises(ColumnError, match="column block is string"):
        names_of(
            StructType([StructField("file", StringType()), StructField("block", StringType())]),
            Reading(),
        )


def test_what_could_not_be_read_is_read_again_and_nothing_else(spark, tmp_path):
    """A link that leads nowhere, and a part of a file that the file system did not return."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n2\n3\n")
    (tmp_path / "in" / "b.jsonl").symlink_to(tmp_path / "later")
    schema = "file string, block bigint, row int, block_end bigint, reason string"
    part = (f"{tmp_path}/in/a.jsonl", 2, 0, 4, "UNREADABLE")
    register(spark)
    rows = spark.read.format("culm").load(str(tmp_path / "in"))
    told = rows.selectExpr("file", "block", "row", "block_end", "fault reason")
    told = told.union(spark.createDataFrame([part], schema)).persist()
    assert [row.reason for row in told.filter("reason is not null").collect()] == ["UNREADABLE"] * 2
    (tmp_path / "later").write_bytes(b"4\n5\n")
    again = read_again(told).collect()
    assert sorted(bytes(row.entry) for row in again) == [b"2", b"4", b"5"]
    told.unpersist()


class ClosingSystem(fs.LocalFileSystem):
    """A file system that closes its files at its own end, as pyarrow's HDFS does."""

    def open_input_file(self, path: str) -> Any:
        opened = super().open_input_file(path)
        weakref.finalize(self, opened.close)
        return opened


def test_a_file_keeps_the_system_that_closes_it(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"some bytes")
    monkeypatch.setattr("culm.spark.files.open_system", lambda path: (ClosingSystem(), path))
    with open_file(str(path)) as file:
        gc.collect()
        assert file.read() == b"some bytes"

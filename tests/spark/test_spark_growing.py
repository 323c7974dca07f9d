"""Growing files are read up to the last whole record, each record once, wherever they were cut."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from random import Random

import pyarrow
import pytest
from pyarrow import parquet

from culm.spark.archive import ArchiveWriter
from culm.spark.files import WatchedFile, open_file
from culm.spark.growing import Growing
from culm.spark.options import Reading
from culm.spark.reading import read_split

RECORDS = [(b"entry %d" % number, b"p" * (number % 5) or None) for number in range(12)]


def archive(records, flush_every: int = 2) -> bytes:
    file = io.BytesIO()
    with ArchiveWriter(file, "bamboo/YASMF") as writer:
        for number, record in enumerate(records, 1):
            writer.append(*record)
            if number % flush_every == 0:
                writer.flush()
    return file.getvalue()


class Reader:
    """Follows a directory, and keeps everything read."""

    def __init__(self, folder: Path, split_size: int = 1 << 20) -> None:
        self._growing = Growing(Reading(paths=(str(folder),), split_size=split_size))
        self.offset: dict[str, int] = {}
        self.rows: list[dict] = []

    def read(self, files_max: int | None = None) -> int:
        """The number of new rows."""
        offset = self._growing.after(self.offset, files_max)
        splits = self._growing.between(self.offset, offset)
        new = [row for split in splits for batch in read_split(split) for row in batch.to_pylist()]
        self.rows += new
        self.offset = offset
        return len(new)

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [(row["entry"], row["payload"]) for row in self.rows if row["fault"] is None]

    def faults(self) -> list[str]:
        return [row["fault"] for row in self.rows if row["fault"] is not None]


@pytest.mark.parametrize("split_size", [1, 100, 1 << 20])
def test_an_archive_is_read_block_by_block_as_it_is_written(tmp_path, split_size):
    data = archive(RECORDS)
    path = tmp_path / "growing.culm"
    path.write_bytes(b"")
    reader = Reader(tmp_path, split_size)
    for size in range(0, len(data) + 1, 3):
        path.write_bytes(data[:size])
        assert reader.read() in (0, 2)
        # The unread rest is an incomplete block.
        assert len(archive(reader.records())) <= max(size, 64)
    path.write_bytes(data)
    reader.read()
    assert (reader.records(), reader.faults()) == (RECORDS, [])
    assert reader.offset == {str(path): len(data)}
    assert reader.read() == 0


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in ascending order, adjacent ones as one; none may overlap."""
    whole: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        assert not whole or whole[-1][1] <= begin
        if whole and whole[-1][1] == begin:
            whole[-1] = whole[-1][0], end
        else:
            whole.append((begin, end))
    return whole


@pytest.mark.parametrize("seed", range(30))
def test_what_a_writer_left_unfinished_is_told_when_another_goes_on(tmp_path, seed):
    """Damaged or truncated blocks lie between sound ones; everything is cut anywhere."""
    chance = Random(seed)
    data = archive(RECORDS, 1)
    marker = data[32:48]
    blocks = [marker + each for each in data[64:].split(marker)[1:]]
    hurt = chance.sample(range(len(blocks) - 1), 3)
    for at in hurt:
        cut = chance.randrange(16, len(blocks[at]))
        damaged = bytearray(blocks[at])
        damaged[cut] ^= 1
        blocks[at] = chance.choice([blocks[at][:cut], bytes(damaged)])
    whole = data[:64] + b"".join(blocks)
    path = tmp_path / "growing"
    path.write_bytes(b"")
    reader = Reader(tmp_path, chance.choice([50, 1 << 20]))
    size = 0
    while size < len(whole):
        size = min(len(whole), size + chance.randint(1, 120))
        path.write_bytes(whole[:size])
        reader.read()
    assert reader.records() == [each for at, each in enumerate(RECORDS) if at not in hurt]
    ends = list(accumulate(map(len, blocks), initial=64))
    assert joined((row["block"], row["block_end"]) for row in reader.rows if row["fault"]) == (
        joined((ends[at], ends[at + 1]) for at in hurt)
    )
    assert len(reader.faults()) <= len(hurt)


def test_lines_are_read_up_to_the_last_line_feed(tmp_path):
    text = b"".join(b'{"n": %d}\n' % number for number in range(9))
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"")
    reader = Reader(tmp_path)
    for size in range(len(text) + 1):
        path.write_bytes(text[:size])
        reader.read()
        assert [entry for entry, _ in reader.records()] == text[:size].split(b"\n")[:-1]
    assert reader.faults() == []


def test_what_is_no_archive_is_told_at_once_and_once(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"?")
    reader = Reader(tmp_path)
    reader.read()
    path.write_bytes(b"?" * 100)
    reader.read()
    assert reader.faults() == ["NO_ARCHIVE"]


def test_a_batch_has_so_many_files_and_nothing_that_came_later(tmp_path):
    for number in range(5):
        (tmp_path / f"part {number}").write_bytes(archive(RECORDS[:2]))
    reader = Reader(tmp_path)
    reader._growing.pin()
    (tmp_path / "part 0").write_bytes(archive(RECORDS))
    (tmp_path / "late").write_bytes(archive(RECORDS))
    assert [reader.read(2) for _ in range(4)] == [4, 4, 2, 0]
    assert Reader(tmp_path).read() == 2 * len(RECORDS) + 4 * 2
    with pytest.raises(ValueError, match="split_size"):
        Reading(split_size=0)
    with pytest.raises(FileNotFoundError):
        Growing(Reading(paths=(str(tmp_path / "nothing"),)))


def test_a_pattern_waits_for_files_that_match_it(tmp_path):
    reader = Reader(tmp_path / "*.culm")
    assert reader.read() == 0
    (tmp_path / "a.culm").write_bytes(archive(RECORDS[:2]))
    assert reader.read() == 2
    (tmp_path / "a.culm").unlink()  # as files may be after they have been read
    assert [reader.read(), reader.read()] == [0, 0]
    (tmp_path / "b.culm").write_bytes(archive(RECORDS[:4]))
    assert reader.read() == 4


@pytest.mark.parametrize(
    "spelled", ["file:{}", "file://{}", "file://{}/*", "{}/.", "{}/[ab].jsonl"]
)
def test_a_query_that_spells_a_path_otherwise_goes_on_where_the_last_one_was(tmp_path, spelled):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2\n")
    one = Reader(tmp_path)
    assert one.read() == 2
    path.write_bytes(b"1\n2\n3\n")
    other = Reader(Path())
    other._growing = Growing(Reading(paths=(spelled.format(tmp_path),)))
    other.offset = one.offset
    assert [other.read(), other.read()] == [1, 0]
    one.offset = other.offset
    assert one.read() == 0


def test_a_name_stands_for_one_file_for_good(tmp_path):
    """In its replacement, bytes before the old offset are not read; damage is reported."""
    path = tmp_path / "rotated"
    path.write_bytes(archive(RECORDS[:4]))
    reader = Reader(tmp_path)
    assert reader.read() == 4
    path.write_bytes(archive(RECORDS[4:]))  # the old offset is in the middle of a block there
    reader.read()
    assert reader.faults() == ["NO_BLOCK"]
    assert set(reader.records()) < set(RECORDS)


@pytest.mark.parametrize("split_size", [1, 1 << 20])
@pytest.mark.parametrize("name", ["archive", "lines.jsonl"])
def test_a_shorter_file_in_the_place_of_another_is_told_and_read(tmp_path, name, split_size):
    def contents(records):
        if name == "archive":
            return archive(records)
        return b"".join(entry + b"\n" for entry, _ in records)

    def read() -> tuple[list[bytes], list[tuple[str, int]]]:
        before = len(reader.rows)
        reader.read()
        new = reader.rows[before:]
        told = [(row["fault"], row["block"]) for row in new if row["fault"] is not None]
        return [row["entry"] for row in new if row["fault"] is None], told

    path = tmp_path / name
    reader = Reader(tmp_path, split_size)
    for first in (0, 2):
        longer, shorter = contents(RECORDS[first:10]), contents(RECORDS[10:])
        path.write_bytes(longer)
        assert read()[0][-2:] == [b"entry 8", b"entry 9"]
        path.write_bytes(shorter)
        assert read() == ([b"entry 10", b"entry 11"], [("REPLACED", len(longer))])
        assert read() == ([], [])
        path.write_bytes(b"")
        assert read() == ([], [("REPLACED", len(shorter))])
        assert reader.offset == {str(path): 0}
    # A file that was away when the end of a run was fixed, and has come back, is for the next run.
    path.write_bytes(longer)
    assert read() == ([entry for entry, _ in RECORDS[2:10]], [])
    path.unlink()
    reader._growing.pin()
    path.write_bytes(shorter)
    assert read() == ([], [])


@pytest.mark.parametrize("name", ["archive", "lines.jsonl", "a.parquet", "lines.jsonl.gz"])
def test_what_cannot_be_read_at_first_is_told_once_and_read_when_it_can(tmp_path, name):
    """A link that leads nowhere yet: its size is unknown, so no part of it counts as read."""
    entries = [b"1", b"2"]
    lines = b"".join(entry + b"\n" for entry in entries)
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"entry": entries}), table)
    contents = {
        "archive": archive([(entry, None) for entry in entries]),
        "lines.jsonl": lines,
        "a.parquet": table.getvalue(),
        "lines.jsonl.gz": gzip.compress(lines),
    }
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / name).symlink_to(tmp_path / "later")
    reader = Reader(tmp_path / "inbox")
    assert [reader.read() for _ in range(3)] == [1, 0, 0]
    assert reader.faults() == ["WAITING"]
    (tmp_path / "later").write_bytes(contents[name])
    assert reader.read() == 2
    assert [entry for entry, _ in reader.records()] == entries
    assert reader.read() == 0


def test_a_table_that_is_still_being_written_is_waited_for(tmp_path):
    table = io.BytesIO()
    parquet.write_table(pyarrow.table({"entry": [b"1", b"2"]}), table)
    path = tmp_path / "a.parquet"
    reader = Reader(tmp_path)
    for size in range(0, len(table.getvalue()), 40):
        path.write_bytes(table.getvalue()[:size])
        reader.read()
    path.write_bytes(table.getvalue())
    reader.read()
    assert [entry for entry, _ in reader.records()] == [b"1", b"2"]
    assert reader.faults() == ["WAITING"]
    # A replaced table is read from its beginning.
    parquet.write_table(pyarrow.table({"entry": [b"3" * 99]}), path)
    reader.read()
    assert [entry for entry, _ in reader.records()] == [b"1", b"2", b"3" * 99]
    assert reader.faults() == ["WAITING", "REPLACED"]


def test_no_file_starves_beside_one_that_keeps_growing(tmp_path):
    """Nor beside any number of new ones."""
    text = b"{}\n"
    for name in ("a.jsonl", "z.jsonl"):
        (tmp_path / name).write_bytes(text)
    reader = Reader(tmp_path)
    for turn in range(6):
        (tmp_path / "a.jsonl").write_bytes(text * (turn + 2))
        (tmp_path / f"b{turn}.jsonl").write_bytes(text)
        reader.read(1)
    read = [Path(row["file"]).name for row in reader.rows]
    assert read[:2] == ["a.jsonl"] * 2
    assert "z.jsonl" in read
    assert read.count("a.jsonl") > 2
    # The order of an offset is that of the queue, even after serialising.
    assert list(json.loads(json.dumps(reader.offset))) == list(reader.offset)


def test_what_has_not_changed_is_not_opened_again(tmp_path, monkeypatch):
    """After damage, a stream would search the whole rest for a marker, at every query."""
    opened = []

    def open_noted(path: str) -> WatchedFile:
        opened.append(Path(path).name)
        return open_file(path)

    monkeypatch.setattr("culm.spark.growing.open_file", open_noted)
    (tmp_path / "damaged").write_bytes(archive(RECORDS)[:-1] + bytes(1000))
    (tmp_path / "half.jsonl").write_bytes(b"{}\n{")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    reader = Reader(tmp_path)
    assert reader.read() > 0
    reader.read()
    opened.clear()
    assert [reader.read() for _ in range(3)] == [0, 0, 0]
    assert opened == []
    with (tmp_path / "half.jsonl").open("ab") as file:
        file.write(b"}\n")
    assert reader.read() == 1
    assert opened == ["half.jsonl"]

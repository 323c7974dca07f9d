"""An error of the file system is not an end: it fails, is tried again, and loses nothing."""

from __future__ import annotations

import errno
import gzip
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from reads import plan, rows_of, weather

from culm.spark import options
from culm.spark.archive import ArchiveWriter
from culm.spark.errors import OnError, UnreadableError
from culm.spark.growing import Growing
from culm.spark.options import Reading
from culm.spark.reading import read_split, rest_of

RECORDS = [(b'{"n":%d}' % number, b"p" * (number % 3) or None) for number in range(40)]
LINES = b"".join(entry + b"\n" for entry, _ in RECORDS)
# Answers of a file system for names that do not exist.
ANSWERS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
SMALL, LARGE = 300, 1 << 20


def archive() -> bytes:
    file = io.BytesIO()
    with ArchiveWriter(file, "ssb") as writer:
        for number, record in enumerate(RECORDS):
            writer.append(*record)
            if not number % 5:
                writer.flush()
    return file.getvalue()


def folder_of_all_forms(path: Path) -> None:
    (path / "below").mkdir(parents=True)
    (path / "a.culm").write_bytes(archive())
    damaged = bytearray(archive())
    for at in (40, 200):
        damaged[at] ^= 1
    (path / "damaged").write_bytes(damaged)
    (path / "below" / "b.jsonl").write_bytes(LINES)
    (path / "c.jsonl.gz").write_bytes(gzip.compress(LINES))
    table = pyarrow.table({"entry": [entry for entry, _ in RECORDS]})
    parquet.write_table(table, path / "d.parquet", row_group_size=15)


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("file", "block", "row", "entry", "payload", "fault"))


def is_unread(row: dict[str, Any]) -> bool:
    return row["fault"] in ("UNREADABLE", "WAITING")


def planned(path: Path, on_error: OnError, size: int = SMALL) -> list[Any]:
    reading = Reading(paths=(str(path),), split_size=size, on_io_error=on_error)
    return options.plan(reading)


def rest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that `read_again` would read."""
    splits = []
    for row in rows:
        if is_unread(row) and row["block_end"]:
            splits.append(rest_of(row["file"], row["block"], row["row"], row["block_end"], "entry"))
        elif is_unread(row):
            splits += plan(row["file"])
    return rows_of(splits)


def check(
    path: Path, wanted: Counter, error: int, first: int, *, forever: bool, size: int = SMALL
) -> bool:
    """Whether anything has failed, by both policies: then it was reported, and nothing was lost."""
    has_failed = False
    with weather(error, first, forever=forever) as bad:
        try:
            found = rows_of(planned(path, OnError.FAIL, size))
        except OSError:
            assert bad.has_failed
        else:
            assert not bad.has_failed
            assert Counter(map(place, found)) == wanted
        has_failed = bad.has_failed
    with weather(error, first, forever=forever):
        try:
            found = rows_of(planned(path, OnError.QUARANTINE, size), OnError.QUARANTINE)
        except FileNotFoundError:
            return has_failed
    found += rest(found)
    assert Counter(place(row) for row in found if not is_unread(row)) == wanted
    return has_failed


@pytest.mark.costly
@pytest.mark.parametrize(("forever", "size"), [(False, SMALL), (False, LARGE), (True, SMALL)])
def test_every_read_may_fail_and_no_row_is_lost_or_doubled(tmp_path, forever, size):
    folder_of_all_forms(tmp_path)
    wanted = Counter(map(place, rows_of(planned(tmp_path, OnError.FAIL))))
    assert len(wanted) > 4 * len(RECORDS)
    first = 0
    while check(tmp_path, wanted, errno.ETIMEDOUT, first, forever=forever, size=size):
        first += 1
    assert first > 30


#: Each error at every n-th call, beginning with a different one for each error: so each call fails
#: with some error, and each error comes at calls of every kind.
STEPS = [149, pytest.param(1, marks=pytest.mark.slow)]


def each_of(errors: Iterable[int], step: int) -> Iterator[tuple[int, range]]:
    """Errors, and the numbers of the calls that fail with them."""
    for number, error in enumerate(sorted(errors)):
        yield error, range(number % step, 1000, step)


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_every_error_that_a_file_system_has_is_told(tmp_path, step, forever):
    folder_of_all_forms(tmp_path)
    wanted = Counter(map(place, rows_of(planned(tmp_path, OnError.FAIL))))
    for error, calls in each_of(set(errno.errorcode) - ANSWERS, step):
        for first in calls:
            if not check(tmp_path, wanted, error, first, forever=forever, size=LARGE):
                break
        assert first > 100


@pytest.mark.timeout(60)
def test_a_file_whose_reads_are_always_interrupted_has_an_end(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINES))
    splits = plan(str(path))
    with weather(errno.EINTR, 2, forever=True), pytest.raises(UnreadableError, match="Interrupted"):
        rows_of(splits)


@pytest.mark.costly
@pytest.mark.parametrize("policy", list(OnError))
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("error", sorted(ANSWERS), ids=errno.errorcode.get)
def test_what_is_answered_to_be_gone_is_told_unless_it_is_a_directory(
    tmp_path, error, forever, policy
):
    folder_of_all_forms(tmp_path)
    wanted = Counter(map(place, rows_of(planned(tmp_path, policy))))
    untold = 0
    for first in range(1000):
        with weather(error, first, forever=forever) as bad:
            try:
                rows = rows_of(planned(tmp_path, policy, LARGE), policy)
            except OSError:
                continue
        found = Counter(place(row) for row in rows if not is_unread(row))
        assert found <= wanted
        untold += found != wanted and not any(map(is_unread, rows))
        if not bad.has_failed:
            break
    assert first > 100
    # The folder and the one below it: listing them can have no other answer than this.
    assert untold == (2 if error == errno.ENOENT else 0)


def followed(path: Path, error: int, first: int, policy: OnError) -> tuple[Counter, bool]:
    """A stream's rows from a folder, in batches of one file, and whether anything has failed."""
    reading = Reading(paths=(str(path),), split_size=SMALL, on_io_error=policy)
    rows: list[dict[str, Any]] = []
    growing, offset = Growing(reading), {}
    with weather(error, first, forever=False) as bad:
        for _ in range(40):
            try:
                following = growing.after(offset, 1)
                splits = growing.between(offset, following)
                rows += [
                    row
                    for split in splits
                    for batch in read_split(split, policy)
                    for row in batch.to_pylist()
                ]
            except UnreadableError:
                rows += rows_of(splits)  # by a task that is tried again
            except OSError:
                continue
            offset = following
    unread = [row for row in rows if row["fault"] == "UNREADABLE"]
    rows += rest(unread)
    return Counter(place(row) for row in rows if not is_unread(row)), bad.has_failed


@pytest.mark.parametrize("policy", list(OnError))
def test_a_stream_loses_nothing_by_an_error_wherever_it_comes(tmp_path, policy):
    folder_of_all_forms(tmp_path)
    wanted, _ = followed(tmp_path, errno.EIO, 10**9, policy)
    assert wanted == Counter(map(place, rows_of(planned(tmp_path, policy))))
    first, has_failed = 0, True
    while has_failed:
        found, has_failed = followed(tmp_path, errno.EIO, first, policy)
        assert found == wanted, first
        first += 7
    assert first > 100

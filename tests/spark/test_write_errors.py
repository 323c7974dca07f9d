"""A file system that fails call by call, while archives and shelves are written, without Spark."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import fs
from reads import Stormy, Weather, plan, rows_of

from culm.spark import files, shelves, writing
from culm.spark.errors import sentence_of
from culm.spark.files import remove, written_whole
from culm.spark.shelves import ShelfSnapshot, Shelves

KIND = "bamboo/YASMF"
OLD, NEW = [b"old %d" % at for at in range(3)], [b"new %d" % at for at in range(5)]
CALLS = {
    *("get_file_info", "open_output_stream", "open_input_file"),
    *("create_dir", "move", "delete_file", "delete_dir"),
}


Act = Callable[[Path], None]


class Unsteady(Stormy):
    """A file system whose files also fail at writes and at closing."""

    def __getattr__(self, name: str) -> Any:
        called = super().__getattr__(name)
        if name != "open_output_stream":
            return called
        return lambda path: Written(called(path), self._weather)


class Written:
    """A file under way: each of its writes may fail, and so may its end."""

    def __init__(self, inner: Any, weather: Weather) -> None:
        self._inner = inner
        self._weather = weather

    def __enter__(self) -> Written:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._inner.close()
        if kind is None:
            self._weather.call(lambda: None)

    def write(self, data: bytes) -> None:
        self._weather.call(self._inner.write, data)


@contextmanager
def unsteady(error: int, first: int, *, forever: bool) -> Iterator[Weather]:
    """Calls of the file system fail in this way."""
    bad = Weather(error, first, forever=forever)
    system = Unsteady(fs.LocalFileSystem(), bad, CALLS)

    def opened(path: str) -> tuple[Any, str]:
        return system, os.path.abspath(path)

    with pytest.MonkeyPatch.context() as patched:
        for module in (files, shelves, writing):
            patched.setattr(module, "open_system", opened)
        yield bad


def batches(entries: list[bytes]) -> Iterator[pyarrow.RecordBatch]:
    for entry in entries:
        yield pyarrow.RecordBatch.from_pydict({"entry": pyarrow.array([entry], pyarrow.binary())})


def write(path: Path, name: str, entries: list[bytes], *, overwrite: bool = False) -> None:
    """The work of a job: two tasks, each tried twice, and then the driver."""
    names: set[str] = set()
    hidden = f"{path}/.{name}"
    try:
        for part in (entries[::2], entries[1::2]):
            try:
                names.update(writing.write_partition(hidden, KIND, batches(part)))
            except OSError:
                names.update(writing.write_partition(hidden, KIND, batches(part)))
        writing.commit_partitions(str(path), name, names, overwrite=overwrite)
    except OSError as error:
        with suppress(OSError):  # as Spark does, which reports why the job has failed
            remove(hidden)
        raise error


def read(path: Path) -> Counter:
    """The entries that a reader finds, all from whole files."""
    rows = rows_of(plan(str(path)))
    assert {row["fault"] for row in rows} <= {None}
    return Counter(row["entry"] for row in rows)


def check(folder: Path, error: int, first: int, *, forever: bool, overwrite: bool) -> bool:
    """Whether anything has failed: the rows are the old or the new ones, or the error is raised."""
    path = folder / f"{error}-{first}-{forever}-{overwrite}"
    write(path, "part-1", OLD)
    before = Counter(OLD)
    after = Counter(NEW) if overwrite else Counter(OLD + NEW)
    said = None
    with unsteady(error, first, forever=forever) as bad:
        try:
            write(path, "part-2", NEW, overwrite=overwrite)
        except OSError as raised:
            said = raised
    if said is None:
        assert read(path) == after
    else:
        assert said.errno == error
        # Old ones may be left, where removing them has failed.
        assert read(path) in (before, after, Counter(OLD + NEW))
        write(path, "part-3", NEW, overwrite=True)
        assert read(path) == Counter(NEW)
    return bad.has_failed


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("forever", [False, True])
def test_rows_are_all_there_or_the_job_fails_and_says_why(tmp_path, forever, overwrite):
    first = 0
    while check(tmp_path, errno.ENOSPC, first, forever=forever, overwrite=overwrite):
        first += 1
    assert first > 10


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_every_error_of_a_write_is_told(tmp_path, step, forever, overwrite):
    for number, error in enumerate(sorted(errno.errorcode)):
        for first in range(number % step, 100, step):
            if not check(tmp_path, error, first, forever=forever, overwrite=overwrite):
                break
        assert first > 10


def each_failure(folder: Path, prepare: Act, act: Act) -> Iterator[tuple[Path, OSError | None]]:
    """The act, on a fresh path each time, while one call after the other fails."""
    for forever in (False, True):
        for first in range(1000):
            path = folder / f"{forever}-{first}"
            path.mkdir(parents=True)
            prepare(path)
            said = None
            with unsteady(errno.ENOSPC, first, forever=forever) as bad:
                try:
                    act(path)
                except OSError as raised:
                    said = raised
            if not bad.has_failed:
                assert first > 3
                break
            assert said is None or said.errno == errno.ENOSPC
            yield path, said


def test_a_file_that_cannot_be_written_to_its_end_is_not_there(tmp_path):
    def act(path: Path) -> None:
        with written_whole(f"{path}/summary.json") as file:
            file.write(b"{")
            file.write(b"}")

    for path, said in each_failure(tmp_path, lambda _: None, act):
        there = path / "summary.json"
        assert there.exists() == (said is None)
        assert said is not None or there.read_bytes() == b"{}"


def test_what_is_told_is_the_first_error_and_not_that_of_cleaning_up(tmp_path, monkeypatch):
    class Full:
        def open_output_stream(self, path: str) -> Any:
            raise OSError(errno.ENOSPC, "full")

        def get_file_info(self, path: str) -> Any:
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(files, "open_system", lambda path: (Full(), path))
    with pytest.raises(OSError, match="full"), written_whole(str(tmp_path / "a")):
        pass


def test_shelves_are_those_of_a_batch_that_is_whole(tmp_path):
    """And a failed batch is repeated."""

    def shelves_at(path: Path) -> Shelves:
        return Shelves(str(path), {"t": (("n", "int"),)})

    def batch(path: Path, number: int) -> None:
        kept = shelves_at(path)
        before = kept.snapshot(number - 1) or ShelfSnapshot.empty(number - 1)
        kept.begin(number)
        place = path / f"batch={number}" / "t" / f"_shelf={number % 2}"
        place.mkdir(parents=True)
        (place / "rows").write_text(str(number))
        after = ShelfSnapshot(number, 2, number + 1, {})
        kept.commit(before, after, {"t": [number % 2]}, {"t": {number % 2}})

    def prepare(path: Path) -> None:
        for number in range(4):
            batch(path, number)

    def held(path: Path) -> list[str]:
        newest = shelves_at(path).newest()
        assert newest is not None
        return [
            (path / f"batch={batch}/t/_shelf={shelf}/rows").read_text()
            for batch, shelf in newest.places("t")
        ]

    for path, said in each_failure(tmp_path, prepare, lambda path: batch(path, 4)):
        assert held(path) in ([["2", "3"], ["4", "3"]] if said else [["4", "3"]])
        batch(path, 4)
        assert held(path) == ["4", "3"]
        batch(path, 5)
        assert held(path) == ["4", "5"]
        assert {each.name for each in (path / "snapshots").glob("[0-9]*")} == {"4.json", "5.json"}


def test_what_fails_in_java_is_told_by_its_last_cause():
    told = """An error occurred while calling o227.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out/verified. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Query.scala:9)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 1 more
"""  # noqa: E501
    where = "Task failed while writing rows to file:/out/verified"
    assert sentence_of(RuntimeError(told)) == f"{where}: No space left on device"
    assert sentence_of(ValueError("Job aborted for that\nmore")) == "Job aborted for that"
    assert sentence_of(ValueError("[NAME] is wrong\nCaused by: a.B: c")) == "[NAME] is wrong"

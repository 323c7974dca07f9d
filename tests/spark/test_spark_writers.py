"""A writer that fails, or is killed, leaves nothing that looks whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from reads import plan

from culm.spark.archive import read_archive, write_archive
from culm.spark.files import list_files, open_system, remove, written_whole
from culm.spark.stream import read_batches
from culm.spark.writing import commit_partitions, write_partition


def test_a_file_has_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with written_whole(str(path)) as file:
        file.write(b"behind")
        # A writer killed here leaves the old file, and one that is never read.
        assert path.read_bytes() == b"before"
        assert [each.path for each in list_files(str(tmp_path))] == [str(path)]
    assert path.read_bytes() == b"behind"
    with pytest.raises(TypeError), written_whole(str(path)) as file:
        file.write(None)
    assert path.read_bytes() == b"behind"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_removed_is_gone_and_may_have_been(tmp_path):
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    for name in ("folder", "file", "nothing"):
        remove(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def batch_of(*entries: bytes) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({"entry": pyarrow.array(entries, pyarrow.binary())})


def archive_of(entry: bytes) -> bytes:
    file = io.BytesIO()
    write_archive(file, "ssb", [(entry, None)])
    return file.getvalue()


def written(folder: Path, *entries: bytes) -> str:
    [name] = write_partition(str(folder / ".part-1"), "ssb", iter([batch_of(*entries)]))
    return name


def entries_at(folder: Path) -> list[bytes]:
    found = []
    for split in plan(str(folder)):
        with Path(split.path).open("rb") as file:
            found += [entry for entry, _ in read_archive(file)]
    return sorted(found)


@pytest.mark.parametrize("renamed", [True, False])
def test_archives_of_a_write_are_seen_when_all_are_written(tmp_path, monkeypatch, renamed):
    """All at once, where directories can be renamed; without those of repeated tasks."""
    if not renamed:
        monkeypatch.setattr("culm.spark.writing._RENAMED_WHOLE", frozenset())
    names = {written(tmp_path, b"one"), written(tmp_path, b"two", b"three")}
    written(tmp_path, b"two")  # a slow task, done again
    (tmp_path / ".part-1" / "broken.culm").write_bytes(b"culmarch")
    assert plan(str(tmp_path)) == []
    commit_partitions(str(tmp_path), "part-1", names, overwrite=False)
    assert entries_at(tmp_path) == [b"one", b"three", b"two"]
    assert [each.name for each in tmp_path.iterdir()] == ["part-1"]


def test_a_write_over_what_was_there_leaves_nothing_of_it_to_read(tmp_path):
    """Wherever the old files lie, and whatever their names."""
    (tmp_path / "below" / "deeper").mkdir(parents=True)
    for name in ("a", "b.culm", "c.jsonl", "below/deeper/d", ".hidden"):
        (tmp_path / name).write_bytes(b"{}")
    names = {written(tmp_path, b"new")}
    commit_partitions(str(tmp_path), "part-1", names, overwrite=True)
    assert entries_at(tmp_path) == [b"new"]
    assert {each.name for each in tmp_path.iterdir()} == {"part-1", ".hidden"}
    commit_partitions(str(tmp_path), "part-2", set(), overwrite=True)
    assert plan(str(tmp_path)) == []


class KilledError(BaseException):
    """The writer is gone."""


class Mortal:
    """A file system whose user is killed after a number of changes."""

    def __init__(self, system: Any, left: list[None]) -> None:
        self._system = system
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._system, name)
        if name not in {"create_dir", "delete_dir", "delete_file", "move", "open_output_stream"}:
            return found

        def change(*arguments: Any) -> Any:
            if not self._left:
                raise KilledError
            self._left.pop()
            return found(*arguments)

        return change


def commit_killed(folder: Path, name: str, steps: int, *, overwrite: bool) -> bool:
    """Write two archives and publish them; killed after `steps` changes, or not at all."""
    left: list[None] = [None] * steps

    def opened(path: str) -> tuple[Any, str]:
        system, inside = open_system(path)
        return Mortal(system, left), inside

    with pytest.MonkeyPatch.context() as patched:
        for module in ("writing", "files"):
            patched.setattr(f"culm.spark.{module}.open_system", opened)
        try:
            names = {
                each
                for entry in (b"one", b"two")
                for each in write_partition(f"{folder}/.{name}", "ssb", iter([batch_of(entry)]))
            }
            commit_partitions(str(folder), name, names, overwrite=overwrite)
        except KilledError:
            return True
    return False


@pytest.mark.parametrize("renamed", [True, False])
def test_a_write_that_is_killed_anywhere_can_be_done_again(tmp_path, monkeypatch, renamed):
    """Over old files: all of them stay until all of the new ones are visible."""
    if not renamed:
        monkeypatch.setattr("culm.spark.writing._RENAMED_WHOLE", frozenset())
    is_killed, steps, seen = True, 0, set()
    while is_killed:
        folder = tmp_path / str(steps)
        (folder / "before").mkdir(parents=True)
        for name in ("before/a", "b"):
            (folder / name).write_bytes(archive_of(b"old"))
        is_killed = commit_killed(folder, "part-1", steps, overwrite=True)
        seen.add(tuple(entries_at(folder)))
        commit_killed(folder, "part-2", 99, overwrite=True)
        assert entries_at(folder) == [b"one", b"two"]
        steps += 1
    old, new = (b"old", b"old"), (b"one", b"two")
    partly = set() if renamed else {(*old, b"one"), (*old, b"two")}
    assert {old, (*old, *new), (old[0], *new), new} <= seen
    assert seen <= {old, (*old, *new), (old[0], *new), new} | partly


def test_an_addition_that_is_killed_anywhere_is_seen_whole_or_not_at_all(tmp_path):
    is_killed, steps, seen = True, 0, set()
    while is_killed:
        folder = tmp_path / str(steps)
        folder.mkdir()
        (folder / "before").write_bytes(archive_of(b"old"))
        is_killed = commit_killed(folder, "part-1", steps, overwrite=False)
        seen.add(tuple(entries_at(folder)))
        steps += 1
    assert seen == {(b"old",), (b"old", b"one", b"two")}


def test_a_batch_that_is_not_whole_is_not_read(spark, tmp_path):
    output = str(tmp_path / "out[1]")
    with pytest.raises(FileNotFoundError, match="no batch"):
        read_batches(spark, output)
    for number in range(3):
        spark.range(number, number + 1).write.parquet(f"{output}/batch={number}")
    remove(f"{output}/batch=1/_SUCCESS")  # killed while its files were being renamed
    rows = read_batches(spark, output).collect()
    assert sorted((row["id"], row["batch"]) for row in rows) == [(0, 0), (2, 2)]

"""Malicious trees, logs and neighbours, and file systems with bad days."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from time import time_ns

import pytest
from nacl.signing import SigningKey
from processes import fetch, run, serving, whole_entries
from trees import MTIME, contents, details, make_tree

from culm.bamboo import LogAuthor, LogKey, LogStore, MemoryStore, NewEntry
from culm.exits import ExitStatus
from culm.wire.multihash import YAMF
from culm_io.command import command_of
from culm_io.programs.directory import command as replicate_directory
from culm_io.programs.directory import materialise as materialising
from culm_io.programs.directory.materialise import Materialised, materialise
from culm_io.programs.directory.publish import publish_directory
from culm_io.programs.directory.records import Directory, File, Record, encode
from culm_io.programs.directory.tree import read_tree
from culm_io.stores.bamboo import SqliteStore

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
MIB = 1 << 20


def authored(*payloads: Record | bytes) -> LogStore:
    """A store with a log of these payloads."""
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    store.append(
        LOG,
        [author.publish(each if isinstance(each, bytes) else encode(each)) for each in payloads],
    )
    return store


def file(path: bytes, content: bytes = b"text", mode: int = 0o644) -> bytes:
    return encode(File(path, mode, MTIME, 0, 1), content)


class Meddled(MemoryStore):
    """A store that acts as soon as the first entries are appended."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__(family=YAMF)
        self._meddle: Callable[[], object] | None = meddle

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        super().append(log, entries)
        meddle, self._meddle = self._meddle, None
        if meddle is not None:
            meddle()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of a user to whom modes apply: not root."""
    euid = os.geteuid()
    # Other users may have no access to root's temporary files.
    with tempfile.TemporaryDirectory(dir=None if euid else "/var/tmp") as name:
        if euid == 0:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(euid)


# Everything outside stays as it is.


def test_a_hard_link_leads_nowhere(tmp_path: Path) -> None:
    """Another name of a file, outside: nothing about that file changes."""
    outside, target = tmp_path / "outside", tmp_path / "target"
    target.mkdir()
    outside.write_bytes(b"text")
    os.chmod(outside, 0o600)
    os.utime(outside, ns=(1, 1))
    os.link(outside, target / "file")
    before = outside.stat()
    materialise(authored(file(b"file")), LOG, target)
    after = outside.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert details(target) == {"file": (stat.S_IFREG | 0o644, MTIME)}


@pytest.mark.parametrize("moment", range(3))
def test_a_directory_that_becomes_a_link_meanwhile(tmp_path: Path, moment: int) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    make_tree(outside, {"one": b"precious"})
    outside.chmod(0o700)
    before = contents(outside)

    def swap(done: int, total: int) -> None:
        if done == moment:
            shutil.rmtree(target / "dir")
            (target / "dir").symlink_to(outside)

    store = authored(
        Directory(b"a", 0o755), file(b"a/a"), Directory(b"dir", 0o777), file(b"dir/one"), file(b"e")
    )
    made = materialise(store, LOG, target, on_place=swap)
    assert contents(outside) == before
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert set(made.failed) <= {b"dir", b"dir/one"}
    assert contents(target)["e"] == contents(target)["a/a"] == b"text"


def test_what_is_in_the_way_and_no_file(tmp_path: Path) -> None:
    """It is replaced, not opened: opening a FIFO would block for ever."""
    target = tmp_path / "target"
    target.mkdir()
    os.mkfifo(target / "fifo")
    (target / "loop").symlink_to("loop")
    made = materialise(authored(file(b"fifo"), file(b"loop")), LOG, target)
    assert made.written == 2
    assert contents(target) == {"fifo": b"text", "loop": b"text"}


def test_the_store_is_not_for_its_logs_to_write(tmp_path: Path) -> None:
    """Nor is the key: a later publisher would share it with a stranger."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(
        source, {f"sub/s{suffix}": b"evil" for suffix in ("", ".key", ".KEY", "-journal", "x")}
    )
    assert run("publish", source, "--store", tmp_path / "store").status == 0
    make_tree(target, {"sub": None})
    with serving(tmp_path / "store") as port:
        done = fetch(target / "sub/s", port, target / "sub/..")
    assert (done.status, done.summary["code"]) == (1, "PARTLY_WRITTEN")
    assert done.errors.count("part of the store") == 5  # four of them, and the first once more
    assert {path.name for path in (target / "sub").iterdir()} == {"s", "s.lock", "sx"}
    assert run("check", "--store", target / "sub/s").status == 0


# One place does not stop the rest.


def test_a_conflict_in_one_directory(tmp_path: Path) -> None:
    target = tmp_path / "target"
    make_tree(target, {"dir/b/mine": b"mine"})
    store = authored(
        Directory(b"dir", 0o755), file(b"dir/a"), file(b"dir/b"), file(b"dir/c"), file(b"e")
    )
    made = materialise(store, LOG, target)
    assert contents(target) == {
        "dir": None,
        "dir/a": b"text",
        "dir/b": None,
        "dir/b/mine": b"mine",
        "dir/c": b"text",
        "e": b"text",
    }
    assert (made.written, made.failed) == (3, {b"dir/b": os.strerror(errno.ENOTEMPTY)})


def test_a_directory_that_may_not_be_written(folder: Path) -> None:
    target = folder / "target"
    make_tree(target, {"locked/file": b"other", "other": None})
    (target / "other").chmod(0o500)
    store = authored(Directory(b"other", 0o755), file(b"other/a"), file(b"z"))
    made = materialise(store, LOG, target)  # ours, so that we have permission
    assert (made.failed, contents(target)["other/a"]) == ({}, b"text")


def test_a_full_disk_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write_content(file: int, pieces: object) -> None:
        written.append(file)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(materialising, "write_content", write_content)
    done = Materialised()
    with pytest.raises(OSError, match="No space left"):
        materialise(authored(file(b"a"), file(b"b"), file(b"c")), LOG, tmp_path, done=done)
    assert os.listdir(tmp_path) == ["a"]
    assert done == Materialised(written=1)


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        (sqlite3.OperationalError("the disk is full"), 2, "the disk is full"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["full", "interrupted"],
)
def test_publishing_that_ends_early_says_what_was_appended(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    status: int,
    error: str,
) -> None:
    source, store = tmp_path / "source", tmp_path / "store"
    make_tree(source, {f"file{n}": bytes(MIB) for n in range(9)})
    really_append = SqliteStore.append
    batches = []

    def append(self: SqliteStore, log: LogKey, entries: Sequence[NewEntry]) -> None:
        batches.append(len(entries))
        if len(batches) == 2:
            raise fault
        really_append(self, log, entries)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "append", append)
        patch.setattr(replicate_directory, "block_signals", lambda: None)
        assert replicate_directory.main(["publish", str(source), "--store", str(store)]) == status
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert (summary["error"], said.err) == (error, f"culm directory: {error}\n")
    assert summary["entries"] == summary["head"] == batches[0]
    complete = summary["changed"]
    assert 0 < complete < 9
    assert replicate_directory.main(["publish", str(source), "--store", str(store)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == 9 - complete


def test_a_full_disk_ends_fetching_with_what_was_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store, target = (tmp_path / name for name in ("source", "fetched", "target"))
    make_tree(source, {f"file{n}": Random(n).randbytes(MIB) for n in range(9)})
    head = run("publish", source, "--store", tmp_path / "store").summary["head"]
    really_append = SqliteStore.append

    def append(self: SqliteStore, log: LogKey, entries: Sequence[NewEntry]) -> None:
        if entries[-1].entry.seqnum >= 24:
            raise sqlite3.OperationalError("database or disk is full")
        really_append(self, log, entries)

    with serving(tmp_path / "store") as port:
        command = ["fetch", "--store", store, "--into", target, "--from", f"127.0.0.1:{port}"]
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "append", append)
            assert replicate_directory.main(list(map(str, command))) == 1
        said = capsys.readouterr()
        summary = json.loads(said.out)
        assert summary["code"] == "CANNOT_STORE"
        assert said.err == "culm directory: CANNOT_STORE: database or disk is full\n"
        there = whole_entries(store)
        assert there == summary["entries"] == summary["head"]
        assert 0 < there < 24
        done = fetch(store, port, target)
    assert (done.status, done.summary["entries"]) == (0, head - there)
    assert contents(target) == contents(source)


def test_a_conflict_is_told_and_goes_away(tmp_path: Path) -> None:
    source, target, store = tmp_path / "source", tmp_path / "target", tmp_path / "fetched"
    make_tree(source, {"a": b"a", "b": b"b"})
    make_tree(target, {"a/mine": b"mine"})
    assert run("publish", source, "--store", tmp_path / "store").status == 0
    with serving(tmp_path / "store") as port:
        done = fetch(store, port, target)
        assert (done.status, done.summary["code"]) == (1, "PARTLY_WRITTEN")
        assert (done.summary["written"], done.summary["failed"]) == (1, 1)
        assert "cannot write 'a': Directory not empty" in done.errors
        shutil.rmtree(target / "a")
        done = fetch(store, port, target)
        assert (done.status, done.summary["written"], done.errors) == (0, 1, "")
    assert contents(target) == contents(source)


def test_only_one_fetch_writes_to_a_directory(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"a": b"a"})
    assert run("publish", source, "--store", tmp_path / "store").status == 0
    target.mkdir()
    other = os.open(target, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with serving(tmp_path / "store") as port:
        done = fetch(tmp_path / "fetched", port, target)
        assert (done.status, done.output) == (ExitStatus.BUSY, "")
        assert done.errors.endswith("another process is fetching into this directory\n")
        assert contents(target) == {}
        os.close(other)
        assert fetch(tmp_path / "fetched", port, target).status == 0


# Publishing goes on.


def test_what_cannot_be_read_is_named_and_stays_as_it_was(folder: Path) -> None:
    source, store = folder / "source", MemoryStore(family=YAMF)
    make_tree(source, {"a": b"old", "dir/file": b"old", "other/file": b"old", "z": b"old"})
    publish_directory(source, store, KEY)
    before = read_tree(store, LOG).places
    make_tree(source, {"a": b"new!", "new": b"new", "z": b"new!"})
    (source / "a").chmod(0)
    (source / "dir").chmod(0)  # its contents are unknown
    (source / "other").chmod(0o400)  # nor are the kinds of its contents known
    done = publish_directory(source, store, KEY)
    denied = os.strerror(errno.EACCES)
    assert done.findings.failed == {b"a": denied, b"dir": denied, b"other/file": denied}
    after = read_tree(store, LOG).places
    for path in (b"a", b"dir/file", b"other/file"):
        assert after[path] == before[path]
    assert (after[b"z"].size, after[b"new"].size) == (4, 3)
    for path, mode in (("a", 0o644), ("dir", 0o755), ("other", 0o755)):
        (source / path).chmod(mode)
    assert publish_directory(source, store, KEY).findings.failed == {}
    materialise(store, LOG, folder / "target")
    assert contents(folder / "target") == contents(source)


def test_what_goes_away_meanwhile(tmp_path: Path) -> None:
    source = tmp_path / "source"
    large = bytes(5 * MIB)
    make_tree(source, {"a": large, "b": b"b", "c/d/e": b"e", "c/f": b"f", "g": b"g"})

    def meddle() -> None:
        (source / "b").unlink()
        shutil.rmtree(source / "c")
        (source / "c").write_bytes(b"now a file")

    store = Meddled(meddle)
    done = publish_directory(source, store, KEY)
    gone, no_directory = os.strerror(errno.ENOENT), os.strerror(errno.ENOTDIR)
    assert done.findings.failed == {b"b": gone, b"c/d/e": no_directory, b"c/f": no_directory}
    assert read_tree(store, LOG).places[b"g"].size == 1
    assert publish_directory(source, store, KEY).findings.failed == {}
    materialise(store, LOG, tmp_path / "target")
    assert contents(tmp_path / "target") == contents(source)


def test_a_file_that_is_replaced_by_something_else_meanwhile(tmp_path: Path) -> None:
    """A FIFO does not hold us up, and a link does not lead us astray."""
    source = tmp_path / "source"
    make_tree(source, {"a": bytes(5 * MIB), "b": b"b", "c": b"c", "d/e": b"e"})
    make_tree(tmp_path / "outside", {"e": b"secret"})

    def meddle() -> None:
        for name in ("b", "c"):
            (source / name).unlink()
        os.mkfifo(source / "b")
        (source / "c").symlink_to(tmp_path / "outside/e")
        shutil.rmtree(source / "d")
        (source / "d").symlink_to(tmp_path / "outside")

    store = Meddled(meddle)
    done = publish_directory(source, store, KEY)
    assert set(done.findings.failed) == {b"b", b"c", b"d/e"}
    assert set(read_tree(store, LOG).places) == {b"a", b"d"}


def make_deep(root: Path, name: str, depth: int) -> None:
    """Nested directories, deeper than a path can express."""
    folder = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


def test_paths_that_are_too_long(tmp_path: Path) -> None:
    source, store = tmp_path / "source", tmp_path / "store"
    make_tree(source, {"a": b"a", "z": b"z"})
    make_deep(source, "n" * 255, 20)
    try:
        done = run("publish", source, "--store", store)
    finally:
        subprocess.run(["rm", "-r", source / ("n" * 255)], check=True)
    assert done.status == 3
    assert (done.summary["changed"], done.summary["failed"]) == (2 + 16, 1)
    (line,) = done.errors.splitlines()
    assert line.startswith("culm directory: cannot read 'nnn")
    done = run("publish", source, "--store", store)
    assert (done.status, done.summary["changed"], done.summary["failed"]) == (0, 16, 0)


@pytest.mark.slow
def test_depth_costs_neither_stack_nor_descriptors(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    make_deep(source, "d", 1200)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    store = MemoryStore(family=YAMF)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        assert publish_directory(source, store, KEY).changed == 1201
        assert materialise(store, LOG, target).written == 1201
        assert materialise(store, LOG, target).unchanged == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        subprocess.run(["rm", "-r", source, target], check=True)


def test_times_before_and_after_all_others(tmp_path: Path) -> None:
    source, store = tmp_path / "source", MemoryStore(family=YAMF)
    times = {"before": -1, "early": -(1 << 31) * 10**9, "late": (1 << 63) - 10**9}
    times |= {"too late": (1 << 63) + 10**9}
    make_tree(source, dict.fromkeys(times, b"text"))
    for name, time in times.items():
        os.utime(source / name, ns=(time, time))
    kept = {name: (source / name).stat().st_mtime_ns for name in times}
    done = publish_directory(source, store, KEY)
    assert set(done.findings.failed) == {b"too late"} - {
        os.fsencode(name) for name, time in kept.items() if time < 1 << 63
    }
    materialise(store, LOG, tmp_path / "target")
    found = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "target").iterdir()}
    assert found == {name: time for name, time in kept.items() if time < 1 << 63}


def test_further_names_of_a_file_are_named(tmp_path: Path) -> None:
    source, store = tmp_path / "source", MemoryStore(family=YAMF)
    make_tree(source, {"a": b"text", "dir": None})
    os.link(source / "a", source / "dir/b")
    done = publish_directory(source, store, KEY)
    assert list(done.findings.hard_links) == [b"dir/b"]
    assert "'a'" in done.findings.hard_links[b"dir/b"]
    materialise(store, LOG, tmp_path / "target")
    assert contents(tmp_path / "target") == contents(source)


# Files that are read, and files that are not


def opened_by(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> set[bytes]:
    """The names of the files opened in the meantime."""
    names: set[bytes] = set()
    really_open = os.open

    def watched(path: str | bytes, *args: int, **kwargs: int) -> int:
        names.add(os.path.basename(os.fsencode(path)))
        return really_open(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", watched)
        run()
    return names


def test_only_what_may_have_changed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, other = tmp_path / "source", tmp_path / "other"
    for root in (source, other):
        make_tree(root, {"old": b"text", "young": b"text", "future": b"text"})
        os.utime(root / "young")
        os.utime(root / "future", ns=(1 << 62, 1 << 62))
    command = ["publish", str(source), "--store", str(tmp_path / "store")]

    def publish(*options: str) -> None:
        replicate_directory.main([*command, *options])

    opened_by(monkeypatch, publish)
    names = {b"old", b"young", b"future"}
    assert opened_by(monkeypatch, publish) & names == {b"young", b"future"}
    assert opened_by(monkeypatch, lambda: publish("--checksum")) & names == names

    # In the same tick, with the same size: only the content shows the change.
    for name in names:
        time = (source / os.fsdecode(name)).stat().st_mtime_ns
        (source / os.fsdecode(name)).write_bytes(b"TEXT")
        os.utime(source / os.fsdecode(name), ns=(time, time))
    capsys.readouterr()
    publish()
    publish("--checksum")
    assert [line.count('"changed": 2') for line in capsys.readouterr().out.splitlines()] == [1, 0]

    # Another directory is a separate matter.
    command[1] = str(other)
    assert opened_by(monkeypatch, publish) & names == names


def test_what_could_not_be_read_is_read_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing else, so that one file without permission costs no more than itself."""
    source = folder / "source"
    make_tree(source, {"old": b"text", "dir/young": b"text", "never": b"text"})
    time = time_ns()
    os.utime(source / "dir/young", ns=(time, time))
    command = ["publish", str(source), "--store", str(folder / "store")]

    def publish(status: int) -> set[bytes]:
        names = opened_by(monkeypatch, lambda: statuses.append(replicate_directory.main(command)))
        assert statuses.pop() == status
        return names & {b"old", b"young", b"never"}

    statuses: list[int] = []
    (source / "never").chmod(0)
    assert publish(3) == {b"old", b"young", b"never"}
    assert publish(3) == {b"young", b"never"}
    # In the same tick as before; then the file is unreadable for longer than a tick.
    (source / "dir/young").write_bytes(b"TEXT")
    os.utime(source / "dir/young", ns=(time, time))
    (source / "dir").chmod(0)
    for later in (10**10, 2 * 10**10):
        with monkeypatch.context() as patch:
            patch.setattr(replicate_directory.time, "time_ns", lambda later=later: time + later)
            assert publish(3) == {b"never"}
    (source / "dir").chmod(0o755)
    capsys.readouterr()
    assert publish(3) == {b"young", b"never"}
    assert json.loads(capsys.readouterr().out)["changed"] == 2  # the file, the directory's mode


# Holes


@pytest.mark.parametrize("size", [16 * MIB, (1 << 31) + 1, 1 << 40])
def test_sparse_files_stay_sparse(tmp_path: Path, size: int) -> None:
    source, target, store = tmp_path / "source", tmp_path / "target", MemoryStore(family=YAMF)
    make_tree(source, {"a": b"begin", "hole": b"", "z": b"z"})
    with open(source / "a", "r+b") as sparse:
        sparse.seek(size // 2)
        sparse.write(b"middle")
        sparse.truncate(size)
    os.truncate(source / "hole", size)
    if (source / "hole").stat().st_blocks:
        pytest.skip("this file system has no holes")
    done = publish_directory(source, store, KEY)
    assert done.payload_bytes < MIB
    made = materialise(store, LOG, target)
    assert (made.written, made.failed) == (3, {})
    for name in ("a", "hole"):
        there = (target / name).stat()
        assert (there.st_size, there.st_blocks * 512 < MIB) == (size, True)
    with open(target / "a", "rb") as copy:
        assert copy.read(10) == b"begin" + bytes(5)
        copy.seek(size // 2 - 2)
        assert copy.read(10) == bytes(2) + b"middle" + bytes(2)
    # There is nothing to repeat, and the comparison takes no time either.
    assert materialise(store, LOG, target).unchanged == 3
    assert publish_directory(source, store, KEY).unchanged == 3
    # One more byte in a hole is found.
    with open(target / "hole", "r+b") as changed:
        changed.seek(size - 1)
        changed.write(b"x")
    time = (source / "hole").stat().st_mtime_ns
    os.utime(target / "hole", ns=(time, time))
    assert materialise(store, LOG, target).written == 1


def test_a_file_that_is_larger_than_any_may_be(tmp_path: Path) -> None:
    """A hole costs its author nothing; it must not stop the other files."""
    hole = encode(File(b"a", 0o644, MTIME, 0, 1, zeros=(1 << 63) - 1))
    made = materialise(authored(hole, file(b"b")), LOG, tmp_path / "target")
    assert set(made.failed) <= {b"a"}
    assert (tmp_path / "target/b").read_bytes() == b"text"


# Few descriptors, whole program


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make_tree(source, {f"dir{n}/file{n}": b"text" for n in range(100)})
    command = command_of("directory", "publish", source, "--store", tmp_path / "store")
    code = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)); "
    code += "os.execv(sys.argv[1], sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, *command], check=True, stdout=subprocess.DEVNULL)

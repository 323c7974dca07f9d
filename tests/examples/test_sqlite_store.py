from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import store_writer
from nacl.signing import SigningKey

from culm.bamboo import ForkProof, LogAuthor, LogKey, NewEntry
from culm.bamboo.verify import verify_log
from culm.wire.multihash import YAMF, YASMF
from culm_io.stores.bamboo import SqliteStore, StoreFileError


def test_a_kill_at_any_moment_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    path, random = tmp_path / "log.store", Random(5)
    log = LogKey(bytes(store_writer.KEY.verify_key), 0)
    reported = (0, 0)
    for _ in range(6):
        reported = max(reported, _write_until_killed(path, random.randint(1, 12)))
        with SqliteStore(path, family=YAMF, must_exist=True) as store:
            entries = store.entries(log)
            verify_log(log, [entry.encoded for entry in entries], family=YAMF)
            last = entries[-1]
            assert store.head(log) == store.newest(log)
            assert reported <= (last.seqnum, last.payload_stored)
            assert last.seqnum <= reported[0] + 1
            for entry in entries:
                data = store.read_payload(log, entry.seqnum, 0, 1 << 30)
                assert data == store_writer.payload(entry.seqnum)[: entry.payload_stored]
                assert entry.payload_complete or entry is last
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert reported[0] > 3


def _write_until_killed(path: Path, reports: int) -> tuple[int, int]:
    """Kill a writing process soon after `reports` reports; its last report."""
    with subprocess.Popen(
        [sys.executable, store_writer.__file__, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(reports)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    seqnum, stored = [line for line in lines if line.endswith("\n")][-1].split()
    return int(seqnum), int(stored)


def test_threads_that_share_a_store_are_told_so(tmp_path: Path) -> None:
    one, two = (LogAuthor(SigningKey(bytes([n]) * 32), family=YAMF) for n in (1, 2))
    refused = []

    class Meanwhile(list[NewEntry]):
        """Entries that are read in the midst of the store's work, when another thread comes."""

        def __iter__(self) -> Iterator[NewEntry]:
            with pytest.raises(StoreFileError, match="each connection opens the file for itself"):
                store.append(two.log, [two.publish(b"x")])
            refused.append(two.log)
            return super().__iter__()

    with SqliteStore(tmp_path / "log.store", family=YAMF) as store:
        store.append(one.log, Meanwhile([one.publish(b"x")]))
        assert refused
        assert store.logs() == [one.log]


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other, missing = tmp_path / "text", tmp_path / "other", tmp_path / "missing"
    (tmp_path / "short").write_text("x")  # which SQLite would take for an empty database
    text.write_text("This is no database. " * 1000)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE logs (id)")
    yasmf = tmp_path / "yasmf"
    SqliteStore(yasmf, family=YASMF).close()
    for path, reason in (
        (text, "file is not a database"),
        (tmp_path / "short", "file is not a database"),
        (other, "not a store of logs"),
        (yasmf, "a store of YASMF hashes, not YAMF"),
        (tmp_path, "unable to open database file"),
    ):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(StoreFileError, match=f"{re.escape(str(path))}: {reason}"):
            SqliteStore(path, family=YAMF)
        assert before is None or path.read_bytes() == before
    with pytest.raises(StoreFileError, match="unable to open database file"):
        SqliteStore(missing, family=YAMF, must_exist=True)
    assert not missing.exists()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts written bytes as Linux does")
def test_a_large_payload_is_neither_rewritten_nor_loaded_whole(tmp_path: Path) -> None:
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    piece, count = bytes(range(256)) * 1024, 40
    size = len(piece) * count
    new = author.publish(payload_size=size, payload_hash=YAMF.hash(b""))
    with SqliteStore(tmp_path / "store", family=YAMF, durable=False) as store:
        store.append(author.log, [new])
        written = _bytes_written()
        tracemalloc.start()
        try:
            for index in range(count):
                store.write_payload(author.log, 1, index * len(piece), piece)
            for offset in range(0, size, 100_000):
                store.read_payload(author.log, 1, offset, 10)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * len(piece)
    # Once into the journal, once from there into the file.
    assert _bytes_written() - written < 3 * size


def _bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def test_others_learn_of_what_has_changed(tmp_path: Path) -> None:
    """Entries, payloads that are complete or gone, forks; not the bytes in between."""
    path = tmp_path / "log.store"
    one, other = (LogAuthor(SigningKey(bytes([n]) * 32), family=YAMF) for n in range(2))
    forger = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    news = [one.publish(b"text"), one.publish(bytes(10))]
    forged = forger.publish(b"another")
    with SqliteStore(path, family=YAMF) as writer:
        writer.append(other.log, [other.publish(b"before")])
        with SqliteStore(path, family=YAMF) as reader:
            assert reader.changed() == []
            steps = [
                (lambda: writer.append(one.log, [news[0]]), True),
                (lambda: writer.append(one.log, [NewEntry(news[1].entry)]), True),
                (lambda: writer.write_payload(one.log, 2, 0, bytes(10)), False),
                (lambda: writer.finish_payload(one.log, 2), True),
                (lambda: writer.finish_payload(one.log, 2), False),
                (lambda: writer.discard_payload(one.log, 1), True),
                (lambda: writer.add_fork(one.log, ForkProof(news[0].entry, forged.entry)), True),
            ]
            for step, is_change in steps:
                step()
                assert reader.changed() == ([one.log] if is_change else [])
                assert reader.changed() == []
            # One's own changes are not reported, until another connection has also made some.
            reader.append(other.log, [other.publish(b"mine")])
            assert reader.changed() == []
            third = LogAuthor(SigningKey(bytes([2]) * 32), family=YAMF)
            writer.append(third.log, [third.publish(b"new")])
            assert set(reader.changed()) == {other.log, third.log}
            assert other.log in writer.changed()

"""Fetching a part: payloads up to a size, and the rest later; one entry and its proof."""

from __future__ import annotations

import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from nacl.signing import SigningKey
from processes import (
    SECONDS_MAX,
    Throttle,
    fetch,
    finish,
    run,
    serving,
    start_fetch,
    stored_size,
    wait_until,
    whole_entries,
)
from trees import contents, details, make_tree

from culm.bamboo import LogAuthor, LogKey, MemoryStore, NewEntry, Reason, VerificationError
from culm.bamboo.links import lower_pool, upper_pool
from culm.wire.multihash import YAMF
from culm_io.programs.directory import command as replicate_directory
from culm_io.programs.directory.sparse import Certified, certify
from culm_io.stores.bamboo import SqliteStore

_RANDOM = Random(1)
TREE: dict[str, bytes | str | None] = {
    **{f"dir{n % 5}/file{n}": b"%d\n" % n * (n * 7) for n in range(60)},
    "big": _RANDOM.randbytes((1 << 20) + 5),
    "medium": _RANDOM.randbytes(300_000),
    "medium2": _RANDOM.randbytes(400_000),
    "empty": None,
    "link": "-> dir1/file1",
}
# Anything fetched alone needs an entry of its own.
PUBLISH = ("--unpacked",)
LARGE = {"big", "medium", "medium2"}


def the_log(path: Path) -> LogKey:
    with SqliteStore(path, family=YAMF, must_exist=True) as store:
        (log,) = store.logs()
        return log


def stored(path: Path) -> dict[int, bool]:
    """Of the stored entries, whether their payloads are there."""
    with SqliteStore(path, family=YAMF, must_exist=True) as store:
        (log,) = store.logs()
        return {entry.seqnum: entry.payload_complete for entry in store.entries(log)}


# Payloads up to a size


@pytest.mark.slow
def test_what_was_left_out_comes_later_and_nothing_twice(
    tmp_path: Path, source: Path, published: Path
) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        done = fetch(store, port, target, "--max-payload", 200_000)
        assert (done.status, done.errors) == (0, "")
        summary = done.summary
        # The second chunk of "big" is small.
        assert summary["entries"] == summary["head"] == whole_entries(published)
        assert summary["missing"] == 3
        assert summary["wire_bytes"] < 100_000
        assert set(contents(source)) - set(contents(target)) == LARGE
        assert whole_entries(store) == summary["head"] - 3

        again = fetch(store, port, target, "--max-payload", 200_000)
        assert (again.status, again.summary["entries"], again.summary["missing"]) == (0, 0, 3)
        assert again.summary["wire_bytes"] < 1000

        more = fetch(store, port, target, "--max-payload", 350_000)
        assert (more.status, more.summary["entries"], more.summary["missing"]) == (0, 1, 2)
        assert 300_000 < more.summary["wire_bytes"] < 310_000
        assert set(contents(source)) - set(contents(target)) == LARGE - {"medium"}

        rest = fetch(store, port, target)
        assert (rest.status, rest.summary["entries"], rest.summary["missing"]) == (0, 2, 0)
        assert 1_400_000 < rest.summary["payload_bytes"] < rest.summary["wire_bytes"] < 1_500_000
    assert contents(target) == contents(source)
    assert details(target) == details(source)
    assert whole_entries(store) == rest.summary["head"]


@pytest.mark.slow
def test_nothing_but_metadata(tmp_path: Path, published: Path) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        done = fetch(store, port, target, "--max-payload", 0)
    assert (done.status, done.summary["payload_bytes"]) == (0, 0)
    assert done.summary["missing"] == done.summary["head"] == whole_entries(published)
    assert contents(target) == {}


@pytest.mark.slow
def test_a_version_that_is_too_large_leaves_the_one_before(
    tmp_path: Path, source: Path, published: Path
) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        assert fetch(store, port, target).status == 0
        make_tree(source, {"dir0/file0": bytes(50_000), "dir0/new": b"new"})
        assert run("publish", source, "--store", published).status == 0
        done = fetch(store, port, target, "--max-payload", 10_000)
        assert (done.status, done.summary["missing"]) == (0, 1)
        assert contents(target) == {**contents(source), "dir0/file0": TREE["dir0/file0"]}
        assert fetch(store, port, target).status == 0
    assert contents(target) == contents(source)


@pytest.mark.costly
@pytest.mark.parametrize("size", [0, 100_000, 500_000, 1_200_000])
def test_filling_in_may_be_killed(tmp_path: Path, source: Path, published: Path, size: int) -> None:
    """It goes on inside the payload where it stopped."""
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        assert fetch(store, port, target, "--max-payload", 100).status == 0
        before, size_before = whole_entries(store), stored_size(store)
        throttle = Throttle(port, 600 + size)
        with throttle as slow_port:
            process = start_fetch(store, slow_port, target)
            assert throttle.reached.wait(SECONDS_MAX)
            wait_until(lambda: stored_size(store) - size_before >= size - 350_000)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        there = whole_entries(store)
        assert there >= before
        done = fetch(store, port, target)
    assert done.status == 0
    assert there + done.summary["entries"] == done.summary["head"] == whole_entries(published)
    assert contents(target) == contents(source)
    # Nothing is received again, except bytes that were on their way into the store.
    assert done.summary["wire_bytes"] < 1_800_000 - max(0, size - 350_000)


@pytest.mark.slow
def test_a_server_that_lacks_payloads_gives_what_it_has(
    tmp_path: Path, source: Path, published: Path
) -> None:
    middle, store, target = (tmp_path / name for name in ("middle", "fetched", "target"))
    with serving(published) as port:
        assert fetch(middle, port, None, "--max-payload", 450_000).status == 0
        assert fetch(store, port, target, "--max-payload", 100).status == 0
    with serving(middle) as port:
        # It can be asked for files within its limit.
        done = fetch(tmp_path / "other", port, None, "--max-payload", 450_000)
        assert (done.status, done.summary["missing"]) == (0, 1)
        done = fetch(store, port, target)
        assert (done.status, done.summary["code"]) == (1, "INCOMPLETE")
        assert "payloads that are missing: 1" in done.summary["error"]
        assert done.summary["missing"] == 1
        assert done.summary["payload_bytes"] > 700_000
    with serving(published) as port:
        assert fetch(store, port, target).status == 0
    assert contents(target) == contents(source)


@pytest.mark.slow
def test_small_files_come_and_go_together(tmp_path: Path, source: Path) -> None:
    """In packs: a file is left out along with its neighbours, until it comes."""
    published, store, target = (tmp_path / name for name in ("packed", "fetched", "target"))
    assert run("publish", source, "--store", published).status == 0
    with serving(published) as port:
        assert fetch(store, port, target, "--max-payload", 100).status == 0
        assert set(contents(target)) < set(contents(source))
        one = fetch(tmp_path / "one", port, None, "--sparse", 3)  # after the chunks of "big"
        assert (one.status, len(one.summary["records"]) > 1) == (0, True)
        assert fetch(store, port, target).status == 0
    assert contents(target) == contents(source)
    assert details(target) == details(source)


# One entry


def test_one_entry_comes_with_what_proves_it(tmp_path: Path, source: Path, published: Path) -> None:
    store = tmp_path / "fetched.store"
    log, head = the_log(published), whole_entries(published)
    with SqliteStore(published, family=YAMF, must_exist=True) as kept:
        hashes = kept.hashes(log, range(1, head + 1))
    with serving(published) as port:
        for seqnum in (40, 1, head, 27):
            done = fetch(store, port, None, "--sparse", seqnum)
            assert (done.status, done.errors) == (0, "")
            summary = done.summary
            assert summary["log"] == f"{log.author.hex()}/{log.log_id}"
            assert (summary["entry"], summary["hash"]) == (seqnum, hashes[seqnum].hex())
            assert summary["certificate_path"] == lower_pool(seqnum)[::-1]
            above = [number for number in upper_pool(seqnum) if number <= head]
            assert summary["certificate_above"] == above
            assert summary["wire_bytes"] < 1_100_000
            (record,) = summary["records"]
            path = Path(record["path"])
            found = source / path
            if record["kind"] == "file":
                status = found.stat()
                assert record["mtime"] == status.st_mtime_ns
                assert record["mode"] == status.st_mode & 0o777
            else:
                assert record["kind"] == "directory"
                assert found.is_dir()
            assert (summary["code"], summary["error"]) == (None, None)
    pools = {n for s in (40, 1, head, 27) for n in lower_pool(s) + upper_pool(s) if n <= head}
    assert set(stored(store)) == pools
    assert {n for n, complete in stored(store).items() if complete} == {40, 1, head, 27}
    assert run("check", "--store", store).status == 0
    # Afterwards, the rest can be fetched as ever.
    with serving(published) as port:
        done = fetch(store, port, tmp_path / "target")
    assert (done.status, done.summary["missing"]) == (0, 0)
    assert contents(tmp_path / "target") == contents(source)
    assert whole_entries(store) == head


@pytest.mark.slow
def test_from_a_store_that_holds_hardly_more(tmp_path: Path, published: Path) -> None:
    middle, store = tmp_path / "middle.store", tmp_path / "fetched.store"
    with serving(published) as port:
        assert fetch(middle, port, None, "--sparse", 30).status == 0
    with serving(middle) as port:
        done = fetch(store, port, None, "--sparse", 30)
        assert (done.status, done.summary["entry"]) == (0, 30)
        assert done.summary["certificate_path"] == lower_pool(30)[::-1]
        assert stored(store) == {n: n == 30 for n in lower_pool(30)}
        # Entries of the proof have no payloads here; others are absent altogether.
        for seqnum, reason in ((26, "payload missing"), (17, "do not retry")):
            done = fetch(store, port, None, "--sparse", seqnum)
            assert (done.status, done.summary["code"]) == (1, "INCOMPLETE")
            assert reason in done.summary["error"]
            assert (done.summary["entry"], done.summary["records"]) == (None, None)
    assert stored(store)[30]


@pytest.mark.slow
def test_an_entry_that_is_not_there(tmp_path: Path, published: Path) -> None:
    head = whole_entries(published)
    with serving(published) as port:
        done = fetch(tmp_path / "s", port, None, "--sparse", head + 1, "--timeout", "2")
        assert (done.status, done.summary["code"]) == (1, "INCOMPLETE")
        assert f"does not have entry {head + 1}" in done.summary["error"]


@pytest.mark.slow
def test_the_log_has_to_be_clear(tmp_path: Path) -> None:
    store, names = tmp_path / "both.store", []
    for n in range(2):
        make_tree(tmp_path / f"source{n}", {f"file{n}": b"text"})
        one = tmp_path / f"{n}.store"
        names.append(run("publish", tmp_path / f"source{n}", "--store", one).summary["log"])
        with serving(one) as port:
            fetch(store, port, None, "--log", names[n])
    new = tmp_path / "new.store"
    with serving(store) as port:
        unclear = fetch(new, port, None, "--sparse", 1)
        assert (unclear.status, unclear.summary["code"]) == (1, "SEVERAL_LOGS")
        assert names[1] in unclear.summary["error"]
        chosen = fetch(new, port, None, "--sparse", 1, "--log", names[1])
        assert (chosen.status, chosen.summary["records"][0]["path"]) == (0, "file1")
        options = ("--sparse", 1, "--timeout", "2", "--log", "00" * 32 + "/0")
        missing = fetch(new, port, None, *options)
        assert (missing.status, missing.summary["code"]) == (1, "NO_LOG")
    assert set(stored(new)) == {1}


@pytest.mark.slow
def test_an_entry_whose_fetch_was_killed_goes_on(tmp_path: Path, published: Path) -> None:
    log = the_log(published)
    with SqliteStore(published, family=YAMF, must_exist=True) as kept:
        (seqnum,) = [e.seqnum for e in kept.entries(log) if e.payload_size > 1 << 20]
    store = tmp_path / "fetched.store"
    with serving(published) as port:
        throttle = Throttle(port, 900_000)
        with throttle as slow_port:
            process = start_fetch(store, slow_port, None, "--sparse", seqnum)
            assert throttle.reached.wait(SECONDS_MAX)
            wait_until(lambda: stored_size(store) >= 600_000)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        done = fetch(store, port, None, "--sparse", seqnum)
    assert (done.status, done.summary["entry"]) == (0, seqnum)
    assert done.summary["payload_bytes"] < done.summary["wire_bytes"] < 600_000


def test_what_proves_an_entry_is_verified_from_entry_1_on() -> None:
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    news = {n: author.publish(b"%d" % n) for n in range(1, 41)}
    other = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    wrong = {n: other.publish(b"x%d" % n) for n in range(1, 41)}

    def certified(seqnum: int, *entries: NewEntry) -> Certified:
        store = MemoryStore(family=YAMF)
        store.append(author.log, entries)
        return certify(store, author.log, seqnum)

    pool = [NewEntry(news[n].entry) for n in (1, 4, 13, 26)]
    found = certified(30, *pool, news[30], NewEntry(news[40].entry))
    assert (found.path, found.above) == ([30, 26, 13, 4, 1], [40])
    assert found.stored.hash == news[30].entry.hash()
    for entries, reason in (
        ([*pool[:2], *pool[3:], news[30]], Reason.GAP),
        ([*pool[1:], news[30]], Reason.GAP),
        (pool, Reason.GAP),
        ([*pool[:3], NewEntry(wrong[26].entry), news[30]], Reason.WRONG_LIPMAALINK),
        ([NewEntry(wrong[1].entry), *pool[1:], news[30]], Reason.WRONG_LIPMAALINK),
        ([*pool, NewEntry(news[30].entry)], Reason.PAYLOAD_SIZE),
    ):
        with pytest.raises(VerificationError) as caught:
            certified(30, *entries)
        assert caught.value.reason is reason, entries


@pytest.mark.slow
def test_a_hostile_log_is_told(tmp_path: Path, published: Path) -> None:
    """Bytes that were changed on the way."""
    for flip in (400, 700):
        store = tmp_path / f"{flip}.store"
        with serving(published) as port, Throttle(port, flip=flip) as bad_port:
            done = finish(start_fetch(store, bad_port, None, "--sparse", 30, "--timeout", "1"))
        assert done.status == 1
        assert re.fullmatch(r"[A-Z_]+", done.summary["code"])
        assert done.summary["records"] is None


# Options


@pytest.mark.parametrize(
    "options",
    [
        ["--sparse", "0"],
        ["--sparse", "x"],
        ["--sparse", "3", "--live"],
        ["--sparse", "3", "--into", "d"],
        ["--sparse", "3", "--max-payload", "3"],
        ["--max-payload", "-1"],
        ["--max-payload", str(1 << 64)],
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        replicate_directory.main(["fetch", "--store", "s", "--from", "host:1", *options])
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_store_of_an_earlier_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.store"
    SqliteStore(path, family=YAMF).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert replicate_directory.main(["check", "--store", str(path)]) == 2
    assert "a store of version 1, not 2" in capsys.readouterr().err

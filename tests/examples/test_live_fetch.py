"""``fetch --live``: publications during the connection arrive, and stay."""

from __future__ import annotations

import json
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from processes import SECONDS_MAX, Done, Throttle, fetch, run, serving, start_fetch, whole_entries
from test_directory_servers import make_store
from trees import contents, details, make_tree

TREE: dict[str, bytes | str | None] = {
    **{f"dir{n % 3}/file{n}": b"%d\n" % n * (n * 7) for n in range(20)},
    "medium": bytes(range(256)) * 1200,
    "link": "-> dir1/file1",
}
_SECONDS_MAX = 60


class Live:
    """A process that fetches live, and its output line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def next(self) -> dict[str, Any]:
        """The next line."""
        line = self._lines.get(timeout=_SECONDS_MAX)
        assert line, self._errors()
        self.said.append(json.loads(line))
        return self.said[-1]

    def reach(self, head: int) -> dict[str, Any]:
        """The first of the next lines that reports the log up to that entry."""
        while (said := self.next())["head"] != head:
            pass
        return said

    def close(self) -> None:
        self._reader.join(_SECONDS_MAX)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def end(self, number: int = signal.SIGINT) -> Done:
        """End it; the last line is its summary."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> Done:
        status = self.process.wait(_SECONDS_MAX)
        self._reader.join(_SECONDS_MAX)
        output = "".join(iter(self._lines.get, ""))
        errors = self._errors()
        assert "Traceback" not in errors, errors
        return Done(status, output, errors)


@contextmanager
def following(store: Path, port: int, into: Path | None, *options: object) -> Iterator[Live]:
    live = Live(start_fetch(store, port, into, "--live", *options))
    try:
        yield live
    finally:
        live.process.kill()
        live.process.wait()
        live.close()


def publish(source: Path, store: Path) -> int:
    """Publish; the number of entries afterwards."""
    # The times of these files never change.
    done = run("publish", source, "--store", store, "--checksum")
    assert done.status == 0, done.errors
    head: int = done.summary["head"]
    return head


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_published_meanwhile_comes(
    tmp_path: Path, source: Path, published: Path, number: int
) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port, following(store, port, target) as live:
        first = live.next()
        count = whole_entries(published)
        assert (first["head"], first["entries"]) == (count, count)
        assert contents(target) == contents(source)

        make_tree(source, {"dir1/new": b"new", "dir3": None, "dir3/deep": b"deep"})
        (source / "dir1/file1").unlink()
        head = publish(source, published)
        said = live.reach(head)
        assert (said["written"], said["removed"]) == (3, 1)
        assert contents(target) == contents(source)

        make_tree(source, {"medium": b"changed" * 100_000})
        (source / "dir2").chmod(0o500)
        head = publish(source, published)
        live.reach(head)
        (source / "dir2").chmod(0o755)
        head = publish(source, published)
        live.reach(head)
        assert contents(target) == contents(source)
        assert details(target) == details(source)

        done = live.end(number)
    assert (done.status, done.errors) == (0, "")
    summary = done.summary
    assert (summary["code"], summary["missing"]) == (None, 0)
    assert summary["head"] == summary["entries"] == whole_entries(store) == head
    assert summary["removed"] == 1
    assert summary["wire_bytes"] > 0
    # There is nothing left to do.
    with serving(published) as port:
        again = fetch(store, port, target)
    assert (again.status, again.summary["entries"], again.summary["written"]) == (0, 0, 0)


@pytest.mark.once
def test_without_a_directory_it_follows_all_logs(tmp_path: Path) -> None:
    several, store = tmp_path / "several.store", tmp_path / "fetched.store"
    make_store(several, [2, 3])
    with serving(several) as port, following(store, port, None) as live:
        said = live.next()
        assert (said["log"], said["entries"]) == (None, 5)
        assert live.end().status == 0


@pytest.mark.slow
def test_it_waits_for_a_log_that_is_not_there_yet(tmp_path: Path, source: Path) -> None:
    """Any log, or the wanted one, which the server does not know yet."""
    empty, published = tmp_path / "empty", tmp_path / "published.store"
    empty.mkdir()
    log = run("publish", empty, "--store", published).summary["log"]
    targets = [tmp_path / "target0", tmp_path / "target1"]
    with (
        serving(published) as port,
        following(tmp_path / "0.store", port, targets[0]) as any_log,
        following(tmp_path / "1.store", port, targets[1], "--log", log) as that_log,
    ):
        assert that_log.next()["head"] == 0  # which the server has refused
        head = publish(source, published)
        for live, target in zip((any_log, that_log), targets, strict=True):
            said = live.reach(head)
            assert said["log"] == log
            assert contents(target) == contents(source)
            assert live.end().status == 0


@pytest.mark.slow
def test_entries_pass_through_a_store_that_is_served_while_it_is_filled(
    tmp_path: Path, source: Path, published: Path
) -> None:
    middle, target = tmp_path / "middle.store", tmp_path / "target"
    with serving(published) as port, following(middle, port, None) as first:
        first.reach(whole_entries(published))
        with (
            serving(middle) as middle_port,
            following(tmp_path / "last.store", middle_port, target) as last,
        ):
            for n in range(3):
                make_tree(source, {f"dir0/added{n}": bytes(n * 400_000), f"small{n}": b"%d" % n})
                head = publish(source, published)
                last.reach(head)
                assert contents(target) == contents(source)
            assert last.end().status == 0
        assert first.end().status == 0
    assert whole_entries(tmp_path / "last.store") == head


def test_killed_and_started_again(tmp_path: Path, source: Path, published: Path) -> None:
    """Whatever was published, and whenever it was killed: nothing is missing, or fetched twice."""
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    entries = 0
    with serving(published) as port:
        for n in range(4):
            with following(store, port, target) as live:
                live.next()
                make_tree(source, {f"dir{n}/more{n}": bytes(n * 300_000), "medium": b"%d" % n})
                head = publish(source, published)
                if n % 2:
                    live.reach(head)
                live.process.kill()
            assert whole_entries(store) >= entries
            entries = whole_entries(store)
        with following(store, port, target) as live:
            live.reach(head)
            done = live.end()
    assert done.status == 0
    assert entries + done.summary["entries"] == head
    assert contents(target) == contents(source)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "outcome"), [(False, (0, None)), (True, (1, "UNEXPECTED_EOF"))])
def test_it_ends_when_the_server_goes(
    tmp_path: Path, published: Path, broken: bool, outcome: tuple[int, str | None]
) -> None:
    """In good order, when everything is here and the server says goodbye, or by a broken line."""
    with ExitStack() as stack:
        port = stack.enter_context(serving(published))
        if broken:
            port = stack.enter_context(Throttle(port))
        with following(tmp_path / "fetched.store", port, tmp_path / "target") as live:
            live.next()
            stack.close()
            done = live.wait()
    assert (done.status, done.summary["code"]) == outcome
    assert done.summary["head"] == whole_entries(published)


def test_what_cannot_be_written_ends_it(tmp_path: Path, source: Path, published: Path) -> None:
    target = tmp_path / "target"
    with serving(published) as port, following(tmp_path / "f.store", port, target) as live:
        live.next()
        target.rename(tmp_path / "away")
        target.write_bytes(b"in the way")
        make_tree(source, {"new": b"new"})
        head = publish(source, published)
        done = live.wait()
    assert (done.status, done.summary["code"]) == (1, "CANNOT_WRITE")
    assert done.summary["head"] == head
    assert target.read_bytes() == b"in the way"


@pytest.mark.slow
def test_a_conflict_in_one_place_does_not_end_it(
    tmp_path: Path, source: Path, published: Path
) -> None:
    target = tmp_path / "target"
    make_tree(target, {"new/mine": b"mine"})
    with serving(published) as port, following(tmp_path / "f.store", port, target) as live:
        live.next()
        make_tree(source, {"new": b"new"})
        assert live.reach(publish(source, published))["failed"] == 1
        make_tree(source, {"newer": b"newer"})
        assert live.reach(publish(source, published))["failed"] == 1
        assert (target / "newer").read_bytes() == b"newer"
        (target / "new/mine").unlink()
        make_tree(source, {"newest": b"newest"})
        said = live.reach(publish(source, published))
        assert (said["written"], said["failed"]) == (2, 0)
        assert contents(target) == contents(source)
        done = live.end()
    assert (done.status, done.errors) == (0, "")


def test_a_line_that_breaks_before_all_is_here(
    tmp_path: Path, source: Path, published: Path
) -> None:
    """The first error is the one reported, even if the directory cannot be written afterwards."""
    make_tree(source, {"dir0/large": Random(1).randbytes(600_000)})
    publish(source, published)
    target = tmp_path / "target"
    target.write_bytes(b"in the way")
    with (
        serving(published) as port,
        Throttle(port, 300_000, then_close=True) as short_port,
        # A short pause of the peer is not the end of its offers.
        following(tmp_path / "f.store", short_port, target, "--settle", 60) as live,
    ):
        done = live.wait()
    assert (done.status, done.summary["code"]) == (1, "UNEXPECTED_EOF")
    assert done.summary["missing"] == 1  # the payload of the last entry


def test_links_that_others_make_in_the_directory_lead_nowhere(
    tmp_path: Path, source: Path, published: Path
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    outside.mkdir()
    with serving(published) as port, following(tmp_path / "f.store", port, target) as live:
        live.next()
        (target / "dir0").rename(tmp_path / "away")
        (target / "dir0").symlink_to(outside)
        make_tree(source, {"dir0/new": b"new"})
        head = publish(source, published)
        live.reach(head)
        assert contents(target / "dir0") == {"new": b"new"}
        assert list(outside.iterdir()) == []
        assert live.end().status == 0


@pytest.mark.slow
def test_too_large_payloads_are_left_out_live_too(
    tmp_path: Path, source: Path, published: Path
) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with (
        serving(published) as port,
        following(store, port, target, "--max-payload", 50_000) as live,
    ):
        first = live.next()
        assert first["head"] == whole_entries(published)
        assert set(contents(source)) - set(contents(target)) == {"medium"}
        for name, content in (("small", b"small"), ("large", bytes(100_000))):
            make_tree(source, {name: content})
            said = live.reach(publish(source, published))
            assert said["written"] == (name == "small")
        assert set(contents(source)) - set(contents(target)) == {"medium", "large"}
        done = live.end()
        assert (done.status, done.summary["missing"]) == (0, 2)
    with serving(published) as port, following(store, port, target) as live:
        while contents(target) != contents(source):
            live.next()
        assert live.end().summary["missing"] == 0


@pytest.mark.slow
def test_interrupted_before_all_is_here(tmp_path: Path, source: Path, published: Path) -> None:
    """It says so; the entries so far are in the directory; and the next run goes on."""
    make_tree(source, {"dir0/large": Random(1).randbytes(600_000), "zero": b"0"})
    head = publish(source, published)
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        throttle = Throttle(port, 300_000)
        with (
            throttle as slow_port,
            following(store, slow_port, target, "--timeout", 4) as live,
        ):
            assert throttle.reached.wait(SECONDS_MAX)
            time.sleep(0.3)
            done = live.end()
        assert (done.status, done.summary["code"]) == (1, "INCOMPLETE")
        assert 0 < done.summary["head"] < head
        there = contents(target)
        assert set(there) < set(contents(source))
        assert "dir0/large" not in there
        with following(store, port, target) as live:
            live.reach(head)
            assert live.end().status == 0
    assert contents(target) == contents(source)


@pytest.mark.slow
def test_a_fork_ends_it(tmp_path: Path, source: Path, published: Path) -> None:
    """An author whose store was copied goes on with both copies."""
    other, store = tmp_path / "other.store", tmp_path / "fetched.store"
    for suffix in ("", ".key"):
        shutil.copy(f"{published}{suffix}", f"{other}{suffix}")
    (tmp_path / "other.store.key").chmod(0o600)
    with serving(published) as port, following(store, port, None) as live:
        make_tree(source, {"one": b"one"})
        live.reach(publish(source, published))
        assert live.end().status == 0
    for name in ("one", "two"):
        make_tree(source, {name: b"two"})
        publish(source, other)
    with serving(other) as port, following(store, port, None) as live:
        done = live.wait()
    assert (done.status, done.summary["code"]) == (1, "FORK")


@pytest.mark.slow
def test_a_client_that_leaves_does_not_bother_the_others(
    tmp_path: Path, source: Path, published: Path
) -> None:
    stores = [tmp_path / f"{n}.store" for n in range(3)]
    with (
        serving(published, "--poll", "0.05") as port,
        following(stores[0], port, None) as first,
        following(stores[1], port, None) as second,
        following(stores[2], port, None) as third,
    ):
        for live in (first, second, third):
            live.next()
        second.process.kill()
        assert third.end().status == 0
        for n in range(3):
            make_tree(source, {f"more{n}": b"%d" % n})
            head = publish(source, published)
            first.reach(head)
        assert first.end().summary["head"] == head


def test_whoever_is_impatient_gets_the_summary_too(
    tmp_path: Path, source: Path, published: Path
) -> None:
    with serving(published) as port, following(tmp_path / "f.store", port, None) as live:
        live.next()
        for _ in range(20):
            live.process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        done = live.wait()
    assert (done.status, done.errors) == (0, "")
    assert done.summary["head"] == whole_entries(published)

"""The whole program over real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from processes import (
    SECONDS_MAX,
    Throttle,
    fetch,
    finish,
    run,
    serving,
    start,
    start_fetch,
    stored_size,
    wait_until,
    whole_entries,
)
from test_live_fetch import following
from trees import contents, details, make_tree

from culm.bamboo import LogKey, MemoryStore
from culm.wire.multihash import YAMF
from culm_io.command import command_of
from culm_io.programs.directory import command as replicate_directory
from culm_io.programs.directory import report
from culm_io.programs.directory.fetch import Fetched
from culm_io.programs.directory.materialise import Materialised
from culm_io.programs.directory.publish import Published
from culm_io.programs.directory.records import File
from culm_io.programs.locks import locked
from culm_io.stores.bamboo import SqliteStore

_RANDOM = Random(1)
COMMANDS = ("publish", "serve", "fetch", "check", "verify", "ls", "log")
TREE: dict[str, bytes | str | None] = {
    **{f"dir{n % 5}/file{n}": b"%d\n" % n * (n * 7) for n in range(60)},
    "big": _RANDOM.randbytes((1 << 20) + 5),
    "medium": _RANDOM.randbytes(300_000),
    "all dull": bytes(700_000),  # before incompressible ones: compression pauses there
    "empty": None,
    "link": "-> dir1/file1",
}


def test_a_directory_travels(tmp_path: Path, source: Path, published: Path) -> None:
    target, store = tmp_path / "target", tmp_path / "fetched.store"
    with SqliteStore(published, family=YAMF, must_exist=True) as kept:
        (log,) = kept.logs()
        head = kept.head(log)
        entries = kept.entries(log)
    assert head is not None
    with serving(published) as port:
        done = fetch(store, port, target)
        assert (done.status, done.errors) == (0, "")
        summary = done.summary
        assert summary["entries"] == summary["head"] == head.seqnum
        assert summary["head_hash"] == head.hash.hex()
        assert summary["log"] == f"{log.author.hex()}/{log.log_id}"
        payload_size = sum(entry.payload_size for entry in entries)
        assert summary["payload_bytes"] == payload_size
        # Compressible files are compressed, and nothing is sent twice.
        assert 1_000_000 < summary["wire_bytes"] < payload_size - 600_000
        ratio = payload_size / summary["wire_bytes"]
        assert summary["compression_ratio"] == pytest.approx(ratio, abs=0.001)
        assert summary["seconds"] > 0
        assert (summary["code"], summary["error"]) == (None, None)
        assert contents(target) == contents(source)
        assert details(target) == details(source)
        assert whole_entries(store) == head.seqnum

        # There is nothing left to fetch.
        again = fetch(store, port, target)
        assert again.status == 0
        assert (again.summary["entries"], again.summary["payload_bytes"]) == (0, 0)
        assert (again.summary["written"], again.summary["wire_bytes"] < 1000) == (0, True)

        # Publications in the meantime come the next time.
        make_tree(source, {"dir1/new": b"new"})
        assert run("publish", source, "--store", published).summary["entries"] == 1
        third = fetch(store, port, target)
        assert (third.status, third.summary["entries"]) == (0, 1)
        assert contents(target) == contents(source)
    assert stat.S_IMODE((tmp_path / "published.store.key").stat().st_mode) == 0o600


def test_a_fetched_store_can_be_served(tmp_path: Path, source: Path, published: Path) -> None:
    store = tmp_path / "middle.store"
    with serving(published) as port:
        assert fetch(store, port).status == 0
    with serving(store) as port:
        assert fetch(tmp_path / "last.store", port, tmp_path / "target").status == 0
    assert contents(tmp_path / "target") == contents(source)


def test_two_clients_at_once(tmp_path: Path, source: Path, published: Path) -> None:
    with serving(published) as port:
        clients = [
            start_fetch(tmp_path / f"{n}.store", port, tmp_path / f"target{n}") for n in range(2)
        ]
        dones = [finish(client) for client in clients]
    assert [done.status for done in dones] == [0, 0]
    for n in range(2):
        assert contents(tmp_path / f"target{n}") == contents(source)


@pytest.mark.slow
def test_clients_too_many_are_turned_away(tmp_path: Path, published: Path) -> None:
    """The present clients have something under way."""
    with serving(published, "--clients-max", "1") as port:
        with following(tmp_path / "live.store", port, None) as live:
            live.next()
            done = fetch(tmp_path / "fetched.store", port)
            assert done.status == 1
            assert done.summary["code"] == "UNEXPECTED_EOF"
            assert live.end().status == 0
        deadline = time.monotonic() + SECONDS_MAX
        while fetch(tmp_path / "fetched.store", port).status and time.monotonic() < deadline:
            pass
        assert whole_entries(tmp_path / "fetched.store")


# Kills

MOMENTS = [0, 200, 30_000, 200_000, 600_000, 1_100_000]


@pytest.mark.costly
@pytest.mark.parametrize("size", MOMENTS)
def test_a_fetch_that_is_killed_goes_on_where_its_store_ends(
    tmp_path: Path, source: Path, published: Path, size: int
) -> None:
    """Killed when it has received a number of bytes."""
    target, store = tmp_path / "target", tmp_path / "fetched.store"
    with serving(published) as port:
        throttle = Throttle(port, size)
        with throttle as slow_port:
            process = start_fetch(store, slow_port, target)
            assert throttle.reached.wait(SECONDS_MAX)
            # Compressible data arrives as soon as anything does.
            least = size - 350_000 + (700_000 if size > 350_000 else 0)
            wait_until(lambda: stored_size(store) >= least)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        before = whole_entries(store)
        done = fetch(store, port, target)
    assert done.status == 0
    assert before + done.summary["entries"] == done.summary["head"] == whole_entries(published)
    assert contents(target) == contents(source)
    assert details(target) == details(source)
    # Nothing is received again, except bytes that were on their way into the store.
    assert done.summary["wire_bytes"] < 1_450_000 - max(0, size - 350_000)


@pytest.mark.slow
def test_a_fetch_that_is_killed_again_and_again_comes_to_an_end(
    tmp_path: Path, source: Path, published: Path
) -> None:
    target, store = tmp_path / "target", tmp_path / "fetched.store"
    random = Random(7)
    entries = 0
    with serving(published) as port:
        for _ in range(6):
            process = start_fetch(store, port, target)
            time.sleep(random.uniform(0.3, 0.8))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if store.exists():
                assert whole_entries(store) >= entries
                entries = whole_entries(store)
        done = fetch(store, port, target)
    assert done.status == 0
    assert entries + done.summary["entries"] == done.summary["head"]
    assert contents(target) == contents(source)


def test_a_publisher_that_is_killed_goes_on(tmp_path: Path, source: Path) -> None:
    store, random = tmp_path / "published.store", Random(3)
    for _ in range(6):
        process = start("publish", source, "--store", store)
        time.sleep(random.uniform(0.2, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert run("publish", source, "--store", store).status == 0
    whole_entries(store)
    assert run("publish", source, "--store", store).summary["entries"] == 0
    with serving(store) as port:
        assert fetch(tmp_path / "fetched.store", port, tmp_path / "target").status == 0
    assert contents(tmp_path / "target") == contents(source)


# Users' mistakes


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """``refused(*arguments, reason=...)``: the request cannot be fulfilled, says one line."""

    def check(*arguments: object, reason: str) -> None:
        status = replicate_directory.main(list(map(str, arguments)))
        said = capsys.readouterr()
        assert (status, said.out) == (2, "")
        (line,) = said.err.splitlines()
        assert line.startswith("culm directory: ")
        assert reason in line

    return check


def test_mistakes_are_told_in_one_line(
    tmp_path: Path, published: Path, refused: Callable[..., None]
) -> None:
    text, new, missing = tmp_path / "text", tmp_path / "new.store", tmp_path / "missing"
    text.write_text("no store " * 100)
    fetch_into = ("--from", "127.0.0.1:1", "--into", tmp_path / "target")
    refused("publish", missing, "--store", new, reason="missing: not a directory")
    refused("publish", text, "--store", new, reason="text: not a directory")
    refused("publish", tmp_path, "--store", text, reason="not a database")
    refused("publish", tmp_path, "--store", missing / "s", reason="No such file")
    refused("serve", "--store", missing, "--port", 0, reason="unable to open")
    refused("serve", "--store", text, "--port", 0, reason="not a database")
    refused("check", "--store", text, reason="not a database")
    refused("fetch", "--store", text, *fetch_into, reason="not a database")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused("serve", "--store", published, "--port", port, reason="in use")
    assert not missing.exists()
    with locked(published):
        reason = "another process is writing to this store"
        refused("publish", tmp_path, "--store", published, reason=reason)
        refused("fetch", "--store", published, *fetch_into, reason=reason)


def test_a_mistake_is_told_without_a_traceback(tmp_path: Path) -> None:
    done = run("serve", "--store", tmp_path, "--port", 0)
    assert (done.status, done.output, len(done.errors.splitlines())) == (2, "", 1)


def test_a_key_has_to_be_there_and_to_be_secret(
    tmp_path: Path, published: Path, refused: Callable[..., None]
) -> None:
    key = tmp_path / "published.store.key"
    command = ("publish", tmp_path / "source", "--store", published)
    text = key.read_text()
    key.chmod(0o644)
    refused(*command, reason="others can read the key")
    key.chmod(0o600)
    key.write_text("nonsense")
    refused(*command, reason="not a key")
    key.unlink()
    # A new key would begin another log unnoticed.
    refused(*command, reason="missing")
    key.write_text(text)
    key.chmod(0o600)
    assert run(*command).summary["entries"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["serve", "--store", "s", "--port", "0", "--poll", "0"],
        ["serve", "--store", "s", "--port", "0", "--poll", "nan"],
        ["serve", "--store", "s", "--port", "0", "--poll", "soon"],
        ["fetch", "--store", "s", "--from", "nowhere"],
        ["fetch", "--store", "s", "--from", ":80"],
        ["fetch", "--store", "s", "--from", "host:-1"],
        ["fetch", "--store", "s", "--from", "host:1", "--log", "abc"],
        ["fetch", "--store", "s", "--from", "host:1", "--log", "00/1"],
        ["fetch", "--store", "s", "--from", "host:1", "--log", "00" * 32 + "/-1"],
    ],
)
def test_arguments_that_are_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        replicate_directory.main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_what_cannot_be_written_is_told(tmp_path: Path, published: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"in the way")
    with serving(published) as port:
        done = fetch(tmp_path / "fetched.store", port, target)
    assert (done.status, done.summary["code"]) == (1, "CANNOT_WRITE")
    assert len(done.errors.splitlines()) == 1
    assert target.read_bytes() == b"in the way"


@pytest.mark.slow
def test_of_several_logs_one_has_to_be_chosen(tmp_path: Path) -> None:
    names = []
    store, target, other = (tmp_path / name for name in ("fetched.store", "target", "other"))
    for n in range(2):
        make_tree(tmp_path / f"source{n}", {f"file{n}": b"text"})
        published = tmp_path / f"{n}.store"
        names.append(run("publish", tmp_path / f"source{n}", "--store", published).summary["log"])
        with serving(published) as port:
            done = fetch(store, port, target, "--log", names[n])
            assert (done.status, done.summary["log"]) == (0, names[n])
    assert contents(target) == {"file0": b"text", "file1": b"text"}
    with serving(store) as port:
        unclear = fetch(store, port, other)
        assert (unclear.status, unclear.summary["code"]) == (1, "SEVERAL_LOGS")
        assert names[0] in unclear.summary["error"]
        assert not other.exists()
        # Only the wanted log is accepted.
        chosen = fetch(tmp_path / "new.store", port, other, "--log", names[1])
        assert (chosen.status, chosen.summary["entries"]) == (0, 1)
        assert contents(other) == {"file1": b"text"}
        again = fetch(tmp_path / "new.store", port, other)
        assert (again.status, again.summary["entries"]) == (1, 1)


@pytest.mark.slow
def test_a_wanted_log_that_the_peer_does_not_have(tmp_path: Path, published: Path) -> None:
    store = tmp_path / "fetched.store"
    with serving(published) as port:
        done = fetch(store, port, None, "--timeout", "0.5", "--log", "00" * 32 + "/0")
    assert (done.status, done.summary["code"]) == (1, "NO_LOG")
    assert whole_entries(store) == 0


def test_clients_that_talk_nonsense_harm_nobody(
    tmp_path: Path, source: Path, published: Path
) -> None:
    with serving(published) as port:
        for nonsense in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"\xff" * 1000):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(nonsense)
        assert fetch(tmp_path / "fetched.store", port, tmp_path / "target").status == 0
    assert contents(tmp_path / "target") == contents(source)


def test_an_interrupted_fetch_ends_at_once_and_goes_on_later(
    tmp_path: Path, source: Path, published: Path
) -> None:
    store, target = tmp_path / "fetched.store", tmp_path / "target"
    with serving(published) as port:
        throttle = Throttle(port, 600_000)
        with throttle as slow_port:
            process = start_fetch(store, slow_port, target)
            assert throttle.reached.wait(SECONDS_MAX)
            process.send_signal(signal.SIGINT)
            done = finish(process)
        assert (done.status, done.errors) == (130, "culm directory: interrupted\n")
        before = whole_entries(store)
        done = fetch(store, port, target)
    assert before + done.summary["entries"] == done.summary["head"]
    assert contents(target) == contents(source)


def drawn_by(*arguments: object) -> tuple[str, list[dict[str, Any]]]:
    """The output to a terminal on stderr, and to stdout, which is not a terminal."""
    leader, follower = os.openpty()
    drawn = b""
    with subprocess.Popen(
        command_of("directory", *arguments),
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(follower)
        with suppress(OSError):  # the other end is gone
            while more := os.read(leader, 1 << 16):
                drawn += more
        os.close(leader)
        assert process.stdout is not None
        return drawn.decode(), [json.loads(line) for line in process.stdout]


def test_progress_is_for_terminals(tmp_path: Path, source: Path, published: Path) -> None:
    """Elsewhere, stderr holds only errors."""
    with serving(published) as port:
        assert fetch(tmp_path / "fetched.store", port).errors == ""
        where = ("--store", tmp_path / "other.store", "--from", f"127.0.0.1:{port}")
        drawn, (summary,) = drawn_by("fetch", *where, "--settle", "0.3")
    assert "fetching" in drawn
    assert f"{summary['head']}/{summary['head']}" in drawn
    drawn, (summary,) = drawn_by("publish", source, "--store", tmp_path / "new.store")
    assert "publishing" in drawn
    assert f"{summary['changed']}/{summary['changed']}" in drawn
    target = tmp_path / "target"
    target.mkdir()
    drawn, said = drawn_by("verify", target, "--store", tmp_path / "new.store")
    assert f"{summary['head']}/{summary['head']}" in drawn
    assert f"{summary['changed']}/{summary['changed']}" in drawn
    assert [line.get("fault") for line in said] == ["missing"] * summary["changed"] + [None]
    assert drawn_by("verify", target, "--store", tmp_path / "new.store", "--quiet") == ("", said)


def test_the_page_tells_of_every_command_option_and_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "replicate-directory.md").read_text()
    help_texts = [run(name, "--help").output for name in COMMANDS]
    options = {word for text in help_texts for word in re.findall(r"--[a-z][a-z-]+", text)}
    assert [
        name for name in COMMANDS if f"### {name} " not in page and f"{name} --" not in page
    ] == []
    assert options >= {"--store", "--exclude", "--into", "--timeout"}
    assert [option for option in options - {"--help"} if option not in page] == []
    programs = Path(replicate_directory.__file__).parent.glob("*.py")
    codes = {
        code
        for program in programs
        for code in re.findall(r'Failure\(\s*"([A-Z_]+)"', program.read_text())
    }
    assert len(codes) > 5
    assert [code for code in codes if f"`{code}`" not in page] == []


def test_the_page_shows_the_summaries_as_they_are_written() -> None:
    store, log, made = MemoryStore(family=YAMF), LogKey(bytes(32), 0), Materialised()
    fetched, seconds = Fetched(offered={log: 1}), {"seconds": 0.0}
    record = File(path=b"a", mode=0o644, mtime=0, chunk=0, chunks=1)
    written = [
        report.of_publish(Published(log), None, None) | seconds,
        report.of_fetch(store, log, fetched, made) | seconds,
        report.of_update(store, log, fetched, made),
        *report.of_offers(store, ("127.0.0.1", 4711), fetched, None),
        report.of_entry(log, fetched, None, [record]) | seconds,
        report.of_export(log, made, entry=1, head=2, missing=0) | seconds,
    ]
    page = Path(__file__).parents[2] / "docs" / "replicate-directory.md"
    blocks = re.findall(r"^```json\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    shown = [json.loads(block) for block in blocks if '"differences"' not in block]
    assert [list(each) for each in shown] == [list(each) for each in written]
    assert list(shown[-2]["records"][0]) == list(written[-2]["records"][0])

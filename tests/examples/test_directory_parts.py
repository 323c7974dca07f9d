"""Selected files only, several servers at once, and a look before the fetch."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from connections import opening
from nacl.signing import SigningKey
from processes import Throttle, fetch, run, serving, whole_entries
from trees import contents, make_tree

from culm.bamboo import LogAuthor, LogKey, MemoryStore, NewEntry
from culm.bamboo.entry import decode
from culm.wire.multihash import YAMF
from culm_io.programs.directory import command as replicate_directory
from culm_io.programs.directory.listing import differences, list_entries, list_paths
from culm_io.programs.directory.parts import chooser, lacking_of
from culm_io.programs.directory.publish import publish_directory
from culm_io.programs.directory.records import PACK_SIZE_MAX, File, encode
from culm_io.programs.directory.report import table_of_entries, table_of_paths
from culm_io.programs.directory.tree import TreeReader

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
RNG = Random(1)
TREE: dict[str, bytes | str | None] = {
    "large": RNG.randbytes(900_000),
    "photos/one.raw": RNG.randbytes(700_000),
    "photos/two.raw": RNG.randbytes(600_000),
    "small": b"small",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make_tree(tmp_path / "source", TREE)
    return tmp_path / "source"


def small_only(store: MemoryStore) -> MemoryStore:
    part = MemoryStore(family=YAMF)
    for entry in store.entries(LOG, payload_size_max=PACK_SIZE_MAX):
        part.append(LOG, [NewEntry(decode(entry.encoded, family=YAMF), entry.payload)])
    return part


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("photos", {"photos", "photos/one.raw", "photos/two.raw"}),
        ("*.raw", {"photos/one.raw", "photos/two.raw"}),
        ("photos/o*", {"photos/one.raw"}),
        ("large", {"large"}),
        ("arge", set()),
    ],
)
def test_a_pattern_is_for_paths_names_and_directories(pattern: str, chosen: set[str]) -> None:
    is_chosen = chooser([pattern])
    paths = ["large", "photos", "photos/one.raw", "photos/two.raw", "small"]
    assert {path for path in paths if is_chosen(os.fsencode(path))} == chosen
    assert all(map(chooser(None), map(os.fsencode, paths)))


def test_what_is_small_says_which_entries_are_of_which_file(source: Path) -> None:
    """Earlier versions are of no interest, except for the parts of them that remain."""
    store = MemoryStore(family=YAMF)
    publish_directory(source, store, KEY)
    data = bytearray(contents(source)["large"] or b"")  # type: ignore[arg-type]
    data[450_000] ^= 1
    make_tree(source, {"large": bytes(data)})
    publish_directory(source, store, KEY)
    place = TreeReader(store, LOG).read().places[b"large"]
    there = {n for first, last in place.ranges for n in range(first, last + 1)}
    sizes = {entry.seqnum: entry.payload_size for entry in store.entries(LOG)}
    lacking = lacking_of(chooser(["large"]))(small_only(store), LOG)
    assert lacking == sorted(n for n in there if sizes[n] > PACK_SIZE_MAX)
    # Less than all: parts from before the change are gone.
    assert len(lacking) < sum(size > PACK_SIZE_MAX for size in sizes.values())


def test_what_nobody_can_tell_of_is_asked_for() -> None:
    """A log without small first chunks."""
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    for path in (b"a", b"b"):
        record = File(path, 0o644, 5, 0, 1)
        store.append(LOG, [author.publish(encode(record, bytes(PACK_SIZE_MAX)))])
    assert lacking_of(chooser(["a"]))(small_only(store), LOG) == [1, 2]


@pytest.mark.once
def test_only_some_files_are_fetched(tmp_path: Path, source: Path) -> None:
    target, store = tmp_path / "target", tmp_path / "b.store"
    run("publish", source, "--store", tmp_path / "a.store")
    with serving(tmp_path / "a.store") as port:
        done = fetch(store, port, target, "--only", "photos/one.raw")
        assert (done.status, done.summary["code"]) == (0, None)
        assert contents(target) == {
            "photos": None,
            "photos/one.raw": TREE["photos/one.raw"],
        }
        assert 700_000 < done.summary["wire_bytes"] < 900_000
        # More of it, and then all; nothing comes twice.
        done = fetch(store, port, target, "--only", "*.raw")
        assert (done.status, done.summary["wire_bytes"] < 700_000) == (0, True)
        assert set(contents(target)) == {"photos", "photos/one.raw", "photos/two.raw"}
        done = fetch(store, port, target)
        assert (done.status, done.summary["wire_bytes"] < 1_000_000) == (0, True)
    assert contents(target) == contents(source)
    assert run("verify", target, "--store", store).status == 0


@pytest.mark.once
def test_large_payloads_come_from_all_servers(tmp_path: Path, source: Path) -> None:
    """One of them hangs up in the middle: the others send its share."""
    target, stores = tmp_path / "target", [tmp_path / f"{n}.store" for n in range(3)]
    run("publish", source, "--store", stores[0])
    shutil.copy(stores[0], stores[1])
    with serving(stores[0]) as one, serving(stores[1]) as two:
        with Throttle(two, 200_000, then_close=True) as failing:
            done = fetch(stores[2], one, target, "--from", f"127.0.0.1:{failing}")
        assert (done.status, done.summary["code"]) == (0, None)
        assert contents(target) == contents(source)
        assert whole_entries(stores[2]) == done.summary["head"]


@pytest.mark.once
def test_what_one_server_lacks_comes_from_another(tmp_path: Path, source: Path) -> None:
    whole, part, store = (tmp_path / f"{name}.store" for name in ("whole", "part", "new"))
    run("publish", source, "--store", whole)
    with serving(whole) as one:
        assert fetch(part, one, None, "--max-payload", PACK_SIZE_MAX).status == 0
        with serving(part) as two:
            done = fetch(store, two, tmp_path / "target", "--from", f"127.0.0.1:{one}")
            assert (done.status, done.summary["code"]) == (0, None)
            assert contents(tmp_path / "target") == contents(source)
            done = fetch(tmp_path / "none.store", two, None, "--from", f"127.0.0.1:{two}")
            assert (done.status, done.summary["code"]) == (1, "INCOMPLETE")


def test_a_dry_run_publishes_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    command = ["publish", str(source), "--store", str(store)]
    assert replicate_directory.main([*command, "--dry-run"]) == 0
    *lines, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["path"] for line in lines] == ["large", "photos", *sorted(TREE)[1:]]
    assert (summary["dry_run"], summary["changed"], summary["head"]) == (True, 5, 0)
    assert os.listdir(tmp_path) == ["source"]
    assert replicate_directory.main(command) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert entries == summary["entries"]
    (source / "small").unlink()
    assert replicate_directory.main([*command, "--dry-run"]) == 0
    line, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert line == {"would_publish": "removed", "path": "small"}
    assert summary["head"] == entries
    assert replicate_directory.main(command) == 0
    assert json.loads(capsys.readouterr().out)["head"] == entries + 1


@pytest.mark.once
def test_a_dry_run_fetches_nothing(tmp_path: Path, source: Path) -> None:
    head = run("publish", source, "--store", tmp_path / "a.store").summary["head"]
    with serving(tmp_path / "a.store") as port:
        done = fetch(tmp_path / "b.store", port, tmp_path / "target", "--dry-run")
    assert done.status == 0
    assert (done.summary["offered"], done.summary["would_fetch"]) == (head, head)
    assert not (tmp_path / "b.store").exists()
    assert not (tmp_path / "target").exists()


def test_a_dry_run_names_a_server_that_nobody_reaches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        server = f"127.0.0.1:{gone.getsockname()[1]}"
    command = ["fetch", "--store", str(tmp_path / "b.store"), "--from", server, "--dry-run"]
    assert replicate_directory.main(command) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["code"] == "CONNECTION_FAILED"
    assert f"CONNECTION_FAILED: {server} cannot be reached" in told.err


def published(source: Path) -> MemoryStore:
    store = MemoryStore(family=YAMF)
    publish_directory(source, store, KEY)
    return store


def test_a_list_of_paths_says_what_is_here(source: Path) -> None:
    store = published(source)
    lines = {line["path"]: line for line in list_paths(store, LOG, chooser(None))}
    assert sorted(lines) == sorted([*TREE, "photos"])
    assert (lines["large"]["size"], lines["large"]["here"]) == (900_000, True)
    part = {line["path"]: line for line in list_paths(small_only(store), LOG, chooser(None))}
    assert {path for path, line in part.items() if not line["here"]} == {
        "large",
        "photos/one.raw",
        "photos/two.raw",
    }
    assert [line["path"] for line in list_paths(store, LOG, chooser(["s*"]))] == ["small"]


def test_a_list_of_entries_says_what_each_is(source: Path) -> None:
    store = published(source)
    lines = list(list_entries(store, LOG))
    assert [line["entry"] for line in lines] == list(range(1, len(lines) + 1))
    first = lines[0]["records"][0]
    assert (first["path"], first["chunk"], first["size"]) == ("large", 0, 4096)
    assert lines[-1]["records"][0]["path"] == "small"
    missing = [line for line in list_entries(small_only(store), LOG) if not line["here"]]
    assert {line["fault"] for line in missing} == {"the payload is missing"}


def faults(store: MemoryStore, root: Path) -> dict[str, str]:
    return {line["path"]: line["fault"] for line in differences(store, LOG, root)}


def test_a_directory_is_compared_with_its_log(source: Path) -> None:
    make_tree(source, {"gone": b"", "link": "-> small", "other": b"other", "mode": b""})
    store = published(source)
    assert faults(store, source) == {}
    (source / "gone").unlink()
    publish_directory(source, store, KEY)
    make_tree(source, {"gone": b"", "other": b"OTHER", "more": b"is not spoken of"})
    os.utime(source / "small", ns=(0, 0))
    os.chmod(source / "mode", 0o600)
    (source / "link").unlink()
    (source / "link").symlink_to("large")
    (source / "photos/one.raw").unlink()
    (source / "photos/two.raw").unlink()
    (source / "photos/two.raw").mkdir()
    assert faults(store, source) == {
        "gone": "should be gone",
        "link": "leads elsewhere",
        "mode": "another mode",
        "other": "another content",
        "photos/one.raw": "missing",
        "photos/two.raw": "not a file",
        "small": "another time",
    }


def test_lists_are_tables_or_json(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "store")]
    make_tree(source, {"evil\x1b[2J": b""})
    replicate_directory.main(["publish", str(source), *store])
    log = json.loads(capsys.readouterr().out)["log"]

    def said(*command: str) -> str:
        assert replicate_directory.main([*command, *store]) == 0
        return capsys.readouterr().out

    lines = said("ls").splitlines()
    assert lines[0] == f"log {log}"
    assert lines[1].split() == [
        "kind",
        "mode",
        "bytes",
        "changed",
        "(UTC)",
        "entry",
        "content",
        "path",
    ]
    assert "900,000" in next(line for line in lines if line.endswith("large"))
    assert "evil\\x1b[2J" in "".join(lines)
    found: list[dict[str, Any]] = [json.loads(line) for line in said("ls", "--json").splitlines()]
    assert {line["path"] for line in found} == {*TREE, "photos", "evil\x1b[2J"}
    assert "file large, chunk 1 of" in said("log")
    assert json.loads(said("log", "--json").splitlines()[0])["entry"] == 1
    assert replicate_directory.main(["verify", str(source), *store]) == 0
    (source / "small").write_bytes(b"other")
    assert replicate_directory.main(["verify", str(source), *store]) == 1
    assert replicate_directory.main(["ls", *store, "--log", "00" * 32 + "/0"]) == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--live", "--only", "a"],
        ["--live", "--from", "h:1"],
        ["--sparse", "1", "--only", "a"],
        ["--only", "a", "--max-payload", "5"],
        ["--live", "--dry-run"],
    ],
)
def test_what_does_not_go_together_is_told(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        replicate_directory.main(["fetch", "--store", "s", "--from", "h:1", *options])
    assert caught.value.code == 2
    assert "do not go together" in capsys.readouterr().err


def test_the_listing_on_the_page_is_a_real_one(tmp_path: Path) -> None:
    tree = {
        "notes.txt": b"notes",
        "photos/one.raw": Random(1).randbytes(700_000),
        "z": "-> notes.txt",
    }
    make_tree(tmp_path, tree)
    for path, mode in (("notes.txt", 0o644), ("photos", 0o755), ("photos/one.raw", 0o640)):
        os.chmod(tmp_path / path, mode)
    store = published(tmp_path)
    tables = [
        table_of_paths(LOG, list(list_paths(store, LOG, chooser(None)))),
        table_of_entries(LOG, list(list_entries(store, LOG))),
    ]
    page = Path(__file__).parents[2] / "docs" / "replicate-directory.md"
    assert "\n\n".join(table.plain() for table in tables) in page.read_text()


@pytest.mark.once
@pytest.mark.parametrize(
    ("servers", "options"),
    [(1, []), (2, []), (1, ["--sparse", "3"]), (2, ["--dry-run"])],
    ids=["whole", "parts", "sparse", "dry"],
)
def test_the_loop_leaves_the_store_to_its_thread(
    servers: int, options: list[str], published: Path
) -> None:
    """Otherwise two connections would be in one store at once."""
    outside, within = list[str](), list[str]()

    class Watched(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            try:
                asyncio.get_running_loop()
                outside.append(statement)
            except RuntimeError:
                within.append(statement)
            return super().execute(statement, *values)

    store = published.with_name("fetched.store")
    with ExitStack() as stack:
        stack.enter_context(opening(Watched))
        ports = [stack.enter_context(serving(published)) for _ in range(servers)]
        peers = [part for port in ports for part in ("--from", f"127.0.0.1:{port}")]
        command = ["fetch", "--store", str(store), *peers, "--settle", "0.15"]
        assert replicate_directory.main([*command, *options]) == 0
    assert outside == []
    assert bool(within) is ("--dry-run" not in options)

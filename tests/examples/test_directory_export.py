"""Files from a store without a peer: the newest, or those of an earlier entry."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from processes import fetch, run, serving
from trees import contents

from culm_io.programs.directory.folders import lock_folder

LARGE = 300_000  # more than a chunk of a file, and than the bytes that come with the metadata


@pytest.fixture
def versions(tmp_path: Path) -> list[tuple[int, dict[str, object]]]:
    """Three publications of ``tree`` in ``a.store``: each with its last entry and content."""
    tree, found = tmp_path / "tree", []
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "small").write_text("one")
    (tree / "gone").write_text("gone")
    for number in range(3):
        (tree / "large").write_bytes(os.urandom(LARGE))
        if number:
            (tree / "below" / "small").write_text("two" * number)
            (tree / "gone").unlink(missing_ok=True)
        done = run("publish", tree, "--store", tmp_path / "a.store")
        assert done.status == 0
        found.append((done.summary["head"], contents(tree)))
    return found


def test_the_newest_comes_out_without_a_peer(
    tmp_path: Path, versions: list[tuple[int, dict[str, object]]]
) -> None:
    head, wanted = versions[-1]
    for written in (True, False):  # a second run changes nothing
        done = run("export", "--store", tmp_path / "a.store", "--into", tmp_path / "out")
        assert (done.status, done.errors) == (0, "")
        assert (done.summary["entry"], done.summary["head"]) == (head, head)
        assert (done.summary["written"] > 0) is written
        assert (done.summary["failed"], done.summary["missing"]) == (0, 0)
        assert contents(tmp_path / "out") == wanted
    again = run("verify", tmp_path / "out", "--store", tmp_path / "a.store")
    assert again.status == 0


def test_earlier_versions_come_out(
    tmp_path: Path, versions: list[tuple[int, dict[str, object]]]
) -> None:
    for head, wanted in versions:
        out = tmp_path / f"out {head}"
        done = run("export", "--store", tmp_path / "a.store", "--into", out, "--entry", head)
        assert (done.status, done.summary["entry"]) == (0, head)
        assert contents(out) == wanted
    # In the middle of a publication, a file appears as soon as all of it is there.
    out = tmp_path / "middle"
    middle = versions[1][0] - 1
    assert run("export", "--store", tmp_path / "a.store", "--into", out, "--entry", middle)
    first, second = versions[0][1], versions[1][1]
    assert all(each in (first.get(path), second.get(path)) for path, each in contents(out).items())
    beyond = versions[-1][0] + 1
    refused = run("export", "--store", tmp_path / "a.store", "--into", out, "--entry", beyond)
    assert (refused.status, refused.output) == (2, "")
    assert f"entry {beyond - 1} is the last of the log" in refused.errors


@pytest.mark.usefixtures("versions")
def test_what_is_not_in_the_store_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "a.store") as port:
        fetched = fetch(tmp_path / "b.store", port, None, "--max-payload", 70_000)
    assert fetched.summary["missing"] > 0
    done = run("export", "--store", tmp_path / "b.store", "--into", tmp_path / "out")
    assert done.status == 3
    assert done.summary["missing"] == 1
    assert "not in the store: 'large'" in done.errors
    assert (tmp_path / "out" / "below" / "small").read_text() == "twotwo"
    assert not (tmp_path / "out" / "large").exists()
    some = run(
        *("export", "--store", tmp_path / "b.store", "--into", tmp_path / "some"),
        *("--only", "below"),
    )
    assert (some.status, some.errors) == (0, "")
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["below"]


@pytest.mark.usefixtures("versions")
def test_a_folder_that_is_in_use_and_a_store_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    folder = lock_folder(tmp_path / "out")
    try:
        busy = run("export", "--store", tmp_path / "a.store", "--into", tmp_path / "out")
    finally:
        os.close(folder)
    assert busy.status == 5
    assert len(busy.errors.splitlines()) == 1
    nothing = run("export", "--store", tmp_path / "no.store", "--into", tmp_path / "out")
    assert nothing.status == 2
    assert not (tmp_path / "no.store").exists()


@pytest.mark.usefixtures("versions")
def test_a_store_inside_the_folder_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(tmp_path / "a.store", out / "large")
    done = run("export", "--store", out / "large", "--into", out)
    assert done.status == 1
    assert "cannot write 'large': part of the store" in done.errors
    assert run("check", "--store", out / "large").status == 0

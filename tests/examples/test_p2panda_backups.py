"""A p2panda node's folder is copied or restored: its author begins anew, and nothing forks."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_p2panda_node import Nodes, nodes, until

from culm_io.programs.ending import ImpossibleError
from culm_io.programs.p2panda import author as p2panda_author
from culm_io.stores.mark import Mark

__all__ = ["nodes"]

BACKUP = "backup"


@pytest.fixture
def here(nodes: Nodes) -> Path:
    """The folder of a node that has written since its backup."""
    folder = nodes.folder / "here"
    folder.mkdir()
    nodes.write("here/a", "create", "name=first")
    shutil.copytree(folder, nodes.folder / BACKUP)
    for number in range(3):
        nodes.write("here/a", "create", f"lost={number}")
    return folder


def put_back_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name(BACKUP), folder)


def put_back_over_it(folder: Path) -> None:
    for file in folder.with_name(BACKUP).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())


def put_back_the_store_alone(folder: Path) -> None:
    (folder / "a").write_bytes((folder.with_name(BACKUP) / "a").read_bytes())


def remove_the_store(folder: Path) -> None:
    (folder / "a").unlink()


@pytest.mark.parametrize(
    "restore", [put_back_anew, put_back_over_it, put_back_the_store_alone, remove_the_store]
)
def test_what_is_written_after_a_restore_and_before_contact_reaches_all(
    nodes: Nodes, here: Path, restore: Callable[[Path], None]
) -> None:
    server = nodes.start("b", "serve", "--port", "0")
    port = until(server, "listening")["port"]
    nodes.sync("here/a", "--from", f"127.0.0.1:{port}")
    restore(here)
    for number in range(3):
        nodes.write("here/a", "create", f"new={number}")
    documents = nodes.show("here/a")
    nodes.write("here/a", "update", next(iter(documents)), "name=changed")
    nodes.sync("here/a", "--from", f"127.0.0.1:{port}")
    server.terminate()
    server.wait()
    found = nodes.show("b")
    assert found == nodes.show("here/a")
    assert len(found) == 7
    assert "changed" in [each["fields"].get("name") for each in found.values()]


def keys(folder: Path) -> set[bytes]:
    return {each.read_bytes() for each in folder.iterdir() if ".key" in each.name}


def test_a_copy_that_is_used_beside_the_first_has_a_key_of_its_own(
    nodes: Nodes, here: Path
) -> None:
    there = nodes.folder / "there"
    shutil.copytree(here, there)
    (one,) = keys(here)
    nodes.write("there/a", "create", "name=there")
    nodes.write("here/a", "create", "name=here")
    assert keys(here) == {one}
    assert len(keys(there) - {one}) == 1
    (new,) = [(there / "a.key").read_bytes()]
    nodes.write("there/a", "create", "name=again")
    assert (there / "a.key").read_bytes() == new != one


def test_writes_that_fail_after_a_restore_leave_no_keys_behind(nodes: Nodes, here: Path) -> None:
    (one,) = keys(here)
    put_back_over_it(here)
    for _ in range(3):
        with pytest.raises(ImpossibleError):
            nodes.here("here/a", "create", "no field")
    assert keys(here) == {one}
    nodes.write("here/a", "create", "name=new")
    assert len(keys(here) - {one}) == 1
    assert len([each for each in here.iterdir() if ".key" in each.name]) == 2


def test_a_key_that_cannot_be_kept_costs_nothing_but_its_write(
    nodes: Nodes, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    (one,) = keys(here)
    put_back_over_it(here)
    before = nodes.show("here/a")
    with monkeypatch.context() as patch:
        patch.setattr(p2panda_author.os, "fsync", full)
        with pytest.raises(OSError, match="full"):
            nodes.here("here/a", "create", "name=new")
    assert keys(here) == {one}
    assert nodes.show("here/a") == before
    nodes.write("here/a", "create", "name=new")
    assert keys(here) > {one}


@pytest.fixture
def refuse_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A block in which no transaction can be committed."""
    connect, refused = sqlite3.connect, list[bool]()

    def allow(action: int, name: str | None, *_: object) -> int:
        commits = (action, name) == (sqlite3.SQLITE_TRANSACTION, "COMMIT")
        return sqlite3.SQLITE_DENY if commits and refused else sqlite3.SQLITE_OK

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_authorizer(allow)
        return connection

    @contextmanager
    def refuse() -> Iterator[None]:
        refused.append(True)
        with pytest.raises(ImpossibleError):
            yield
        refused.clear()

    monkeypatch.setattr(sqlite3, "connect", watched)
    return refuse


def test_a_write_that_cannot_be_committed_keeps_the_key(
    nodes: Nodes, refuse_commit: Callable[[], AbstractContextManager[None]]
) -> None:
    with refuse_commit():
        nodes.here("a", "create", "name=refused")
    assert keys(nodes.folder) == set()
    nodes.here("a", "create", "name=first")
    (one,) = keys(nodes.folder)
    last = Mark(nodes.folder / "a").last
    with refuse_commit():
        nodes.here("a", "create", "name=refused")
    assert Mark(nodes.folder / "a").last == last
    nodes.here("a", "create", "name=second")
    assert keys(nodes.folder) == {one}
    assert sorted(each["fields"]["name"] for each in nodes.show("a").values()) == [
        "first",
        "second",
    ]


def test_a_write_that_cannot_be_committed_after_a_restore_leaves_the_key_in_its_place(
    nodes: Nodes, here: Path, refuse_commit: Callable[[], AbstractContextManager[None]]
) -> None:
    (one,) = keys(here)
    put_back_over_it(here)
    with refuse_commit():
        nodes.here("here/a", "create", "name=refused")
    assert (here / "a.key").read_bytes() == one
    assert keys(here) == {one}
    nodes.here("here/a", "create", "name=new")
    assert len(keys(here) - {one}) == 1
    assert (here / "a.key").read_bytes() != one


def test_a_removed_key_is_followed_by_one_that_is_kept(nodes: Nodes, here: Path) -> None:
    (here / "a.key").unlink()
    nodes.write("here/a", "create", "name=new")
    (one,) = keys(here)
    nodes.write("here/a", "create", "name=newer")
    assert keys(here) == {one}


def test_what_only_looks_like_a_restore_keeps_the_key(nodes: Nodes, here: Path) -> None:
    (one,) = keys(here)
    for file in here.iterdir():
        file.touch()
        file.chmod(0o640)
    here.rename(nodes.folder / "moved")
    nodes.write("moved/a", "create", "name=moved")
    assert keys(nodes.folder / "moved") == {one}


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_file_of_another_size_is_named(
    nodes: Nodes, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    (nodes.folder / "a.key").write_bytes(bytes(size))
    with pytest.raises(Exception, match=r"a\.key"):
        nodes.here("a", "create", "name=a")

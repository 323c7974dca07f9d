"""Several processes write into one store of a p2panda node, which may be served meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from test_p2panda_node import SECONDS_MAX, Nodes, finish, nodes, until

from culm_io.programs.p2panda.author import author_of
from culm_io.programs.p2panda.command import SCHEMA
from culm_io.stores.mark import Mark
from culm_io.stores.p2panda import OperationSqliteStore

__all__ = ["nodes"]

WRITERS = 12


def test_writers_at_the_same_time_all_write(nodes: Nodes) -> None:
    """They have one key, and so each takes the log that another is about to take."""
    running = [nodes.start("a", "create", f"name={number}") for number in range(WRITERS)]
    told = [process.communicate(timeout=SECONDS_MAX) for process in running]
    assert [errors for _, errors in told] == [""] * WRITERS
    assert [process.returncode for process in running] == [0] * WRITERS
    names = [each["fields"]["name"] for each in nodes.show("a").values()]
    assert sorted(names, key=int) == list(range(WRITERS))
    assert not [file.name for file in nodes.folder.glob("a.key.*")]  # all had the one key


class Overtaken(OperationSqliteStore):
    """A store into which another process writes while we wait for our turn."""

    path: Path

    @contextmanager
    def alone(self) -> Iterator[ExitStack]:
        with (
            OperationSqliteStore(self.path) as other,
            author_of(self.path, other, on_restored=fail) as author,
        ):
            author.create(SCHEMA, {"name": "other"})
        with super().alone() as failed:
            yield failed


def fail(key: Path) -> None:
    pytest.fail(f"the key is {key} now")


def test_a_writer_that_waits_for_another_keeps_the_key(tmp_path: Path) -> None:
    """The mark describes our turn, not the start of our wait for it."""
    path = tmp_path / "a"
    with Overtaken(path) as store:
        store.path = path
        for last in (2, 4):
            with author_of(path, store, on_restored=fail) as author:
                author.create(SCHEMA, {"name": "ours"})
            assert Mark(path).last == last
    with OperationSqliteStore(path) as store:
        assert len(store.documents(SCHEMA)) == 4


def test_writers_of_one_document_all_write(nodes: Nodes) -> None:
    document = nodes.write("a", "create", "name=a")
    running = [
        nodes.start("a", "update", document, f"f{number}={number}") for number in range(WRITERS)
    ]
    told = [process.communicate(timeout=SECONDS_MAX) for process in running]
    assert [errors for _, errors in told] == [""] * WRITERS
    fields = nodes.show("a")[document]["fields"]
    assert fields == {"name": "a", **{f"f{number}": number for number in range(WRITERS)}}


def test_what_another_process_writes_reaches_peers_that_are_live(nodes: Nodes) -> None:
    document = nodes.write("a", "create", "name=a")
    server = nodes.start("a", "serve", "--port", "0")
    port = until(server, "listening")["port"]
    staying = nodes.start("c", "sync", "--from", f"127.0.0.1:{port}", "--live")
    until(staying, "live")
    written = nodes.write("a", "update", document, "age=1")
    until(staying, "stored", operation=written)
    written = nodes.write("c", "update", document, "age=2")
    until(server, "stored", operation=written)
    for process in (staying, server):
        process.send_signal(signal.SIGTERM)
        finish(process)
    assert Path(nodes.folder / "a").exists()
    assert nodes.show("a") == nodes.show("c")

"""Three p2panda nodes in processes: they hold diverging documents, and converge over TCP."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from culm_io.command import command_of
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.p2panda import command as p2panda_node
from culm_io.programs.p2panda import dial as p2panda_dial
from culm_io.programs.p2panda import links as p2panda_links
from culm_io.programs.p2panda.dial import Door
from culm_io.stores.p2panda import OperationSqliteStore

SECONDS_MAX = 120


class Nodes:
    """Nodes with their stores in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def start(self, name: str, command: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command_of("p2panda", command, "--store", self.folder / name, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def sync(self, name: str, *arguments: str) -> None:
        finish(self.start(name, "sync", *arguments))

    def write(self, name: str, command: str, *arguments: str) -> str:
        """Write to a store from here; the resulting id."""
        told: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(p2panda_node, "tell", lambda event, **of: told.extend(of.values()))
            assert self.here(name, command, *arguments) == 0
        return told[-1]

    def here(self, name: str, command: str, *arguments: str) -> int:
        """Run a command in this process; its status."""
        return p2panda_node.main([command, "--store", str(self.folder / name), *arguments])

    def show(self, name: str) -> dict[str, Any]:
        with OperationSqliteStore(self.folder / name) as store:
            return p2panda_node.documents(store, p2panda_node.SCHEMA)


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for the end of a node, which must end well."""
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (0, "")


def until(process: subprocess.Popen[str], event: str, **of: str | None) -> Any:
    """Read a node's lines up to that event."""
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["event"] == event and of.items() <= told.items():
            return told
    raise AssertionError(f"never told: {event} {of}; {process.communicate()}")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def test_three_nodes_converge_and_one_stays_live(nodes: Nodes) -> None:
    documents = [nodes.write(name, "create", f"name={name}") for name in "abc"]
    server = nodes.start("a", "serve", "--port", "0")
    here = ("--from", f"127.0.0.1:{until(server, 'listening')['port']}")
    nodes.sync("b", *here)
    until(server, "session ended", error=None)  # so everything received is in the store
    staying = nodes.start("c", "sync", *here, "--live")
    until(server, "live")
    assert nodes.show("b").keys() == set(documents[:2])
    operation = nodes.write("b", "update", documents[0], "age=7")
    nodes.sync("b", *here)
    until(staying, "stored", operation=operation)  # by way of the server
    for process in (staying, server):
        process.send_signal(signal.SIGTERM)
        finish(process)
    shown = nodes.show("c")
    assert nodes.show("a") == nodes.show("b") == shown
    assert sorted(shown) == sorted(documents)
    assert shown[documents[0]]["fields"] == {"age": 7, "name": "a"}


def test_a_node_that_serves_goes_again_to_one_that_it_has_lost(nodes: Nodes) -> None:
    nodes.write("a", "create", "name=a")
    first = nodes.start("a", "serve", "--port", "0")
    port = str(until(first, "listening")["port"])
    staying = nodes.start("b", "serve", "--port", "0", "--from", f"127.0.0.1:{port}")
    until(staying, "live")
    first.send_signal(signal.SIGTERM)
    finish(first)
    until(staying, "closed")
    until(staying, "unreachable")
    again = nodes.start("a", "serve", "--port", port)
    until(staying, "live")
    operation = nodes.write("a", "create", "name=b")
    until(staying, "stored", operation=operation)
    again.send_signal(signal.SIGTERM)
    finish(again)


def reset(port: int) -> None:
    """Connect, and leave before the node has seen the peer."""
    with socket.create_connection(("127.0.0.1", port)) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_peers_that_are_gone_at_once_and_peers_without_end_shut_nobody_out(nodes: Nodes) -> None:
    nodes.write("a", "create", "name=a")
    server = nodes.start("a", "serve", "--port", "0")
    port = until(server, "listening")["port"]
    server.send_signal(signal.SIGSTOP)  # so that it finds the peer already gone
    for _ in range(3):
        reset(port)
    server.send_signal(signal.SIGCONT)
    until(server, "closed")
    with ExitStack() as crowd:
        for _ in range(p2panda_links.PEERS_MAX):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
        nodes.sync("b", "--from", f"127.0.0.1:{port}")
        assert nodes.show("b") == nodes.show("a")


def test_a_peer_that_says_nothing_is_left(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def dial(host: str, port: int, *, until: float) -> Door:
        return await p2panda_dial.dial(host, port, until=until + SECONDS_MAX)

    monkeypatch.setattr(p2panda_links, "dial", dial)  # so that only the peer takes too long
    with socket.create_server(("127.0.0.1", 0)) as silent:
        here = f"127.0.0.1:{silent.getsockname()[1]}"
        assert nodes.here("a", "sync", "--from", here, "--patience", "0.001") == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["unanswered", "closed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "name"), "not name=value: name"),
        (("update", "00", "age=1"), "no document 00"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    nodes: Nodes, arguments: tuple[str, ...], words: str
) -> None:
    nodes.write("a", "create", "name=a")
    command, *others = arguments
    with pytest.raises(ImpossibleError) as refused:
        nodes.here("a", command, *others)
    assert str(refused.value) == words


def test_a_store_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.store").write_text("no store " * 1000)
    with pytest.raises(ImpossibleError, match=r"a\.store: file is not a database"):
        p2panda_node.main(["show", "--store", str(tmp_path / "a.store")])

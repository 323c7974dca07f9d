"""The replicated key-value store: processes, sockets, files, and kill -9."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pictures import words_of

from raft_display import changes, table_of_servers
from tables import render

PROGRAM = Path(__file__).parents[2] / "examples" / "raft_cluster.py"
PATIENCE_S = 60.0


class Farm:
    """Runs the program's commands on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, *arguments: str) -> None:
        command = [sys.executable, str(PROGRAM), arguments[0], "--dir", str(self.folder)]
        self.processes.append(
            subprocess.Popen([*command, *arguments[1:]], stdout=subprocess.DEVNULL)
        )

    def ask(self, *arguments: str) -> list[dict[str, Any]]:
        command = [sys.executable, str(PROGRAM), arguments[0], "--dir", str(self.folder), "--json"]
        done = subprocess.run(
            [*command, *arguments[1:]], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def words(self, *arguments: str) -> str:
        """What a command says to people."""
        command = [sys.executable, str(PROGRAM), arguments[0], "--dir", str(self.folder)]
        return subprocess.check_output([*command, *arguments[1:]], text=True, timeout=PATIENCE_S)

    def until(self, good: Callable[[list[dict[str, Any]]], bool], *arguments: str) -> None:
        """Ask again until the answer is good."""
        limit = time.monotonic() + PATIENCE_S
        while not good(answer := self.ask(*arguments)):
            assert time.monotonic() < limit, answer
            time.sleep(0.1)

    def put(self, key: str, value: str) -> None:
        self.until(lambda answers: answers[0].get("ok") is True, "put", key, value)

    def leader(self) -> int:
        found: list[int] = []

        def led(answers: list[dict[str, Any]]) -> bool:
            found[:] = [answer["id"] for answer in answers if answer["role"] == "leader"]
            return bool(found)

        self.until(led, "status")
        return found[0]


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    made = Farm(tmp_path / "farm")
    yield made
    for process in reversed(made.processes):
        process.terminate()
        process.wait()


def wait_for_folder(farm: Farm) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not (farm.folder / "cluster.json").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    farm.leader()


def test_nodes_are_killed_and_restarted_and_nothing_is_lost(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.put("before", "1")
    first = farm.leader()
    farm.ask("kill", str(first))
    farm.put("between", "2")
    assert farm.leader() != first
    farm.spawn("run", str(first))
    farm.until(
        lambda answers: answers[0].get("ok") is True, "put", "after", "3", "--at", str(first)
    )
    wanted = {"before": "1", "between": "2", "after": "3"}
    for key, value in wanted.items():
        farm.until(lambda answers, value=value: answers[0].get("value") == value, "get", key)
    farm.until(lambda answers: [answer.get("keys") for answer in answers] == [3, 3, 3], "status")
    assert "leads" in farm.words("status")
    assert farm.words("get", "before") == "1\n"
    for server in ("1", "2", "3"):
        assert farm.words("get", "before", "--at", server) == "1\n"
    assert farm.words("get", "nothing") == "nothing is not there\n"


@pytest.mark.slow
def test_servers_are_added_and_removed_and_leadership_is_handed_over(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3", "--tls")
    wait_for_folder(farm)
    farm.put("colour", "green")
    farm.spawn("run", "4")
    farm.until(lambda answers: len(answers) == 4, "status")
    farm.until(lambda answers: answers[0].get("ok") is True, "add", "4")
    farm.until(lambda answers: answers[3].get("keys") == 1, "status")
    farm.until(lambda answers: answers[0].get("ok") is True, "transfer", "4")
    assert farm.leader() == 4
    gone = "1"
    farm.until(lambda answers: answers[0].get("ok") is True, "remove", gone)
    farm.until(lambda answers: answers[3].get("servers") == [2, 3, 4], "status")
    farm.until(lambda answers: answers[0].get("value") == "green", "get", "colour")


@pytest.mark.slow
def test_a_learner_answers_never_counts_and_becomes_a_voter(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "2")
    wait_for_folder(farm)
    farm.put("colour", "green")
    farm.spawn("run", "3")
    farm.until(lambda answers: len(answers) == 3, "status")
    farm.until(lambda answers: answers[0].get("ok") is True, "add", "3", "--learner")
    farm.until(lambda answers: [one.get("keys") for one in answers] == [1, 1, 1], "status")
    farm.until(lambda answers: [one.get("learners") for one in answers] == [[3]] * 3, "status")
    assert " learner " in farm.words("status")
    farm.until(lambda answers: answers[0].get("value") == "green", "get", "colour", "--at", "3")
    farm.until(lambda answers: answers[0].get("ok") is True, "put", "colour", "red", "--at", "3")
    # One voter of two and a learner are no majority; one of two and a third that votes are.
    follower = 3 - farm.leader()
    farm.ask("kill", str(follower))
    farm.until(lambda answers: all(one["role"] != "leader" for one in answers), "status")
    farm.spawn("run", str(follower))
    farm.leader()
    farm.until(lambda answers: answers[0].get("ok") is True, "add", "3")
    farm.until(lambda answers: [one.get("learners") for one in answers] == [[]] * 3, "status")
    assert " learner " not in farm.words("status")
    farm.ask("kill", str(farm.leader()))
    farm.put("colour", "blue")
    farm.until(lambda answers: answers[0].get("value") == "blue", "get", "colour")


@pytest.mark.slow
def test_nodes_end_with_the_program_that_started_them(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.processes[0].terminate()
    farm.processes[0].wait(timeout=PATIENCE_S)
    assert {answer["role"] for answer in farm.ask("status")} == {"down"}


@pytest.mark.slow
def test_a_node_with_silent_clients_ends_without_a_word(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.ask("kill", "1")
    node = subprocess.Popen(
        [sys.executable, str(PROGRAM), "run", "--dir", str(farm.folder), "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    farm.until(lambda answers: answers[0].get("role") != "down", "status")
    port = json.loads((farm.folder / "cluster.json").read_text())["nodes"]["1"]["control"]
    with contextlib.ExitStack() as clients:
        for _ in range(3):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b'{"do": "nothing"}\n')  # its answer: it has been accepted
            assert client.recv(1024)
        node.terminate()
        _, words = node.communicate(timeout=PATIENCE_S)
    assert words == b""


def peer(number: int, doing: str = "replicate", lacks: int = 0, sent: int = 0) -> dict[str, Any]:
    return {"id": number, "doing": doing, "lacks": lacks, "silent_s": 0.1, "snapshot_bytes": sent}


def server(
    number: int, role: str, term: int = 2, servers: tuple[int, ...] = (1, 2, 3), **more: Any
):  # type: ignore[no-untyped-def]
    """What a node says of itself."""
    if role == "down":
        return {"id": number, "role": role}
    said = {"commit_index": 1204, "applied_index": 1204, "keys": 7, "peers": []}
    return {"id": number, "role": role, "term": term, "servers": list(servers), **said, **more}


BEFORE = [server(1, "leader"), server(2, "follower"), server(3, "follower")]
NOW = [
    server(1, "down"),
    server(
        2,
        "leader",
        term=3,
        servers=(1, 2, 3, 4),
        peers=[peer(1, "probe", 12), peer(3), peer(4, "snapshot", 1204, 196_608)],
    ),
    server(3, "follower", term=3),
    server(4, "follower", term=3, commit_index=0, applied_index=0, keys=0),
]


def test_what_changes_is_told_in_words() -> None:
    assert list(changes([], BEFORE)) == [
        "server 1 is there",
        "server 2 is there",
        "server 3 is there",
        "server 1 leads term 2",
        "members: 1, 2, 3",
    ]
    assert list(changes(BEFORE, BEFORE)) == []
    assert list(changes(BEFORE, NOW)) == [
        "server 1 is down",
        "server 4 is there",
        "server 2 leads term 3",
        "server 4 has become a member",
    ]
    alone = [*NOW[:1], server(2, "candidate"), *NOW[2:]]
    assert list(changes(NOW, alone)) == ["nobody leads"]
    less = [NOW[1] | {"servers": [2, 3]}]
    assert list(changes(NOW[1:2], less)) == [
        "server 1 is no longer a member",
        "server 4 is no longer a member",
    ]


def test_the_table_in_the_pages_picture_is_a_real_one() -> None:
    same = {"commit_index": 24, "applied_index": 24, "keys": 20}
    peers = [peer(1, "probe", 24) | {"silent_s": 3.2}, peer(3), peer(4) | {"silent_s": 0.0}]
    leader = server(2, "leader", servers=(1, 2, 3, 4), **same, peers=peers)
    now = [server(1, "down"), leader, *(server(each, "follower", **same) for each in (3, 4))]
    before = [server(each, "follower") for each in (1, 2, 3)]
    elected = [server(1, "down"), server(2, "leader"), server(3, "follower")]
    shown = words_of("garlic.md", "program-raft")
    title, *rows = table_of_servers(now).plain().splitlines()
    assert title in shown
    assert " ".join(" ".join(rows).split()) in shown
    told = [*changes(before, elected), *changes(elected, now)]
    assert told[-1] == "server 4 has become a member"
    assert [each for each in told if each not in shown] == []


def test_a_terminal_has_colours_and_a_pipe_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = table_of_servers(NOW)
    screen = StringIO()
    assert render(table, screen) == table.plain()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    assert "\x1b[32mleader" in render(table, screen)


@pytest.mark.slow
def test_one_server_of_a_lost_majority_goes_on_alone(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.put("colour", "green")
    farm.until(lambda answers: [answer.get("keys") for answer in answers] == [1, 1, 1], "status")
    assert farm.ask("recover", "1") == []  # it runs: stop it first
    for number in (1, 2, 3):
        farm.ask("kill", str(number))
    for number in (2, 3):
        for path in farm.folder.glob(f"node-{number}.sqlite*"):
            path.unlink()
    (recovered,) = farm.ask("recover", "1")
    assert recovered["recovered"] == 1
    assert farm.ask("recover", "1") == [recovered]  # done again it changes nothing
    farm.spawn("run", "1")
    farm.until(lambda answers: answers[0].get("role") == "leader", "status")
    assert farm.ask("status")[0]["servers"] == [1]
    farm.until(lambda answers: answers[0].get("value") == "green", "get", "colour")
    farm.put("size", "5")

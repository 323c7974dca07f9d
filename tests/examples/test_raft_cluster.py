"""The replicated key-value store: processes, sockets, files, and kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pictures import words_of

from culm.exits import ExitStatus
from culm.garlic.raft import Server
from culm.garlic.sessions import Sessions
from culm_io.command import command_of
from culm_io.programs import ports
from culm_io.programs.captures import Captures
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.numbers import Metrics
from culm_io.programs.ports import free_ports
from culm_io.programs.raft import server as raft_server
from culm_io.programs.raft.client import Client, Cluster
from culm_io.programs.raft.command import parser
from culm_io.programs.raft.display import changes, table_of_servers
from culm_io.programs.raft.farm import CERTIFICATE, check_certificate
from culm_io.programs.raft.farm import Farm as RaftFarm
from culm_io.programs.raft.server import KeyValues
from culm_io.programs.tables import render
from culm_io.programs.visitors import CLIENTS_MAX
from culm_io.stores.raft import RaftSqliteStore

PATIENCE_S = 60.0


class Farm:
    """Runs the program's commands on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def command(self, verb: str, *arguments: str) -> list[str]:
        return command_of("raft", verb, "--dir", self.folder, *arguments)

    def spawn(self, *arguments: str, output: Any = subprocess.DEVNULL) -> None:
        self.processes.append(subprocess.Popen(self.command(*arguments), stdout=output))

    def ask(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(*arguments, "--json")
        assert "Traceback" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def words(self, *arguments: str) -> str:
        """A command's output for people; the command must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done
        return done.stdout

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
    missing = farm.run("get", "nothing")
    assert (missing.returncode, missing.stdout) == (ExitStatus.ABSENT, "")
    assert missing.stderr == "nothing is not there\n"
    assert farm.ask("get", "nothing") == [{"ok": True, "value": None}]


def test_servers_that_are_added_at_once_all_have_their_places(tmp_path: Path) -> None:
    made = RaftFarm.found(tmp_path, 1, tls=False)
    many = [RaftFarm(tmp_path) for _ in range(5)]  # each has read the file without the others
    for number, farm in enumerate(many, 2):
        farm.add(number)
    many[0].is_alone(2)
    found = RaftFarm(tmp_path)
    assert sorted(found.control_ports()) == [1, 2, 3, 4, 5, 6]
    assert found.data["founders"] == [2]
    assert found.data["password"] == made.data["password"]
    ports = [port for node in found.data["nodes"].values() for port in node.values()]
    assert len(set(ports)) == len(ports)
    # And in separate processes
    code = "import sys; from pathlib import Path; from culm_io.programs.raft.farm import Farm\n"
    code += "for number in range(int(sys.argv[2]), 60, 3): Farm(Path(sys.argv[1])).add(number)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [
        subprocess.Popen([*command, str(first)], stderr=subprocess.PIPE) for first in (10, 11, 12)
    ]
    assert [process.communicate()[1] for process in running] == [b""] * 3
    assert len(RaftFarm(tmp_path).control_ports()) == 6 + 50


@pytest.mark.costly
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "stuck"])
def test_servers_go_on_when_nobody_reads_what_they_write(gone: bool, farm: Farm) -> None:
    """As in `start | head -1`, and in a pager that stands still."""
    process = subprocess.Popen(farm.command("start", "--nodes", "1"), stdout=subprocess.PIPE)
    farm.processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    if gone:
        process.stdout.close()
    farm.leader()
    for number in range(3):
        farm.put("large", f"{number}" * 40_000)
    assert farm.words("get", "large") == "2" * 40_000 + "\n"
    process.terminate()
    process.wait(PATIENCE_S)
    process.stdout.close()


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


def stop(farm: Farm) -> None:
    for process in farm.processes:
        process.terminate()
        process.wait(PATIENCE_S)
    farm.processes.clear()


def test_a_server_that_was_removed_is_not_started_until_it_is_added_again(farm: Farm) -> None:
    def ids_are(*wanted: int) -> Callable[[list[dict[str, Any]]], bool]:
        return lambda answers: [one["id"] for one in answers] == list(wanted)

    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.put("colour", "green")
    gone = next(number for number in (3, 2, 1) if number != farm.leader())
    rest = tuple(number for number in (1, 2, 3) if number != gone)
    for _ in range(2):  # a client without an answer asks again
        assert farm.ask("remove", str(gone)) == [{"ok": True}]
    assert farm.ask("status")[gone - 1]["role"] != "down"  # it runs on, ...
    farm.ask("kill", str(gone))
    farm.until(ids_are(*rest), "status")
    stop(farm)
    farm.spawn("start")  # ... and is not started
    farm.until(lambda answers: answers[0].get("value") == "green", "get", "colour")
    farm.until(ids_are(*rest), "status")
    place = RaftFarm(farm.folder).control_ports()[gone]
    farm.spawn("run", str(gone))  # with the store that it had, where it was
    farm.until(ids_are(1, 2, 3), "status")
    farm.until(lambda answers: answers == [{"ok": True}], "add", str(gone))
    assert RaftFarm(farm.folder).members()[gone] == place
    stop(farm)
    farm.spawn("start")
    farm.until(lambda answers: [one.get("keys") for one in answers] == [1, 1, 1], "status")


def test_the_others_are_not_started_beside_one_that_was_recovered(tmp_path: Path) -> None:
    """They would form a second cluster."""
    farm = RaftFarm.found(tmp_path, 3, tls=False)
    assert list(farm.members()) == [1, 2, 3]
    farm.is_member(2, member=False)
    farm.is_alone(2)
    assert list(RaftFarm(tmp_path).members()) == [2]
    data = json.loads((tmp_path / "cluster.json").read_text())
    del data["removed"]  # as by an earlier version
    (tmp_path / "cluster.json").write_text(json.dumps(data))
    assert list(RaftFarm(tmp_path).members()) == [1, 2, 3]


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
    # One voter of two and a learner are no majority; one of two and a third voter are.
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
def test_a_cluster_that_has_died_has_not_ended_well(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "2")
    wait_for_folder(farm)
    for number in "12":
        farm.ask("kill", number)
    assert farm.processes[0].wait(PATIENCE_S) == ExitStatus.FAILED
    assert farm.run("get", "a").stdout == "NOBODY_ANSWERS: no server runs\n"


def test_who_has_another_password_is_named_once(farm: Farm, tmp_path: Path) -> None:
    made = RaftFarm.found(farm.folder, 2, tls=False)
    assert (farm.folder / "cluster.json").stat().st_mode & 0o077 == 0  # the password is in it
    with (tmp_path / "told").open("w") as told:
        farm.processes.append(subprocess.Popen(farm.command("run", "1"), stderr=told))
        farm.until(lambda answers: answers[0]["role"] != "down", "status")
        text = (farm.folder / "cluster.json").read_text()
        (farm.folder / "cluster.json").write_text(text.replace(made.data["password"], "another"))
        farm.spawn("run", "2")
        farm.until(lambda answers: answers[1]["role"] != "down", "status")
        time.sleep(3.0)  # it is dialled several times
    said = (tmp_path / "told").read_text()
    assert said == f"server 2 has another password: see {farm.folder}\n"


def test_a_certificate_holds_for_years_and_one_that_has_ended_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, year = tmp_path / CERTIFICATE, 365 * 86400
    RaftFarm.found(tmp_path, 1, tls=True)
    context = ssl.create_default_context(cafile=str(certificate))
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 9 * year)
    check_certificate(tmp_path, context)
    monkeypatch.setattr("time.time", lambda: now + 11 * year)
    with pytest.raises(ImpossibleError, match="has ended"):
        check_certificate(tmp_path, context)
    certificate.unlink()
    RaftFarm.found(tmp_path, 1, tls=True)
    assert certificate.exists()


@pytest.mark.parametrize("verb", ["get", "kill", "put", "status", "transfer", "watch"])
def test_who_only_asks_needs_no_folder_to_write_to(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    more = {"get": ["a"], "put": ["a", "b"], "status": [], "watch": []}.get(verb, ["1"])
    assert parser().parse_args([verb, "--dir", str(tmp_path), *more]).dir == tmp_path
    with pytest.raises(SystemExit):
        parser().parse_args(["run", "--dir", str(tmp_path), "1"])


def test_a_node_with_silent_clients_ends_without_a_word(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    farm.ask("kill", "1")
    node = subprocess.Popen(
        farm.command("run", "1"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    farm.until(lambda answers: answers[0].get("role") != "down", "status")
    port = json.loads((farm.folder / "cluster.json").read_text())["nodes"]["1"]["control"]
    with contextlib.ExitStack() as clients:
        for _ in range(3):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b'{"do": "nothing"}\n')  # its answer shows that it has been accepted
            assert client.recv(1024)
        node.terminate()
        _, words = node.communicate(timeout=PATIENCE_S)
    assert words == b""


def test_silent_clients_of_a_control_port_make_way(farm: Farm) -> None:
    farm.spawn("start", "--nodes", "1")
    wait_for_folder(farm)
    port = RaftFarm(farm.folder).control_ports()[1]
    with contextlib.ExitStack() as clients:
        silent = [
            clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(CLIENTS_MAX)
        ]
        for number in range(3):
            assert farm.ask("put", f"key {number}", "value")[0]["ok"]
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b'{"do": "nothing"}\n')
        assert b"UNKNOWN_COMMAND" in silent[-1].recv(1024)  # the others keep their places


def peer(number: int, doing: str = "replicate", lacks: int = 0, sent: int = 0) -> dict[str, Any]:
    return {"id": number, "doing": doing, "lacks": lacks, "silent_s": 0.1, "snapshot_bytes": sent}


def server(
    number: int, role: str, term: int = 2, servers: tuple[int, ...] = (1, 2, 3), **more: Any
):  # type: ignore[no-untyped-def]
    """A node's description of itself."""
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
    shown = words_of("garlic.md", "program-raft")
    row = r"(\d) (down|follower|leader) yes \S+ (\S+) \S+ (\S+)(?: (probe|replicate) (\d+) (\S+))?"
    roles, peers, same = {}, [], {}
    for number, role, committed, keys, *served in re.findall(row, shown):
        roles[int(number)] = role
        if role == "leader":
            index = int(committed)
            same = {"commit_index": index, "applied_index": index, "keys": int(keys)}
        else:
            doing, lacks, silent = served
            peers.append(peer(int(number), doing, int(lacks)) | {"silent_s": float(silent)})
    assert sorted(roles.values()) == ["down", "follower", "follower", "leader"]
    now = [server(each, role, servers=(1, 2, 3, 4), **same) for each, role in roles.items()]
    for each in now:
        if each["role"] == "leader":
            each["peers"] = peers
    before = [server(each, "follower") for each in (1, 2, 3)]
    elected = [server(each, role) for each, role in roles.items() if each != 4]
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
    assert farm.ask("recover", "1") == [recovered]  # a second run changes nothing
    farm.spawn("run", "1")
    farm.until(lambda answers: answers[0].get("role") == "leader", "status")
    assert farm.ask("status")[0]["servers"] == [1]
    farm.until(lambda answers: answers[0].get("value") == "green", "get", "colour")
    farm.put("size", "5")


# Commands are applied once, whatever happens to servers.


@pytest.mark.slow
def test_each_put_is_applied_once_or_reported_while_leaders_are_killed(
    farm: Farm, tmp_path: Path
) -> None:
    """Servers report each value with its index: a value has one index, or was reported as lost."""
    farm.spawn("start", "--nodes", "3")
    wait_for_folder(farm)
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(open(tmp_path / f"{n}.out", "ab")) for n in range(3)]
        for number in (1, 2, 3):  # again, to have their output
            farm.ask("kill", str(number))
            farm.spawn("run", str(number), output=outputs[number - 1])
        farm.leader()
        puts: dict[str, subprocess.Popen[bytes]] = {}
        for wave in range(3):
            for each in range(4):
                key = f"{wave}-{each}"
                puts[key] = subprocess.Popen(
                    farm.command("put", key, "value", "--json"), stdout=subprocess.DEVNULL
                )
            time.sleep(0.3)
            leader = farm.leader()
            farm.ask("kill", str(leader))
            farm.spawn("run", str(leader), output=outputs[leader - 1])
        statuses = {key: put.wait(timeout=PATIENCE_S) for key, put in puts.items()}
        farm.put("last", "value")
    applied: dict[str, set[int]] = {key: set() for key in puts}
    for path in tmp_path.glob("*.out"):
        for line in path.read_text().splitlines():
            said = json.loads(line)
            if said.get("key") in applied:
                applied[said["key"]].add(said["index"])
    most = {0: 1, 1: 0, 4: 1}
    assert {key: len(applied[key]) for key in puts if len(applied[key]) > most[statuses[key]]} == {}
    assert all(len(applied[key]) == 1 for key in puts if statuses[key] == 0)
    assert 0 in statuses.values()


async def ask(port: int, question: dict[str, Any]) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps(question).encode() + b"\n")
    answer: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    return answer


def test_who_loses_patience_with_a_store_that_stalls_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions are given up while `Apply` does not return; the server answers later ones."""
    stalls, stalled, proceed = threading.Event(), threading.Event(), threading.Event()
    apply = raft_server.KeyValues.apply

    def stall(self: raft_server.KeyValues, index: int, value: bytes) -> None:
        if stalls.is_set():
            stalled.set()
            assert proceed.wait(PATIENCE_S)
        apply(self, index, value)

    monkeypatch.setattr(raft_server.KeyValues, "apply", stall)

    async def main() -> None:
        farm = RaftFarm.found(tmp_path / "farm", 1, tls=False)
        port = farm.control_ports()[1]
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(farm.claimed(1))
            service = raft_server.Service(
                farm, 1, path, echo=False, captures=Captures(), metrics=Metrics()
            )
            serving = asyncio.create_task(service.serve())
            async with asyncio.timeout(PATIENCE_S):
                while service.node.leader is None:
                    await asyncio.sleep(0.01)
            cluster = Cluster(farm.control_ports())
            await Client(cluster.propose).do(b'{"key": "a", "value": "b"}')
            stack.callback(proceed.set)
            stalls.set()
            monkeypatch.setattr(raft_server, "ANSWER_TIMEOUT_S", 0.1)
            plain = {"do": "propose", "value": "00" + b'{"key": "a", "value": "c"}'.hex()}
            for question in (plain, {"do": "get", "key": "a"}):
                answer = await ask(port, question)
                assert (answer.get("error"), answer.get("certain")) == ("TIMEOUT", None), question
                assert await asyncio.to_thread(stalled.wait, PATIENCE_S)
            proceed.set()
            monkeypatch.setattr(raft_server, "ANSWER_TIMEOUT_S", PATIENCE_S)
            assert await ask(port, {"do": "get", "key": "a"}) == {"ok": True, "value": "c"}
            assert not serving.done()
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    asyncio.run(main())


@contextlib.asynccontextmanager
async def served(farm: RaftFarm, number: int = 1) -> AsyncIterator[raft_server.Service]:
    """A server in this process; with a cluster of one, once it leads."""
    with farm.claimed(number) as path:
        service = raft_server.Service(
            farm, number, path, echo=False, captures=Captures(), metrics=Metrics()
        )
        serving = asyncio.create_task(service.serve())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(farm.data["founders"]) == 1 and service.node.leader is None:
                    await asyncio.sleep(0.01)
            yield service
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


def test_an_older_store_of_one_server_is_refused(tmp_path: Path) -> None:
    """At every attempt; the newest one is accepted again, and so is a whole folder."""
    folder, old, newest = tmp_path / "farm", tmp_path / "old", tmp_path / "newest"
    farm = RaftFarm.found(folder, 1, tls=False)
    store = folder / "node-1.sqlite"

    async def put(key: str) -> None:
        async with served(farm):
            await Client(Cluster(farm.control_ports()).propose).do(
                json.dumps({"key": key, "value": "1"}).encode()
            )

    asyncio.run(put("a"))
    shutil.copytree(folder, old)
    asyncio.run(put("b"))
    shutil.copytree(folder, newest)
    shutil.copy(old / store.name, store)
    for _ in range(3):
        with pytest.raises(ImpossibleError, match="older than it was"):
            asyncio.run(put("c"))
    shutil.copy(newest / store.name, store)
    asyncio.run(put("c"))
    shutil.rmtree(folder)
    shutil.copytree(old, folder)
    asyncio.run(put("d"))


@pytest.mark.slow
def test_an_older_store_may_be_recovered(farm: Farm) -> None:
    """Nothing else is left: then it goes on alone, and is no longer refused."""
    cluster = RaftFarm.found(farm.folder, 1, tls=False)

    async def serve() -> None:
        async with served(cluster):
            pass

    asyncio.run(serve())
    store = farm.folder / "node-1.sqlite"
    old = store.read_bytes()
    asyncio.run(serve())
    store.write_bytes(old)
    with pytest.raises(ImpossibleError, match="older than it was"):
        asyncio.run(serve())
    assert farm.ask("recover", "1")[0]["recovered"] == 1
    asyncio.run(serve())


def test_who_asks_again_for_the_change_that_is_under_way_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_server, "ANSWER_TIMEOUT_S", 0.1)

    async def main() -> None:
        farm = RaftFarm.found(tmp_path / "farm", 1, tls=False)
        farm.add(2)
        farm.add(3)
        port = farm.control_ports()[1]
        async with served(farm) as service:
            await Client(Cluster(farm.control_ports()).propose).do(b"1")
            for _ in range(2):
                answer = await ask(port, {"do": "add", "id": 2})
                assert (answer.get("error"), answer.get("certain")) == ("TIMEOUT", None)
            other = await ask(port, {"do": "add", "id": 3})
            assert (other["error"], other["certain"]) == ("CHANGE_IN_PROGRESS", True)
            monkeypatch.setattr(raft_server, "ANSWER_TIMEOUT_S", PATIENCE_S)
            begun, add_server = asyncio.Event(), service.node.add_server

            def begin(server: Server) -> None:
                begun.set()
                add_server(server)

            monkeypatch.setattr(service.node, "add_server", begin)
            waiting = asyncio.create_task(ask(port, {"do": "add", "id": 2}))
            await begun.wait()
            service.node.cancel_change()
            assert await waiting == {"ok": False}
            voter = await ask(port, {"do": "add", "id": 1, "learner": True})
            assert (voter["error"], voter["certain"]) == ("ALREADY_MEMBER", True)
            assert await ask(port, {"do": "transfer", "id": 1}) == {"ok": True}

    asyncio.run(main())


def test_a_transfer_to_a_leader_that_is_gone_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its followers take it for the leader until an election timeout has passed."""
    never = {"election_timeout_min_s": 2 * PATIENCE_S, "election_timeout_max_s": 4 * PATIENCE_S}

    async def main() -> None:
        farm = RaftFarm.found(tmp_path / "farm", 2, tls=False)
        usual = raft_server.TIMING
        slow = replace(usual, raft=replace(usual.raft, **never))
        monkeypatch.setattr(raft_server, "TIMING", slow)
        async with served(farm, 1) as follower:
            monkeypatch.setattr(raft_server, "TIMING", usual)
            async with served(farm, 2), asyncio.timeout(PATIENCE_S):
                while follower.node.leader != 2:
                    await asyncio.sleep(0.01)
            answer = await ask(farm.control_ports()[1], {"do": "transfer", "id": 2})
            assert answer == {"error": "NOT_LEADER", "leader": 2, "certain": True}

    asyncio.run(main())


NO_QUESTIONS = [
    b"nonsense",
    b"[]",
    b"{}",
    b'{"do": "propose", "value": "xyz"}',
    b'{"do": "get", "key": []}',
    b'{"do": "add", "id": 9}',
    b'{"do": "add", "id": true}',
    b'{"do": "remove", "id": true}',
    b'{"do": "remove", "id": -1}',
    b'{"do": "transfer", "id": 4294967296}',
    b"[" * 100_000,
    b"9" * (1 << 21),
]


def test_what_is_no_question_is_answered(tmp_path: Path) -> None:
    """And certainly nothing has been proposed."""

    async def main() -> None:
        farm = RaftFarm.found(tmp_path / "farm", 1, tls=False)
        with farm.claimed(1) as path:
            service = raft_server.Service(
                farm, 1, path, echo=False, captures=Captures(), metrics=Metrics()
            )
            serving = asyncio.create_task(service.serve())
            for line in NO_QUESTIONS:
                answer: dict[str, Any] = {}
                while "error" not in answer:
                    with contextlib.suppress(ConnectionError):
                        reader, writer = await asyncio.open_connection(
                            "127.0.0.1", farm.control_ports()[1]
                        )
                        writer.write(line + b"\n")
                        answer = json.loads(await reader.readline() or b"{}")
                        writer.close()
                assert answer["certain"], line[:40]
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    asyncio.run(main())


# The folder comes back from a backup: older than the servers' memory, or incomplete.


def lose_store(folder: Path) -> None:
    for path in folder.glob("node-1.sqlite*"):
        path.unlink()


def lose_cluster_file(folder: Path) -> None:
    (folder / "cluster.json").unlink()


def older_cluster_file(folder: Path) -> None:
    """From before the server had its place, which it has since got anew."""
    path = folder / "cluster.json"
    data = json.loads(path.read_text())
    data["nodes"]["1"] = {"raft": 1, "control": 2}
    path.write_text(json.dumps(data))


def other_store(folder: Path) -> None:
    lose_store(folder)
    (folder / "node-1.sqlite").write_text("no store " * 1000)


BACKUPS = {
    "the store is lost": (lose_store, "run", "is lost"),
    "the store is lost, and it is to go on alone": (lose_store, "recover", "is lost"),
    "the store is no store": (other_store, "run", "file is not a database"),
    "the cluster's file is lost": (lose_cluster_file, "start", "no cluster.json"),
    "the cluster's file is older": (older_cluster_file, "run", "older backup"),
}


@pytest.mark.parametrize("case", BACKUPS)
def test_what_a_server_must_not_start_from_is_refused(case: str, tmp_path: Path) -> None:
    harm, verb, words = BACKUPS[case]
    farm = Farm(tmp_path / "farm")
    found = RaftFarm.found(farm.folder, 2, tls=False)
    with found.claimed(1) as path:
        RaftSqliteStore(path, Sessions(KeyValues()), found.founding(1)).close()
        with contextlib.closing(found.note_store(1, path)) as mark:
            mark.note(1)
    harm(farm.folder)
    refused = farm.run(verb, *(["1"] if verb != "start" else []))
    assert (refused.returncode, refused.stdout) == (2, "")
    (sentence,) = refused.stderr.splitlines()
    assert words in sentence


def test_a_server_that_was_killed_before_it_had_a_store_starts(tmp_path: Path) -> None:
    """Between any two writes: the folder, the store, the mark of the store."""
    found = RaftFarm.found(tmp_path / "farm", 1, tls=False)
    for _ in range(2):
        with found.claimed(1) as path:
            RaftSqliteStore(path, Sessions(KeyValues()), found.founding(1)).close()
    with found.claimed(1) as path:
        assert path.exists()


def test_no_two_servers_have_a_port_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even at a free port, because its server does not run."""
    four = free_ports(4)
    monkeypatch.setattr(ports, "_PORTS", four)
    found = RaftFarm.found(tmp_path / "farm", 1, tls=False)
    found.add(2)
    found_ports = [port for node in found.data["nodes"].values() for port in node.values()]
    assert sorted(found_ports) == sorted(four)


def test_one_server_does_not_run_twice(tmp_path: Path) -> None:
    found = RaftFarm.found(tmp_path / "farm", 1, tls=False)
    with found.claimed(1):
        refused = Farm(found.folder).run("run", "1")
    assert (refused.returncode, refused.stderr) == (2, "server 1 runs already\n")

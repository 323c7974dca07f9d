"""Programs that record themselves and are killed: their recordings are replayed bit for bit."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import fetch, finish, run, start, start_fetch, stored_size, wait_until
from trees import make_tree

from culm.capture import Capture, CaptureError, ErrorCode, Redact, Step, read, replay
from culm.exits import ExitStatus
from culm_io.command import command_of
from culm_io.programs.captures import Captures
from culm_io.programs.ports import free_ports

SECONDS_MAX = 60.0


def captures_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.culmcap"))


def opened(path: Path) -> Capture:
    return read(path.read_bytes())


def names_in(path: Path) -> list[str]:
    """The calls that did something."""
    return [step.name for step in opened(path) if step.result or step.arguments or step.keywords]


def is_replayed(path: Path) -> bool:
    """The verdict of the command."""
    words = command_of("capture", "replay", path)
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.stderr == ""
    return (done.returncode, done.stdout) == (0, "the same, bit for bit\n")


def has(path: Path, good: Callable[[Step], object]) -> bool:
    """Whether a file under way has such a step."""
    return path.exists() and path.stat().st_size > 0 and any(map(good, opened(path)))


def how_many_have(folder: Path, good: Callable[[Step], object]) -> int:
    """The number of files in a folder with such a step."""
    return sum(has(path, good) for path in captures_in(folder))


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        each.kill()
        each.communicate()


def spawn(processes: list[subprocess.Popen[str]], *words: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    made = subprocess.Popen(command_of(*words), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    processes.append(made)
    return made


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == -signal.SIGKILL


def published(folder: Path) -> Path:
    tree = {f"{number}.bin": bytes([number]) * 300_000 for number in range(40)}
    make_tree(folder / "source", tree)
    store = folder / "published.store"
    assert run("publish", folder / "source", "--store", store, "--unpacked").status == 0
    return store


def test_both_sides_of_a_fetch_are_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    store, fetched = published(tmp_path), tmp_path / "fetched.store"
    server = start("serve", "--store", store, "--port", 0, "--capture", tmp_path / "serve.culmcap")
    processes.append(server)
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())["port"]
    capture = tmp_path / "fetch.culmcap"
    fetching = start_fetch(fetched, port, None, "--capture", capture)
    processes.append(fetching)
    wait_until(lambda: stored_size(fetched) > 0)
    kill(fetching)
    kill(server)
    found = captures_in(tmp_path)
    assert [path.name for path in found] == ["fetch.culmcap", "serve.culmcap"]
    for path in found:
        assert is_replayed(path)
        assert path.stat().st_mode & 0o777 == 0o600
    assert opened(found[1]).header.session.startswith("with 127.0.0.1:")
    assert {opened(path).header.role for path in found} == {"PROACTIVE", "REACTIVE"}


def test_each_connection_has_a_file_and_none_is_written_over(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", {"a": b"text"})
    store, capture = tmp_path / "published.store", tmp_path / "all.culmcap"
    assert run("publish", tmp_path / "source", "--store", store).status == 0
    for _ in range(2):
        server = start("serve", "--store", store, "--port", 0, "--capture", capture)
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        for number in range(2):
            words = ("--capture", capture) if number else ()
            done = fetch(tmp_path / "fetched.store", port, None, *words)
            assert done.status == 0
        server.send_signal(signal.SIGTERM)
        assert finish(server).status == 0
    names = [f"all{number}.culmcap" for number in ("", "-2", "-3", "-4", "-5", "-6")]
    assert sorted(path.name for path in captures_in(tmp_path)) == sorted(names)
    for path in captures_in(tmp_path):
        assert replay(opened(path)) is None
        assert any(step.name == "next_event" and step.result for step in opened(path))
        assert names_in(path)[0] == "+culm.point2point.replication.replicator:Replicator"


@pytest.mark.costly
@pytest.mark.parametrize("without", ["keys", "nothing", "payloads"])
def test_servers_of_raft_are_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]], without: str
) -> None:
    farm, capture = tmp_path / "farm", tmp_path / "farm.culmcap"
    options = ("--capture", capture, "--capture-without", without)
    cluster = spawn(processes, "raft", "start", "--nodes", 3, "--dir", farm, *options)
    assert cluster.stdout is not None
    assert json.loads(cluster.stdout.readline())["nodes"]
    ask = ("--dir", farm, "--json")
    put = subprocess.run(
        command_of("raft", "put", *ask, "colour", "greenish"), capture_output=True, check=False
    )
    assert put.returncode == 0, put
    index = json.loads(put.stdout)["index"]

    def applied(step: Step) -> bool:
        effect = step.result if step.name == "next_effect" else None
        if not isinstance(effect, dict) or effect[""] != "culm.garlic.raft.effects:Apply":
            return False
        given = effect["fields"]
        return index < given["first_index"] + len(given["entries"])

    wait_until(lambda: how_many_have(tmp_path, applied) == 3)
    for number in (1, 2, 3):
        subprocess.run(command_of("raft", "kill", *ask, number), capture_output=True, check=True)
    found = captures_in(tmp_path)
    assert len(found) == 3
    assert {opened(path).header.session for path in found} == {f"server {n}" for n in (1, 2, 3)}
    password = json.loads((farm / "cluster.json").read_text())["password"].encode()
    for path in found:
        plain = repr(list(opened(path))).encode()
        assert (password in plain) is (without == "nothing")
        assert (b"greenish" in plain) is (without != "payloads")
        if without == "nothing":
            assert is_replayed(path)
        else:
            with pytest.raises(CaptureError) as caught:
                replay(opened(path))
            assert caught.value.code is ErrorCode.OPAQUE


def test_nodes_of_oxen_are_killed(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> None:
    one, other = free_ports(2, kind=socket.SOCK_DGRAM)
    nodes = []
    for port, words in ((one, []), (other, ["--join", one])):
        capture = ["--capture", tmp_path / f"{port}.culmcap"]
        nodes.append(spawn(processes, "oxen", "node", port, "--json", *capture, *words))
    assert nodes[0].stdin is not None
    captures = [tmp_path / f"{port}.culmcap" for port in (one, other)]

    def drew(step: Step) -> bool:
        return step.name.startswith("~")

    def said(step: Step) -> bool:
        return step.name == "receive_datagram" and b"good morning" in step.arguments[0]

    limit = time.monotonic() + SECONDS_MAX
    while not (has(captures[1], said) and all(has(path, drew) for path in captures)):
        assert time.monotonic() < limit
        nodes[0].stdin.write("good morning\n")
        nodes[0].stdin.flush()
        time.sleep(0.2)
    for each in nodes:
        kill(each)
    for path in captures_in(tmp_path):
        assert is_replayed(path)
        assert has(path, drew)


def test_a_key_of_oxen_is_left_out(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> None:
    (port,) = free_ports(1, kind=socket.SOCK_DGRAM)
    key, capture = tmp_path / "cluster.key", tmp_path / "node.culmcap"
    key.write_text(bytes(range(32)).hex())
    node = spawn(processes, "oxen", "node", port, "--key", key, "--capture", capture)
    assert node.communicate("/leave\n", SECONDS_MAX)[1] == ""
    steps = list(opened(capture))
    assert steps[-1].name != "+culm.oxen.node:Node"
    assert steps[0].keywords["keys"] == {"": "secret", "type": "list"}
    assert bytes(range(32)) not in capture.read_bytes()


def test_nodes_of_p2panda_are_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    for number in range(20):
        words = ("p2panda", "create", "--store", tmp_path / "a.store", f"number={number}")
        subprocess.run(command_of(*words), check=True, capture_output=True)
    capture = ("--capture", tmp_path / "node.culmcap")
    where = ("--store", tmp_path / "a.store", "--port", 0)
    server = spawn(processes, "p2panda", "serve", *where, *capture)
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())["port"]
    where = ("--store", tmp_path / "b.store", "--from", f"127.0.0.1:{port}")
    client = spawn(processes, "p2panda", "sync", "--live", *where, *capture)
    assert client.stdout is not None
    assert any(json.loads(line)["event"] == "live" for line in client.stdout)
    wait_until(lambda: how_many_have(tmp_path, is_live) == 2)
    kill(client)
    kill(server)
    found = captures_in(tmp_path)
    assert len(found) == 2
    assert all(map(is_replayed, found))


def is_live(step: Step) -> bool:
    return step.name == "next_event" and "SessionLive" in repr(step.result)


def is_connected(step: Step) -> bool:
    return "PeerConnected" in repr(step.result)


@pytest.mark.costly
@pytest.mark.parametrize("without", ["keys", "nothing"])
def test_a_pub_of_scuttlebutt_is_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]], without: str
) -> None:
    capture = ("--capture", tmp_path / "ssb.culmcap", "--capture-without", without)
    run_ = ("ssb", "run", "--port", 0, *capture, "--dir")
    pub = spawn(processes, *run_, tmp_path / "pub")
    assert pub.stdin is not None
    assert pub.stdout is not None
    there = json.loads(pub.stdout.readline())
    me = spawn(processes, *run_, tmp_path / "me", "--connect", there["address"])
    assert me.stdin is not None
    assert me.stdout is not None
    print("publish the tide is out", file=pub.stdin, flush=True)
    print(f"follow {there['feed']}", file=me.stdin, flush=True)
    wanted = {"event": "stored", "feed": there["feed"]}
    assert any(wanted.items() <= json.loads(line).items() for line in me.stdout)
    wait_until(lambda: how_many_have(tmp_path, is_connected) == 2)
    for each in (pub, me):
        kill(each)
    found = captures_in(tmp_path)
    assert len(found) == 2
    for path in found:
        assert any(map(is_connected, opened(path)))
        if without == "nothing":
            assert is_replayed(path)
        else:
            assert opened(path).header.redacted == {Redact.KEYS}
            made = next(iter(opened(path)))
            assert made.keywords["identity"] == {"": "secret", "type": "SigningKey"}


def test_the_line_driver_is_killed(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> None:
    capture = tmp_path / "drive.culmcap"
    config = json.dumps({"role": "REACTIVE"})
    driver = spawn(processes, "drive", "bymux", "--config", config, "--capture", capture)
    assert driver.stdin is not None
    assert driver.stdout is not None
    print(json.dumps({"op": "receive", "hex": "000105ff"}), file=driver.stdin, flush=True)
    while "error" not in driver.stdout.readline():
        pass
    print(json.dumps({"op": "eof"}), file=driver.stdin, flush=True)
    wait_until(lambda: has(capture, lambda step: step.name == "receive_eof"))
    kill(driver)
    assert capture.stat().st_mode & 0o777 == 0o600
    assert is_replayed(capture)
    again = spawn(processes, "drive", "bymux", "--capture", capture)
    assert again.wait(SECONDS_MAX) == ExitStatus.IMPOSSIBLE


def test_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    store = tmp_path / "a.store"
    for where in (tmp_path / "nowhere" / "file", tmp_path):
        words = ("p2panda", "sync", "--store", store, "--from", "127.0.0.1:1", "--capture", where)
        done = subprocess.run(command_of(*words), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (ExitStatus.IMPOSSIBLE, 1)
        assert "no capture can be written there" in done.stderr


def test_a_file_that_cannot_be_written_any_more_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio
    import random
    import resource

    from culm.oxen import Node

    path = tmp_path / "node.culmcap"

    async def record() -> None:
        with Captures(path) as captures:
            tape = captures.tape("oxen")
            node = tape.make(Node, me=b"1", rng=tape.chance(random.Random(1)), epoch=0.0)
            node.advance(0.0)
            captures.flush()
            size = path.stat().st_size
            handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
            try:
                for number in range(1, 100):
                    node.advance(float(number))
                    captures.flush()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                signal.signal(signal.SIGXFSZ, handler)
            assert path.stat().st_size == size

    asyncio.run(record())
    assert replay(opened(path)) is None
    assert capsys.readouterr().err.startswith("the capture ends here: ")
    assert capsys.readouterr().err == ""

"""Runs the services of docs/services.md exactly as printed, with any interpreter."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

from culm.wire.multihash import YASMF

AGAIN_S = 0.3
ROOT = Path(__file__).parents[1]
SOURCES = dict(
    zip(
        ("log", "raft", "oxen", "p2panda"),
        re.findall(
            r"^```python\n(.*?)^```", (ROOT / "docs/services.md").read_text(), flags=re.M | re.S
        ),
        strict=True,
    )
)


def ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[str]:
    """Ports that are free right now."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for each in made:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in made]


class Services:
    """Processes of one service in a folder, ended with the test."""

    def __init__(self, name: str, folder: Path, python: str, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder, env
        self._command = [python, f"{name}_service.py"]
        self._running: list[subprocess.Popen[str]] = []
        (folder / f"{name}_service.py").write_text(SOURCES[name])
        shutil.copy(ROOT / "tests/examples/localhost.pem", folder)

    def run(self, *arguments: str, typed: str) -> None:
        command = [*self._command, *arguments]
        subprocess.run(command, input=typed, text=True, check=True, cwd=self._folder, env=self._env)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env=self._env,
        )
        self._running.append(process)
        return process

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@contextmanager
def services(name: str, folder: Path, python: str, env: Mapping[str, str]) -> Iterator[Services]:
    made = Services(name, folder, python, env)
    try:
        yield made
    finally:
        made.end()


def until(process: subprocess.Popen[str], wanted: str) -> None:
    """Read a process's output until a line is `wanted`; the test's time is the only limit."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.strip())
        if said[-1] == wanted:
            return
    raise AssertionError(f"{wanted!r} was not said: {said}")


def type_in(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@contextmanager
def typed_again(process: subprocess.Popen[str], line: str) -> Iterator[None]:
    """Type a line again and again: a line that a leader loses is lost without a report."""
    over = Event()

    def type_on() -> None:
        with suppress(BrokenPipeError):  # the reader says that it has ended
            while not over.wait(AGAIN_S):
                type_in(process, line)

    typist = Thread(target=type_on)
    typist.start()
    try:
        yield
    finally:
        over.set()
        typist.join()


def log_is_followed(folder: Path, python: str, env: Mapping[str, str]) -> None:
    with services("log", folder, python, env) as made:
        (port,) = ports(1)
        made.run("write", "mine.store", "0", typed="one\ntwo\n")
        serving = made.start("serve", "mine.store", port)
        while serving.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
        following = made.start("follow", "theirs.store", port)
        until(following, "EntryStored 2")
        made.run("write", "mine.store", "0", typed="of another author\n")
        until(following, "EntryStored 1")


def servers_agree(folder: Path, python: str, env: Mapping[str, str]) -> None:
    (folder / "password").write_text("a secret")
    with services("raft", folder, python, env) as made:
        where = ports(3)
        running = [made.start(f"{n}.sqlite", str(n), *where) for n in (1, 2, 3)]
        for n, typed_at in enumerate(running):  # the leader is among them
            with typed_again(typed_at, f"hello {n}"):  # until there is a leader that it can reach
                until(typed_at, f"hello {n}")
        for each in running[:2]:
            until(each, "hello 2")


def cluster_talks(folder: Path, python: str, env: Mapping[str, str]) -> None:
    (folder / "cluster.key").write_text("5a" * 32)
    with services("oxen", folder, python, env) as made:
        first, second = ports(2, socket.SOCK_DGRAM)
        one, two = made.start(first), made.start(second, first, "70000")  # no port has that number
        until(one, f"PeerJoined(peer={second.encode()})")
        until(two, f"PeerJoined(peer={first.encode()})")
        type_in(one, "too long" * 1000)
        until(one, "payload too large: 8000 bytes, at most 983")
        type_in(one, "hello")
        until(two, "hello")


def documents_are_passed_on(folder: Path, python: str, env: Mapping[str, str]) -> None:
    schema = f"panda_{YASMF.hash(b'of pandas').hex()}"

    def create(name: str) -> None:
        words = ("p2panda", "create", "--store", "one.store", "--schema", schema, f"name={name}")
        command = [python, "-m", "culm_io", *words]
        subprocess.run(command, check=True, cwd=folder, env=env, stdout=subprocess.DEVNULL)

    with services("p2panda", folder, python, env) as made:
        one, two, *numbers = ports(4)
        create("Lu")
        made.start("one.store", schema, numbers[0], one)
        receiving = made.start("two.store", schema, numbers[1], two, one)
        until(receiving, "OperationStored")
        create("Lo")  # while both are running
        until(receiving, "OperationStored")
        with urlopen(f"http://127.0.0.1:{numbers[1]}/metrics") as answer:
            told = answer.read().decode()
        assert 'event="OperationStored",of_machine="p2panda"} 2.0' in told

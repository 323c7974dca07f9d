"""Servers with few file descriptors, and more strangers than that."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest
from processes import SECONDS_MAX, run

from culm_io.command import command_of
from culm_io.programs.raft.farm import Farm

FILES_MAX = 24
STRANGERS = 40
CROWDED_S = 4.0
ERRORS_MAX = 10_000  # bytes; one complaint a second makes a few hundred


def directory(folder: Path) -> tuple[list[str], list[int]]:
    tree, store = folder / "tree", folder / "store"
    tree.mkdir()
    assert run("publish", tree, "--store", store).status == 0
    port = free_port()
    return command_of("directory", "serve", "--store", store, "--port", port), [port]


def raft(folder: Path) -> tuple[list[str], list[int]]:
    node = Farm.found(folder / "farm", 1, tls=False).data["nodes"]["1"]
    return command_of("raft", "run", "--dir", folder / "farm", 1), [node["raft"], node["control"]]


def ssb(folder: Path) -> tuple[list[str], list[int]]:
    port = free_port()
    return command_of("ssb", "run", "--dir", folder / "pub", "--port", port), [port]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


@contextmanager
def running(command: list[str], errors: Path) -> Iterator[None]:
    """A server limited to `FILES_MAX` files, which ends well."""
    words = ["sh", "-c", f"ulimit -n {FILES_MAX}; exec {shlex.join(command)}"]
    with (
        errors.open("w") as file,
        subprocess.Popen(words, stdin=PIPE, stdout=DEVNULL, stderr=file) as process,
    ):
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0


def connect(port: int) -> socket.socket:
    limit = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < limit
            time.sleep(0.05)


def is_there(port: int) -> bool:
    """Whether the listener there takes a connection, and closes it after its peer."""
    with connect(port) as made:
        made.settimeout(SECONDS_MAX)
        made.shutdown(socket.SHUT_WR)
        try:
            while made.recv(65536):
                pass
        except ConnectionResetError:
            pass
    return True


@pytest.mark.parametrize("server", [directory, raft, ssb])
def test_more_strangers_than_files_cost_a_word_a_second_and_pass(
    server: object, tmp_path: Path
) -> None:
    assert callable(server)
    command, ports = server(tmp_path)
    errors = tmp_path / "errors"
    with running(command, errors):
        for port in ports:
            with ExitStack() as crowd:
                for _ in range(STRANGERS):
                    crowd.enter_context(connect(port))
                time.sleep(CROWDED_S)
            assert is_there(port)
    assert errors.stat().st_size < ERRORS_MAX, errors.read_text()[:2000]

"""What clients of a server may use, and who has to go when there are too many."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import fetch, serving
from test_hostile_peers import COUNT, KEY, LOG, payload

from culm.bamboo import LogAuthor
from culm.point2point import Replicator, Role
from culm.wire.multihash import YAMF
from directory.serve import Bounds
from stores.sqlite_store import SqliteStore

MIB = 1 << 20


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "served"
    with SqliteStore(path, family=YAMF) as store:
        author = LogAuthor(KEY, family=YAMF)
        store.append(LOG, [author.publish(payload(number)) for number in range(COUNT)])
    return path


def greeting() -> bytes:
    """A setup, and nothing that asks for anything."""
    return Replicator(role=Role.PROACTIVE, family=YAMF).data_to_send()


@pytest.mark.parametrize("says", ["nothing", "hello"])
@pytest.mark.parametrize("option", ["--clients-max", "--address-max"])
def test_idle_connections_lock_nobody_out(
    tmp_path: Path, published: Path, option: str, says: str
) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(published, option, 4))
        for _ in range(12):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(greeting() if says == "hello" else b"")
        done = fetch(tmp_path / "store", port, tmp_path / "copy")
        assert done.status == 0, done.errors


def test_who_asks_nothing_has_to_go(published: Path) -> None:
    with (
        serving(published, "--idle", "0.3") as port,
        socket.create_connection(("127.0.0.1", port)) as idle,
    ):
        idle.settimeout(30)
        idle.sendall(greeting())
        while idle.recv(1 << 16):  # its setup, its proposals, its goodbye
            pass


def test_a_server_stops_whatever_its_clients_send(published: Path) -> None:
    """`serving` waits for it; some of them take nothing, some say nonsense."""
    with ExitStack() as stack:
        port = stack.enter_context(serving(published))
        for data in (b"", greeting(), bytes(1 << 16), b"\xff" * (1 << 16)):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(data)
        time.sleep(0.2)
        begun = time.monotonic()
        stack.pop_all().close()
        assert time.monotonic() - begun < 30


@pytest.mark.parametrize("clients_max", [1, 4, 64, 1000])
@pytest.mark.parametrize("memory_max", [16 * MIB, 256 * MIB])
def test_clients_share_what_there_is(memory_max: int, clients_max: int) -> None:
    limits = Bounds(clients_max=clients_max, memory_max=memory_max).limits()
    connection = limits.connection
    worst = (
        limits.read_ahead_size_max
        + limits.unwritten_size_max
        + limits.batch_size_max
        + connection.data_window_max
        + connection.unsent_size_max
        + 2 * connection.packet_size_max
        + 2 * connection.compression_window_max
        + connection.requests_max * 2048
    )
    assert worst <= max(memory_max // clients_max, 1 << 16)

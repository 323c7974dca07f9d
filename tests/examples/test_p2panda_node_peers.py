"""Peers of a p2panda node that are stuck, silent or gone: none of them hinders the others."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from driving import OwnTime, run_in_own_time
from processes import saying
from test_p2panda_node import SECONDS_MAX, Nodes, nodes, until

from culm.p2panda.codec import Codec, Dialect
from culm.p2panda.limits import Limits
from culm.p2panda.messages import Announce, Have, Message, Mode, SyncDone, SyncRequest
from culm_io.programs.captures import Captures
from culm_io.programs.numbers import Metrics
from culm_io.programs.p2panda import command as p2panda_node
from culm_io.programs.p2panda import links as p2panda_links
from culm_io.programs.p2panda.dial import Door, dial
from culm_io.programs.p2panda.links import Node
from culm_io.stores.p2panda import OperationSqliteStore

__all__ = ["nodes"]

SCHEMAS = (p2panda_node.SCHEMA,)
GOING_LIVE: list[Message] = [
    Announce(1, SCHEMAS),
    SyncRequest(0, Mode.LOG_HEIGHT, SCHEMAS),
    Have(0, ()),
    SyncDone(0, True),
]


def encoded(*messages: Message) -> bytes:
    codec = Codec(dialect=Dialect.SEED, limits=Limits())
    return b"".join(map(codec.encode, messages))


def connect(port: int, *messages: Message) -> socket.socket:
    """A peer that sends these, and nothing more."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(encoded(*messages))
    return made


async def welcomed(peer: socket.socket) -> None:
    """Wait until it has its place, and is greeted."""
    peer.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(peer, 1)


@contextmanager
def stuck() -> Iterator[str]:
    """The address of a node with a full queue: an attempt to connect has no answer."""
    with ExitStack() as stack, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            made = stack.enter_context(socket.socket())
            made.setblocking(False)
            made.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def refusing() -> Iterator[str]:
    """An address without a listener."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{made.getsockname()[1]}"


def told_by(process: Any) -> tuple[int, list[dict[str, Any]]]:
    """The status and the output lines of a node, once it has ended."""
    output, errors = process.communicate(timeout=SECONDS_MAX)
    assert errors == ""
    return process.returncode, [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("most", ["--peers-max", "--address-max"])
def test_live_peers_that_say_nothing_make_way(nodes: Nodes, most: str) -> None:
    nodes.write("a", "create", "name=a")
    server = nodes.start("a", "serve", "--port", "0", most, "2")
    port = until(server, "listening")["port"]
    with ExitStack() as crowd:
        for _ in range(2):
            crowd.enter_context(connect(port, *GOING_LIVE))
            until(server, "live")
        nodes.sync("b", "--from", f"127.0.0.1:{port}")
        until(server, "closed", error="aborted")
    assert nodes.show("b") == nodes.show("a")


def test_who_is_live_keeps_a_place_before_who_is_not(tmp_path: Path) -> None:
    told: list[tuple[str, str | None]] = []

    async def main(loop: OwnTime) -> None:
        node = Node(
            store,
            list(SCHEMAS),
            live=True,
            patience_s=SECONDS_MAX,
            returns=False,
            peers_max=2,
            address_max=2,
            tell=lambda event, **of: told.append((event, of.get("peer"))),
            captures=Captures(),
            metrics=Metrics(),
        )
        with ExitStack() as stack:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listening.setblocking(False)
            port = listening.getsockname()[1]
            serving = asyncio.create_task(node.serve(listening))
            stack.enter_context(connect(port, *GOING_LIVE))
            while ("live", None) not in told:
                await asyncio.sleep(0)
            mute = stack.enter_context(connect(port))
            await welcomed(mute)
            loop.now += 2 * p2panda_links.STALL_S  # both are idle
            newcomer = stack.enter_context(connect(port))
            await welcomed(newcomer)
            while len(told) < 2:
                await asyncio.sleep(0)
            assert told[1:] == [("closed", "{}:{}".format(*mute.getsockname()))]
            serving.cancel()
            await asyncio.wait([serving])

    with OperationSqliteStore(tmp_path / "store") as store:
        run_in_own_time(main)


def test_who_is_gone_without_a_word_is_noticed() -> None:
    async def both_ends() -> list[int]:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            near = await dial(*listening.getsockname(), until=loop.time() + SECONDS_MAX)
            _, far = await loop.connect_accepted_socket(Door, listening.accept()[0])
        ends = [each.transport.get_extra_info("socket") for each in (near, far)]
        set_ = [each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in ends]
        for each in (near, far):
            each.transport.abort()
        return set_

    assert asyncio.run(both_ends()) == [1, 1]


def test_a_node_that_is_not_reached_holds_up_no_other_one(nodes: Nodes) -> None:
    nodes.write("a", "create", "name=a")
    server = nodes.start("a", "serve", "--port", "0")
    healthy = f"127.0.0.1:{until(server, 'listening')['port']}"
    with stuck() as silent, refusing() as closed:
        peers = [word for each in (closed, silent, healthy) for word in ("--from", each)]
        process = nodes.start("b", "sync", *peers, "--patience", "1000")
        assert process.stdout is not None
        waited_for = {("unreachable", closed), ("closed", healthy)}
        while waited_for:
            told = json.loads(process.stdout.readline())
            waited_for.discard((told["event"], told.get("peer")))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, output, errors) == (130, "", "interrupted\n")
    assert nodes.show("b") == nodes.show("a")


def test_the_nodes_that_were_not_reached_are_named(nodes: Nodes) -> None:
    with stuck() as silent, refusing() as closed:
        peers = ("--from", silent, "--from", closed)
        status, told = told_by(nodes.start("a", "sync", *peers, "--patience", "0.5"))
    assert status == 1
    assert {(each["event"], each["peer"]) for each in told} == {
        ("unreachable", silent),
        ("unreachable", closed),
    }
    assert all(each["error"] for each in told)


@pytest.mark.parametrize("said", [(), (Announce(1, ("other_" + SCHEMAS[0][5:],)),)])
def test_a_node_that_leaves_without_a_session_has_failed(
    nodes: Nodes, said: tuple[Message, ...]
) -> None:
    with saying(encoded(*said), then_close=True) as port:
        status, told = told_by(nodes.start("a", "sync", "--from", f"127.0.0.1:{port}"))
    assert status == 1
    assert [(each["event"], each["error"] is None) for each in told] == [("closed", False)]


def test_the_store_is_closed_when_nobody_is_at_work_in_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_closed = threading.Event()
    closed_meanwhile: list[bool] = []

    def look(self: OperationSqliteStore) -> int:
        closed_meanwhile.append(is_closed.wait(0.5))  # it takes this long
        return 0

    close = OperationSqliteStore.close
    monkeypatch.setattr(OperationSqliteStore, "position", property(look))
    monkeypatch.setattr(OperationSqliteStore, "close", lambda self: (is_closed.set(), close(self)))
    with saying(b"", then_close=True) as port:
        assert nodes.here("a", "sync", "--from", f"127.0.0.1:{port}") == 1
    assert set(closed_meanwhile) == {False}


def test_who_stays_live_asks_again_when_a_session_has_ended(nodes: Nodes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        nodes.start("a", "sync", "--from", f"127.0.0.1:{port}", "--live")
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(SECONDS_MAX)
            connection.sendall(encoded(Announce(1, SCHEMAS)))
            said = b""
            # After a session without any comparison, the other mode is tried.
            for number in range(3):
                mode = Mode.LOG_HEIGHT if number % 2 else Mode.SET_RECONCILIATION
                request = encoded(SyncRequest(number, mode, SCHEMAS))
                while request not in said:
                    data = connection.recv(1 << 16)
                    assert data, "it has gone"
                    said += data
                connection.sendall(encoded(SyncDone(number, False)))

"""Real peers on Node.js, and machines of ours on real sockets, in one thread."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.machine import Closed, Event, StreamMachine
from culm.ssb import Authenticated, BoxStream, ClientHandshake, ServerHandshake
from culm.ssb.feed_id import feed_id_of
from culm.stack import over, then

HERE = Path(__file__).parent
NETWORK = sha256(b"a network of tests").digest()
PATIENCE_S = 60.0
#: For each test here. Building and installing beforehand has a separate limit.
INTEROP = [pytest.mark.interop, pytest.mark.timeout(func_only=True)]


def key_of(name: str) -> SigningKey:
    return SigningKey(sha256(name.encode()).digest())


def feed_of(name: str) -> str:
    return feed_id_of(bytes(key_of(name).verify_key))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def installed() -> Path:
    """A folder with the packages in it; skips without Node.js."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("no Node.js is at hand: there are no real peers of Secure Scuttlebutt")
    folder = Path(os.environ.get("CULM_SSB_NODE") or HERE.parents[2] / ".tox" / "ssb-node")
    wanted = (HERE / "package.json").read_text(encoding="utf-8")
    there = folder / "package.json"
    if not there.exists() or there.read_text(encoding="utf-8") != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        there.write_text(wanted, encoding="utf-8")
        install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(install, cwd=folder, check=True, timeout=900)
        except BaseException:
            there.unlink()  # it is incomplete: begin anew the next time
            raise
    return folder


class JsPeer:
    """A peer on Node.js: a process that takes commands as lines of JSON."""

    def __init__(self, name: str, folder: Path, path: Path, **options: Any) -> None:
        self.name = name
        self.port = options.pop("port", None) or free_port()
        self.events: list[dict[str, Any]] = []
        self._results: dict[int, dict[str, Any]] = {}
        self._calls = 0
        config = {
            "path": str(path),
            "seed": bytes(key_of(name)).hex(),
            "port": self.port,
            "caps": b64encode(NETWORK).decode(),
            **options,
        }
        self.process = subprocess.Popen(
            ["node", str(HERE / "peer.js"), json.dumps(config)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def id(self) -> str:
        return feed_of(self.name)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                found = json.loads(line)
            except ValueError:
                print(f"{self.name}: {line}", end="", file=sys.stderr)
                continue
            if "event" in found:
                self.events.append(found)
            else:
                self._results[found["call"]] = found

    def happened(self, event: str) -> bool:
        return any(found["event"] == event for found in self.events)

    def begin(self, op: str, **args: Any) -> int:
        """Begin a command; the number of the call."""
        assert self.process.stdin is not None
        self._calls += 1
        line = json.dumps({"op": op, "call": self._calls, **args})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._calls

    def is_done(self, call: int) -> bool:
        return call in self._results

    def result(self, call: int) -> Any:
        """The result of a call; raises `RuntimeError` if that was an error."""
        found = self._results.pop(call)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found["result"]

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(10.0)
        self.process.stdout.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def sealed(
    upper: StreamMachine, *, me: str, server: str | None = None, network: bytes = NETWORK
) -> StreamMachine:
    """`upper` inside a box stream, after the handshake: as the client of `server`, or as one."""

    def follow(event: Event) -> StreamMachine | None:
        done = isinstance(event, Authenticated)
        return over(BoxStream(keys=event.keys), upper) if done else None

    ephemeral = PrivateKey.generate()
    if server is None:
        return then(
            ServerHandshake(identity=key_of(me), ephemeral=ephemeral, network=network), follow
        )
    handshake = ClientHandshake(
        identity=key_of(me),
        server=bytes(key_of(server).verify_key),
        ephemeral=ephemeral,
        network=network,
    )
    return then(handshake, follow)


#: Sockets of the running test, closed when it is over.
SOCKETS: list[socket.socket] = []


class Wire:
    """A stream machine on a socket."""

    def __init__(
        self,
        machine: StreamMachine,
        connection: socket.socket,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.machine = machine
        self.events: list[Event] = []
        self.closed: Closed | None = None
        self._connection = connection
        self._connection.setblocking(False)
        SOCKETS.append(connection)
        self._on_event = on_event
        self._outgoing = b""
        self._eof = False

    def drain(self) -> None:
        while (event := self.machine.next_event()) is not None:
            self.events.append(event)
            if isinstance(event, Closed):
                self.closed = event
            self._on_event(event)
        self._outgoing += self.machine.data_to_send()
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._outgoing = self._outgoing[self._connection.send(self._outgoing) :]

    def turn(self) -> None:
        """Read what is there, drain, and write as much as possible."""
        self.drain()
        with selectors.DefaultSelector() as selector:
            if not self._eof:
                selector.register(self._connection, selectors.EVENT_READ)
            if selector.select(0.02):
                try:
                    data = self._connection.recv(max(1, self.machine.read_size()))
                except ConnectionResetError:
                    data = b""
                if data:
                    self.machine.receive_data(data)
                else:
                    self._eof = True
                    self.machine.receive_eof()
        self.drain()

    def hang_up(self) -> None:
        self._connection.close()


def dial(
    machine: StreamMachine, port: int, on_event: Callable[[Event], None] = lambda event: None
) -> Wire:
    connection = socket.create_connection(("127.0.0.1", port), 10.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(machine, connection, on_event)


def until(
    done: Callable[[], bool], *turns: Callable[[], None], patience_s: float = PATIENCE_S
) -> None:
    """Take turns until the condition holds."""
    give_up_at = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < give_up_at, "it does not happen"
        for turn in turns:
            turn()
        if not turns:
            time.sleep(0.02)


def ask(peer: JsPeer, op: str, /, *turns: Callable[[], None], **args: Any) -> Any:
    """Let a peer do something, and wait for the result; `turns` go on meanwhile."""
    call = peer.begin(op, **args)
    until(lambda: peer.is_done(call), *turns)
    return peer.result(call)


def posts(count: int, text: str = "number") -> list[dict[str, str]]:
    return [{"type": "post", "text": f"{text} {number}"} for number in range(count)]


def all_of(events: Sequence[Event], kind: type[Any]) -> Iterator[Any]:
    return (event for event in events if isinstance(event, kind))

"""Handshake and box stream with two more implementations: the Go transport stack, and Rust's kuska.

Small programs of ours, ``go/main.go`` and ``rust/src/main.rs``, send back all their input; they
are built into ``.tox`` the first time.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from interop_support import HERE, INTEROP, NETWORK, Wire, dial, key_of, until
from nacl.public import PrivateKey

from culm.machine import DataReceived, Event, RemoteProtocolError, StreamMachine
from culm.ssb import Authenticated, BoxStream, ClientHandshake, ErrorCode, ServerHandshake
from culm.stack import then

pytestmark = INTEROP

BUILT = HERE.parents[2] / ".tox" / "ssb-opinions"
OTHER_NETWORK = bytes(32)
SIZE = 300_000
BUILD_S = 1800


def go() -> Path:
    program = BUILT / "echo-go"
    build(["go", "build", "-o", str(program), "."], HERE / "go")
    return program


def rust() -> Path:
    folder = BUILT / "rust"
    build(["cargo", "build", "--locked", "--release", "--target-dir", str(folder)], HERE / "rust")
    return folder / "release" / "echo"


def build(command: list[str], folder: Path) -> None:
    """Build a program; skips without the tools."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} is at hand: one implementation less to compare with")
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, cwd=folder, check=True, timeout=BUILD_S)


@pytest.fixture(scope="module", params=[go, rust], ids=["go", "rust"])
def program(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param()
    return found


class Theirs:
    """A process that sends back its input."""

    def __init__(
        self, program: Path, *, leaves_after: int, network: bytes, args: list[str]
    ) -> None:
        command = [str(program), network.hex(), bytes(key_of("theirs")).hex(), str(leaves_after)]
        self.process = subprocess.Popen([*command, *args], stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """Its last output."""
        said, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return said


StartTheirs = Callable[..., Theirs]


@pytest.fixture
def start(program: Path) -> Iterator[StartTheirs]:
    started: list[Theirs] = []

    def begin(*args: str, leaves_after: int = 0, network: bytes = NETWORK) -> Theirs:
        found = Theirs(program, leaves_after=leaves_after, network=network, args=list(args))
        started.append(found)
        return found

    yield begin
    for each in started:
        each.process.kill()
        each.process.communicate()


class Ours:
    """A machine of ours on a socket: its input, and its box stream."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.peer: bytes | None = None
        self.boxes: BoxStream | None = None

    def machine(self, server: bytes | None) -> StreamMachine:
        keys = {"identity": key_of("ours"), "ephemeral": PrivateKey.generate(), "network": NETWORK}
        if server is None:
            return then(ServerHandshake(**keys), self._build)  # type: ignore[arg-type]
        return then(ClientHandshake(server=server, **keys), self._build)  # type: ignore[arg-type]

    def _build(self, event: Event) -> StreamMachine | None:
        if isinstance(event, Authenticated):
            self.peer = event.peer
            self.boxes = BoxStream(keys=event.keys)
        return self.boxes

    def take(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self.heard += event.data


def public(name: str) -> bytes:
    return bytes(key_of(name).verify_key)


def as_client(start: StartTheirs, **options: int) -> tuple[Ours, Wire, Theirs]:
    theirs, ours = start(**options), Ours()
    port = int(theirs.line().removeprefix("listening "))
    return ours, dial(ours.machine(public("theirs")), port, ours.take), theirs


def as_server(start: StartTheirs, **options: int) -> tuple[Ours, Wire, Theirs]:
    ours = Ours()
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = start(str(server.getsockname()[1]), public("ours").hex(), **options)
        connection, _ = server.accept()
    return ours, Wire(ours.machine(None), connection, ours.take), theirs


@pytest.mark.parametrize("leaves_after", [0, SIZE], ids=["we leave", "they leave"])
@pytest.mark.parametrize("begin", [as_client, as_server], ids=["we dial", "they dial"])
def test_they_send_back_what_we_have_sent(
    start: StartTheirs, begin: Callable[..., tuple[Ours, Wire, Theirs]], leaves_after: int
) -> None:
    ours, wire, theirs = begin(start, leaves_after=leaves_after)
    until(lambda: ours.boxes is not None, wire.turn)
    assert ours.peer == public("theirs")
    assert ours.boxes is not None
    rng = Random(leaves_after)
    data = rng.randbytes(SIZE)
    at = 0
    while at < SIZE:
        size = rng.choice([1, 33, 4095, 4096, 4097, 12_000])
        ours.boxes.send_data(data[at : at + size])
        at += size
    until(lambda: len(ours.heard) == SIZE, wire.turn)
    assert ours.heard == data
    if not leaves_after:
        wire.machine.close()
    until(lambda: wire.closed is not None, wire.turn)
    assert wire.closed is not None
    assert wire.closed.error is None
    wire.hang_up()
    assert theirs.end().split() == ["peer", public("ours").hex(), "goodbye"]


def test_we_refuse_another_network(start: StartTheirs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = start(str(server.getsockname()[1]), public("ours").hex(), network=OTHER_NETWORK)
        connection, _ = server.accept()
    wire = Wire(Ours().machine(None), connection)
    until(lambda: wire.closed is not None, wire.turn)
    assert error_of(wire) is ErrorCode.WRONG_NETWORK
    wire.hang_up()
    assert theirs.end() == "refused\n"


def test_we_refuse_who_wants_somebody_else(start: StartTheirs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = start(str(server.getsockname()[1]), public("another").hex())
        connection, _ = server.accept()
    wire = Wire(Ours().machine(None), connection)
    until(lambda: wire.closed is not None, wire.turn)
    assert error_of(wire) is ErrorCode.BAD_PROOF
    wire.hang_up()
    assert theirs.end() == "refused\n"


def test_they_refuse_us_when_we_want_somebody_else(start: StartTheirs) -> None:
    theirs = start()
    port = int(theirs.line().removeprefix("listening "))
    wire = dial(Ours().machine(public("another")), port)
    until(lambda: wire.closed is not None, wire.turn)
    assert error_of(wire) is ErrorCode.TRUNCATED
    assert theirs.end() == "refused\n"


def error_of(wire: Wire) -> ErrorCode:
    assert wire.closed is not None
    assert isinstance(wire.closed.error, RemoteProtocolError)
    return ErrorCode(wire.closed.error.code)

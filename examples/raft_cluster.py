"""A replicated key-value store and message printer on Garlic Farm.

    python examples/raft_cluster.py start --nodes 3 --dir /tmp/farm [--tls]
    python examples/raft_cluster.py put --dir /tmp/farm colour green [--at 2]
    python examples/raft_cluster.py get --dir /tmp/farm colour [--at 3]
    python examples/raft_cluster.py status --dir /tmp/farm
    python examples/raft_cluster.py watch --dir /tmp/farm        # the same, as it changes
    python examples/raft_cluster.py kill --dir /tmp/farm 2       # kill -9
    python examples/raft_cluster.py run --dir /tmp/farm 2        # start it again
    python examples/raft_cluster.py add --dir /tmp/farm 4        # a server joins, or learns no more
    python examples/raft_cluster.py add --dir /tmp/farm 4 --learner
    python examples/raft_cluster.py remove --dir /tmp/farm 4
    python examples/raft_cluster.py transfer --dir /tmp/farm 3
    python examples/raft_cluster.py recover --dir /tmp/farm 1    # the others are lost for good

``start`` runs the nodes as processes on loopback, each with a SQLite store in the folder,
until it is interrupted.  Nodes speak Garlic Farm with the handshake; ``--tls`` puts TLS
around it (a self-signed certificate is made with the openssl command).  Clients ask a
control port of each node in lines of JSON.

Answers are in words and tables; with ``--json``, in lines of JSON.  Exit status: 0 done, 1 the
cluster has refused or does not answer, 2 what was asked for cannot be done, 130 interrupted; Ctrl-C
ends ``start``, ``run`` and ``watch``, and is no failure there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from culm.garlic.digest import CredentialCache, Nonces
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits
from culm.garlic.node import Node
from culm.garlic.raft import (
    ChangeFailed,
    Committed,
    ConfigurationChanged,
    ErrorCode,
    Forwarded,
    ForwardFailed,
    Lost,
    ReadFailed,
    ReadReady,
    Server,
    State,
    Stored,
    Timing,
    TransferFailed,
)
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.sessions import Sessions
from culm.garlic.store import recover
from culm.machine import Event, LocalProtocolError, StreamMachine
from drivers.node_driver import NodeDriver
from ending import end_with, exits
from raft_client import ANSWER_TIMEOUT_S, Client, ask_around, ask_one
from raft_display import changes, table_of_servers
from stores.raft_sqlite_store import RaftSqliteStore
from tables import Screen, show

R = TypeVar("R")

CLUSTER_FILE = "cluster.json"
WATCH_INTERVAL_S = 0.3
USER = "farm"
TRY_AGAIN = frozenset((ErrorCode.NO_LEADER, ErrorCode.QUEUE_FULL, ErrorCode.TRANSFER_IN_PROGRESS))
TIMING = Timing(
    election_timeout_min_s=0.5,
    election_timeout_max_s=1.0,
    heartbeat_interval_s=0.2,
    request_timeout_s=0.6,
)
LIMITS = Limits(
    raft=RaftLimits(
        in_flight_max=4,
        snapshot_distance=1000,
        trailing_entries=100,
        chunk_size=65536,
        writes_max=4,
    )
)


class KeyValues:
    """The replicated state; prints what is put."""

    def __init__(self, *, echo: bool) -> None:
        self.values: dict[str, str] = {}
        self._echo = echo

    def apply(self, index: int, value: bytes) -> None:
        try:
            command = json.loads(value)
            self.values[str(command["key"])] = str(command["value"])
        except (ValueError, KeyError, TypeError):
            command = {"message": value.decode("utf-8", "replace")}
        if self._echo:
            print(json.dumps({"index": index, **command}), flush=True)

    def snapshot(self) -> bytes:
        return json.dumps(self.values, sort_keys=True).encode()

    def restore(self, image: bytes) -> None:
        self.values = json.loads(image)


class Farm:
    """What the folder says of the cluster: endpoints, control ports, password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / CLUSTER_FILE
        self.data: dict[str, Any] = (
            json.loads(self._path.read_text()) if self._path.exists() else {}
        )

    @classmethod
    def found(cls, folder: Path, nodes: int, *, tls: bool) -> Farm:
        folder.mkdir(parents=True, exist_ok=True)
        farm = cls(folder)
        if not farm.data:
            farm.data = {
                "password": f"{random.SystemRandom().getrandbits(128):032x}",
                "tls": tls,
                "founders": list(range(1, nodes + 1)),
                "nodes": {},
            }
            for number in range(1, nodes + 1):
                farm.add(number)
            if tls:
                make_certificate(folder)
        return farm

    def add(self, number: int) -> None:
        if str(number) not in self.data["nodes"]:
            raft, control = free_ports(2)
            self.data["nodes"][str(number)] = {"raft": raft, "control": control}
            written = self._path.with_suffix(".new")
            written.write_text(json.dumps(self.data, indent=2))
            written.replace(self._path)

    def server(self, number: int) -> Server:
        return Server(number, f"tcp://127.0.0.1:{self.data['nodes'][str(number)]['raft']}")

    def control_ports(self) -> dict[int, int]:
        return {int(number): node["control"] for number, node in self.data["nodes"].items()}

    @property
    def founding(self) -> Stored:
        servers = tuple(self.server(number) for number in self.data["founders"])
        return Stored.founding(servers)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)


class Service:
    """One node, its store, and its control port."""

    def __init__(self, farm: Farm, number: int, *, echo: bool) -> None:
        self.number = number
        self._farm = farm
        self._rng = random.SystemRandom()
        self._nonces = Nonces(rng=self._rng)
        self._cache = CredentialCache()
        self._machine = KeyValues(echo=echo)
        self._client = Client(self._propose)
        founding = farm.founding if number in farm.data["founders"] else Stored()
        self._store = RaftSqliteStore(
            farm.folder / f"node-{number}.sqlite",
            Sessions(self._machine, self._client.applied),
            founding,
        )
        self._loop = asyncio.get_running_loop()
        self.node = Node(
            server_id=number,
            stored=self._store.load(),
            rng=self._rng,
            now=self._loop.time(),
            timing=TIMING,
            limits=LIMITS,
        )
        self._executor = ThreadPoolExecutor(1)
        self._driver = NodeDriver(
            self.node,
            self._store,
            perform_in=self._executor,
            handshake=self._handshake,
            server_tls=self._tls(ssl.Purpose.CLIENT_AUTH),
            client_tls=self._tls(ssl.Purpose.SERVER_AUTH),
            on_event=self._on_event,
        )
        # The index at which a value was committed; none if that is not known
        self._forwards: dict[int, asyncio.Future[int | None]] = {}
        self._puts: dict[tuple[int, int], asyncio.Future[int | None]] = {}
        self._reads: dict[int, asyncio.Future[bool]] = {}
        self._changes: list[asyncio.Future[bool]] = []

    def _tls(self, purpose: ssl.Purpose) -> ssl.SSLContext | None:
        if not self._farm.data["tls"]:
            return None
        folder = self._farm.folder
        context = ssl.create_default_context(purpose, cafile=str(folder / "cert.pem"))
        if purpose is ssl.Purpose.CLIENT_AUTH:
            context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        return context

    def _handshake(self, server: Server | None) -> StreamMachine:
        password = self._farm.data["password"]
        if server is None:
            lookup = {USER: password}.get
            return ServerHandshake(lookup=lookup, nonces=self._nonces, now=self._loop.time())
        return ClientHandshake(
            host=server.endpoint.partition("://")[2],
            user=USER,
            password=password,
            cache=self._cache,
            rng=self._rng,
            now=self._loop.time(),
        )

    async def serve(self) -> None:
        ports = self._farm.data["nodes"][str(self.number)]
        await self._driver.listen("127.0.0.1", ports["raft"])
        control = await asyncio.start_server(self._control, "127.0.0.1", ports["control"])
        try:
            await self._driver.wait_closed()
        finally:
            control.close()
            await self._driver.stop()
            self._executor.shutdown()
            self._store.close()

    # What the node tells

    def _on_event(self, event: Event) -> None:
        match event:
            case Forwarded(forward=number, index=index, term=term):
                self._puts[index, term] = self._forwards.pop(number)
            case ForwardFailed(forward=number):
                self._end(self._forwards.pop(number), None)
            case Committed(index=index, term=term):
                self._end(self._puts.pop((index, term)), index)
            case Lost(index=index, term=term):
                self._end(self._puts.pop((index, term)), None)
            case ReadReady(read=number):
                self._reads.pop(number).set_result(True)
            case ReadFailed(read=number):
                self._reads.pop(number).set_result(False)
            case ConfigurationChanged() | ChangeFailed() | TransferFailed():
                changes, self._changes = self._changes, []
                for change in changes:
                    if not change.done():
                        change.set_result(isinstance(event, ConfigurationChanged))
            case _:
                pass

    @staticmethod
    def _end(put: asyncio.Future[int | None], index: int | None) -> None:
        if not put.done():
            put.set_result(index)

    # What clients ask

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled when the node ends; asyncio would print a traceback of each that says so.
        with contextlib.suppress(ConnectionError, ValueError, asyncio.CancelledError):
            while line := await reader.readline():
                answer = await self._answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._do(question)
        except LocalProtocolError as error:
            return {"error": error.code.name, "leader": self.node.leader}
        except TimeoutError:
            return {"error": "TIMEOUT", "leader": self.node.leader}

    async def _do(self, question: dict[str, Any]) -> dict[str, Any]:
        match question:
            case {"do": "put", "key": key, "value": value}:
                command = json.dumps({"key": key, "value": value}).encode()
                return {"ok": True, "index": await self._client.do(command)}
            case {"do": "get", "key": key}:
                read: asyncio.Future[bool] = self._loop.create_future()
                self._reads[self.node.read()] = read
                if not await self._wait(read):
                    return {"error": "READ_FAILED", "leader": self.node.leader}
                return {"ok": True, "value": self._machine.values.get(key)}
            case {"do": "add", "id": int(number)}:
                added = Farm(self._farm.folder).server(number)
                self.node.add_server(replace(added, voter=not question.get("learner")))
                return {"ok": await self._changed()}
            case {"do": "remove", "id": int(number)}:
                self.node.remove_server(number)
                return {"ok": await self._changed()}
            case {"do": "transfer", "id": int(number)}:
                self.node.transfer_leadership(number)
                self._driver.soon()
                while self.node.state is State.LEADER:
                    await asyncio.sleep(0.01)
                return {"ok": True}
            case {"do": "status"}:
                return self._status()
        return {"error": "UNKNOWN_COMMAND"}

    async def _propose(self, value: bytes) -> int | None:
        put: asyncio.Future[int | None] = self._loop.create_future()
        try:
            self._forwards[self.node.forward([value])] = put
        except LocalProtocolError as error:
            if error.code in TRY_AGAIN:
                return None
            raise
        return await self._wait(put)

    async def _wait(self, future: asyncio.Future[R]) -> R:
        self._driver.soon()
        return await future

    async def _changed(self) -> bool:
        change: asyncio.Future[bool] = self._loop.create_future()
        self._changes.append(change)
        return await self._wait(change)

    def _status(self) -> dict[str, Any]:
        node = self.node
        return {
            "id": self.number,
            "pid": os.getpid(),
            "role": node.state.value,
            "term": node.term,
            "leader": node.leader,
            "commit_index": node.commit_index,
            "applied_index": node.applied_index,
            "servers": sorted(node.configuration.ids),
            "learners": sorted(node.configuration.ids - node.configuration.voters),
            "keys": len(self._machine.values),
            "peers": [
                {
                    "id": peer.server_id,
                    "doing": peer.doing,
                    "lacks": node.last_index - peer.match_index,
                    "silent_s": round(self._loop.time() - peer.heard_at, 3),
                    "snapshot_bytes": peer.snapshot_offset,
                }
                for peer in node.peers
            ],
        }


# Commands


def run(farm: Farm, number: int, *, echo: bool) -> None:
    async def serve() -> None:
        service = Service(farm, number, echo=echo)
        task = asyncio.create_task(service.serve())
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve())


def spawn(farm: Farm, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "run", "--dir", str(farm.folder), str(number)]
    return subprocess.Popen(command)


def start(farm: Farm) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the nodes end with us
    # A node heeds Ctrl-C when it runs, and does not die of it before.
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = [spawn(farm, number) for number in farm.control_ports()]
    try:
        signal.signal(signal.SIGINT, heeded)
        print(json.dumps({"dir": str(farm.folder), "nodes": farm.data["nodes"]}), flush=True)
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            process.terminate()
            process.wait()


async def statuses(farm: Farm) -> list[dict[str, Any]]:
    """What each node says of itself, asked all at once."""
    ports = farm.control_ports()
    answers = await asyncio.gather(*(ask_one(port, {"do": "status"}) for port in ports.values()))
    found = zip(ports, answers, strict=True)
    return [answer or {"id": number, "role": "down"} for number, answer in found]


def status(farm: Farm, *, as_json: bool) -> None:
    answers = asyncio.run(statuses(farm))
    if not as_json:
        show(table_of_servers(answers))
    for answer in answers if as_json else ():
        print(json.dumps(answer))


async def watch(folder: Path, *, as_json: bool) -> None:
    """Tell what changes until interrupted; on a terminal, below a table that is up to date."""
    before: list[dict[str, Any]] = []
    told: list[str] = []
    with Screen() as screen:
        while True:
            answers = await statuses(Farm(folder))
            for change in changes(before, answers):
                told.append(change)
                if as_json:
                    print(json.dumps({"change": change}), flush=True)
                elif not screen.drawn:
                    print(change, flush=True)
            before = answers
            if not as_json:
                screen.draw(table_of_servers(answers), "\n".join(told[-12:]))
            await asyncio.sleep(WATCH_INTERVAL_S)


def recover_alone(farm: Farm, number: int, *, as_json: bool) -> None:
    """Make a cluster of one of what a server has, when most of the others are lost for good."""
    if asyncio.run(ask_one(farm.control_ports()[number], {"do": "status"})) is not None:
        raise SystemExit(f"node {number} runs: stop it first")
    machine = Sessions(KeyValues(echo=False))
    store = RaftSqliteStore(farm.folder / f"node-{number}.sqlite", machine)
    stored = recover(store, [farm.server(number)])
    store.close()
    answer(
        {"recovered": number, "index": stored.snapshot.index},
        f"server {number} is a cluster of its own, with all up to entry {stored.snapshot.index}",
        as_json=as_json,
    )


def kill(farm: Farm, number: int, *, as_json: bool) -> None:
    found = asyncio.run(ask_one(farm.control_ports()[number], {"do": "status"}))
    if found is not None:
        os.kill(found["pid"], signal.SIGKILL)
    text = f"server {number} does not run" if found is None else f"server {number} is killed"
    answer({"killed": found and found["pid"]}, text, as_json=as_json)


def answer(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(value) if as_json else text, flush=True)


def ask(farm: Farm, question: dict[str, Any], *, as_json: bool) -> int:
    """Ask, and say what is answered; the exit status."""
    ports = farm.control_ports()
    at = question.pop("at", None)
    found = asyncio.run(ask_around({at: ports[at]} if at is not None else ports, question))
    match found:
        case {"error": error}:
            leader = found.get("leader")
            text = f"{error}; the leader is {leader}" if leader else str(error)
        case {"ok": True, "value": value}:
            text = f"{question['key']} is not there" if value is None else str(value)
        case {"ok": True, "index": index}:
            text = f"committed as entry {index}"
        case {"ok": True}:
            text = "done"
        case _:
            text = "it has come to nothing: ask again"
    answer(found, text, as_json=as_json)
    return 0 if found.get("ok") else 1


COMMANDS = {
    "start": ("run a cluster until interrupted", []),
    "run": ("run one server until interrupted", ["id"]),
    "put": ("store a value, and wait until a majority has it", ["key", "value"]),
    "get": ("read the newest committed value", ["key"]),
    "status": ("show what each server is doing", []),
    "watch": ("show what each server is doing, and every change, until interrupted", []),
    "kill": ("kill a server, as kill -9 does", ["id"]),
    "recover": ("make one server a cluster of its own, when most are lost for good", ["id"]),
    "add": ("make a running server a member, or a learner a voter", ["id"]),
    "remove": ("end the membership of a server", ["id"]),
    "transfer": ("hand the leadership to another server", ["id"]),
}
PURPOSES = {"id": "the number of the server", "key": "the name of the value", "value": "any text"}


def parser() -> argparse.ArgumentParser:
    epilog = exits(
        "done",
        "the cluster refused, or did not answer",
        "the command cannot be carried out",
        endless="start, run and watch",
    )
    made = argparse.ArgumentParser(
        description="A replicated key-value store on Garlic Farm.", epilog=epilog
    )
    commands = made.add_subparsers(dest="command", required=True)
    for name, (purpose, positional) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
        command.add_argument(
            "--dir",
            type=Path,
            required=True,
            help="the cluster's folder, with its stores and ports",
        )
        command.add_argument(
            "--json", action="store_true", help="write lines of JSON, for machines"
        )
        for argument in positional:
            kind = int if argument == "id" else str
            command.add_argument(argument, type=kind, help=PURPOSES[argument])
        if name == "add":
            command.add_argument(
                "--learner", action="store_true", help="one that gets the log, but has no vote"
            )
        if name in ("get", "put"):
            command.add_argument(
                "--at", type=int, metavar="ID", help="the server to ask (default: any)"
            )
        if name == "start":
            command.add_argument(
                "--nodes",
                type=int,
                default=3,
                metavar="N",
                help="how many servers a new cluster has (default: %(default)s)",
            )
            command.add_argument("--tls", action="store_true", help="use TLS between the servers")
        if name == "run":
            command.add_argument(
                "--quiet", action="store_true", help="do not print the values that are put"
            )
    return made


def main() -> int:
    given = parser().parse_args()
    if given.command == "start":
        start(Farm.found(given.dir, given.nodes, tls=given.tls))
        return 0
    farm, as_json = Farm(given.dir), given.json
    if not farm.data:
        parser().error(f"no cluster in {given.dir}; start one first")
    named = getattr(given, "at", None) if given.command not in ("kill", "recover") else given.id
    if named is not None and named not in farm.control_ports():
        parser().error(f"there is no server {named}")
    match given.command:
        case "run":
            farm.add(given.id)
            run(farm, given.id, echo=not given.quiet)
        case "status":
            status(farm, as_json=as_json)
        case "watch":
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(watch(given.dir, as_json=as_json))
        case "kill":
            kill(farm, given.id, as_json=as_json)
        case "recover":
            recover_alone(farm, given.id, as_json=as_json)
        case _:
            if given.command == "add":
                farm.add(given.id)
            names = {"id", "key", "value", "at", "learner"}
            words = {name: value for name, value in vars(given).items() if name in names}
            return ask(farm, {"do": given.command, **words}, as_json=as_json)
    return 0


if __name__ == "__main__":
    end_with(main)

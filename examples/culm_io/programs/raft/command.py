"""A replicated key-value store and message printer on Garlic Farm.

    culm raft start --nodes 3 --dir /tmp/farm [--tls]
    culm raft put --dir /tmp/farm colour green [--at 2]
    culm raft get --dir /tmp/farm colour [--at 3]
    culm raft status --dir /tmp/farm
    culm raft watch --dir /tmp/farm        # the same, as it changes
    culm raft kill --dir /tmp/farm 2       # kill -9
    culm raft run --dir /tmp/farm 2        # start it again
    culm raft add --dir /tmp/farm 4        # a server joins, or learns no more
    culm raft add --dir /tmp/farm 4 --learner
    culm raft remove --dir /tmp/farm 4
    culm raft transfer --dir /tmp/farm 3
    culm raft recover --dir /tmp/farm 1    # the others are lost for good

``start`` runs the nodes as processes on loopback, each with a SQLite store in the folder,
until it is interrupted, and shows on a terminal the same as ``watch``.  Nodes speak Garlic Farm
with the handshake; ``--tls`` puts TLS around it (a self-signed certificate is made with the
openssl command).  Clients ask a control port of each node in lines of JSON.

Answers are in words and tables; with ``--json``, in lines of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from culm.exits import ExitStatus, exits
from culm.garlic.sessions import Sessions
from culm.garlic.store import recover
from culm_io.command import command_of
from culm_io.programs.arguments import folder, number, source
from culm_io.programs.captures import Captures, add_capture, capture_words
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.numbers import Metrics, add_metrics, metrics_words
from culm_io.programs.raft.client import (
    ANSWER_TIMEOUT_S,
    Client,
    Cluster,
    NotAppliedError,
    UnknownError,
    ask_one,
)
from culm_io.programs.raft.display import changes, table_of_servers
from culm_io.programs.raft.farm import SERVER_ID_MAX, Farm
from culm_io.programs.raft.server import KeyValues, run
from culm_io.programs.tables import Screen, clean, show
from culm_io.stores.raft import RaftSqliteStore

WATCH_INTERVAL_S = 0.3
STATUS_PATIENCE_S = 1.0  # a server that is stuck is as good as down
server_id = number(1, SERVER_ID_MAX, "a server's number")


def spawn(farm: Farm, number: int, more: Sequence[str], *, heard: bool) -> subprocess.Popen[str]:
    """A server in a process of its own; `heard` if we read its output."""
    pipe = subprocess.PIPE if heard else None
    words = command_of("raft", "run", "--dir", farm.folder, number, *more)
    return subprocess.Popen(words, stdout=pipe, stderr=pipe and subprocess.STDOUT, text=True)


def hear(number: int, process: subprocess.Popen[str], told: list[str]) -> None:
    """Note a server's output, until it ends."""
    for line in process.stdout or ():
        text = clean(line.rstrip())
        told.append(f"{number}: {text}")


def start(farm: Farm, more: Callable[[int], list[str]], *, as_json: bool) -> ExitStatus:
    """Run servers until interrupted; on a terminal, with the table that `watch` draws.

    more: words for the command of each server.  The exit status tells if all have ended before,
    and not all of them well.
    """
    drawn, told = sys.stdout.isatty() and not as_json, list[str]()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the nodes end with us
    words = {number: more(number) for number in farm.members()}
    # A node heeds Ctrl-C when it runs, and does not die of it before.
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = {number: spawn(farm, number, each, heard=drawn) for number, each in words.items()}
    try:
        signal.signal(signal.SIGINT, heeded)
        if drawn:
            for number, process in processes.items():
                Thread(target=hear, args=(number, process, told), daemon=True).start()
            asyncio.run(watch(farm.folder, told, as_json=False))
        nodes = {str(number): farm.data["nodes"][str(number)] for number in processes}
        print(json.dumps({"dir": str(farm.folder), "nodes": nodes}), flush=True)
        ends = [process.wait() for process in processes.values()]
        return ExitStatus.FAILED if any(ends) else ExitStatus.DONE
    except KeyboardInterrupt:
        return ExitStatus.DONE
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()


async def statuses(farm: Farm) -> list[dict[str, Any]]:
    """The status of each node, all asked at once; none of one that is removed and down."""
    ports = farm.control_ports()
    asked = (ask_one(port, {"do": "status"}, STATUS_PATIENCE_S) for port in ports.values())
    found = zip(ports, await asyncio.gather(*asked), strict=True)
    return [
        {"id": number, "role": "down"} if "error" in one else one
        for number, one in found
        if "error" not in one or number not in farm.removed
    ]


def status(farm: Farm, *, as_json: bool) -> None:
    answers = asyncio.run(statuses(farm))
    if not as_json:
        show(table_of_servers(answers))
    for answer in answers if as_json else ():
        print(json.dumps(answer))


async def watch(folder: Path, told: list[str], *, as_json: bool) -> None:
    """Tell changes until interrupted; on a terminal, below a table that is up to date."""
    before: list[dict[str, Any]] = []
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
                screen.draw(table_of_servers(answers), "\n" + "\n".join(told[-10:]))
            await asyncio.sleep(WATCH_INTERVAL_S)


def recover_alone(farm: Farm, number: int, *, as_json: bool) -> None:
    """Make a cluster of one from a server's store, when most of the others are lost for good."""
    with farm.claimed(number) as path:
        if not path.exists():
            raise ImpossibleError(f"server {number} has no store")
        store = RaftSqliteStore(path, Sessions(KeyValues()), server_id=number)
        stored = recover(store, [farm.server(number)])
        with contextlib.closing(farm.note_store(number, path)) as mark:
            mark.note(store.written)
        store.close()
    farm.is_alone(number)
    answer(
        {"recovered": number, "index": stored.snapshot.index},
        f"server {number} is a cluster of its own, with all up to entry {stored.snapshot.index}",
        as_json=as_json,
    )


def kill(farm: Farm, number: int, *, as_json: bool) -> None:
    found = asyncio.run(ask_one(farm.control_ports()[number], {"do": "status"}, ANSWER_TIMEOUT_S))
    pid = found.get("pid")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    text = f"server {number} is killed" if pid else f"server {number} does not run, or hangs"
    answer({"killed": pid}, text, as_json=as_json)


def answer(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(value) if as_json else text, flush=True)


def put(cluster: Cluster, key: str, value: str, *, as_json: bool) -> ExitStatus:
    """Store a value, once whatever happens to servers; the exit status."""

    async def do() -> int:
        command = json.dumps({"key": key, "value": value}).encode()
        return await Client(cluster.propose).do(command)

    try:
        index = asyncio.run(do())
    except NotAppliedError as error:
        answer({"error": "NOT_APPLIED"}, f"it is not stored: {error}", as_json=as_json)
        return ExitStatus.FAILED
    except UnknownError as error:
        answer({"error": "UNKNOWN"}, f"it may be stored or not: {error}", as_json=as_json)
        return ExitStatus.UNKNOWN
    answer({"ok": True, "index": index}, f"committed as entry {index}", as_json=as_json)
    return ExitStatus.DONE


def get(cluster: Cluster, key: str, *, as_json: bool) -> ExitStatus:
    found = asyncio.run(cluster.ask({"do": "get", "key": key}))
    if found.get("ok") and found["value"] is None:
        if as_json:
            print(json.dumps(found))
        print(f"{key} is not there", file=sys.stderr)
        return ExitStatus.ABSENT
    return told(found, str(found.get("value")), as_json=as_json)


def told(found: dict[str, Any], text: str, *, as_json: bool) -> ExitStatus:
    """Tell the answer, `text` if it was done; the exit status."""
    match found:
        case {"ok": True}:
            pass
        case {"error": str(error)}:
            leader = found.get("leader")
            text = SENTENCES.get(error, f"{error}; the leader is {leader}" if leader else error)
        case _:
            text = "given up, though it may be done yet: see `status`"
    answer(found, text, as_json=as_json)
    return ExitStatus.DONE if found.get("ok") else ExitStatus.FAILED


COMMANDS = {
    "start": ("run a cluster until interrupted", []),
    "run": ("run one server until interrupted", ["id"]),
    "put": ("store a value, and wait until a majority has it", ["key", "value"]),
    "get": ("read the newest committed value", ["key"]),
    "status": ("show the state of each server", []),
    "watch": ("show the state of each server, and every change, until interrupted", []),
    "kill": ("kill a server, as kill -9 does", ["id"]),
    "recover": ("make one server a cluster of its own, when most are lost for good", ["id"]),
    "add": ("make a running server a member, or a learner a voter", ["id"]),
    "remove": ("end the membership of a server, which `start` leaves out then", ["id"]),
    "transfer": ("hand the leadership to another server", ["id"]),
}
SENTENCES = {
    "BUSY": "BUSY: too many are asking already",
    "IS_LEADER": "IS_LEADER: let another one lead first (transfer)",
    "NOBODY_ANSWERS": "NOBODY_ANSWERS: no server runs",
    "TIMEOUT": "TIMEOUT: it may be done yet; ask again to see",
}
WRITE = (
    "start",
    "run",
    "recover",
    "add",
    "remove",
)  # to the folder; others only look where servers are
PURPOSES = {"id": "the number of the server", "key": "the name of the value", "value": "any text"}


def parser() -> argparse.ArgumentParser:
    epilog = exits(
        {
            ExitStatus.DONE: "done",
            ExitStatus.FAILED: "the cluster refused, or did not answer",
            ExitStatus.IMPOSSIBLE: "the command cannot be carried out",
            ExitStatus.ABSENT: "there is no value of that name",
            ExitStatus.UNKNOWN: "the value may be stored or not",
        },
        endless="start, run and watch",
    )
    made = argparse.ArgumentParser(
        prog="culm raft", description="A replicated key-value store on Garlic Farm.", epilog=epilog
    )
    commands = made.add_subparsers(dest="command", required=True)
    for name, (purpose, positional) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
        command.add_argument(
            "--dir",
            type=folder if name in WRITE else source,
            required=True,
            help="the cluster's folder, with its stores and ports",
        )
        command.add_argument(
            "--json", action="store_true", help="write lines of JSON, for machines"
        )
        for argument in positional:
            kind = server_id if argument == "id" else str
            command.add_argument(argument, type=kind, help=PURPOSES[argument])
        if name == "add":
            command.add_argument(
                "--learner", action="store_true", help="one that gets the log, but has no vote"
            )
        if name in ("run", "start"):
            add_capture(command)
            further = "; server 2 one port further, and so on" if name == "start" else ""
            add_metrics(command, further)
        if name in ("get", "put"):
            command.add_argument(
                "--at", type=server_id, metavar="ID", help="the server to ask (default: any)"
            )
        if name == "start":
            command.add_argument(
                "--nodes",
                type=number(1, 32),
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


def main(words: Sequence[str] | None = None) -> ExitStatus:
    given = parser().parse_args(words)
    if given.command == "start":
        farm = Farm.found(given.dir, given.nodes, tls=given.tls)

        def more(number: int) -> list[str]:
            return [*capture_words(given), *metrics_words(given, number - 1)]

        return start(farm, more, as_json=given.json)
    farm, as_json = Farm(given.dir), given.json
    if not farm.data:
        parser().error(f"no cluster in {given.dir}; start one first")
    known = ("kill", "recover", "remove", "transfer")
    named = given.id if given.command in known else getattr(given, "at", None)
    if named is not None and named not in farm.control_ports():
        parser().error(f"there is no server {named}")
    match given.command:
        case "run":
            farm.add(given.id)
            captures, metrics = Captures.of(given), Metrics.of(given)
            run(farm, given.id, echo=not given.quiet, captures=captures, metrics=metrics)
        case "status":
            status(farm, as_json=as_json)
        case "watch":
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(watch(given.dir, [], as_json=as_json))
        case "kill":
            kill(farm, given.id, as_json=as_json)
        case "recover":
            recover_alone(farm, given.id, as_json=as_json)
        case "put":
            return put(cluster_of(farm, given.at), given.key, given.value, as_json=as_json)
        case "get":
            return get(cluster_of(farm, given.at), given.key, as_json=as_json)
        case "add" | "remove" | "transfer" as verb:
            if verb == "add":
                farm.add(given.id)
            learner = {"learner": given.learner} if verb == "add" else {}
            asking = cluster_of(farm, None).ask({"do": verb, "id": given.id, **learner})
            found = asyncio.run(asking)
            if found.get("ok") and verb != "transfer":
                farm.is_member(given.id, member=verb == "add")
            return told(found, "done", as_json=as_json)
    return ExitStatus.DONE


def cluster_of(farm: Farm, at: int | None) -> Cluster:
    """The servers to ask: that one alone, or all."""
    return Cluster(farm.members() if at is None else {at: farm.control_ports()[at]})

"""A p2panda node: writes documents, and replicates them with other nodes over TCP.

    culm p2panda create --store a.store name=Lu
    culm p2panda update --store a.store DOCUMENT name=Lulu
    culm p2panda serve --store a.store --port 2020
    culm p2panda sync --store b.store --from 127.0.0.1:2020 --live
    culm p2panda show --store b.store

A node reports in words on a terminal, and in lines of JSON elsewhere or with ``--json``.
``serve`` waits for others, ``sync`` goes to them; a node may do both.  Operations from one of
them go on to all that stay live.  ``serve`` and ``--live`` go on until Ctrl-C.  The author's key
is in a file beside the store, which is made with the first document.  Where the store is a copy,
or comes from a backup, a new key is made (``new author``), so that no log ever forks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sqlite3
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from culm.exits import ExitStatus, exits
from culm.p2panda import Author, InvalidOperation, SchemaId, materialise
from culm.wire.json import read_json
from culm.wire.multihash import YASMF
from culm_io.programs.arguments import address, any_port, count, file, host, positive
from culm_io.programs.captures import Captures, add_capture
from culm_io.programs.ending import AbsentError, ImpossibleError
from culm_io.programs.numbers import Metrics, add_metrics
from culm_io.programs.p2panda.author import author_of
from culm_io.programs.p2panda.links import ADDRESS_MAX, PEERS_MAX, Node
from culm_io.programs.tables import Table, Teller, show
from culm_io.stores.p2panda import OperationSqliteStore

SCHEMA = "note_" + YASMF.hash(b"notes").hex()

tell = Teller()
"""A line for the caller of the program."""


# Documents.


def parse_fields(pairs: list[str]) -> dict[str, Any]:
    """Fields given as ``name=value``; a value that is no JSON is text."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ImpossibleError(f"not name=value: {pair}")
        fields[name] = parse_value(text)
    return fields


def parse_value(text: str) -> Any:
    """A value of JSON; anything else is text, as are ``NaN`` and values nested too deeply."""
    try:
        value = read_json(text)
    except ValueError:
        return text
    return text if isinstance(value, float) and not isfinite(value) else value


def plain(value: Any) -> Any:
    """Fields of a document for JSON: relations and bytes as hex, and infinities and NaN as text."""
    match value:
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case bytes():
            return value.hex()
        case list() | tuple():
            return [plain(each) for each in value]
        case float() if not isfinite(value):
            return str(value)
        case _:
            return value


def documents(store: OperationSqliteStore, schema_id: str) -> dict[str, Any]:
    """All documents of a schema: their views and their fields."""
    found = {}
    for document_id in store.documents(schema_id):
        document = materialise(
            store.operations(document_id), backlinks=store.backlinks(document_id)
        )
        found[document_id.hex()] = {"view": document.view_id, "fields": plain(document.fields)}
    return found


def tell_restored(key: Path) -> None:
    """The store is a copy, or comes from a backup: its author has a new key."""
    tell("new author", former=str(key))


# Replication.


async def run(given: argparse.Namespace, store: OperationSqliteStore) -> bool:
    """Serve, or go to others, or both; whether all went well."""
    live = given.command == "serve" or given.live
    captures, metrics = Captures.of(given), Metrics.of(given)
    node = Node(
        store,
        given.schema or [SCHEMA],
        live=live,
        returns=live and given.port is not None,
        patience_s=given.patience,
        peers_max=given.peers_max,
        address_max=given.address_max,
        captures=captures,
        metrics=metrics,
        tell=tell,
    )
    with contextlib.closing(node), captures:
        async with metrics.served("p2panda", node.numbers):
            await replicate(given, node, live=live)
    return not node.failed


async def replicate(given: argparse.Namespace, node: Node, *, live: bool) -> None:
    """Until it is done or interrupted; raises `KeyboardInterrupt` if that cuts it short."""
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, enough.set)
    serves = given.port is not None
    listening = socket.create_server((given.host, given.port)) if serves else None
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(enough.wait())
        endless: list[asyncio.Task[Any]] = [waiting, tasks.create_task(node.watch())]
        if listening is not None:
            listening.setblocking(False)
            endless.append(tasks.create_task(node.serve(listening)))
            tell("listening", port=listening.getsockname()[1])
        going = tasks.create_task(node.go_to(given.peers or []))
        stops: set[asyncio.Task[Any]] = {waiting} if serves else {waiting, going}
        await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
        cut_short = not going.done() and not serves and not live
        node.leave()
        await asyncio.wait([going])
        for each in endless:
            each.cancel()
    if listening is not None:  # a task that is cancelled before it has begun closes nothing
        listening.close()
    if cut_short:
        raise KeyboardInterrupt


# The command line.


def schema(text: str) -> str:
    """The id of a schema."""
    try:
        return str(SchemaId.parse(text))
    except InvalidOperation as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> argparse.ArgumentParser:
    epilog = exits(
        {
            ExitStatus.DONE: "done",
            ExitStatus.FAILED: "another node has failed, or cannot be reached",
            ExitStatus.IMPOSSIBLE: "it cannot be done: wrong arguments, the store, a port",
            ExitStatus.ABSENT: "there is no document of that id",
        },
        endless="serve and --live",
    )
    made_parser = argparse.ArgumentParser(
        prog="culm p2panda", description=(__doc__ or "").partition("\n")[0], epilog=epilog
    )
    commands = made_parser.add_subparsers(dest="command", required=True)

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
        made.add_argument(
            "--store", type=file, required=True, metavar="FILE", help="the file with the documents"
        )
        made.add_argument("--json", action="store_true", help="write JSON even on a terminal")
        made.add_argument(
            "--schema",
            type=schema,
            action="append",
            metavar="ID",
            help="the schema of the documents; serve and sync take several (default: notes)",
        )
        return made

    create = command("create", "create a document")
    update = command("update", "change the fields of a document")
    delete = command("delete", "delete a document")
    for each in (update, delete):
        each.add_argument(
            "document", type=bytes.fromhex, metavar="DOCUMENT", help="its id, in hexadecimal"
        )
    for each in (create, update):
        each.add_argument(
            "fields",
            nargs="*",
            metavar="NAME=VALUE",
            help="a field; a value that is not JSON is taken as text",
        )
    command("show", "show all documents")
    serve = command("serve", "wait for other nodes to connect")
    serve.add_argument(
        "--port", type=any_port, required=True, help="the port to listen on; 0: any free port"
    )
    sync = command("sync", "connect to other nodes, and exchange documents with them")
    sync.add_argument("--port", type=any_port, help="listen on this port for other nodes, too")
    sync.add_argument(
        "--live", action="store_true", help="stay connected, and exchange new operations"
    )
    for each in (serve, sync):
        each.add_argument(
            "--host",
            type=host,
            default="127.0.0.1",
            help="the address to listen on (default: %(default)s)",
        )
        each.add_argument(
            "--peers-max",
            type=count,
            default=PEERS_MAX,
            metavar="N",
            help="how many nodes that connect to us have a place (default: %(default)s)",
        )
        each.add_argument(
            "--address-max",
            type=count,
            default=ADDRESS_MAX,
            metavar="N",
            help="how many of them from one address (default: %(default)s)",
        )
        each.add_argument(
            "--from",
            dest="peers",
            type=address,
            action="append",
            metavar="HOST:PORT",
            help="a node to connect to (may be repeated); who listens, and is live, connects again",
        )
        each.add_argument(
            "--patience",
            type=positive,
            default=30.0,
            metavar="SECONDS",
            help="how long a node may take to begin a session with us (default: 30)",
        )
        add_capture(each)
        add_metrics(each)
    return made_parser


def write(given: argparse.Namespace, author: Author, schema_id: str) -> tuple[str, str, bytes]:
    """Create, change or delete a document: the action, and the document's id."""
    match given.command:
        case "create":
            return "created", "document", author.create(schema_id, parse_fields(given.fields))
        case "update":
            fields = parse_fields(given.fields)
            return "updated", "operation", author.update(given.document, fields)
        case _:
            return "deleted", "operation", author.delete(given.document)


def do(given: argparse.Namespace, store: OperationSqliteStore) -> bool:
    """Run the command; whether all went well."""
    (schema_id, *_) = given.schema or [SCHEMA]
    match given.command:
        case "create" | "update" | "delete":
            with author_of(given.store, store, on_restored=tell_restored) as author:
                done, kind, id = write(given, author, schema_id)
            tell(done, **{kind: id.hex()})
        case "show":
            found = documents(store, schema_id)
            if tell.in_words:
                rows = [(name, json.dumps(each["fields"])) for name, each in found.items()]
                show(Table(f"Documents of {schema_id}", ("document", "fields"), rows))
            else:
                print(json.dumps(found))
        case _:
            return asyncio.run(run(given, store))
    return True


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Run a command; the exit status."""
    arguments = parser()
    given = arguments.parse_args(words)
    if given.command == "sync" and not given.peers and given.port is None:
        arguments.error("sync goes to a node (--from), or waits for some (--port)")
    if given.json:
        tell.write_json()
    if given.command in ("show", "update", "delete") and not given.store.exists():
        raise ImpossibleError(f"{given.store}: no such file")
    try:
        with OperationSqliteStore(given.store) as store:
            return ExitStatus.DONE if do(given, store) else ExitStatus.FAILED
    except KeyError as error:
        raise AbsentError(f"no document {error.args[0].hex()}") from error
    except (InvalidOperation, ValueError) as error:
        raise ImpossibleError(str(error)) from error
    except sqlite3.Error as error:
        raise ImpossibleError(f"{given.store}: {error}") from error
    except ExceptionGroup as failed:  # of the replicating tasks, as the store failed
        raise ImpossibleError(f"{given.store}: {first_of(failed)}") from failed


def first_of(failed: ExceptionGroup[Exception]) -> Exception:
    """The first failure in a group of groups."""
    first = failed.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first

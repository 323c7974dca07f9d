"""A p2panda node: writes documents, and replicates them with other nodes over TCP.

    python examples/p2panda_node.py create --store a.store name=Lu
    python examples/p2panda_node.py update --store a.store DOCUMENT name=Lulu
    python examples/p2panda_node.py serve --store a.store --port 2020
    python examples/p2panda_node.py sync --store b.store --from 127.0.0.1:2020 --live
    python examples/p2panda_node.py show --store b.store

What a node tells it tells in words on a terminal, and in lines of JSON elsewhere or with
``--json``.  ``serve`` waits for others, ``sync`` goes to them; a node may do both.  What comes from
one of them goes on to all that stay live.  ``serve`` and ``--live`` go on until Ctrl-C.  The
author's key is in a file beside the store, which is made with the first document.

Exit status: 0, or 1 if a session has failed or something cannot be done, which one line says, or
130 if it was interrupted before it was done.  For ``serve`` and ``--live`` Ctrl-C is the usual end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from arguments import address, any_port, positive
from culm.machine import Event
from culm.p2panda import (
    Author,
    InvalidOperation,
    OperationLeftOut,
    OperationStored,
    Policy,
    Replicator,
    SessionEnded,
    SessionLive,
    materialise,
)
from culm.p2panda.effects import perform
from culm.pump import AbortedError
from culm.wire.multihash import YASMF
from drivers.asyncio_driver import MachineProtocol
from ending import DONE, FAILED, ImpossibleError, end_with, exits
from stores.p2panda_sqlite_store import OperationSqliteStore
from tables import Table, Teller, show

SCHEMA = "note_" + YASMF.hash(b"notes").hex()
PEERS_MAX = 256  # connections at a time
PAUSE_S = 0.1  # before another connection is accepted, when one could not be
WATCH_S = 0.25  # between two looks at whether another process has written to the store


class NodeError(Exception):
    """Another node cannot be reached; says why in one line."""


tell = Teller()
"""A line for whoever has started us."""


# Documents.


def author_of(path: Path, store: OperationSqliteStore) -> Author:
    """The author whose key is beside the store; a new one if there is none."""
    file = path.with_name(path.name + ".key")
    if not file.exists():
        made = path.with_name(f"{path.name}.key.{secrets.token_hex(8)}")
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as whole:
            whole.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(made, file)
        made.unlink()
    return Author(SigningKey(file.read_bytes()), store)


def parse_fields(pairs: list[str]) -> dict[str, Any]:
    """Fields given as ``name=value``; a value that is no JSON is text."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ImpossibleError(f"not name=value: {pair}")
        try:
            fields[name] = json.loads(text)
        except ValueError:
            fields[name] = text
    return fields


def plain(fields: Mapping[str, Any] | None) -> Any:
    """The fields of a document for JSON; relations and bytes as hex."""
    return json.loads(json.dumps(fields, default=bytes.hex))


def documents(store: OperationSqliteStore, schema_id: str) -> dict[str, Any]:
    """All documents of a schema: their views and their fields."""
    found = {}
    for document_id in store.documents(schema_id):
        document = materialise(store.operations(document_id))
        found[document_id.hex()] = {"view": document.view_id, "fields": plain(document.fields)}
    return found


# Replication.


class Node:
    """Replicators between one store and its peers.

    patience_s: how long a peer to which we have gone may take until there is a session.
    """

    def __init__(
        self, store: OperationSqliteStore, schema_ids: list[str], *, live: bool, patience_s: float
    ) -> None:
        self.failed = False
        self._store = store
        self._schema_ids = schema_ids
        self._live = live
        self._patience_s = patience_s
        self._links: dict[MachineProtocol, Replicator] = {}
        self._news: set[MachineProtocol] = set()  # who has brought what the others lack
        self._executor = ThreadPoolExecutor(1)  # which the store belongs to

    async def serve(self, listening: socket.socket) -> None:
        """Accept peers for ever; raises what the store does."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as peers:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError:  # it is gone, or there are too many files
                    await asyncio.sleep(PAUSE_S)
                    continue
                if self._make_room():
                    peers.create_task(self.meet(connection, asks=False))
                else:
                    connection.close()

    async def meet(self, connection: socket.socket, *, asks: bool) -> None:
        """Replicate with a peer until one of both leaves."""
        try:
            ids = (connection.getsockname(), connection.getpeername())
        except OSError as left:  # already
            connection.close()
            tell("closed", peer=None, error=str(left))
            self.failed |= asks
            return
        local, remote = (f"{host}:{port}" for host, port, *_ in ids)
        policy = Policy(asks=asks, live=self._live)
        replicator = Replicator(
            local_peer=local.encode(), remote_peer=remote.encode(), policy=policy
        )
        replicator.announce(self._schema_ids, timestamp=int(time.time()))
        link = MachineProtocol(
            replicator,
            perform=partial(perform, store=self._store),
            executor=self._executor,
            on_event=lambda event: self._hear(link, event, asks),
        )
        self._links[link] = replicator
        error = await self._follow(link, connection, asks)
        tell("closed", peer=remote, error=error and str(error))
        self.failed |= asks and error is not None

    async def _follow(
        self, link: MachineProtocol, connection: socket.socket, asks: bool
    ) -> Exception | None:
        """Carry bytes until the connection is over; the error with which it has ended."""
        loop = asyncio.get_running_loop()
        connect = loop.create_connection if asks else loop.connect_accepted_socket
        patience = loop.call_later(self._patience_s, self._lose_patience, link) if asks else None
        try:
            await connect(lambda: link, sock=connection)
            return (await link.wait_closed()).error
        except AbortedError as error:
            return error
        finally:
            self._links.pop(link, None)
            if patience is not None:
                patience.cancel()

    def _lose_patience(self, link: MachineProtocol) -> None:
        """A peer to which we have gone says nothing, or wants nothing of what we have."""
        if not self._links[link].connection.sessions:
            tell("unanswered")
            self.failed = True
            self._part(link)

    def _make_room(self) -> bool:
        """Whether there is room for a peer, if need be in the place of one without a session."""
        if len(self._links) < PEERS_MAX:
            return True
        found = self._links.items()
        idle = next((link for link, each in found if not each.connection.sessions), None)
        if idle is None:
            return False
        del self._links[idle]
        idle.abort()
        return True

    async def watch(self) -> None:
        """Pass on what other processes write into the store, for ever."""
        loop = asyncio.get_running_loop()
        seen = None
        while True:
            with contextlib.suppress(sqlite3.Error):  # it is tried again
                found = await loop.run_in_executor(self._executor, self._position)
                if seen is not None and found != seen:
                    self._tell_news(set())
                seen = found
            await asyncio.sleep(WATCH_S)

    def _position(self) -> int:
        return self._store.position

    def leave(self) -> None:
        """Say goodbye to all."""
        for link, replicator in list(self._links.items()):
            link.call(replicator.close)

    def _hear(self, link: MachineProtocol, event: Event, asks: bool) -> None:
        match event:
            case OperationStored():
                tell("stored", document=event.document_id.hex(), operation=event.operation_id.hex())
                if not self._news:
                    asyncio.get_running_loop().call_soon(self._pass_on)
                self._news.add(link)
            case OperationLeftOut():
                log = f"{event.log.author.hex()}/{event.log.log_id}"
                tell("left out", log=log, seqnum=event.seqnum, reason=event.reason.name)
            case SessionLive():
                tell("live")
            case SessionEnded():
                tell("session ended", error=event.error and str(event.error))
                self.failed |= asks and event.error is not None
                if asks:
                    asyncio.get_running_loop().call_soon(self._part, link)

    def _pass_on(self) -> None:
        """Let all know of what others than themselves have brought."""
        news, self._news = self._news, set()
        self._tell_news(news)

    def _tell_news(self, brought_by: set[MachineProtocol]) -> None:
        for link, replicator in list(self._links.items()):
            if brought_by != {link}:
                link.call(replicator.stored)

    def _part(self, link: MachineProtocol) -> None:
        if link in self._links:
            link.call(self._links[link].close)


async def run(given: argparse.Namespace, store: OperationSqliteStore) -> bool:
    """Serve, or go to others, or both; whether all went well."""
    live = given.command == "serve" or given.live
    node = Node(store, given.schema or [SCHEMA], live=live, patience_s=given.patience)
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, enough.set)
    serving: asyncio.Task[None] | None = None
    if given.port is not None:
        listening = socket.create_server((given.host, given.port))
        listening.setblocking(False)
        serving = loop.create_task(node.serve(listening))
        tell("listening", port=listening.getsockname()[1])
    peers = [
        loop.create_task(node.meet(await dial(*address), asks=True))
        for address in given.peers or []
    ]
    waiting = loop.create_task(enough.wait())
    watching = loop.create_task(node.watch())
    over = asyncio.gather(*peers)
    stops: set[asyncio.Future[Any]] = {waiting, over if serving is None else serving}
    await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
    cut_short = not over.done() and serving is None and not live
    node.leave()
    await over
    if serving is not None:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    for each in (waiting, watching):
        each.cancel()
    if cut_short:
        raise KeyboardInterrupt
    return not node.failed


async def dial(host: str, port: int) -> socket.socket:
    """Connect."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(None, socket.create_connection, (host, port))
    except OSError as error:
        raise NodeError(f"{host}:{port}: {error}") from None


# The command line.


def parser() -> argparse.ArgumentParser:
    epilog = exits(
        "done",
        "another node has failed, or cannot be reached",
        "the command cannot be carried out: wrong arguments, the store, a port",
        endless="serve and --live",
    )
    made_parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog=epilog
    )
    commands = made_parser.add_subparsers(dest="command", required=True)

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
        made.add_argument(
            "--store", type=Path, required=True, metavar="FILE", help="the file with the documents"
        )
        made.add_argument("--json", action="store_true", help="write JSON even on a terminal")
        made.add_argument(
            "--schema",
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
        "--live", action="store_true", help="stay connected, and exchange what is new"
    )
    for each in (serve, sync):
        each.add_argument(
            "--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)"
        )
        each.add_argument(
            "--from",
            dest="peers",
            type=address,
            action="append",
            metavar="HOST:PORT",
            help="a node to connect to (may be repeated)",
        )
        each.add_argument(
            "--patience",
            type=positive,
            default=30.0,
            metavar="SECONDS",
            help="how long a node may take to begin a session with us (default: 30)",
        )
    return made_parser


def write(given: argparse.Namespace, author: Author, schema_id: str) -> tuple[str, str, bytes]:
    """Create, change or delete a document: what has been done, and the id that it has."""
    match given.command:
        case "create":
            return "created", "document", author.create(schema_id, parse_fields(given.fields))
        case "update":
            fields = parse_fields(given.fields)
            return "updated", "operation", author.update(given.document, fields)
        case _:
            return "deleted", "operation", author.delete(given.document)


def do(given: argparse.Namespace, store: OperationSqliteStore) -> bool:
    """Do what the command line says; whether all went well."""
    (schema_id, *_) = given.schema or [SCHEMA]
    match given.command:
        case "create" | "update" | "delete":
            with store.alone():
                done, kind, id = write(given, author_of(given.store, store), schema_id)
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


def main() -> int:
    """Run a command; the exit status."""
    given = parser().parse_args()
    if given.json:
        tell.write_json()
    try:
        with OperationSqliteStore(given.store) as store:
            return DONE if do(given, store) else FAILED
    except NodeError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyError as error:
        raise ImpossibleError(f"no document {error.args[0].hex()}") from error
    except (InvalidOperation, ValueError, sqlite3.Error) as error:
        raise ImpossibleError(str(error)) from error
    except ExceptionGroup as failed:  # of those with whom we were replicating, as the store failed
        raise ImpossibleError(str(failed.exceptions[0])) from failed


if __name__ == "__main__":
    end_with(main)

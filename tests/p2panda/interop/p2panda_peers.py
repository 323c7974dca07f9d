"""p2panda-rs, nodes of aquadoggo, and one of ours connected to one of these."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

from peer_programs import running

from culm.machine import Event
from culm.p2panda import Dialect, Document, MemoryStore, Mode, Policy, Replicator
from culm.p2panda.effects import StoredOperation
from culm_io.asyncio.driver import MachineProtocol

T = TypeVar("T")

PATIENCE_S = 120.0
READ_ALL = {"count_max": 10_000, "size_max": 1 << 30}


def until(done: Callable[[], T], *turns: Callable[[], None]) -> T:
    """Take turns until the condition holds."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (found := done()):
        assert time.monotonic() < give_up_at, "it does not happen"
        for turn in turns:
            turn()
        if not turns:
            time.sleep(0.1)
    return found


class Refused(Exception):
    """p2panda-rs's reason for refusing something invalid."""


class Documents:
    """The documents of p2panda-rs, in a separate process: see ``peers/src/documents.rs``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **of: Any) -> dict[str, Any]:
        """Raises `Refused`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **of}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def publish(
        self,
        key: bytes,
        schema_id: str,
        fields: Mapping[str, Any] | None,
        *,
        previous: Iterable[bytes] = (),
    ) -> dict[str, Any]:
        """Create, update or, without fields, delete a document."""
        ids = [each.hex() for each in previous]
        action = "delete" if fields is None else "update" if ids else "create"
        return self.ask(
            "publish",
            key=key.hex(),
            schema=schema_id,
            action=action,
            previous=ids,
            fields=fields or {},
        )

    def take(self, stored: StoredOperation, schema_id: str) -> None:
        """Let it validate and keep an entry by another author."""
        entry, operation = stored.entry.hex(), stored.operation.hex()
        self.ask("take", schema=schema_id, entry=entry, operation=operation)

    def document(self, document_id: bytes) -> dict[str, Any]:
        return self.ask("document", id=document_id.hex())


def shown(document: Document) -> dict[str, Any]:
    """A document of ours in the form of p2panda-rs."""
    fields = document.fields
    return {
        "order": [each.hex() for each in document.order],
        "view": document.view_id,
        "fields": None if fields is None else json.loads(json.dumps(fields, default=bytes.hex)),
    }


class Doggo:
    """A node of aquadoggo; clients use its GraphQL."""

    def __init__(self, transport: str, port: int, http_port: int) -> None:
        kind = f"tcp/{port}" if transport == "tcp" else f"udp/{port}/quic-v1"
        self.address = f"/ip4/127.0.0.1/{kind}"
        self._url = f"http://127.0.0.1:{http_port}/graphql"

    def query(self, text: str) -> Any:
        """The result; ``None`` if there is no answer yet, or no data."""
        body = json.dumps({"query": text}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            with urlopen(Request(self._url, body, headers), timeout=10.0) as response:
                found = json.load(response)
        except OSError:
            return None
        return None if found.get("errors") else found["data"]

    def is_up(self) -> bool:
        return self.query("{ __typename }") is not None

    def publish(self, made: Mapping[str, Any]) -> None:
        """Give it an entry made by p2panda-rs, once it knows the schema."""
        of = f'entry: "{made["entry"]}", operation: "{made["operation"]}"'
        until(lambda: self.query(f"mutation {{ publish({of}) {{ logId }} }}"))

    def documents(self, schema_id: str, names: Iterable[str]) -> dict[str, Any] | None:
        """The view and the fields of all documents of a schema, if it is known."""
        found = self.query(
            f"{{ found: all_{schema_id}(first: 1000) {{ documents {{"
            f" meta {{ documentId viewId }} fields {{ {' '.join(names)} }} }} }} }}"
        )
        if found is None:
            return None
        return {
            each["meta"]["documentId"]: (each["meta"]["viewId"], each["fields"])
            for each in found["found"]["documents"]
        }


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def doggo(programs: Path, folder: Path, transport: str) -> Iterator[Doggo]:
    """An empty node, up and running."""
    folder.mkdir()
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    port, http_port = free_port(kind), free_port(socket.SOCK_STREAM)
    node = Doggo(transport, port, http_port)
    with running(programs / "node", folder, transport, port, http_port) as process:
        until(lambda: node.is_up() or process.poll() is not None)
        assert process.poll() is None
        yield node


class OurNode:
    """A replicator over a store, connected to a node of aquadoggo by a bridge."""

    def __init__(
        self,
        store: MemoryStore,
        schema_ids: Iterable[str],
        told: Mapping[str, Any],
        *,
        asks: bool,
    ) -> None:
        self.events: list[Event] = []
        self.replicator = Replicator(
            local_peer=bytes.fromhex(told["local"]),
            remote_peer=bytes.fromhex(told["remote"]),
            dialect=Dialect.AQUADOGGO,
            policy=Policy(asks=asks, mode=Mode.LOG_HEIGHT, live=False),
        )
        self.replicator.announce(list(schema_ids), timestamp=int(time.time()))
        self._loop = asyncio.new_event_loop()
        self._link = self._loop.run_until_complete(self._connect(store, told["port"]))

    async def _connect(self, store: MemoryStore, port: int) -> MachineProtocol:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(
            lambda: MachineProtocol(
                self.replicator,
                perform=store.perform,
                on_event=self.events.append,
            ),
            *("127.0.0.1", port),
        )
        return link

    def turn(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0.05))

    def stop(self) -> None:
        async def end() -> None:
            self._link.abort()
            with suppress(Exception):  # because it was aborted
                await self._link.wait_closed()

        self._loop.run_until_complete(end())
        self._loop.close()


@contextmanager
def bridged(
    programs: Path, node: Doggo, store: MemoryStore, schema_ids: Iterable[str], *, asks: bool
) -> Iterator[OurNode]:
    """Connect a store of ours to a node."""
    with running(programs / "bridge", node.address) as bridge:
        assert bridge.stdout is not None
        ours = OurNode(store, schema_ids, json.loads(bridge.stdout.readline()), asks=asks)
        try:
            yield ours
        finally:
            ours.stop()

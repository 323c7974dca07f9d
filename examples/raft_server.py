"""One server of the key-value store: a node of Garlic Farm, its store, and its control port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from culm.machine import Event, LocalProtocolError, StreamMachine
from drivers.node_driver import NodeDriver
from raft_client import ANSWER_TIMEOUT_S, Client
from raft_farm import Farm
from stores.raft_sqlite_store import RaftSqliteStore

__all__ = ["KeyValues", "run"]

R = TypeVar("R")

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


def run(farm: Farm, number: int, *, echo: bool) -> None:
    async def serve() -> None:
        service = Service(farm, number, echo=echo)
        task = asyncio.create_task(service.serve())
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve())

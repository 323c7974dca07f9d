"""One server of the key-value store: a node of Garlic Farm, its store, and its control port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from culm.arguments import is_dict
from culm.garlic.errors import ErrorCode as NodeErrorCode
from culm.garlic.events import LinkClosed
from culm.garlic.handshake import Credentials
from culm.garlic.limits import Limits, Timing
from culm.garlic.node import Node
from culm.garlic.raft import (
    ChangeFailed,
    Committed,
    ConfigurationChanged,
    ErrorCode,
    Forwarded,
    ForwardFailed,
    LeadershipTransferred,
    Lost,
    PeerFault,
    ReadFailed,
    ReadReady,
    Server,
    State,
    TransferFailed,
)
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.sessions import Sessions, inner_value
from culm.garlic.store import StateMachine
from culm.machine import Effect, Event, LocalProtocolError
from culm.measures import measures
from culm.wire.json import TooDeepError, check_depth, read_json
from culm_io.asyncio.garlic import NodeDriver
from culm_io.programs.captures import Captures
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.numbers import Metrics
from culm_io.programs.ports import HOST
from culm_io.programs.raft.client import ANSWER_TIMEOUT_S, LINE_SIZE_MAX, Failed
from culm_io.programs.raft.farm import CERTIFICATE, SERVER_ID_MAX, Farm, check_certificate
from culm_io.programs.told import Telling
from culm_io.programs.visitors import Visits
from culm_io.stores.raft import RaftSqliteStore

__all__ = ["KeyValues", "run"]

R = TypeVar("R")

USER = "farm"
BUSY = b'{"error": "BUSY", "certain": true}\n'
UNDER_WAY = (ErrorCode.CHANGE_IN_PROGRESS, ErrorCode.TRANSFER_IN_PROGRESS)
DONE_BEFORE = (ErrorCode.ALREADY_MEMBER, ErrorCode.NOT_MEMBER)
TIMING = Timing(
    raft=RaftTiming(
        election_timeout_min_s=0.5,
        election_timeout_max_s=1.0,
        heartbeat_interval_s=0.2,
        request_timeout_s=0.6,
    )
)
LIMITS = Limits(
    raft=RaftLimits(
        in_flight_max=4,
        snapshot_distance=1000,
        trailing_entries=100,
        chunk_size=65536,
        snapshot_size_max=1 << 28,
        writes_max=4,
    )
)


class KeyValues:
    """The replicated state; tells each put, in a line of JSON."""

    def __init__(self, tell: Callable[[str], object] | None = None) -> None:
        self.values: dict[str, str] = {}
        self._tell = tell

    def apply(self, index: int, value: bytes) -> None:
        try:
            command = read_json(value)
            self.values[str(command["key"])] = str(command["value"])
        except (ValueError, KeyError, TypeError):
            command = {"message": value.decode("utf-8", "replace")}
        if self._tell is not None:
            self._tell(json.dumps({"index": index, **command}))

    def snapshot(self) -> bytes:
        return json.dumps(self.values, sort_keys=True).encode()

    def restore(self, image: bytes) -> None:
        """Raises `ValueError` for bytes that `snapshot` has not made; nothing changes then."""
        values = read_json(image)
        if not is_dict(values) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError("not a snapshot of values")
        self.values = values


class MarkedStore(RaftSqliteStore):
    """The store of a server, with a mark beside it by which an older copy is known."""

    def __init__(self, farm: Farm, number: int, path: Path, machine: StateMachine) -> None:
        super().__init__(path, machine, farm.founding(number), server_id=number)
        try:
            farm.check_store(number, path, self.written)
        except ImpossibleError:
            super().close()
            raise
        self._noted, self._mark = 0, farm.note_store(number, path)
        self._note()

    def _note(self) -> None:
        if self._noted != (written := self.written):
            self._mark.note(written)
            self._noted = written

    def perform(self, effect: Effect[Any]) -> object:
        result = super().perform(effect)
        self._note()
        return result

    def close(self) -> None:
        super().close()
        self._mark.close()


def settle(future: asyncio.Future[R], result: R) -> None:
    """Answer a request, whose client may have lost patience meanwhile."""
    if not future.done():
        future.set_result(result)


def failed(*, certain: bool) -> Failed:
    return Failed.FOR_CERTAIN if certain else Failed.PERHAPS


def is_hex(text: str) -> bool:
    try:
        return bytes.fromhex(text) is not None
    except ValueError:
        return False


def refusal(value: bytes) -> dict[str, Any] | None:
    """The answer to a value that `KeyValues` would not read: it is not proposed."""
    try:
        check_depth(inner_value(value) or b"")
    except TooDeepError:
        return {"error": "TOO_DEEP", "certain": True}
    return None


class Service:
    """One node, its store, and its control port."""

    def __init__(
        self,
        farm: Farm,
        number: int,
        path: Path,
        *,
        echo: bool,
        captures: Captures,
        metrics: Metrics,
    ) -> None:
        self.number = number
        self._farm = farm
        self._metrics = metrics
        tape = captures.tape("garlic-node", session=f"server {number}", id=number)
        rng = tape.chance(random.SystemRandom())
        self._told, self._faults = Telling(sys.stdout), Telling(sys.stderr)
        self._machine = KeyValues(self._told.tell if echo else None)
        self._sessions = Sessions(self._machine)
        self._store = MarkedStore(farm, number, path, self._sessions)
        self._loop = asyncio.get_running_loop()
        try:
            self.node = tape.make(
                Node,
                server_id=number,
                stored=self._store.load(),
                rng=rng,
                now=self._loop.time(),
                timing=TIMING,
                limits=LIMITS,
            )
        except ValueError as error:  # no server can start from that
            raise ImpossibleError(f"the store of server {number}: {error}") from error
        farm.check_place(number, self.node.configuration)
        self._executor = ThreadPoolExecutor(1)
        self._driver = NodeDriver(
            self.node,
            self._store,
            perform_in=self._executor,
            handshake=tape.make(
                Credentials, user=USER, password=farm.data["password"], rng=rng
            ).handshake,
            server_tls=self._tls(ssl.Purpose.CLIENT_AUTH),
            client_tls=self._tls(ssl.Purpose.SERVER_AUTH),
            on_event=metrics.counted(self._on_event),
        )
        # The index at which a value was committed, or that it was not
        self._forwards: dict[int, asyncio.Future[int | Failed]] = {}
        self._proposed: dict[tuple[int, int], asyncio.Future[int | Failed]] = {}
        self._reads: dict[int, asyncio.Future[bool]] = {}
        self._changes: list[asyncio.Future[bool]] = []
        self._refusing: set[int] = set()  # servers that do not take our password
        self._wanted: object = None  # the change that was begun last

    def _tls(self, purpose: ssl.Purpose) -> ssl.SSLContext | None:
        if not self._farm.data["tls"]:
            return None
        folder = self._farm.folder
        context = ssl.create_default_context(purpose, cafile=str(folder / CERTIFICATE))
        check_certificate(folder, context)
        if purpose is ssl.Purpose.CLIENT_AUTH:
            context.load_cert_chain(folder / CERTIFICATE, folder / "key.pem")
        return context

    async def serve(self) -> None:
        ports = self._farm.data["nodes"][str(self.number)]
        await self._driver.listen(HOST, ports["raft"])
        visits = Visits(self._answer_line, end=b"\n", size_max=LINE_SIZE_MAX, busy=BUSY)
        try:
            async with (
                visits.at(HOST, ports["control"]),
                self._metrics.served(f"server {self.number}", lambda: measures(self.node)),
            ):
                await self._driver.wait_closed()
        finally:
            await self._driver.stop()
            self._executor.shutdown()
            self._store.close()
            self._told.close()
            self._faults.close()

    # Events of the node

    def _on_event(self, event: Event) -> None:
        match event:
            case Forwarded(forward=number, index=index, term=term):
                self._proposed[index, term] = self._forwards.pop(number)
            case ForwardFailed(forward=number, certain=certain):
                settle(self._forwards.pop(number), failed(certain=certain))
            case Committed(index=first, term=term, count=count):
                for index in range(first, first + count):
                    settle(self._proposed.pop((index, term)), index)
            case Lost(index=first, term=term, count=count, certain=certain):
                for index in range(first, first + count):
                    settle(self._proposed.pop((index, term)), failed(certain=certain))
            case ReadReady(read=number):
                settle(self._reads.pop(number), True)
            case ReadFailed(read=number):
                settle(self._reads.pop(number), False)
            case PeerFault(error=error):
                self._faults.tell(str(error))
            case LinkClosed(peer=int(peer), error=error):
                if error is not None and error.code is NodeErrorCode.UNAUTHORIZED:
                    self._tell_refusal(peer)
            case (
                ConfigurationChanged() | ChangeFailed() | LeadershipTransferred() | TransferFailed()
            ):
                changes, self._changes = self._changes, []
                for change in changes:
                    settle(change, isinstance(event, ConfigurationChanged | LeadershipTransferred))
            case _:
                pass

    def _tell_refusal(self, peer: int) -> None:
        """Once: it is dialled again and again."""
        if peer not in self._refusing:
            self._refusing.add(peer)
            self._faults.tell(f"server {peer} has another password: see {self._farm.folder}")

    # Requests of clients

    async def _answer_line(self, line: bytes) -> bytes:
        try:
            question = read_json(line)
        except ValueError:  # also if it is too long, or too deep
            answer = {"error": "NOT_A_QUESTION", "certain": True}
        else:
            answer = await self._answer(question)
        return json.dumps(answer).encode() + b"\n"

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._do(question)
        except LocalProtocolError as error:
            return {"error": error.code.name, "leader": self.node.leader, "certain": True}
        except TimeoutError:
            return {"error": "TIMEOUT", "leader": self.node.leader}

    async def _do(self, question: dict[str, Any]) -> dict[str, Any]:
        match question:
            case {"do": "propose", "value": str(text)} if is_hex(text):
                value = bytes.fromhex(text)
                return refusal(value) or await self._propose(value)
            case {"do": "get", "key": str(key)}:
                if not await self._read():
                    return {"error": "READ_FAILED", "leader": self.node.leader}
                return {"ok": True, "value": self._machine.values.get(key)}
            case {"id": bool()}:
                pass
            case {"id": int(number)} if not 0 < number <= SERVER_ID_MAX:
                return {"error": "UNKNOWN_SERVER", "certain": True}
            case {"do": "add", "id": int(number)}:
                farm = Farm(self._farm.folder)
                if number not in farm.control_ports():
                    return {"error": "UNKNOWN_SERVER", "certain": True}
                wanted = replace(farm.server(number), voter=not question.get("learner"))
                return {"ok": await self._member(number, wanted)}
            case {"do": "remove", "id": int(number)}:
                return {"ok": await self._member(number, None)}
            case {"do": "transfer", "id": int(number)}:
                return {"ok": await self._lead(number)}
            case {"do": "status"}:
                return self._status()
        return {"error": "UNKNOWN_COMMAND", "certain": True}

    async def _read(self) -> bool:
        """Whether the state machine is as new as a read must find it."""
        read: asyncio.Future[bool] = self._loop.create_future()
        self._reads[self.node.read()] = read
        return await self._wait(read)

    async def _propose(self, value: bytes) -> dict[str, Any]:
        proposed: asyncio.Future[int | Failed] = self._loop.create_future()
        self._forwards[self.node.forward([value])] = proposed
        index = await self._wait(proposed)
        if isinstance(index, Failed):
            certain = index is Failed.FOR_CERTAIN
            return {"error": "NOT_COMMITTED", "leader": self.node.leader, "certain": certain}
        outcome = self._sessions.outcome_of(index)
        if outcome is None:  # a snapshot stands for it
            return {"error": "UNKNOWN_OUTCOME", "leader": self.node.leader, "certain": False}
        return {"ok": True, "index": index, "outcome": outcome.value}

    async def _wait(self, future: asyncio.Future[R]) -> R:
        self._driver.soon()
        return await future

    async def _member(self, number: int, wanted: Server | None) -> bool:
        """Make it a member, or none; the answer to an earlier request may have been lost."""
        node = self.node

        def begin() -> None:
            node.add_server(wanted) if wanted else node.remove_server(number)

        try:
            return await self._change(wanted or number, begin)
        except LocalProtocolError as error:
            if error.code not in DONE_BEFORE or node.configuration.find(number) != wanted:
                raise
            return True

    async def _lead(self, number: int) -> bool:
        """That another server leads is not for us to say: it may be dead by now."""
        if number == self.number and self.node.state is State.LEADER:
            return await self._read()
        return await self._change(("lead", number), lambda: self.node.transfer_leadership(number))

    async def _change(self, wanted: object, begin: Callable[[], None]) -> bool:
        """Begin a change, or wait for the one that is under way if that is the same."""
        try:
            begin()
        except LocalProtocolError as error:
            if error.code not in UNDER_WAY or wanted != self._wanted:
                raise
        self._wanted = wanted
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


def run(farm: Farm, number: int, *, echo: bool, captures: Captures, metrics: Metrics) -> None:
    """Run a server until it is interrupted."""

    async def serve(path: Path) -> None:
        service = Service(farm, number, path, echo=echo, captures=captures, metrics=metrics)
        task = asyncio.create_task(service.serve())
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with farm.claimed(number) as path, captures:
        asyncio.run(serve(path))

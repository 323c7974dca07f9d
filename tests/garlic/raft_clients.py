"""Servers of a simulated cluster, and the clients that call them."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from linearizability import Operation
from raft_checks import Violation
from raft_disk import Disk, State

from culm import garlic
from culm.garlic.raft import (
    Committed,
    Entry,
    Forwarded,
    ForwardFailed,
    Raft,
    ReadFailed,
    ReadReady,
    Server,
)
from culm.garlic.sessions import ClientSession, open_session, plain
from culm.machine import LocalProtocolError

KEYS = "abc"


@dataclass
class Node:
    """A server: its disk, and while it runs, its core and state machine.

    The simulator drives `core`: `raft`, or the node around it.
    """

    id: int
    disk: Disk
    rate: float = 1.0  # of its clock
    core: Raft | garlic.Node | None = None
    raft: Raft | None = None
    state: State = field(default_factory=State)
    applied: int = 0
    life: int = 0  # counts restarts
    buried: bool = False  # gone for good, with its disk
    timer: float | None = None
    stalled: float = 0.0  # the time until which the process is stopped
    waiting: deque[Callable[[], None]] = field(default_factory=deque)  # its actions then, in order
    proposals: dict[int, tuple[int, Operation]] = field(default_factory=dict)
    reads: dict[int, Operation] = field(default_factory=dict)
    forwards: dict[int, Operation | bytes] = field(default_factory=dict)
    forwarded: dict[tuple[int, int], Operation | bytes] = field(default_factory=dict)
    changes: dict[int, Server | None] = field(default_factory=dict)  # asked for; none: removal

    def forget(self) -> None:
        """Drop the calls: their outcomes stay unknown."""
        for calls in (self.proposals, self.reads, self.forwards, self.forwarded, self.changes):
            calls.clear()


class World(Protocol):
    """The part of a simulator that clients need."""

    rng: random.Random
    now: float
    stopped: bool

    def at(self, time: float, act: Callable[[], None]) -> None: ...
    def leaders(self) -> list[Node]: ...
    def running(self) -> list[Node]: ...
    def tell_time(self, node: Node) -> Raft | garlic.Node: ...
    def drain(self, node: Node) -> None: ...


class Clients:
    """Owns the history of all calls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._values = count(1)
        self.history: list[Operation] = []
        self.refused: list[Operation] = []  # writes that will never happen
        self.acknowledged: set[str] = set()  # tokens acknowledged to the client with a session
        self.retries = 0
        self._session: ClientSession | None = None
        self._command: bytes | None = None  # its last one, of unknown outcome
        self._tokens = 0

    def client(self, pause: float) -> None:
        """One call, and the next one after a pause."""
        world, rng = self._world, self._world.rng
        if world.stopped:
            return
        key, write = rng.choice(KEYS), rng.random() < 0.5
        anybody = rng.random() < 0.5
        servers = world.running() if anybody else world.leaders()
        if servers:
            self.call(rng.choice(servers), key, write=write, forward=anybody)
        world.at(world.now + rng.uniform(0, 2 * pause), lambda: self.client(pause))

    def call(self, node: Node, key: str, *, write: bool, forward: bool = False) -> Operation:
        core = self._world.tell_time(node)
        operation = Operation(key, write, self._world.now)
        with contextlib.suppress(LocalProtocolError):
            if write:
                operation.value = str(next(self._values))
                value = plain(f"{key}={operation.value}".encode())
                if forward:
                    node.forwards[core.forward([value])] = operation
                else:
                    index, term = core.propose([value])
                    node.proposals[index] = (term, operation)
            else:
                node.reads[core.read()] = operation
            self.history.append(operation)
        self._world.drain(node)
        return operation

    def applied(self, node: Node, index: int, entry: Entry) -> None:
        term, operation = node.proposals.pop(index, (0, None))
        if operation is not None and term == entry.term:
            operation.end = self._world.now

    # A client with a session

    def impatient(self) -> None:
        """Propose the last command again, anywhere, until its outcome is known; then another."""
        world, rng = self._world, self._world.rng
        if world.stopped:
            return
        servers = world.running()
        if servers:
            self.retries += self._command is not None
            node = rng.choice(servers)
            command = self._command = self._command or self._next_command()
            core = world.tell_time(node)
            with contextlib.suppress(LocalProtocolError):
                node.forwards[core.forward([command])] = command
            world.drain(node)
        world.at(world.now + rng.uniform(0, 0.06), self.impatient)

    def _next_command(self) -> bytes:
        if self._session is None:
            return open_session()
        self._tokens += 1
        return self._session.command(b"token %d" % self._tokens)

    def _ended(self, command: bytes, index: int) -> None:
        self._command = None
        if self._session is None:
            self._session = ClientSession(index, 0)
        else:
            self._session.ended(command)
            self.acknowledged.add(f"token {self._tokens}")

    def check_tokens(self, state: State) -> None:
        """Every acknowledged command has happened once, and nothing has happened twice."""
        tokens = state.registers.tokens
        if any(tokens.get(token) != 1 for token in self.acknowledged):
            raise Violation("an acknowledged command was not applied once")
        if any(times != 1 for times in tokens.values()):
            raise Violation("a command was applied twice")

    def told(
        self, node: Node, event: ReadReady | ReadFailed | Forwarded | ForwardFailed | Committed
    ) -> None:
        now = self._world.now
        match event:
            case ReadReady(read=number):
                operation = node.reads.pop(number)
                operation.value, operation.end = node.state.registers.values.get(operation.key), now
            case ReadFailed(read=number):
                del node.reads[number]
            case Forwarded(forward=number, index=index, term=term):
                node.forwarded[index, term] = node.forwards.pop(number)
            case ForwardFailed(forward=number, certain=certain):
                given = node.forwards.pop(number)
                if certain and isinstance(given, Operation):
                    self.refused.append(given)
            case Committed(index=first, term=term, count=count):
                for index in range(first, first + count):
                    given = node.forwarded.pop((index, term), b"")
                    if isinstance(given, Operation):
                        given.end = now
                    elif given == self._command:
                        self._ended(given, index)

    def check(self, committed: Iterable[object]) -> None:
        """No value is committed twice, and none that was reported to be in no log."""
        plain_kind = plain(b"")
        values = [one for one in committed if isinstance(one, bytes) and one[:1] == plain_kind]
        if len(values) != len(set(values)):
            raise Violation("a value is committed twice")
        refused = {plain(f"{one.key}={one.value}".encode()) for one in self.refused}
        if refused & set(values):
            raise Violation("a value reported as never appended is committed")

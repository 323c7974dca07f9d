"""Nodes whose links are joined in memory: real frames, virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from culm.garlic.connection import Connection
from culm.garlic.digest import CredentialCache, Nonces
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits
from culm.garlic.link import Link
from culm.garlic.messages import Extension, RequestFrame, ResponseFrame
from culm.garlic.node import Node
from culm.garlic.raft import Configuration, Server, Snapshot, State, Stored
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.states import ConnectionRole
from culm.garlic.store import MemoryStore
from culm.machine import Event
from culm.testing.raft_store_model import Values

CORE_LIMITS = RaftLimits(append_entries_max=200, sync_gap=5, in_flight_max=1)


# The servers' names for themselves in handshakes
USERS = {1: "one", 2: "two", 3: "three"}


def server(number: int) -> Server:
    return Server(number, f"tcp://127.0.0.1:{9000 + number}")


@dataclass
class Member:
    node: Node
    machine: Values
    store: MemoryStore
    events: list[Event] = field(default_factory=list)
    cache: CredentialCache = field(default_factory=CredentialCache)


class Pipe:
    """Two ends of one connection; `frames` has its traffic, by direction."""

    def __init__(self, cluster: Cluster, near: Link | Connection, far: Link, to: int) -> None:
        self.cluster, self.near, self.far, self.to = cluster, near, far, to
        self.up: bytearray = bytearray()
        self.down: bytearray = bytearray()
        self.open = True


class Cluster:
    """Members by id; `run` moves bytes and time."""

    def __init__(
        self,
        *numbers: int,
        core: RaftLimits = CORE_LIMITS,
        handshake: bool = False,
        limits: Limits | None = None,
        users: Mapping[int, str] | None = None,
    ) -> None:
        self.now = 0.0
        self.limits = replace(Limits() if limits is None else limits, raft=core)
        self.handshake = handshake
        self.plain: set[int] = set()  # without extensions
        self.nonces = Nonces(rng=random.Random(1))
        self.members: dict[int, Member] = {}
        self.pipes: list[Pipe] = []
        self.users = users
        self.down: set[int] = set()
        self.paused: set[int] = set()  # their processes are stopped; input waits
        self._held: list[tuple[int, Link, bytes]] = []
        self.cut_off: set[int] = set()  # alive, but unreachable both ways
        founders = Configuration(servers=tuple(map(server, numbers)))
        for number in numbers:
            self.add(number, Stored(snapshot=Snapshot(configuration=founders)))

    def add(self, number: int, stored: Stored | None = None) -> Member:
        machine = Values()
        store = MemoryStore(machine, stored)
        node = Node(
            server_id=number,
            stored=store.load(),
            rng=random.Random(number),
            now=self.now,
            limits=self.limits,
            users=self.users,
        )
        self.members[number] = Member(node, machine, store)
        return self.members[number]

    def server_handshake(self, number: int) -> ServerHandshake | None:
        if not self.handshake:
            return None
        return ServerHandshake(
            lookup=lambda user: "er",
            nonces=self.nonces,
            now=self.now,
            extensions=self.extensions(number),
        )

    def extensions(self, number: int) -> frozenset[Extension]:
        return frozenset() if number in self.plain else frozenset(Extension)

    def _dial(self, member: Member, wanted: Server) -> None:
        number = wanted.server_id
        unreachable = self.cut_off & {number, member.node.server_id}
        if unreachable or number in self.down or number not in self.members:
            member.node.dial_failed(number)
            return
        client = None
        if self.handshake:
            client = ClientHandshake(
                host=wanted.endpoint,
                user=USERS.get(member.node.server_id, "farm"),
                password="er",
                cache=member.cache,
                rng=random.Random(2),
                now=self.now,
                extensions=self.extensions(member.node.server_id),
            )
        near = member.node.dialled(number, handshake=client)
        far = self.members[number].node.accepted(handshake=self.server_handshake(number))
        self.pipes.append(Pipe(self, near, far, number))

    def client(self, number: int) -> tuple[Connection, Pipe]:
        """A client's connection to a member."""
        near = Connection(role=ConnectionRole.DIALLER)
        pipe = Pipe(self, near, self.members[number].node.accepted(), number)
        self.pipes.append(pipe)
        return near, pipe

    def ask(self, number: int, request: RequestFrame) -> ResponseFrame | None:
        """Let a client ask once; ``None`` if the connection is closed instead of an answer."""
        near, _ = self.client(number)
        near.send_request(request)
        self.run(0.0)
        while (event := near.next_event()) is not None:
            if hasattr(event, "response"):
                return event.response  # type: ignore[no-any-return]
        return None

    def drain(self, member: Member) -> bool:
        moved = False
        while True:
            event = member.node.next_event()
            if event is not None:
                moved = True
                member.events.append(event)
                if isinstance(event, DialWanted):
                    self._dial(member, event.server)
                elif isinstance(event, LinkClosed):
                    for pipe in self.pipes:
                        for link in (pipe.near, pipe.far):
                            if isinstance(link, Link) and link.closed:
                                self._cut(pipe)
                continue
            effect = member.node.next_effect()
            if effect is None:
                return moved
            moved = True
            member.node.complete(effect.ticket, member.store.perform(effect))

    def _cut(self, pipe: Pipe) -> None:
        """The far side sees the end of the stream, after all that was sent."""
        if not pipe.open:
            return
        pipe.open = False
        for one, other in ((pipe.near, pipe.far), (pipe.far, pipe.near)):
            data = one.data_to_send()
            if not (isinstance(other, Link) and other.closed):
                other.receive_data(data)
                other.receive_eof()

    def _move(self, pipe: Pipe) -> bool:
        if not pipe.open:
            return False
        up, down = pipe.near.data_to_send(), pipe.far.data_to_send()
        pipe.up += up
        pipe.down += down
        if up:
            pipe.far.receive_data(up)
        if down:
            pipe.near.receive_data(down)
        return bool(up or down)

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        end = self.now + seconds
        while True:
            moved = True
            while moved:
                moved = False
                for number, member in self.members.items():
                    if number not in self.down | self.paused:
                        member.node.advance(self.now)
                        moved |= self.drain(member)
                        for link in member.node.links_to_send():
                            if data := link.data_to_send():
                                moved = True
                                self._carry(link, data)
                moved |= self._let_go()
                for pipe in self.pipes:
                    if isinstance(pipe.near, Connection):
                        moved |= self._move(pipe)
            if done is not None and done():
                return True
            if self.now >= end:
                return False
            self.now = min(end, self.now + 0.005)

    def _carry(self, link: Link, data: bytes) -> None:
        for pipe in self.pipes:
            if not pipe.open:
                continue
            if pipe.near is link:
                pipe.up += data
                self._bring(pipe.to, pipe.far, data)
            elif pipe.far is link:
                pipe.down += data
                pipe.near.receive_data(data)

    def _bring(self, to: int, link: Link, data: bytes) -> None:
        if to in self.paused:
            self._held.append((to, link, data))
        else:
            link.receive_data(data)

    def _let_go(self) -> bool:
        """Give the servers that run again everything that has arrived in the meantime."""
        held, self._held = self._held, []
        for to, link, data in held:
            self._bring(to, link, data)
        return len(self._held) < len(held)

    def leader(self) -> Member:
        """Wait for a leader that has committed an entry of its term."""

        def ready() -> bool:
            return any(
                member.node.state is State.LEADER
                and member.node.commit_index == member.node.last_index
                for number, member in self.members.items()
                if number not in self.down
            )

        assert self.run(10.0, ready)
        leaders = [
            member
            for number, member in self.members.items()
            if member.node.state is State.LEADER and number not in self.down
        ]
        return max(leaders, key=lambda member: member.node.term)

    def stop(self, number: int) -> None:
        """The member is gone; its connections break."""
        self.down.add(number)
        self._cut_all(number)

    def isolate(self, number: int) -> None:
        """The member lives; its connections break, and it gets no others."""
        self.cut_off.add(number)
        self._cut_all(number)

    def _cut_all(self, number: int) -> None:
        for pipe in self.pipes:
            if pipe.open and any(
                isinstance(link, Link) and link in self.members[number].node.links
                for link in (pipe.near, pipe.far)
            ):
                self._cut(pipe)

"""One of our nodes in a cluster of real JRaft nodes; without these (`jraft_field`) nothing runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from jraft_field import Field, client_request, needs_jraft
from jraft_storm import jraft_log

from culm.garlic.limits import Limits, Timing
from culm.garlic.messages import MessageType, RequestFrame, ResponseFrame
from culm.garlic.node import Node
from culm.garlic.raft import Configuration, State, Stored
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.store import MemoryStore
from culm.garlic.values import (
    LogEntry,
    ValueType,
    encode_entries,
    encode_server,
    encode_server_id,
    packed,
)
from culm.testing.raft_store_model import Values
from culm_io.asyncio.garlic import NodeDriver

pytestmark = needs_jraft

# dmprinter's: election 3 to 5 seconds, heartbeat 1.5 seconds, packs of 5 entries.
TIMING = RaftTiming(
    election_timeout_min_s=3.0,
    election_timeout_max_s=5.0,
    heartbeat_interval_s=1.0,
    request_timeout_s=2.5,
)
RAFT_LIMITS = RaftLimits(append_entries_max=5, sync_gap=5)
EAGER = replace(TIMING, election_timeout_min_s=1.2, election_timeout_max_s=1.5)
# It follows a leader that beats every 1.5 seconds, and stands before JRaft's followers do.
HEIR = replace(TIMING, election_timeout_min_s=2.2, election_timeout_max_s=2.6)
SHY = replace(TIMING, election_timeout_min_s=30.0, election_timeout_max_s=40.0)
PATIENCE_S = 60.0


class MixedField(Field):
    """JRaft processes, and at most one node of ours, here."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.machine = Values()
        self.store = MemoryStore(self.machine, Stored())
        self.driver: NodeDriver | None = None

    def commits(self, number: int) -> list[str]:
        """The values that a JRaft node has printed as committed."""
        text = (self.home(number) / "out").read_text("utf-8", "replace")
        lines = text.rpartition("\n")[0].splitlines()  # the last line may be half written
        return [line.split("\t", 1)[1] for line in lines if line.startswith("commit:")]

    async def start_ours(
        self, number: int, stored: Stored, timing: RaftTiming, **limits: int
    ) -> Node:
        self.store = MemoryStore(self.machine, stored)
        node = Node(
            server_id=number,
            stored=self.store.load(),
            rng=random.Random(number),
            now=asyncio.get_running_loop().time(),
            timing=Timing(raft=timing),
            limits=Limits(raft=replace(RAFT_LIMITS, **limits)),
        )
        self.driver = NodeDriver(node, self.store)
        await self.driver.listen("127.0.0.1", self.port(number))
        return node

    def latest_configuration(self) -> Configuration:
        """The last one that our node has stored, committed or not."""
        stored = self.store.load()
        later = [each.data for each in stored.entries if isinstance(each.data, Configuration)]
        return [stored.snapshot.configuration, *later][-1]

    async def ask_leader(self, request: RequestFrame, *numbers: int) -> ResponseFrame:
        """Ask all by turns until one accepts."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for number in numbers:
                    response = await self.ask(number, request)
                    if response is not None and response.accepted:
                        return response
                await asyncio.sleep(0.2)


async def until(good: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not good():
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def field_in(folder: Path) -> AsyncIterator[MixedField]:
    field = MixedField(folder)
    try:
        yield field
    finally:
        if field.driver is not None:
            await field.driver.stop()
        for number in list(field.processes):
            field.kill(number)


def change_request(kind: MessageType, value: bytes) -> RequestFrame:
    return RequestFrame(
        type=kind, log=encode_entries([LogEntry(0, ValueType.CLUSTER_SERVER, value)])
    )


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}:value".encode() for number in range(count)]


def test_ours_joins_a_cluster_of_jraft_and_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with field_in(tmp_path) as field:
            field.name(1, 2, 3, 4)
            for number in (1, 2, 3):
                field.start_jraft(number, (1, 2, 3))
            before = values("before", 23)
            for value in before:
                await field.ask_leader(client_request(value), 1, 2, 3)
            node = await field.start_ours(4, Stored(), SHY)
            add = change_request(MessageType.ADD_SERVER_REQUEST, encode_server(field.servers[4]))
            await field.ask_leader(add, 1, 2, 3)
            await until(lambda: node.configuration.ids == {1, 2, 3, 4})
            after = values("after", 5)
            for value in after:
                await field.ask_leader(client_request(value), 1, 2, 3)
            await until(lambda: field.machine.values == before + after)
            remove = change_request(MessageType.REMOVE_SERVER_REQUEST, encode_server_id(4))
            await field.ask_leader(remove, 1, 2, 3)
            # A JRaft leader may have stopped serving it before reporting that this is committed.
            await until(lambda: 4 not in field.latest_configuration().ids)

    asyncio.run(scenario())


def test_ours_leads_jraft_adds_and_removes_a_server_of_jraft(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with field_in(tmp_path) as field:
            field.name(1, 2, 3, 4)
            for number in (1, 2):
                field.start_jraft(number, (1, 2, 3))
            await asyncio.sleep(1.0)
            node = await field.start_ours(3, field.founding(1, 2, 3), EAGER)
            await until(lambda: node.state is State.LEADER and node.commit_index >= 1)
            said = values("led", 30)
            for value in said:
                await field.ask_leader(client_request(value), 3)
            wanted = [value.decode() for value in said]
            await until(lambda: field.commits(1) == wanted and field.commits(2) == wanted)
            assert field.machine.values == said
            field.start_jraft(4, (4,))
            await asyncio.sleep(8.0)  # it leads itself before it is asked to join
            add = change_request(MessageType.ADD_SERVER_REQUEST, encode_server(field.servers[4]))
            await field.ask_leader(add, 3)
            await until(lambda: node.configuration.ids == {1, 2, 3, 4})
            await until(lambda: field.commits(4)[-30:] == wanted)
            remove = change_request(MessageType.REMOVE_SERVER_REQUEST, encode_server_id(4))
            await field.ask_leader(remove, 3)
            await until(lambda: node.configuration.ids == {1, 2, 3})
            await field.ask_leader(client_request(b"last:one"), 3)
            await until(lambda: field.commits(1)[-1] == "last:one")

    asyncio.run(scenario())


def test_one_node_of_ours_joins_follows_leads_adds_and_removes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with field_in(tmp_path) as field:
            field.name(1, 2, 3, 4, 5)
            for number in (1, 2, 3):
                field.start_jraft(number, (1, 2, 3))
            said = values("before", 12)
            for value in said:
                await field.ask_leader(client_request(value), 1, 2, 3)
            node = await field.start_ours(4, Stored(), HEIR, attempts_max=3)
            add = change_request(MessageType.ADD_SERVER_REQUEST, encode_server(field.servers[4]))
            await field.ask_leader(add, 1, 2, 3)
            await until(lambda: node.configuration.ids == {1, 2, 3, 4})
            await until(lambda: field.machine.values == said)
            assert node.state is State.FOLLOWER
            assert node.leader in (1, 2, 3)
            dead = node.leader
            field.processes[dead].kill()
            await until(lambda: node.state is State.LEADER)
            for value in values("led", 12):
                await field.ask_leader(client_request(value), 4)
                said.append(value)
            left = [number for number in (1, 2, 3) if number != dead]
            wanted = [value.decode() for value in said]
            await until(lambda: all(field.commits(number) == wanted for number in left))
            field.start_jraft(5, (5,))
            await asyncio.sleep(8.0)  # it leads itself before it is asked to join
            add = change_request(MessageType.ADD_SERVER_REQUEST, encode_server(field.servers[5]))
            await field.ask_leader(add, 4)
            await until(lambda: node.configuration.ids == {1, 2, 3, 4, 5})
            await until(lambda: field.commits(5)[-len(wanted) :] == wanted)
            for number in (dead, 5):
                remove = change_request(MessageType.REMOVE_SERVER_REQUEST, encode_server_id(number))
                await field.ask_leader(remove, 4)
                await until(lambda number=number: number not in node.configuration.ids)
            await field.ask_leader(client_request(b"last:one"), 4)
            await until(lambda: all(field.commits(number)[-1] == "last:one" for number in left))
            assert node.configuration.ids == {4, *left}
            assert field.machine.values == [*said, b"last:one"]

    asyncio.run(scenario())


def test_a_joiner_of_jraft_that_compacts_on_the_way_has_our_entries(tmp_path: Path) -> None:
    """It takes a snapshot every 5,000 entries, and keeps the offsets of packs."""

    async def scenario() -> None:
        async with field_in(tmp_path) as field:
            field.name(1, 4)
            node = await field.start_ours(1, field.founding(1), EAGER, append_entries_max=100)
            await until(lambda: node.state is State.LEADER and node.commit_index >= 1)
            for round_ in range(12):
                await field.ask_leader(client_request(*values(f"r{round_}-", 600)), 1)
            field.start_jraft(4, (4,))
            await asyncio.sleep(8.0)  # it leads itself before it is asked to join
            add = change_request(MessageType.ADD_SERVER_REQUEST, encode_server(field.servers[4]))
            await field.ask_leader(add, 1)
            await until(lambda: node.configuration.ids == {1, 4})
            await field.ask_leader(client_request(b"last:one"), 1)
            await until(lambda: field.commits(4)[-1:] == ["last:one"])
            field.kill(4)
            stored = field.store.load()
            held = dict(jraft_log(field.home(4)))
            assert min(held) > 1  # it has compacted
            ours = dict(enumerate(stored.entries, stored.first_index))
            assert held == {index: packed(ours[index]) for index in held}

    asyncio.run(scenario())

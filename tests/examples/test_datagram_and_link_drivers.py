"""Drivers for datagrams and for several links against each other, on real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import trio

from culm.garlic import Node, Timing
from culm.garlic.events import DialWanted
from culm.garlic.raft import Server, Stored
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.store import MemoryStore
from culm.machine import Closed, Event, LocalProtocolError
from culm.oxen import MessageReceived, PeerJoined, PeerLeft
from culm.oxen import Node as OxenNode
from culm.pump import AbortedError, DatagramPump, LinkedPump
from culm.testing.raft_store_model import Values
from culm_io.asyncio.garlic import NodeDriver
from culm_io.asyncio.udp import UdpDriver
from culm_io.endpoint import address_of
from culm_io.programs.ports import free_ports
from culm_io.sockets.links import LinksLoop
from culm_io.sockets.udp import run_datagrams
from culm_io.trio.garlic import NodeDriver as TrioNodeDriver

HOST = "127.0.0.1"
VALUE = b"value"
SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less

Book = dict[Any, Any]


def drive_socket(node: OxenNode, bound: socket.socket, book: Book, begin: Any, take: Any) -> Closed:
    pump = DatagramPump(node, on_event=take)
    pump.call(time.monotonic(), *begin)
    return run_datagrams(pump, bound, book)


def drive_asyncio(
    node: OxenNode, bound: socket.socket, book: Book, begin: Any, take: Any
) -> Closed:
    names = {address: name for name, address in book.items()}

    async def main() -> Closed:
        driver = UdpDriver(node, address_of=book.get, name_of=names.get, on_event=take)
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: driver, sock=bound)
        driver.call(*begin)
        return await driver.wait_closed()

    return asyncio.run(main())


@pytest.mark.parametrize("left", [drive_socket, drive_asyncio])
@pytest.mark.parametrize("right", [drive_socket, drive_asyncio])
def test_two_nodes_of_oxen(left: Callable[..., Closed], right: Callable[..., Closed]) -> None:
    """One joins the other, says something and leaves; then the other leaves, too."""
    sockets = {name: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for name in (b"one", b"two")}
    for each in sockets.values():
        each.bind((HOST, 0))
    book = {name: each.getsockname() for name, each in sockets.items()}
    epoch = time.time() - time.monotonic()
    one, two = [OxenNode(me=name, rng=random.Random(name), epoch=epoch) for name in book]
    heard: list[bytes] = []

    def at_one(event: Event) -> None:
        if isinstance(event, MessageReceived):
            heard.append(event.data)
        elif isinstance(event, PeerLeft):
            one.leave()

    def at_two(event: Event) -> None:
        if isinstance(event, PeerJoined):
            two.send_in_order(b"one", b"hello")
            two.leave()

    with ThreadPoolExecutor(2) as pool:
        ends = [
            pool.submit(left, one, sockets[b"one"], book, (one.start,), at_one),
            pool.submit(right, two, sockets[b"two"], book, (two.join, b"one"), at_two),
        ]
        assert [end.result(SECONDS_MAX) for end in ends] == [Closed()] * 2
    assert heard == [b"hello"]


QUICK = RaftTiming(
    election_timeout_min_s=0.3,
    election_timeout_max_s=0.9,
    heartbeat_interval_s=0.03,
    request_timeout_s=0.5,
)


class Member:
    """A node, its store, and its proposals: ten are to be committed."""

    COUNT = 10

    def __init__(self, number: int, founders: tuple[Server, ...], now: float) -> None:
        self.store = MemoryStore(Values(), Stored.founding(founders))
        self.node = Node(
            server_id=number,
            stored=self.store.load(),
            rng=random.Random(number),
            now=now,
            timing=Timing(raft=QUICK),
        )

    @property
    def is_done(self) -> bool:
        return self.node.applied_index > self.COUNT

    def propose(self) -> None:
        """Propose a value as leader; a proposal of a replaced leader may never be committed."""
        if not self.is_done:
            with suppress(LocalProtocolError):
                self.node.propose([VALUE])


def member_on_sockets(number: int, founders: Any, listening: socket.socket, done: Any) -> int:
    """Plain sockets, until all members are done; the number of applied values."""
    member = Member(number, founders, time.monotonic())
    node = member.node

    def take(event: Event) -> None:
        member.propose()
        if isinstance(event, DialWanted):
            number = event.server.server_id
            try:
                made = socket.create_connection(address_of(event.server.endpoint), 1)
            except OSError:
                node.dial_failed(number)
            else:
                loop.connect(made, lambda: node.dialled(number))

    def look() -> None:
        if done(number, member.is_done):
            pump.abort()

    pump = LinkedPump(node, on_event=take, perform=member.store.perform, wake=look)
    loop = LinksLoop(pump, listening, node.accepted)
    with pytest.raises(AbortedError):
        loop.run()
    return node.applied_index


def member_on_asyncio(number: int, founders: Any, listening: socket.socket, done: Any) -> int:
    host, port = listening.getsockname()
    listening.close()

    async def main() -> int:
        member = Member(number, founders, asyncio.get_running_loop().time())
        driver = NodeDriver(member.node, member.store, on_event=lambda event: member.propose())
        await driver.listen(host, port)
        while not done(number, member.is_done):
            await asyncio.sleep(0.01)
        await driver.stop()
        return member.node.applied_index

    return asyncio.run(main())


def member_on_trio(number: int, founders: Any, listening: socket.socket, done: Any) -> int:
    host, port = listening.getsockname()
    listening.close()

    async def main() -> int:
        member = Member(number, founders, trio.current_time())
        driver = TrioNodeDriver(member.node, member.store, on_event=lambda event: member.propose())
        async with trio.open_nursery() as nursery:
            tasks = await nursery.start(driver.run)
            assert await tasks.start(driver.listen, host, port) == (host, port)
            while not done(number, member.is_done):
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        return member.node.applied_index

    return trio.run(main)


@pytest.mark.parametrize(
    "kinds", ["sockets sockets", "sockets asyncio", "asyncio asyncio", "asyncio trio", "trio trio"]
)
def test_nodes_of_garlic_farm(kinds: str) -> None:
    """A cluster of two commits its proposals, whatever drives it."""
    members = {
        "sockets": member_on_sockets,
        "asyncio": member_on_asyncio,
        "trio": member_on_trio,
    }
    # Two of the drivers listen themselves, at ports that no other process gets by chance meanwhile.
    sockets = [socket.create_server((HOST, port)) for port in free_ports(2)]
    founders = tuple(
        Server(number, "tcp://{}:{}".format(*each.getsockname()))
        for number, each in enumerate(sockets, 1)
    )
    are_done: dict[int, bool] = {}

    def done(number: int, is_done: bool) -> bool:
        are_done[number] = is_done or are_done.get(number, False)
        return sum(are_done.values()) == 2

    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(members[kind], number, founders, each, done)
            for number, (kind, each) in enumerate(zip(kinds.split(), sockets, strict=True), 1)
        ]
        assert all(one.result(SECONDS_MAX) > Member.COUNT for one in running)

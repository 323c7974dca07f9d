"""The driver for datagrams, on real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
import tracemalloc
from collections.abc import Callable, Hashable
from typing import Any

import pytest
from processes import SECONDS_MAX

from culm.machine import Buffer, Closed, Event
from culm.oxen import MessageReceived, Node, PeerJoined, PeerLeft, Timing
from culm.pump import AbortedError
from culm_io.asyncio.udp import UdpDriver
from toy_machines import Answered, Pinged, Pinger

HOST = "127.0.0.1"


class Book:
    """Addresses, by name."""

    def __init__(self) -> None:
        self.addresses: dict[Any, Any] = {}

    def name_of(self, address: Any) -> Any:
        names = (name for name, where in self.addresses.items() if where == address)
        return next(names, None)

    async def open(self, name: Any, machine: Any, events: list[Event]) -> UdpDriver:
        driver = UdpDriver(
            machine,
            address_of=self.addresses.get,
            name_of=self.name_of,
            on_event=events.append,
        )
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: driver, local_addr=(HOST, 0))
        self.addresses[name] = transport.get_extra_info("sockname")
        return driver


async def until(events: list[Event], event: Event) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while event not in events:
            await asyncio.sleep(0.005)


def test_two_nodes_of_oxen() -> None:
    async def main() -> None:
        book, loop = Book(), asyncio.get_running_loop()
        events: dict[bytes, list[Event]] = {b"one": [], b"two": []}
        nodes = {
            name: Node(me=name, rng=random.Random(name), epoch=-loop.time(), timing=Timing())
            for name in events
        }
        one, two = [await book.open(name, node, events[name]) for name, node in nodes.items()]
        one.call(nodes[b"one"].start)
        two.call(nodes[b"two"].join, b"one")
        await until(events[b"one"], PeerJoined(peer=b"two"))
        await until(events[b"two"], PeerJoined(peer=b"one"))
        two.call(nodes[b"two"].broadcast_in_order, b"hello")
        async with asyncio.timeout(SECONDS_MAX):
            while not any(isinstance(event, MessageReceived) for event in events[b"one"]):
                await asyncio.sleep(0.005)
        two.call(nodes[b"two"].leave)
        assert await two.wait_closed() == Closed()
        async with asyncio.timeout(SECONDS_MAX):
            while not any(isinstance(event, PeerLeft) for event in events[b"one"]):
                await asyncio.sleep(0.005)
        one.call(nodes[b"one"].close)
        assert await one.wait_closed() == Closed()

    asyncio.run(main())


def test_who_is_not_known_is_not_heard_and_what_is_for_nobody_is_lost() -> None:
    async def main() -> None:
        book, events = Book(), list[Event]()
        machine = Pinger(peers=["known", "lost"], interval=0.05)
        driver = await book.open("me", machine, events)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as known:
            known.bind((HOST, 0))
            known.setblocking(False)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(b"P\0\1", book.addresses["me"])
            book.addresses["known"] = known.getsockname()
            known.sendto(b"P\0\2", book.addresses["me"])
            await until(events, Pinged(peer="known", number=2))
            driver.call(machine.ping, "lost")
            driver.call(machine.ping, "known")
            known.sendto(b"A\0\2", book.addresses["me"])
            await until(events, Answered(peer="known", number=2))
        assert Pinged(peer="known", number=1) not in events
        driver.call(machine.close)
        assert await driver.wait_closed() == Closed()

    asyncio.run(main())


class Weigher(Pinger):
    """Records the size of each datagram, and the most memory taken by reading one."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[int, int]] = []

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        self.read.append((len(data), tracemalloc.get_traced_memory()[1]))


@pytest.mark.parametrize("size", [1, 65_507])
def test_a_datagram_is_read_whole_and_takes_no_more_room_than_the_largest(size: int) -> None:
    async def main() -> None:
        book, machine = Book(), Weigher()
        driver = await book.open("me", machine, [])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as known:
            known.bind((HOST, 0))
            book.addresses["known"] = known.getsockname()
            data = bytes(size)
            tracemalloc.start()
            try:
                known.sendto(data, book.addresses["me"])
                async with asyncio.timeout(SECONDS_MAX):
                    while not machine.read:
                        await asyncio.sleep(0.005)
            finally:
                tracemalloc.stop()
        [(found, peak)] = machine.read
        assert found == size
        assert peak < 1 << 17
        driver.call(machine.close)
        await driver.wait_closed()

    asyncio.run(main())


def test_what_a_handler_raises_is_raised_in_the_end() -> None:
    async def main() -> None:
        def fail(event: Event) -> None:
            raise ZeroDivisionError

        machine = Pinger()
        driver = UdpDriver(
            machine, address_of=lambda name: None, name_of=lambda where: None, on_event=fail
        )
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: driver, local_addr=(HOST, 0))
        driver.call(machine.close)
        with pytest.raises(ZeroDivisionError):
            await driver.wait_closed()

    asyncio.run(main())


Where = Callable[[Any], Any]


def broken(_: object) -> Any:
    raise ZeroDivisionError


async def opened(
    machine: Pinger, address_of: Where, name_of: Where
) -> tuple[UdpDriver, asyncio.DatagramTransport]:
    driver = UdpDriver(machine, address_of=address_of, name_of=name_of)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: driver, local_addr=(HOST, 0))
    return driver, transport


@pytest.mark.parametrize(
    ("address_of", "error"),
    [(broken, ZeroDivisionError), (lambda _: (HOST, 1 << 16), OverflowError)],
    ids=["raised", "no port"],
)
def test_a_wrong_address_is_told_and_nobody_waits(address_of: Where, error: type) -> None:
    async def main() -> None:
        machine = Pinger(peers=["one"])
        driver, _ = await opened(machine, address_of, lambda _: None)
        driver.call(machine.ping, "one")
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(error):
                await driver.wait_closed()

    asyncio.run(main())


def test_a_wrong_name_is_told_and_nobody_waits() -> None:
    async def main() -> None:
        driver, transport = await opened(Pinger(), lambda _: None, broken)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"P\0\1", transport.get_extra_info("sockname"))
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(ZeroDivisionError):
                await driver.wait_closed()

    asyncio.run(main())


def test_a_socket_that_is_closed_by_others_ends_the_machine() -> None:
    async def main() -> None:
        driver, transport = await opened(Pinger(), lambda _: None, lambda _: None)
        transport.close()
        async with asyncio.timeout(SECONDS_MAX):
            with pytest.raises(AbortedError):
                await driver.wait_closed()

    asyncio.run(main())

"""Whole paths: from one store through drivers and loopback sockets to another store.

`side_by_side` measures them beside another checkout, as "driven ...".  Both ends are in one
process, under asyncio, so that processor time covers everything that a user pays for: store,
machine, pump, driver, loop and socket.  Only public names are used here, which both checkouts have.

The loop's time is virtual.  On a busy machine, or under valgrind, no timer expires early, and each
round of a benchmark does the same work.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
import socket
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from nacl.signing import SigningKey

__all__ = ["WORKS"]

Work = Callable[[], object]
SIZE_MAX = 1 << 40

_folder = tempfile.TemporaryDirectory(prefix="culm-driven-")
_numbers = itertools.count()


def _new_path() -> Path:
    return Path(_folder.name) / f"{next(_numbers)}.store"


class _Selector(selectors.DefaultSelector):
    """Lets time pass: a little with each look, and the whole of a wait without events."""

    now = 1.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += 20e-6
        found = super().select(0)
        if not found and (timeout is None or timeout > 0):
            found = super().select(timeout if timeout is None else 0.001)  # data may be on its way
            if not found and timeout is not None:
                self.now += timeout
        return found


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> Work:
    def loop_of_its_own() -> asyncio.AbstractEventLoop:
        selector = _Selector()
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = lambda: selector.now  # type: ignore[method-assign]
        return loop

    def work() -> None:
        with asyncio.Runner(loop_factory=loop_of_its_own) as runner:
            runner.run(main())

    return work


async def _converse(ends: Sequence[tuple[Any, Any]], over: asyncio.Event) -> None:
    """Connect two machines, each given with its driver, until `over`; then close both."""
    loop = asyncio.get_running_loop()
    for (_, driver), connection in zip(ends, socket.socketpair(), strict=True):
        await loop.create_connection(partial(lambda driver: driver, driver), sock=connection)
    await over.wait()
    for machine, driver in ends:
        driver.call(machine.close)
    await asyncio.gather(*(driver.wait_closed() for _, driver in ends))


# Point-2-Point


@cache
def _log(count: int, size: int) -> Path:
    from culm.bamboo import LogAuthor
    from culm.wire.multihash import YAMF
    from culm_io.stores.bamboo import SqliteStore

    path, rng = _new_path(), Random(1)
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    with SqliteStore(path, family=YAMF) as store:
        written = [author.publish(rng.randbytes(size)) for _ in range(count)]
        store.append(author.log, written)
    return path


Tap = Callable[[Any], Any]


def recorded(machine: Any) -> Any:
    """A stand-in for a machine that records all its calls, as with ``--capture``."""
    from culm.capture import record

    # A clock that is no slower on a busy machine.
    return record(machine, lambda _: None, clock=itertools.count(0.0, 20e-6).__next__)


def point2point(count: int, size: int, tap: Tap | None = None, verifying: int = 0) -> Work:
    """A log goes from one SQLite file into another.

    verifying: the number of signatures left to the pump at a time; none by default.
    """
    from culm.machine import Event
    from culm.point2point import Role
    from culm.point2point.replication import Interest, LogSynced, Replicator, ReplicatorLimits
    from culm.wire.multihash import YAMF
    from culm_io.asyncio.driver import MachineProtocol
    from culm_io.stores.bamboo import SqliteStore

    full = _log(count, size)
    taps: dict[str, Any] = {} if tap is None else {"tap": tap}  # which old checkouts do not have

    async def replicate() -> None:
        with ExitStack() as stores:
            source = stores.enter_context(SqliteStore(full, family=YAMF))
            target = stores.enter_context(SqliteStore(_new_path(), family=YAMF))
            synced = asyncio.Event()

            def hear(event: Event) -> None:
                if isinstance(event, LogSynced):
                    synced.set()

            interest = Interest(live=True, accept_new_logs=True)
            limits = ReplicatorLimits(verifying_max=verifying)
            fetcher = Replicator(role=Role.PROACTIVE, interest=interest, limits=limits)
            server = Replicator(role=Role.REACTIVE)
            into, out_of = (store.perform for store in (target, source))
            ends = (
                (fetcher, MachineProtocol(fetcher, perform=into, on_event=hear, **taps)),
                (server, MachineProtocol(server, perform=out_of, **taps)),
            )
            await _converse([(driver.pump.machine, driver) for _, driver in ends], synced)
            (log,) = target.logs()
            assert (head := target.head(log)) is not None
            assert head.seqnum == count

    return _run(replicate)


# p2panda


@cache
def _documents(count: int) -> Path:
    from culm.p2panda.author import Author
    from culm_io.stores.p2panda import OperationSqliteStore

    path = _new_path()
    with OperationSqliteStore(path) as store:
        author = Author(SigningKey(bytes(32)), store)
        for number in range(count // 10):
            last = document = author.create(_schema(), {"name": f"panda {number}", "age": 0})
            for age in range(1, 10):
                last = author.update(document, {"age": age}, previous=[last])
    return path


def _schema() -> str:
    from culm.wire.multihash import YASMF

    return "panda_" + YASMF.hash(b"pandas").hex()


def p2panda(count: int) -> Work:
    """Operations go from one SQLite file into another, by set reconciliation."""
    from culm.machine import Event
    from culm.p2panda import Mode, Policy, Replicator, SessionEnded
    from culm_io.asyncio.driver import MachineProtocol
    from culm_io.stores.p2panda import OperationSqliteStore

    full = _documents(count)

    async def replicate() -> None:
        with ExitStack() as stores:
            source = stores.enter_context(OperationSqliteStore(full))
            target = stores.enter_context(OperationSqliteStore(_new_path()))
            ended = asyncio.Event()

            def hear(event: Event) -> None:
                if isinstance(event, SessionEnded):
                    assert event.error is None, event
                    ended.set()

            ends = []
            sides = ((b"a", b"b", target, hear), (b"b", b"a", source, None))
            for me, peer, store, on_event in sides:
                policy = Policy(asks=me < peer, mode=Mode.SET_RECONCILIATION, live=False)
                machine = Replicator(local_peer=me, remote_peer=peer, policy=policy)
                machine.announce([_schema()], timestamp=1)
                driver = MachineProtocol(machine, perform=store.perform, on_event=on_event)
                ends.append((machine, driver))
            await _converse(ends, ended)
            found = target.read_new([_schema()], count_max=count + 1, size_max=SIZE_MAX)
            assert len(found) == count

    return _run(replicate)


# Secure Scuttlebutt


def _key(name: str) -> SigningKey:
    from hashlib import sha256

    return SigningKey(sha256(name.encode()).digest())


@cache
def _feed(count: int) -> Path:
    from culm.machine import Ticket
    from culm.ssb.ebt import AppendMessages, Message
    from culm.ssb.messages import FeedPlace, create_message
    from culm_io.stores.ssb import SsbSqliteStore

    path, last, messages = _new_path(), None, []
    for number in range(count):
        content = {"type": "post", "text": f"number {number}"}
        made = create_message(_key("alice"), content=content, timestamp=number, last=last)
        last = FeedPlace(made.author, made.sequence, made.id)
        messages.append(Message(made.author, made.sequence, made.id, made.data))
    store = SsbSqliteStore(path)
    store.perform(AppendMessages(ticket=Ticket(1), messages=tuple(messages)))
    store.close()
    return path


def ssb(count: int) -> Work:
    """A feed goes from one SQLite file into another, between whole peers over TCP."""
    from culm.machine import Event
    from culm.ssb.ebt import FeedExtended
    from culm.ssb.feed_id import feed_id_of
    from culm.ssb.peer import Peer
    from culm_io.asyncio.ssb import PeerDriver
    from culm_io.stores.ssb import SsbSqliteStore

    full, alice = _feed(count), feed_id_of(bytes(_key("alice").verify_key))

    async def replicate() -> None:
        complete = asyncio.Event()

        def look(event: Event) -> None:
            if isinstance(event, FeedExtended) and event.last == count:
                complete.set()

        stores = SsbSqliteStore(full), SsbSqliteStore(_new_path())
        drivers = []
        for name, store in zip(("alice", "bob"), stores, strict=True):
            now = asyncio.get_running_loop().time()
            peer = Peer(identity=_key(name), stored=store.load(), now=now)
            peer.follow(alice)
            drivers.append(PeerDriver(peer, store, on_event=look))
        await drivers[1].dial(await drivers[0].listen("127.0.0.1", 0))
        await complete.wait()
        for driver in drivers:
            driver.call(driver.peer.close)
        for driver, store in zip(drivers, stores, strict=True):
            await driver.wait_closed()
            store.close()

    return _run(replicate)


# Garlic Farm


def garlic(count: int, window: int) -> Work:
    """Values are committed by three servers over TCP, `window` of them in flight."""
    from culm.garlic.limits import Timing
    from culm.garlic.node import Node
    from culm.garlic.raft import Committed, Server, State, Stored
    from culm.garlic.raft import Timing as RaftTiming
    from culm.garlic.store import MemoryStore
    from culm.machine import Event
    from culm_io.asyncio.garlic import NodeDriver
    from stateless import Nothing

    async def commit() -> None:
        loop = asyncio.get_running_loop()
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        servers = tuple(Server(at, f"tcp://127.0.0.1:{port}") for at, port in enumerate(ports, 1))
        done = proposed = 0
        complete = asyncio.Event()
        drivers: list[NodeDriver] = []
        leader: Node | None = None

        def submit() -> None:
            nonlocal proposed
            assert leader is not None
            while proposed < count and proposed - done < window:
                leader.propose([bytes(64)])
                proposed += 1

        def take(node: Node, event: Event) -> None:
            nonlocal done
            if isinstance(event, Committed) and node is leader:
                done += event.count
                submit()
                if done >= count:
                    complete.set()

        for number in (1, 2, 3):
            store = MemoryStore(Nothing(), Stored.founding(servers))
            first = number == 1  # the leader is not left to chance
            node = Node(
                server_id=number,
                stored=store.load(),
                rng=Random(number),
                now=loop.time(),
                timing=Timing(
                    raft=RaftTiming(
                        election_timeout_min_s=1.0 if first else 5.0,
                        election_timeout_max_s=2.0 if first else 9.0,
                        heartbeat_interval_s=0.3 if first else 1.0,
                        request_timeout_s=1.0,
                    )
                ),
            )
            driver = NodeDriver(node, store, on_event=partial(take, node))
            await driver.listen("127.0.0.1", ports[number - 1])
            drivers.append(driver)
        while drivers[0].node.state is not State.LEADER or drivers[0].node.applied_index == 0:
            await asyncio.sleep(0.01)
        leader = drivers[0].node
        submit()
        drivers[0].soon()
        await complete.wait()
        for driver in drivers:
            await driver.stop()

    return _run(commit)


# Oxen


def oxen(count: int, tap: Tap | None = None) -> Work:
    """Messages go from one node to two others, in order, over UDP."""
    from culm.machine import Event
    from culm.oxen import MessageReceived, Node, PeerState
    from culm.pump import AbortedError
    from culm_io.asyncio.udp import UdpDriver

    names = [b"AAA", b"BBB", b"CCC"]
    taps: dict[str, Any] = {} if tap is None else {"tap": tap}

    async def send() -> None:
        loop = asyncio.get_running_loop()
        book: dict[Any, Any] = {}
        received = 0
        complete = asyncio.Event()

        def hear(event: Event) -> None:
            nonlocal received
            if isinstance(event, MessageReceived):
                received += 1
                if received == 2 * count:
                    complete.set()

        def name_of(address: Any) -> bytes | None:
            return next((name for name, known in book.items() if known == address), None)

        drivers, nodes = [], []
        for number, name in enumerate(names):
            node = Node(me=name, rng=Random(number), epoch=1_700_000_000.0 + loop.time())
            driver = UdpDriver(node, address_of=book.get, name_of=name_of, on_event=hear, **taps)
            transport, _ = await loop.create_datagram_endpoint(
                partial(lambda driver: driver, driver), local_addr=("127.0.0.1", 0)
            )
            book[name] = transport.get_extra_info("sockname")
            nodes.append(node)
            drivers.append((driver.pump.machine, driver))
        drivers[0][1].call(drivers[0][0].start)
        for node, driver in drivers[1:]:
            driver.call(node.join, names[0])
        sender, driver = drivers[0]
        asked = nodes[0]  # getters are asked past a recorder
        while sum(view.state is PeerState.JOINED for view in asked.peers().values()) < 2:
            await asyncio.sleep(0.01)
        for begin in range(0, count, 20):
            for _ in range(begin, min(count, begin + 20)):
                driver.call(sender.send_in_order, names[1], bytes(32))
                driver.call(sender.send_in_order, names[2], bytes(32))
            while any(view.queued > 20 for view in asked.peers().values()):
                await asyncio.sleep(0)
        await complete.wait()
        for _, driver in drivers:
            driver.abort()
            with suppress(AbortedError):
                await driver.wait_closed()

    return _run(send)


WORKS: dict[str, Callable[[], Work]] = {
    "point2point, 4000 of 100 bytes": partial(point2point, 4000, 100),
    "point2point, 40 of 1 MiB": partial(point2point, 40, 1 << 20),
    "p2panda, 4000 operations": partial(p2panda, 4000),
    "ssb, 4000 messages": partial(ssb, 4000),
    "garlic, 1000 values one at a time": partial(garlic, 1000, 1),
    "garlic, 60000 values, 1000 at a time": partial(garlic, 60_000, 1000),
    "oxen, 2 x 3000 messages": partial(oxen, 3000),
}
"""By name, the function that prepares one round."""

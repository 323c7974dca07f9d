"""The speed of replicating feeds: the EBT machine alone, and whole peers over loopback.

``python -m pytest benchmarks/test_ssb.py -s`` prints messages a second, that speed as a share of
bare verification of signatures (processor time of the same run), and, where Node.js is at hand, the
speed of two peers on ssb-ebt; ``CULM_SSB_NODE`` is a folder with their packages, which are
installed if it has none.  ``CULM_SSB_MESSAGES`` sets the number of messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any

from nacl.signing import SigningKey

from culm.machine import Event, Ticket
from culm.ssb.address import Address
from culm.ssb.ebt import (
    AppendMessages,
    FeedExtended,
    Message,
    Replicator,
    SessionRole,
    decode_notes,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.messages import FeedPlace, create_message, read_message
from culm.ssb.peer import Peer
from culm.ssb.store import MemoryStore

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "ssb" / "interop")]

from culm_io.asyncio.ssb import PeerDriver  # noqa: E402

MESSAGES = int(os.environ.get("CULM_SSB_MESSAGES", 10_000))
ROUNDS = 3
MACHINE_MIN = 200_000  # messages a second of the machine alone
SIGNATURES_RATIO_GOAL = 0.7


def key_of(name: str) -> SigningKey:
    return SigningKey(sha256(name.encode()).digest())


def feed_of(name: str) -> str:
    return feed_id_of(bytes(key_of(name).verify_key))


# The machine alone


class Trusting:
    """A format that takes every message as known."""

    def check(self, previous: str | None, received: Message) -> Message:
        return received


def replicate_alone(messages: list[Message]) -> float:
    """Seconds of two replicators, one with a feed and the other one fetching it."""
    names = [feed_of("a"), feed_of("b")]
    stores = [MemoryStore(), MemoryStore()]
    stores[0].perform(AppendMessages(ticket=Ticket(1), messages=tuple(messages)))
    by_frame = {message.data: message for message in messages}
    sides = [
        Replicator(me=name, stored=store.load(), format=Trusting(), now=0.0)
        for name, store in zip(names, stores, strict=True)
    ]
    for side in sides:
        side.follow(messages[0].author)
    start = process_time()
    sessions = [
        sides[0].connect(names[1], role=SessionRole.SERVER),
        sides[1].connect(names[0], role=SessionRole.CLIENT),
    ]
    while not all(side.is_ready(session) for side, session in zip(sides, sessions, strict=True)):
        for side, store in zip(sides, stores, strict=True):
            while (effect := side.next_effect()) is not None:
                side.complete(effect.ticket, store.perform(effect))
    moved = True
    while moved:
        moved = False
        for number, (side, store) in enumerate(zip(sides, stores, strict=True)):
            while side.next_event() is not None:
                pass
            while (effect := side.next_effect()) is not None:
                side.complete(effect.ticket, store.perform(effect))
                moved = True
            other, session = sides[1 - number], sessions[1 - number]
            for frame in side.frames_to_send(sessions[number], 1 << 16):
                moved = True
                message = by_frame.get(frame)
                if message is None:
                    other.receive_notes(session, decode_notes(json.loads(frame)))
                else:
                    other.receive_message(session, message.author, message.sequence, message)
    taken = process_time() - start
    assert sides[1].clock[messages[0].author] == len(messages)
    return taken


def test_the_machine_alone() -> None:
    count = 5 * MESSAGES
    messages = [
        Message(feed_of("a"), number, f"%{number}", b'{"message":%d,%s}' % (number, b" " * 300))
        for number in range(1, count + 1)
    ]
    speed = count / median(replicate_alone(messages) for _ in range(ROUNDS))
    print(f"\nEBT alone: {speed:,.0f} messages a second")
    assert speed >= MACHINE_MIN


# Peers over loopback


def written(count: int) -> MemoryStore:
    """The store of an author."""
    key, last, messages = key_of("alice"), None, []
    for number in range(count):
        content = {"type": "post", "text": f"number {number}"}
        message = create_message(key, content=content, timestamp=number, last=last)
        last = FeedPlace(message.author, message.sequence, message.id)
        messages.append(Message(message.author, message.sequence, message.id, message.data))
    store = MemoryStore()
    store.perform(AppendMessages(ticket=Ticket(1), messages=tuple(messages)))
    return store


def peer_of(
    name: str, store: MemoryStore, on_event: Callable[[Event], object] = lambda event: None
) -> PeerDriver:
    now = asyncio.get_running_loop().time()
    peer = Peer(identity=key_of(name), stored=store.load(), now=now)
    peer.follow(feed_of("alice"))
    return PeerDriver(peer, store, on_event=on_event)


def serve(count: int, pipe: Connection) -> None:
    """A process with a feed, until it is told to end."""
    store = written(count)

    async def run() -> None:
        driver = peer_of("alice", store)
        pipe.send((await driver.listen("127.0.0.1", 0)).port)
        await asyncio.to_thread(pipe.recv)
        driver.call(driver.peer.close)
        await driver.wait_closed()

    asyncio.run(run())


@contextmanager
def served(count: int) -> Iterator[int]:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(count, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


async def fetch(port: int, count: int) -> tuple[float, float, MemoryStore]:
    """Get the feed; seconds of the clock and of the processor."""
    store = MemoryStore()
    complete = asyncio.Event()

    def look(event: Event) -> None:
        if isinstance(event, FeedExtended) and event.last == count:
            complete.set()

    driver = peer_of("bob", store, look)
    start, started = monotonic(), process_time()
    await driver.dial(Address("127.0.0.1", port, feed_of("alice")))
    await complete.wait()
    taken = monotonic() - start, process_time() - started
    driver.call(driver.peer.close)
    await driver.wait_closed()
    return *taken, store


def ours() -> tuple[float, float]:
    """Messages a second of our peers, and their share of the speed of bare verification."""
    speeds, ratios = [], []
    with served(MESSAGES) as port:
        for _ in range(ROUNDS):
            clock, processor, store = asyncio.run(fetch(port, MESSAGES))
            messages = [read_message(data) for data in store.messages(feed_of("alice"))]
            start = process_time()
            assert all(message.verify() for message in messages)
            speeds.append(MESSAGES / clock)
            ratios.append((process_time() - start) / processor)
    return median(speeds), median(ratios)


def theirs(folder: Path, count: int = MESSAGES, rounds: int = ROUNDS) -> float:
    """Messages a second of two peers on ssb-ebt."""
    from interop_support import JsPeer, ask, installed, until

    packages = installed()

    def started(name: str, number: int) -> JsPeer:
        peer = JsPeer(name, packages, folder / f"{name}{number}")
        until(lambda: peer.happened("listening"))
        return peer

    alice = started("alice", 0)
    speeds = []
    try:
        posts = [{"type": "post", "text": f"number {number}"} for number in range(count)]
        ask(alice, "publish", contents=posts)
        ask(alice, "request", feed=alice.id, value=True)
        for number in range(rounds):
            bob = started("bob", number)
            try:
                ask(bob, "request", feed=alice.id, value=True)
                start = monotonic()
                ask(bob, "dial", port=alice.port, peer=alice.id)
                until(has_all(bob, alice.id, count, ask))
                speeds.append(count / (monotonic() - start))
            finally:
                bob.stop()
    finally:
        alice.stop()
    return median(speeds)


def has_all(peer: Any, feed: str, count: int, ask: Callable[..., Any]) -> Callable[[], bool]:
    return lambda: ask(peer, "clock").get(feed) == count


def test_peers_over_loopback(tmp_path: Path) -> None:
    speed, ratio = ours()
    print(f"\nculm to culm: {speed:,.0f} messages a second, {ratio:.2f} of signatures alone")
    if ratio < SIGNATURES_RATIO_GOAL:
        print(f"the goal is {SIGNATURES_RATIO_GOAL}, and is not reached")
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("no Node.js is at hand: ssb-ebt is not measured")
    else:
        other = theirs(tmp_path)
        print(f"ssb-ebt to ssb-ebt: {other:,.0f}; culm is {speed / other:.2f} times as fast")
        assert speed >= other

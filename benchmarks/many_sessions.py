"""Ten thousand sessions in one process, each of which makes progress.

``python benchmarks/many_sessions.py [NAME ...] [--count 10000]`` lets COUNT pairs of machines talk,
all in one process and through pumps (`culm.pump`) in memory, without sockets.  Each session has its
own sender and receiver; SSB's are the links of one peer with COUNT others.

A round gives each session one turn: bytes of up to `TURN_SIZE` go either way.  This shows whether a
machine, a shared store, or a peer with many links lets some of its sessions wait: ``progress`` is
the progress of the slowest session at half time (when half of everything has come), as a share of
the fastest one's, and ``rounds`` is the round in which the last session ended, as a multiple of
that of the first.  KiB are resident memory of one session, both ends with their stores.
Microseconds of processor time, from setup to end, are also printed for a tenth of the sessions:
they are equal if sessions cost each other nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple, Protocol

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples"), str(HERE.parent / "tests" / "ssb")]

from culm.pump import LinkedPump, Pump  # noqa: E402

__all__ = ["KINDS", "Measured", "Run", "measure", "run"]

TURN_SIZE = 4096
ITEMS = 20
SIZE = 400  # of an item


class Session(Protocol):
    """Two ends, and the amount received by one of them."""

    ways: Sequence[tuple[Any, Any]]  # pumps, or links of pumps: from, to
    got: int


class Pair:
    """Two machines, each with its pump, connected with each other."""

    def __init__(
        self, sender: Any, receiver: Any, amount_of: Callable[[Any], int], *performs: Any
    ) -> None:
        self.got = 0
        self._amount_of = amount_of
        one, other = performs or (None, None)
        ends = [
            Pump(sender, **({} if one is None else {"perform": one})),
            Pump(receiver, on_event=self._hear, **({} if other is None else {"perform": other})),
        ]
        for end in ends:
            end.connection_made(0.0)
        self.ways = ((ends[0], ends[1]), (ends[1], ends[0]))

    def _hear(self, event: Any) -> None:
        self.got += self._amount_of(event)


def _bymux(count: int) -> tuple[list[Session], int]:
    from culm.bymux import Connection, Role, StreamData

    def pair() -> Pair:
        sender, receiver = Connection(role=Role.PROACTIVE), Connection(role=Role.REACTIVE)
        receiver.grant_streams(1)

        def amount(event: Any) -> int:
            if isinstance(event, StreamData):
                receiver.stream(event.stream_id).consumed(len(event.data))
                return len(event.data)
            return 0

        made = Pair(sender, receiver, amount)
        move(made)
        stream = made.ways[0][0].call(0.0, sender.create_stream)
        move(made)
        made.ways[1][0].call(0.0, receiver.stream(0).set_window, 4 * TURN_SIZE)
        for _ in range(ITEMS):
            made.ways[0][0].call(0.0, stream.send_data, bytes(SIZE))
        return made

    return [pair() for _ in range(count)], ITEMS * SIZE


@cache
def _entries() -> Any:
    from nacl.signing import SigningKey

    from culm.bamboo import LogAuthor, MemoryStore
    from culm.wire.multihash import YAMF

    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    store = MemoryStore(family=YAMF)
    store.append(author.log, [author.publish(bytes([n]) * SIZE) for n in range(ITEMS)])
    return store


def _point2point(count: int) -> tuple[list[Session], int]:
    from culm.bamboo import MemoryStore
    from culm.point2point import Role
    from culm.point2point.replication import EntryStored, Interest, Replicator
    from culm.wire.multihash import YAMF

    full = _entries()

    def pair() -> Pair:
        fetches = Replicator(role=Role.PROACTIVE, interest=Interest(accept_new_logs=True))
        store = MemoryStore(family=YAMF)
        return Pair(
            Replicator(role=Role.REACTIVE),
            fetches,
            lambda event: isinstance(event, EntryStored),
            full.perform,
            store.perform,
        )

    return [pair() for _ in range(count)], ITEMS


@cache
def _operations() -> Any:
    from nacl.signing import SigningKey

    from culm.p2panda.author import Author
    from culm.p2panda.store import MemoryStore

    store = MemoryStore()
    author = Author(SigningKey(bytes(32)), store)
    last = document = author.create(_schema(), {"text": "x" * SIZE})
    for _ in range(ITEMS - 1):
        last = author.update(document, {"text": "x" * SIZE}, previous=[last])
    return store


def _schema() -> str:
    from culm.wire.multihash import YASMF

    return "panda_" + YASMF.hash(b"pandas").hex()


def _p2panda(count: int) -> tuple[list[Session], int]:
    from culm.p2panda import MemoryStore, Mode, OperationStored, Policy, Replicator

    full = _operations()

    def end(me: bytes, peer: bytes) -> Replicator:
        policy = Policy(asks=me < peer, mode=Mode.SET_RECONCILIATION, live=False)
        made = Replicator(local_peer=me, remote_peer=peer, policy=policy)
        made.announce([_schema()], timestamp=1)
        return made

    def pair() -> Pair:
        return Pair(
            end(b"b", b"a"),
            end(b"a", b"b"),
            lambda event: isinstance(event, OperationStored),
            full.perform,
            MemoryStore().perform,
        )

    return [pair() for _ in range(count)], ITEMS


class _Follower:
    """A peer that has one link, with the hub."""

    def __init__(self, number: int, hub: Any, feed: str) -> None:
        from nacl.public import PrivateKey
        from peer_support import identity

        from culm.ssb.peer import Peer
        from culm.ssb.store import MemoryStore

        self.got = 0
        store = MemoryStore()
        peer = Peer(identity=identity(f"peer {number}"), stored=store.load(), now=0.0, epoch=1.7e9)
        peer.follow(feed)
        pump: Any = LinkedPump(peer, perform=store.perform, on_event=self._hear)
        keys = [PrivateKey(sha256(f"{number} {end}".encode()).digest()) for end in "ab"]
        there = hub.attach(hub.machine.accepted(ephemeral=keys[0]), 0.0)
        here = pump.attach(peer.dialled(hub.machine.me, ephemeral=keys[1]), 0.0)
        self.ways = ((there, here), (here, there))

    def _hear(self, event: Any) -> None:
        from culm.ssb.ebt import FeedExtended

        if isinstance(event, FeedExtended):
            self.got = event.last


def _ssb(count: int) -> tuple[list[Session], int]:
    from dataclasses import replace

    from peer_support import identity

    from culm.machine import Ticket
    from culm.ssb.ebt import AppendMessages, Message
    from culm.ssb.messages import FeedPlace, create_message
    from culm.ssb.peer import Limits, Peer
    from culm.ssb.store import MemoryStore

    store, last, messages = MemoryStore(), None, []
    for number in range(ITEMS):
        made = create_message(
            identity("alice"),
            content={"type": "post", "text": "x" * SIZE},
            timestamp=number,
            last=last,
        )
        last = FeedPlace(made.author, made.sequence, made.id)
        messages.append(Message(made.author, made.sequence, made.id, made.data))
    store.perform(AppendMessages(ticket=Ticket(1), messages=tuple(messages)))
    limits = Limits()
    hub = Peer(
        identity=identity("alice"),
        stored=store.load(),
        now=0.0,
        epoch=1.7e9,
        limits=replace(
            limits,
            links_max=count + 1,
            ebt=replace(limits.ebt, sessions_max=count + 1),
        ),
    )
    hub.follow(hub.me)
    pump: Any = LinkedPump(hub, perform=store.perform)

    return [_Follower(number, pump, hub.me) for number in range(count)], ITEMS


KINDS: dict[str, Callable[[int], tuple[list[Session], int]]] = {
    "bymux": _bymux,
    "point2point": _point2point,
    "p2panda": _p2panda,
    "ssb": _ssb,
}


def move(session: Session, size_max: int = TURN_SIZE) -> bool:
    """Let one turn's bytes go either way; returns whether there were any."""
    moved = False
    for here, there in session.ways:
        size = min(len(here.outgoing), there.read_size(), size_max)
        if size:
            data = bytes(here.outgoing[:size])
            here.sent(size, 0.0)
            there.receive_data(data, 0.0)
            moved = True
    return moved


class Measured(NamedTuple):
    """See the module."""

    count: int
    progress: float
    rounds: float
    kib: float
    us: float


class Run(NamedTuple):
    """How evenly the sessions progressed."""

    progress: float
    rounds: float


def run(name: str, count: int) -> Run:
    """Let `count` sessions run to their end; raises `AssertionError` if one stands still."""
    sessions, goal = KINDS[name](count)
    half: float | None = None
    ended: dict[int, int] = {}
    turn = 0
    while len(ended) < count:
        turn += 1
        moved = sum(map(move, sessions))
        got = [session.got for session in sessions]
        if half is None and sum(got) * 2 >= goal * count:
            half = min(got) / max(got)
        for number, amount in enumerate(got):
            if amount >= goal:
                ended.setdefault(number, turn)
        if not moved and len(ended) < count:
            raise AssertionError(f"{count - len(ended)} sessions stand still: {min(got)} of {goal}")
    return Run(half or 0.0, max(ended.values()) / min(ended.values()))


def measure(name: str, count: int) -> Measured:
    """The same, with its cost."""
    run(name, 20)  # everything made only once
    gc.collect()
    gc.freeze()
    before, start = _resident(), process_time()
    found = run(name, count)
    spent = (process_time() - start) / count * 1e6
    kib = (_peak() - before) / 1024 / count
    return Measured(
        count, round(found.progress, 2), round(found.rounds, 2), round(kib, 1), round(spent)
    )


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def told(names: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """A line for each kind and count, each from a separate process."""
    for name in names:
        for count in counts:
            command = [sys.executable, __file__, name, "--one", str(count)]
            run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            yield f"{name:<14}" + "".join(
                f"{value:>12,}" for value in Measured(*json.loads(run.stdout))
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Many sessions in one process.")
    parser.add_argument("names", nargs="*", default=list(KINDS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.names[0], arguments.one)))
        return
    print(f"{'':<14}" + "".join(f"{name:>12}" for name in Measured._fields))
    for line in told(arguments.names, (max(1, arguments.count // 10), arguments.count)):
        print(line, flush=True)


if __name__ == "__main__":
    main()

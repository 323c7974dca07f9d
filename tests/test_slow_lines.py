"""A line that moves, however slowly, is not given up: each machine with lines, over a slow one.

Whatever is sent takes far longer than any wait of either end, a single message too; only bytes,
not whole messages, come within each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.store import MemoryStore
from culm.garlic.raft import Committed, LeaderChanged
from culm.machine import Closed
from culm.machines.garlic_node import NODE
from culm.machines.operations import call
from culm.machines.ssb_peer import PEER
from culm.p2panda.author import Author
from culm.p2panda.replicator import Replicator as OperationReplicator
from culm.p2panda.store import MemoryStore as OperationStore
from culm.point2point import Role
from culm.point2point.replication import Interest, Replicator, Timing
from culm.pump import Pump
from culm.ssb.ebt import FeedExtended
from culm.ssb.peer import PeerDisconnected
from culm.testing.link import MachinePair
from culm.testing.mesh import Mesh
from culm.testing.pipe import JoinedMachines, JoinOptions, Pipe, Place
from culm.testing.stores import contents
from culm.wire.multihash import YAMF

LATENCY_S = 2.0
SLOW = JoinOptions(capacity=128)  # bytes in each LATENCY_S: 1 KiB within 16 s
LONG_S = 20_000.0


class SlowMesh(Mesh):
    """A mesh of lines with a latency."""

    latency_s = LATENCY_S

    def _join(self, ends: tuple[Place, Place], latency: tuple[float, float] = (0.0, 0.0)) -> None:
        super()._join(ends, (self.latency_s, self.latency_s))


class QuickMesh(SlowMesh):
    latency_s = LATENCY_S / 1000


class DeepPipe(Pipe):
    """Brings 64 bytes in each `LATENCY_S`, and takes whatever it is given: packets are large."""

    _free_at = 0.0

    def put(self, data: bytes, now: float) -> None:
        for start in range(0, len(data), 64):
            self._free_at = max(self._free_at, now) + LATENCY_S
            super().put(data[start : start + 64], self._free_at - self.latency)


class DeepPair(MachinePair):
    def _join(self, ends: tuple[Place, Place], latency: tuple[float, float] = (0.0, 0.0)) -> None:
        super()._join(ends, latency)
        for place in ends:
            self._pipes[place] = pipe = DeepPipe(self._pipes[place].to, 0.0, math.inf)
            pipe.allow(1 << 20)


def run(joined: JoinedMachines, is_done: Callable[[], bool], step_s: float = 10.0) -> float:
    """Run until it is done; returns the time, and fails where it takes too long."""
    while not is_done():
        assert joined.clock.now < LONG_S, "given up, or very slow"
        joined.run(until=joined.clock.now + step_s)
    for end in joined.ends.values():
        assert not [each for each in end.events if isinstance(each, (Closed, PeerDisconnected))]
    return joined.clock.now


def pumped(*pumps: Pump[Any], is_done: Callable[[], bool], rate: int) -> float:
    """Run two pumps over a line of `rate` bytes/s until it is done; returns the seconds.

    As with asyncio, a piece counts as sent when the last of it has left.
    """
    for pump in pumps:
        pump.connection_made(0.0)
    on_way = [b"", b""]
    rate //= 20
    for now in (tick / 20 for tick in range(1, 20 * int(LONG_S))):
        for number, (pump, peer) in enumerate((pumps, pumps[::-1])):
            rest = on_way[number] or bytes(pump.outgoing)
            on_way[number] = rest[rate:]
            peer.receive_data(rest[:rate], now)
            if rest and not on_way[number]:
                pump.sent(len(pump.outgoing), now)
            pump.advance(now)
            assert pump.closed is None
        if is_done():
            return now
    raise AssertionError("given up, or very slow")


def large_entry() -> tuple[MemoryStore, MemoryStore]:
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    here, there = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
    entries = [author.publish(Random(0).randbytes(size)) for size in (10, 70_000, 10)]
    here.append(entries[0].entry.log, entries)
    return here, there


def large_operation() -> tuple[OperationStore, OperationStore]:
    here, there = OperationStore(), OperationStore()
    Author(SigningKey(bytes(32)), here).create("blob_piece_v1", {"data": bytes(70_000)})
    return here, there


@pytest.mark.parametrize("rate", [100, 500, 1000])
def test_point2point_under_pumps(rate: int) -> None:
    here, there = large_entry()
    keep = Interest(live=True, accept_new_logs=True)
    one = Pump(Replicator(role=Role.PROACTIVE, interest=keep), perform=here.perform)
    other = Pump(Replicator(role=Role.REACTIVE, interest=keep), perform=there.perform)
    seconds = pumped(one, other, is_done=lambda: contents(here) == contents(there), rate=rate)
    assert seconds > 70_000 / rate


@pytest.mark.parametrize("rate", [100, 500, 1000])
def test_p2panda_under_pumps(rate: int) -> None:
    here, there = large_operation()
    one = OperationReplicator(local_peer=b"a", remote_peer=b"b")
    other = OperationReplicator(local_peer=b"b", remote_peer=b"a")
    for machine in (one, other):
        machine.announce(["blob_piece_v1"], timestamp=1)
    pumps = Pump(one, perform=here.perform), Pump(other, perform=there.perform)
    seconds = pumped(*pumps, is_done=lambda: len(there.documents("blob_piece_v1")) == 1, rate=rate)
    assert seconds > 70_000 / rate


@pytest.mark.parametrize("kind", [MachinePair, DeepPair])
def test_point2point(kind: type[MachinePair]) -> None:
    here, there = large_entry()
    keep = Interest(live=True, accept_new_logs=True)
    # Our question, and so its answer, waits behind all that a deep queue has taken.
    timing = Timing(idle_timeout_s=LONG_S) if kind is DeepPair else Timing()
    pair = kind.of_machines(
        Replicator(role=Role.PROACTIVE, interest=keep, timing=timing),
        Replicator(role=Role.REACTIVE, interest=keep),
        respond=(here.perform, there.perform),
        latency=(LATENCY_S, LATENCY_S),
        **SLOW,
    )
    assert run(pair, lambda: contents(here) == contents(there)) > 1000


@pytest.mark.parametrize("kind", [MachinePair, DeepPair])
def test_p2panda(kind: type[MachinePair]) -> None:
    here, there = large_operation()
    pair = kind.of_machines(
        OperationReplicator(local_peer=b"a", remote_peer=b"b"),
        OperationReplicator(local_peer=b"b", remote_peer=b"a"),
        respond=(here.perform, there.perform),
        latency=(LATENCY_S, LATENCY_S),
        **SLOW,
    )
    for end in pair.ends.values():
        end.machine.announce(["blob_piece_v1"], timestamp=1)
    assert run(pair, lambda: len(there.documents("blob_piece_v1")) == 1) > 1000


@pytest.mark.parametrize("speaks_ebt", [True, False])
def test_secure_scuttlebutt(speaks_ebt: bool) -> None:
    both = {"follows": ["alice", "bob"], "speaks_ebt": speaks_ebt}
    mesh = SlowMesh.of(PEER, {name: {"me": name, **both} for name in ("alice", "bob")}, **SLOW)
    for _ in range(9):
        mesh.do("bob", call("publish", text="x" * 7500))
    mesh.do("alice", call("dial", name="bob"))

    def is_done() -> bool:
        found = [each for each in mesh.events("alice") if isinstance(each, FeedExtended)]
        return bool(found) and found[-1].last == 9

    assert run(mesh, is_done) > 1000


def test_garlic_farm() -> None:
    """One value takes 20 of the longest election timeouts."""
    members = {str(number): {"id": number} for number in (1, 2, 3)}
    mesh = QuickMesh.of(NODE, members, capacity=200)
    mesh.run(until=3)
    leader = mesh.ends["1"].machine.leader
    mesh.do(str(leader), call("propose", values=[bytes(600_000)]))

    def is_done() -> bool:
        return any(isinstance(each, Committed) for each in mesh.events(str(leader)))

    assert run(mesh, is_done, 1.0) > 6
    changes = [each for each in mesh.events("1") if isinstance(each, LeaderChanged)]
    assert len(changes) == 1

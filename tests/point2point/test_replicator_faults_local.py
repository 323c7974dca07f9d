"""One invalid entry or payload costs the entries after it in its log, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    End,
    Node,
    World,
    check_store,
    key_of,
    news_of,
    same,
    settled,
    store_of,
)

from culm.bamboo.entry import LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.records import NewEntry, StoredEntry
from culm.bamboo.store import MemoryStore
from culm.point2point import NOTIFY, ErrorCode, Mode, Setup
from culm.point2point.replication import Interest, LogRefused, ReplicatorLimits, Want
from culm.testing.link import byte_by_byte, whole
from culm.testing.pipe import Chunker
from culm.wire.multihash import YAMF

COUNT = 4
NEWS = [news_of((20, 0, 90, 3), log_id=number) for number in range(3)]
LOGS = [key_of(news) for news in NEWS]
BAD_LOG = LOGS[1]

GREEDY = Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY)

# Small pieces that come byte by byte, and pieces as large as possible at once.
WAYS = {"byte by byte": (byte_by_byte, SMALL), "at once": (whole, ReplicatorLimits())}


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


KINDS: dict[str, Callable[[StoredEntry], StoredEntry]] = {
    "signature": lambda entry: entry._replace(encoded=flipped(entry.encoded, -1)),
    "payload hash": lambda entry: entry._replace(encoded=flipped(entry.encoded, -70)),
    "payload": lambda entry: entry._replace(payload=entry.payload and flipped(entry.payload, 0)),
}


class Lax(MemoryStore):
    """A store that accepts an entry without verifying it, as those of other programs may."""

    def __init__(self, kind: str, seqnum: int) -> None:
        super().__init__(family=YAMF)
        self._change, self._seqnum, self._payload = KINDS[kind], seqnum, kind == "payload"
        for log, news in zip(LOGS, NEWS, strict=True):
            self.append(log, news)

    def entries(self, log: LogKey, *args: object, **options: object) -> list[StoredEntry]:
        found = super().entries(log, *args, **options)  # type: ignore[arg-type]
        at = self._seqnum if log == BAD_LOG else 0
        return [self._change(entry) if entry.seqnum == at else entry for entry in found]

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        data = super().read_payload(log, seqnum, offset, size)
        is_changed = (log, seqnum, offset) == (BAD_LOG, self._seqnum, 0) and self._payload
        return flipped(data, 0) if is_changed and data else data


def connected(world: World, client: Node, server: Node) -> End:
    world.connect(client, server)
    world.wait(5)
    check_store(client.store)
    return client.end


def head_of(node: Node, log: LogKey) -> int:
    head = node.store.head(log)
    return 0 if head is None else head.seqnum


@pytest.mark.costly
@pytest.mark.parametrize(("chunker", "limits"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("kind", "seqnum"),
    [(kind, n) for kind in KINDS for n in range(1, COUNT + 1) if (kind, n) != ("payload", 2)],
)
def test_what_comes_before_is_kept_and_other_logs_go_on(
    kind: str, seqnum: int, chunker: Chunker, limits: ReplicatorLimits
) -> None:
    """However the bytes come.  By the seed the connection ends; the log at fault is named.

    A peer that leaves out that log when it connects again gets all the others.
    """
    world = World(chunker=chunker)
    server = world.node(Lax(kind, seqnum), interest=SERVE, limits=limits)
    client = world.node(interest=FETCH, limits=limits)
    end = connected(world, client, server)
    assert end.closed is not None
    assert end.closed.error is not None
    assert end.closed.error.code is ErrorCode.INVALID_DATA
    assert end.of(LogRefused) == [LogRefused(log=BAD_LOG, fault=Reason.INVALID_LOG)]
    # The metadata alone verifies where the payload does not. It is kept without the payload only
    # where it goes in first: for a payload that is written in pieces.
    is_large = len(NEWS[1][seqnum - 1].payload or b"") > limits.payload_piece_size
    kept = seqnum if kind == "payload" and is_large else seqnum - 1
    assert head_of(client, BAD_LOG) == kept
    again = world.node(client.store, interest=replace(FETCH, want=None), limits=limits)
    cable = world.connect(again, server)
    for log in LOGS:
        if log != BAD_LOG:
            cable.left.machine.replicate(log, Want())
    cable.left.drain()
    world.wait(5)
    assert settled(cable.left)
    assert [head_of(client, log) for log in LOGS] == [COUNT, kept, COUNT]
    sound = world.node(interest=SERVE)
    for log, news in zip(LOGS, NEWS, strict=True):
        sound.store.append(log, news)
    connected(world, client, sound)
    assert same(client, sound)


@pytest.mark.parametrize("limits", [SMALL, ReplicatorLimits()])
@pytest.mark.parametrize(
    ("setup", "size", "size_max"),
    [(Setup(), size, top) for size in (0, 1, 20, 21, 90, 200) for top in (20, 100)]
    + [(GREEDY, size, 100) for size in (0, 1, 20, 90)],
)
def test_payloads_alone_of_another_branch_cost_their_range(
    setup: Setup, limits: ReplicatorLimits, size: int, size_max: int
) -> None:
    """Of entry 2 the peer has another one, as neither has noticed: only entry 4 would show it."""
    world, ours = World(), news_of((20, 20, 20))
    theirs = news_of((20, size, 20), branch=b"other", fork_at=2)
    reader = world.node(
        store_of([NewEntry(new.entry) for new in ours]), interest=Interest(want=None)
    )
    peer = world.node(store_of(theirs), limits=limits)
    reader.setup = peer.setup = setup
    end = world.connect(reader, peer).left
    end.machine.replicate(LOGS[0], Want(first=1, last=3, payload_only=True, size_max=size_max))
    end.drain()
    world.settle()
    assert LogRefused(log=LOGS[0], fault=Reason.PAYLOAD_HASH) in end.events
    for node in (reader, peer):
        fork = node.store.fork(LOGS[0])
        assert fork is not None
        assert fork.seqnum == 2
        assert node.end.closed is None
        assert settled(node.end)


@pytest.mark.parametrize("setup", [Setup(), GREEDY])
def test_an_entry_behind_others_that_were_only_notified_may_be_of_another_branch(
    setup: Setup,
) -> None:
    """One that wants no entries sends 13 behind a gap; that links to another 4 than the peer's."""
    world, sizes = World(), (5,) * 14
    gap = [each for each in news_of(sizes) if each.entry.seqnum in (1, 2, 13, 14)]
    notified = world.node(store_of(gap), interest=Interest(want=Want(eagerness=NOTIFY)))
    keeper = world.node(store_of(news_of(sizes, branch=b"other", fork_at=4)[:12]), interest=KEEP)
    notified.setup = keeper.setup = setup
    end = world.connect(notified, keeper).right
    world.settle()
    assert end.closed is None
    assert settled(end)
    assert LogRefused(log=LOGS[0], fault=Reason.WRONG_BACKLINK) in end.events

"""Floods of well-formed parcels, and of nearly well-formed ones: memory stays within the limits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest
from oxen_support import EPOCH, ME, Table

from culm.oxen import Dialect, DropReason, Limits, PeerState
from culm.oxen.messages import (
    Body,
    Broadcast,
    Datagram,
    Finalize,
    Gossip,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    encode_parcel,
    write_message,
)

SMALL = Limits(
    peers_max=6,
    candidates_max=3,
    queue_max=8,
    window_max=4,
    inbox_size_max=4000,
    outbox_max=40,
    forwards_max=10,
)


@pytest.mark.slow
def test_tables_that_claim_any_number_of_peers() -> None:
    """In datagrams of the greatest size, each with other names, all of them claimed alive."""
    table = Table(limits=Limits(datagram_size_max=65_507, inbox_size_max=2**20))
    table.join(b"P")
    table.said()
    count, each = 0, 2_000
    tracemalloc.start()
    try:
        for index in range(60):
            names = [b"%07d" % (each * index + at) for at in range(each)]
            table.tell(b"P", Gossip({b"P": [EPOCH + table.now] * each}, names))
            count += each
        # And rows instead of columns.
        for index in range(10):
            rows = {b"r%06d" % (each * index + at): [EPOCH + table.now] for at in range(each)}
            table.tell(b"P", Gossip(rows, [b"P"]))
            count += each
        table.said()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limits = Limits()
    assert len(table.node.peers()) == 1 + limits.candidates_max
    assert len(table.node.contacts()) == 2 + limits.candidates_max
    assert table.node.dropped[DropReason.PEERS_LIMIT] == count - limits.candidates_max
    assert grown < 2_000_000
    # The one real peer is not pushed out, and the others go without an answer from them.
    table.wait(90.0, alive=(b"P",))
    assert {sid: view.state for sid, view in table.node.peers().items()} == {b"P": PeerState.JOINED}


def parcels(rng: Random) -> Iterator[tuple[bytes, Parcel]]:
    """Parcels of a cluster of liars, each with its source."""
    names = [b"S%d" % index for index in range(12)] + [ME, b"P"]

    def number() -> int:
        return rng.choice([0, 1, 2, 5, 2**40, 2**62, 2**63 - 1]) + rng.choice([0, 0, -1])

    while True:
        fr, to, source = (rng.choice(names) for _ in range(3))
        id = rng.choice([None, rng.randrange(8), rng.getrandbits(32)])
        kind = rng.randrange(8)
        body: Body | None = None
        if kind < 4:
            sequences = max(0, number()), max(0, number())
            message = rng.choice(
                [
                    Synchronize(*sequences),
                    Finalize(*sequences),
                    Broadcast(sequences[0], bytes(rng.randrange(30))),
                    OneToOne(sequences[1], bytes(rng.randrange(30))),
                    Datagram(bytes(rng.randrange(30))),
                ]
            )
            body = MessageData(rng.choice([ME, ME, to]), fr, id, write_message(message))
        elif kind == 4:
            body = MessageAck(rng.choice([ME, to]), fr, id or 0)
        elif kind < 7:
            columns = rng.sample(names, rng.randrange(6))
            times = [0.0, -1.0, EPOCH, EPOCH + 30, 2.0**62, -(2.0**62), 1e-9]
            body = Gossip(
                {sid: [rng.choice(times) for _ in columns] for sid in rng.sample(names, 3)}, columns
            )
        ka, kk = (rng.choice([None, rng.getrandbits(32)]) for _ in range(2))
        yield source, Parcel(ka, kk, body)


@pytest.mark.costly
@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("seed", range(4))
def test_a_flood_of_parcels_true_or_mutated(dialect: Dialect, seed: int) -> None:
    rng = Random(seed)
    table = Table(limits=SMALL, dialect=dialect, seed=seed)
    table.join(b"P")
    node = table.node
    largest = 0
    for index, (source, parcel) in enumerate(parcels(rng)):
        if index == 4_000:
            break
        data = bytearray(encode_parcel(parcel, dialect))
        if rng.random() < 0.3:
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        node.receive_datagram(bytes(data), source=source)
        if rng.random() < 0.2:
            if rng.random() < 0.3:
                table.now += rng.choice([0.01, 1.0, 30.0])
                node.advance(table.now)
            while node.next_event() is not None:
                pass
            sent = node.datagrams_to_send()
            largest = max(largest, len(sent))
            assert all(len(octets) <= SMALL.datagram_size_max for _, octets in sent)
        views = node.peers()
        assert len(views) <= SMALL.peers_max + 1  # one more while a peer is given up
        assert all(view.early <= 2 * SMALL.window_max for view in views.values())
        assert all(view.queued <= SMALL.queue_max + 1 for view in views.values())
        assert len(node.contacts()) <= 2 + 2 * SMALL.peers_max
    # Bodies, and for each neighbour at most 16 answers and one question.
    assert 0 < largest <= SMALL.outbox_max + 17 * 14
    assert node.dropped[DropReason.MALFORMED] > 100


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_flood_leaves_nothing_behind(dialect: Dialect) -> None:
    """The second half of a flood needs no more memory than the first."""
    table = Table(limits=SMALL, dialect=dialect)
    flood = parcels(Random(5))
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(6):
            for _ in range(1_500):
                source, parcel = next(flood)
                table.node.receive_datagram(encode_parcel(parcel, dialect), source=source)
                while table.node.next_event() is not None:
                    pass
                table.node.datagrams_to_send()
            table.now += 5.0
            table.node.advance(table.now)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[3:]) < 1.3 * max(sizes[:3]) + 20_000

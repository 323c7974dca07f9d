"""The speed of replicating documents, both ends in one process.

``python -m pytest benchmarks/test_p2panda.py -s`` prints the ratio of the time for verifying the
signatures alone to the time for replicating.  The two run by turns, time is the processor's, and
the ratio is the median of its rounds'.  The garbage collector runs, but skips older objects, most
of which are the benchmark's own.
"""

from __future__ import annotations

from statistics import median
from time import thread_time

import pytest
from nacl.signing import SigningKey

from clock import frozen
from culm.bamboo.entry import decode, verify_signature
from culm.p2panda import Mode, Policy, Replicator
from culm.p2panda.author import Author
from culm.p2panda.store import MemoryStore
from culm.wire.multihash import YASMF
from two_replicators import End, exchange

OPERATIONS, PER_DOCUMENT = 10_000, 10
ROUNDS = 5
READ_SIZE = 1 << 20
SCHEMA = "panda_" + YASMF.hash(b"pandas").hex()


def end(name: bytes, peer: bytes, store: MemoryStore, mode: Mode) -> End:
    policy = Policy(asks=name < peer, mode=mode, live=False)
    replicator = Replicator(local_peer=name, remote_peer=peer, policy=policy)
    replicator.announce([SCHEMA], timestamp=1)
    return End(replicator, store)


def written(count: int = OPERATIONS) -> MemoryStore:
    store = MemoryStore()
    author = Author(SigningKey(bytes(32)), store)
    for number in range(count // PER_DOCUMENT):
        last = document = author.create(SCHEMA, {"name": f"panda {number}", "age": 0})
        for age in range(1, PER_DOCUMENT):
            last = author.update(document, {"age": age}, previous=[last])
    return store


@pytest.mark.parametrize("mode", Mode)
def test_replication_beside_its_signatures(mode: Mode) -> None:
    full = written()
    kept = full.read_new([SCHEMA], count_max=OPERATIONS, size_max=1 << 40)
    entries = [decode(stored.entry, family=YASMF) for stored in kept]
    ratios = []
    for _ in range(ROUNDS):
        start = thread_time()
        assert all(map(verify_signature, entries))
        alone = thread_time() - start
        store = MemoryStore()
        with frozen():
            start = thread_time()
            ends = end(b"a", b"b", store, mode), end(b"b", b"a", full, mode)
            exchange(*ends, size_max=READ_SIZE)
            took = thread_time() - start
        assert len(store.read_new([SCHEMA], count_max=OPERATIONS, size_max=1 << 40)) == len(kept)
        ratios.append(alone / took)
    print(f"\n{mode.name}: {OPERATIONS} operations at {median(ratios):.2f} of signatures alone")

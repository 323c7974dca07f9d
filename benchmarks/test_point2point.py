"""The speed of replicating logs, both ends in one process.

``python -m pytest benchmarks/test_point2point.py -s`` prints ratios: small entries against the bare
verification of their signatures, large payloads against hashing them. The candidates run by turns,
time is the processor's, and a ratio is the median of its rounds', so that other load on the machine
hits all alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from statistics import median

import pytest
from nacl.signing import SigningKey
from pytest_benchmark.fixture import BenchmarkFixture

from clock import seconds
from culm.bamboo import LogAuthor, MemoryStore, NewEntry
from culm.bamboo.entry import verify_signature
from culm.point2point import Limits, Role
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits
from culm.wire.multihash import YAMF
from samples import SAMPLES, records
from two_replicators import End, exchange

SMALL_COUNT, SMALL_SIZE = 2_000, 100
LARGE_COUNT, LARGE_SIZE = 16, 1 << 20
ROUNDS = 15
READ_SIZE = 1 << 22  # the amount a driver passes on at a time
PUMP_SIZE = 1 << 16  # the same, by default, for the drivers with a pump

DEFAULTS = ReplicatorLimits()
# For large payloads on a fast line: a packet is a whole payload, and a few fit into the window.
BULK = ReplicatorLimits(
    connection=Limits(packet_size_max=1 << 20, unsent_size_max=1 << 20, data_window_max=1 << 22)
)

SMALL_RATIO_MIN, LARGE_RATIO_MIN = 0.8, 0.5


def written(payloads: Sequence[bytes]) -> list[NewEntry]:
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF, log_id=0)
    return [author.publish(payload) for payload in payloads]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def an_end(role: Role, entries: Sequence[NewEntry], limits: ReplicatorLimits) -> End:
    """A replicator over a store with `entries`."""
    store = MemoryStore(family=YAMF)
    if entries:
        store.append(entries[0].entry.log, entries)
    return End(Replicator(role=role, interest=Interest(accept_new_logs=True), limits=limits), store)


def replicate(
    entries: Sequence[NewEntry], limits: ReplicatorLimits, size_max: int = READ_SIZE
) -> tuple[Callable[[], None], End]:
    """The work of bringing `entries` into an empty store, and the end that receives them."""
    source, target = an_end(Role.REACTIVE, entries, limits), an_end(Role.PROACTIVE, [], limits)
    return lambda: exchange(source, target, size_max=size_max), target


def ratio_to(
    benchmark: BenchmarkFixture,
    entries: Sequence[NewEntry],
    alone: Callable[[], object],
    limits: ReplicatorLimits = DEFAULTS,
    size_max: int = READ_SIZE,
) -> float:
    """The speed of replicating, as a share of that of `alone`."""
    ratios: list[float] = []

    def a_round() -> None:
        work, target = replicate(entries, limits, size_max)
        taken = seconds(work)
        head = target.store.head(entries[0].entry.log)
        assert head is not None
        assert head.seqnum == len(entries)
        assert target.store.entry(entries[0].entry.log, head.seqnum).payload_complete
        ratios.append(seconds(alone) / taken)

    benchmark.pedantic(a_round, rounds=ROUNDS, warmup_rounds=1)
    ratio = median(ratios)
    benchmark.extra_info["ratio"] = round(ratio, 3)
    return ratio


@pytest.mark.parametrize("kind", ["log", "random"])
def test_small_entries_against_verifying_their_signatures(
    benchmark: BenchmarkFixture, kind: str
) -> None:
    entries = written(cut(SAMPLES[kind](SMALL_COUNT * SMALL_SIZE), SMALL_SIZE))

    def verify() -> None:
        assert all(verify_signature(new.entry) for new in entries)

    ratio = ratio_to(benchmark, entries, verify)
    print(f"\n{kind} entries of {SMALL_SIZE} bytes: {ratio:.2f} of verifying alone")
    assert ratio >= SMALL_RATIO_MIN


@pytest.mark.parametrize(
    ("kind", "limits", "size_max"),
    [
        ("random", BULK, READ_SIZE),
        ("records", BULK, READ_SIZE),
        ("random", DEFAULTS, READ_SIZE),
        ("records", DEFAULTS, READ_SIZE),
        ("log", BULK, READ_SIZE),
        ("random", DEFAULTS, PUMP_SIZE),
    ],
    ids=["random", "records", "random-defaults", "records-defaults", "log", "random-pump"],
)
def test_large_payloads_against_hashing_them(
    benchmark: BenchmarkFixture, kind: str, limits: ReplicatorLimits, size_max: int
) -> None:
    """Random bytes travel raw, the others compressed; log lines for comparison only.

    Compressing text takes longer than hashing it, for LZ4 as for us.
    """
    make = SAMPLES.get(kind, records)
    payloads = cut(make(LARGE_COUNT * LARGE_SIZE), LARGE_SIZE)
    entries = written(payloads)

    def hash_all() -> None:
        for payload in payloads:
            hashlib.blake2b(payload).digest()

    ratio = ratio_to(benchmark, entries, hash_all, limits, size_max)
    named = "default limits" if limits is DEFAULTS else "limits for bulk"
    named += "" if size_max == READ_SIZE else f", {size_max >> 10} KiB at a time"
    print(f"\n{kind} payloads of 1 MiB, {named}: {ratio:.2f} of BLAKE2b")
    if limits is BULK and kind != "log":
        assert ratio >= LARGE_RATIO_MIN

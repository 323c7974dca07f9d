"""The claims that `compare` measures: the work of culm, a peer for the same work, and the target.

A side is a callable that works once and returns a measure: a speed, a size or a count.  Each
contest is prepared anew, and both sides' work is checked.  A peer that has to be built or installed
is optional: a missing one raises `Absent`.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter, process_time
from typing import Any, NamedTuple

import driven
from clock import frozen
from idle import CULM, PEERS
from sampled import watched
from samples import loop_encode, numbers, readings, text

__all__ = ["CLAIMS", "Absent", "Claim", "Effort"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WINDOW = 65_535
CORES = 2

Work = Callable[[], object]
Side = Callable[[], float]
Contest = Iterator[tuple[Side, Side]]


class Absent(Exception):
    """The peer of a claim is not at hand: the reason."""


class Effort(NamedTuple):
    """The amount of measuring.

    rounds: turns of each side; brief: little work, to see that everything runs.
    """

    rounds: int
    brief: bool

    def amount(self, usual: int) -> int:
        return max(1, usual // 20) if self.brief else usual


class Claim(NamedTuple):
    """A claim: `ratio` is the measure of culm, divided by that of its peer.

    clock: the ratio's: processor, wall, virtual, or none where bytes are compared.
    at_most: whether a smaller ratio is the better one.  rounds: if different from the effort's.
    """

    name: str
    workload: str
    peer: str
    unit: str
    target: float
    contest: Callable[[Effort], AbstractContextManager[tuple[Side, Side]]]
    clock: str = "processor"
    at_most: bool = False
    rounds: int | None = None


def needs(module: str) -> None:
    if find_spec(module) is None:
        raise Absent(f"{module} is not installed")


def speed(work: Work, amount: float, clock: Callable[[], float] = process_time) -> float:
    """Amount a second of the clock; garbage collection ignores all earlier objects."""
    with frozen():
        start = clock()
        watched(work)
        return amount / (clock() - start)


# Codecs


@contextmanager
def lzfoo_contest(effort: Effort, *, sample: Callable[[int], bytes], verb: str) -> Contest:
    needs("lz4")
    import lz4.block

    from culm.wire import lzfoo

    data = sample(effort.amount(20_000_000))
    mb = len(data) / 1e6
    ours, theirs = lzfoo.compress(data, WINDOW), lz4.block.compress(data)
    assert lzfoo.decompress(ours, len(data), WINDOW) == data
    match verb:
        case "compress":
            yield (
                lambda: speed(lambda: lzfoo.compress(data, WINDOW), mb),
                lambda: speed(lambda: lz4.block.compress(data), mb),
            )
        case "decompress":
            yield (
                lambda: speed(lambda: lzfoo.decompress(ours, len(data), WINDOW), mb),
                lambda: speed(lambda: lz4.block.decompress(theirs), mb),
            )
        case _:
            yield lambda: float(len(ours)), lambda: float(len(theirs))


@contextmanager
def lzfoo_streams(effort: Effort, *, verb: str, level: int = 1) -> Contest:
    needs("lz4")
    import lzfoo_streams as streams

    payloads = streams.payloads_of(readings(effort.amount(10_000) * streams.SIZE))
    mb = len(payloads) * streams.SIZE / 1e6
    ours, theirs = streams.compress(payloads, level), streams.compress_lz4(payloads)
    assert streams.decompress(ours) == streams.decompress_lz4(theirs) == payloads
    match verb:
        case "compress":
            yield (
                lambda: speed(lambda: streams.compress(payloads, level), mb),
                lambda: speed(lambda: streams.compress_lz4(payloads), mb),
            )
        case "decompress":
            yield (
                lambda: speed(lambda: streams.decompress(ours), mb),
                lambda: speed(lambda: streams.decompress_lz4(theirs), mb),
            )
        case _:
            yield lambda: float(sum(map(len, ours))), lambda: float(sum(map(len, theirs)))


@contextmanager
def varu64_array(effort: Effort) -> Contest:
    from culm.wire import varu64

    values = numbers(effort.amount(1_000_000))
    data = loop_encode(values)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "varu64_loop.so"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        command = [*compiler, "-O3", "-shared", "-fPIC", HERE / "varu64_loop.c", "-o", library]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Absent(f"no C compiler: {error}") from None
        loop = ctypes.CDLL(str(library)).varu64_loop
        loop.restype = ctypes.c_int64

        found = (ctypes.c_uint64 * len(values))()

        def in_c() -> None:
            assert loop(data, ctypes.c_size_t(len(data)), found) == len(values)

        in_c()
        assert array("Q", found) == varu64.decode_array(data)[0] == array("Q", values)
        amount = len(values) / 1e6
        yield (
            lambda: speed(lambda: varu64.decode_array(data), amount),
            lambda: speed(in_c, amount),
        )


@contextmanager
def varu64_list(effort: Effort) -> Contest:
    needs("msgspec")
    import msgspec

    from culm.wire import varu64

    values = numbers(effort.amount(1_000_000))
    data, packed = loop_encode(values), msgspec.msgpack.encode(values)
    decoder = msgspec.msgpack.Decoder(list[int])
    assert varu64.decode_many(data)[0] == decoder.decode(packed) == values
    amount = len(values) / 1e6
    yield (
        lambda: speed(lambda: varu64.decode_many(data), amount),
        lambda: speed(lambda: decoder.decode(packed), amount),
    )


# Replication beside the verification of its signatures


def small_entries(count: int) -> Any:
    from test_point2point import cut, written

    return written(cut(text(100 * count), 100))


def replicated(entries: Any, limits: Any) -> float:
    """Entries a second from one Point-2-Point replicator to another."""
    from test_point2point import replicate

    work, target = replicate(entries, limits)
    reached = speed(work, len(entries))
    assert target.store.entry(entries[0].entry.log, len(entries)).payload_complete
    return reached


@contextmanager
def point2point_small(effort: Effort) -> Contest:
    from culm.bamboo.entry import verify_signature
    from test_point2point import DEFAULTS

    entries = small_entries(effort.amount(4000))

    def verify() -> None:
        assert all(verify_signature(new.entry) for new in entries)

    yield lambda: replicated(entries, DEFAULTS), lambda: speed(verify, len(entries))


@contextmanager
def _fetched(count: int) -> Iterator[Side]:
    """Blocks a second by the wall, from one process to another whose threads verify."""
    import asyncio

    import verifiers

    with verifiers.served(verifiers.log(count)) as address:
        yield lambda: count / asyncio.run(verifiers.fetch(address, count, CORES))[0]


@contextmanager
def point2point_cores(effort: Effort) -> Contest:
    from culm.bamboo.entry import verify_signature

    count = effort.amount(20_000)
    entries = small_entries(count)

    def verify() -> None:
        assert all(verify_signature(new.entry) for new in entries)

    with _fetched(count) as ours:
        yield ours, lambda: speed(verify, count, perf_counter)


@contextmanager
def point2point_large(effort: Effort, *, bytes_of: Callable[[int], bytes]) -> Contest:
    from test_point2point import BULK, written

    size = max(2, effort.amount(32)) << 20
    data = bytes_of(size)
    payloads = [data[start : start + (1 << 20)] for start in range(0, size, 1 << 20)]
    entries = written(payloads)

    def hash_all() -> None:
        for payload in payloads:
            hashlib.blake2b(payload).digest()

    yield lambda: replicated(entries, BULK), lambda: speed(hash_all, len(payloads))


@contextmanager
def p2panda(effort: Effort) -> Contest:
    from culm.bamboo.entry import decode, verify_signature
    from culm.p2panda import Mode
    from culm.p2panda.store import MemoryStore
    from culm.wire.multihash import YASMF
    from test_p2panda import READ_SIZE, SCHEMA, end, written
    from two_replicators import exchange

    full = written()
    kept = full.read_new([SCHEMA], count_max=1 << 20, size_max=1 << 40)
    entries = [decode(stored.entry, family=YASMF) for stored in kept]

    def verify() -> None:
        assert all(map(verify_signature, entries))

    def ours() -> float:
        store = MemoryStore()
        ends = [
            end(b"a", b"b", store, Mode.SET_RECONCILIATION),
            end(b"b", b"a", full, Mode.SET_RECONCILIATION),
        ]
        reached = speed(lambda: exchange(*ends, size_max=READ_SIZE), len(kept))
        found = store.read_new([SCHEMA], count_max=1 << 20, size_max=1 << 40)
        assert len(found) == len(kept)
        return reached

    yield ours, lambda: speed(verify, len(kept))


@contextmanager
def ssb_in_memory(effort: Effort) -> Contest:
    """The receiver alone: the server is a separate process."""
    import asyncio

    import test_ssb as ssb
    from culm.ssb.messages import read_message

    count = effort.amount(10_000)
    messages = [read_message(data) for data in ssb.written(count).messages(ssb.feed_of("alice"))]

    def verify() -> None:
        assert all(message.verify() for message in messages)

    with ssb.served(count) as port:

        def ours() -> float:
            _, processor, store = watched(lambda: asyncio.run(ssb.fetch(port, count)))
            assert len(list(store.messages(ssb.feed_of("alice")))) == count
            return count / processor

        yield ours, lambda: speed(verify, count)


@contextmanager
def ssb_on_disk(effort: Effort) -> Contest:
    """Both ends, with their stores on SQLite, in one process."""
    import test_ssb as ssb
    from culm.ssb.messages import read_message

    count = effort.amount(4000)
    messages = [read_message(data) for data in ssb.written(count).messages(ssb.feed_of("alice"))]

    def verify() -> None:
        assert all(message.verify() for message in messages)

    work = driven.ssb(count)
    yield lambda: speed(work, count), lambda: speed(verify, count)


@contextmanager
def ssb_beside_js(effort: Effort) -> Contest:
    import test_ssb as ssb

    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Absent("no Node.js")
    count = effort.amount(10_000)
    work = driven.ssb(count)
    with tempfile.TemporaryDirectory() as folder:
        turn = iter(range(1 << 30))

        def theirs() -> float:
            place = Path(folder) / str(next(turn))
            place.mkdir()
            return ssb.theirs(place, count, rounds=1)

        yield lambda: speed(work, count, perf_counter), theirs


def _hypercore() -> Path:
    """A folder with hypercore from npm, which is installed if it has none."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Absent("no Node.js")
    folder = Path(os.environ.get("CULM_HYPERCORE") or ROOT / ".tox" / "hypercore")
    if not (folder / "node_modules" / "hypercore").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        wanted = ["hypercore@10", "random-access-memory"]
        try:
            subprocess.run([*install, *wanted], cwd=folder, check=True, timeout=900)
        except (OSError, subprocess.SubprocessError) as error:
            raise Absent(f"hypercore does not install: {error}") from None
    return folder


@contextmanager
def beside_hypercore(effort: Effort, *, wall: bool) -> Contest:
    """Blocks of 100 bytes, signatures checked; by the wall our two ends are two processes."""
    from test_point2point import DEFAULTS

    packages = _hypercore()
    count = effort.amount(10_000)

    def theirs() -> float:
        command = ["node", HERE / "hypercore_pair.cjs", str(count)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=packages)
        told = json.loads(run.stdout)
        return count / (told["wall_s"] if wall else told["processor_s"])

    if wall:
        with _fetched(count) as ours:
            yield ours, theirs
    else:
        entries = small_entries(count)
        yield lambda: replicated(entries, DEFAULTS), theirs


# Set reconciliation


@contextmanager
def reconcile(effort: Effort, *, differences: int) -> Contest:
    """Both sides' processor time in milliseconds; negentropy's is that of its faster store."""
    import pytest

    import test_reconcile_modes as modes
    from beside import built

    if "CULM_NEGENTROPY" not in os.environ:
        raise Absent("CULM_NEGENTROPY names the directory cpp of hoytech/negentropy")
    sets = modes.spread(0, differences)
    trees = modes.tree_of(sets.rows[0]), modes.tree_of(sets.rows[1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = built("negentropy_session.cpp", Path(folder))
        except pytest.skip.Exception as reason:
            raise Absent(str(reason)) from None

        def ours() -> float:
            cost, received = watched(lambda: modes.measured_talk(trees, modes.MODES["ranges"], 1))
            assert received == [set(sets.right), set(sets.left)]
            return cost.time_ms

        def theirs() -> float:
            return min(cost.time_ms for cost in modes.beside(program, sets.rows).values())

        yield ours, theirs


# Clusters


@contextmanager
def raft(effort: Effort, *, window: int, together: bool) -> Contest:
    needs("pysyncobj")
    import bench_raft_cluster as cluster

    seconds = 0.3 if effort.brief else 3.0
    ours = cluster.serve_culm_together if together else cluster.serve_culm
    yield (
        lambda: cluster.measure(ours, window, seconds).rate,
        lambda: cluster.measure(cluster.serve_pysyncobj, window, seconds).rate,
    )


@contextmanager
def oxen_loss(effort: Effort, *, loss: float) -> Contest:
    """The worst of the seeds, relative to the mean without loss: in virtual time."""
    from oxen_throughput import rate

    seeds, count = range(effort.amount(20)), effort.amount(3000)

    def ours() -> float:
        return min(rate(loss, count, seed=seed) for seed in seeds)

    yield ours, lambda: fmean(rate(0.0, count, seed=seed) for seed in seeds)


# A directory


@contextmanager
def directory(effort: Effort) -> Contest:
    import bench_directory as bench

    if shutil.which("rsync") is None:
        raise Absent("no rsync")
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        source, turn = Path(folder) / "source", iter(range(1 << 30))
        bench.make_files(source, effort.amount(100_000))

        def fresh() -> Path:
            place = Path(folder) / str(next(turn))
            place.mkdir()
            return place

        def ours() -> float:
            place = fresh()
            costs = bench.replicate(source, place)
            shutil.rmtree(place)
            named = (costs[name] for name in ("publish", "serve", "fetch"))
            return sum(cost.user + cost.system for cost in named)

        def theirs() -> float:
            place = fresh()
            cost = bench.run("rsync", "-a", f"{source}/", place / "copy")
            shutil.rmtree(place)
            return cost.user + cost.system

        yield ours, theirs


# Memory


@contextmanager
def idle(effort: Effort, *, name: str, peer: str) -> Contest:
    needs(peer)
    if not Path("/proc/self/statm").exists():
        raise Absent("resident memory is read from /proc")
    count = str(effort.amount(4000))

    def size_of(machine: str) -> float:
        command = [sys.executable, HERE / "idle.py", machine, count]
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    yield lambda: size_of(name), lambda: size_of(peer)


def _lzfoo_claims() -> Iterator[Claim]:
    samples = {"CPython's sources": text, "JSON lines": readings}
    for told, sample in samples.items():
        workload = f"20 MB of {told}, window {WINDOW:,}"
        for verb, name, target in (
            ("compress", "compression", 0.7),
            ("decompress", "decompression", 1.0),
        ):
            contest = partial(lzfoo_contest, sample=sample, verb=verb)
            yield Claim(f"LZFoo, {name}, {told}", workload, "python-lz4", "MB/s", target, contest)
        contest = partial(lzfoo_contest, sample=sample, verb="size")
        name = f"LZFoo, size, {told}"
        yield Claim(name, workload, "python-lz4", "bytes", 1.0, contest, "none", True, 1)
    workload = "10,000 payloads of 300 bytes of JSON lines, shared history"
    peer = "python-lz4, a rolling dictionary"
    for verb, name in (("compress", "compression"), ("decompress", "decompression")):
        contest = partial(lzfoo_streams, verb=verb)
        yield Claim(f"LZFoo, {name}, a stream", workload, peer, "MB/s", 1.0, contest)
    for level, target in ((1, 1.0), (2, 0.9)):
        contest = partial(lzfoo_streams, verb="size", level=level)
        name = f"LZFoo, size, a stream, level {level}"
        yield Claim(name, workload, peer, "bytes", target, contest, "none", True, 1)


CLAIMS: tuple[Claim, ...] = (
    *(
        Claim(
            f"Raft, {window:,} in flight{', proposed together' if together else ''}",
            "values of 64 bytes, three servers as processes over loopback, no disk",
            "PySyncObj",
            "commits/s",
            target,
            partial(raft, window=window, together=together),
            "wall",
        )
        for window, together, target in ((1000, False, 4.0), (1000, True, 4.0), (1, False, 1.2))
    ),
    Claim(
        "Point-2-Point, entries of 100 bytes, one core",
        "4,000 entries of text, both ends in one process, stores in memory",
        "verification alone (libsodium)",
        "entries/s",
        0.9,
        point2point_small,
    ),
    Claim(
        "Point-2-Point, entries of 100 bytes, two cores",
        "20,000 entries, two processes over loopback, two verifiers, stores in memory",
        "verification alone (libsodium) on one core",
        "entries/s",
        1.6,
        point2point_cores,
        "wall",
    ),
    Claim(
        "Point-2-Point, payloads of 1 MiB",
        "32 random payloads, both ends in one process, limits for bulk",
        "BLAKE2b alone",
        "MiB/s",
        0.8,
        partial(point2point_large, bytes_of=Random(1).randbytes),
    ),
    Claim(
        "Point-2-Point, payloads of 1 MiB that shrink",
        "32 payloads of JSON lines, both ends in one process, limits for bulk",
        "BLAKE2b alone",
        "MiB/s",
        0.2,
        partial(point2point_large, bytes_of=readings),
    ),
    Claim(
        "Point-2-Point, processor time of a block",
        "10,000 blocks of 100 bytes, both ends in one process, in memory",
        "hypercore on Node.js",
        "blocks/s",
        1 / 0.6,
        partial(beside_hypercore, wall=False),
    ),
    Claim(
        "Point-2-Point, time of a block by the wall",
        "10,000 blocks of 100 bytes, in memory; culm in two processes, with two verifiers",
        "hypercore on Node.js",
        "blocks/s",
        2.0,
        partial(beside_hypercore, wall=True),
        "wall",
    ),
    Claim(
        "p2panda, set reconciliation",
        "10,000 operations, both ends in one process, stores in memory",
        "verification alone (libsodium)",
        "operations/s",
        0.85,
        p2panda,
    ),
    Claim(
        "SSB, store in memory",
        "10,000 messages over loopback, the receiver's processor time",
        "verification alone (libsodium)",
        "messages/s",
        0.85,
        ssb_in_memory,
    ),
    Claim(
        "SSB, stores on SQLite",
        "4,000 messages over loopback, both ends in one process",
        "verification alone (libsodium)",
        "messages/s",
        0.8,
        ssb_on_disk,
    ),
    Claim(
        "SSB beside ssb-ebt, both on disk",
        "10,000 messages over loopback",
        "ssb-ebt on Node.js",
        "messages/s",
        2.0,
        ssb_beside_js,
        "wall",
        rounds=3,
    ),
    *_lzfoo_claims(),
    Claim(
        "VarU64, to an array",
        "1,000,000 numbers of all sizes",
        "a loop in C",
        "million/s",
        0.8,
        varu64_array,
    ),
    Claim(
        "VarU64, to a list",
        "1,000,000 numbers of all sizes",
        "msgspec's MessagePack",
        "million/s",
        1.0,
        varu64_list,
    ),
    Claim(
        "Reconciliation, 100,000 differences, time",
        "1,000,000 items of 32 bytes on each side",
        "negentropy, its faster store",
        "ms",
        0.25,
        partial(reconcile, differences=100_000),
        at_most=True,
    ),
    *(
        Claim(
            f"Oxen, {loss:.0%} of datagrams lost",
            "messages in order, delays of 10 to 20 ms, the worst of 20 seeds",
            "the same without loss",
            "messages/s",
            target,
            partial(oxen_loss, loss=loss),
            "virtual",
            rounds=1,
        )
        for loss, target in ((0.01, 0.6), (0.05, 0.35))
    ),
    Claim(
        "A directory of 100,000 files",
        "publish, serve and fetch, files of up to 1.5 KiB",
        "rsync -a",
        "s",
        1.8,
        directory,
        at_most=True,
        rounds=3,
    ),
    *(
        Claim(
            f"Memory of an idle machine: {name}, beside {peer}",
            "4,000 in one process, resident memory",
            f"a connection of {peer}",
            "KiB",
            1.0,
            partial(idle, name=name, peer=peer),
            "none",
            True,
            1,
        )
        for peer in PEERS
        for name in CULM
    ),
)
"""Every claim, with the target of ``docs/benchmarks.md``."""

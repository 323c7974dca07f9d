"""The cost of the data pipeline: verification beside libsodium, the audit beside verification.

Run: ``python benchmarks/bench_spark.py [--entries 1000000] [--times 4] [--folder DIR]``, with the
extra ``spark``.  Makes an archive (kept in the folder, and used again), half of it in logs of
thousands of entries and half in logs of ten, and runs the jobs of the command line on it, on two
threads, after a run on an archive of a fifth of its size.  Then verification alone takes turns with
two loops of libsodium in C, on two threads, which share the same archive's entries, and two of
PyNaCl, in two processes, over some of them: once to warm up (Java is still compiling its hot code),
then three times, of which the medians count.  With `--times` the jobs run again on an archive that
many times as large.

Time is that of all processes' processors but for the measurement's own, so that other load matters
little; the wall clock's is printed, too.  The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from nacl.signing import SigningKey, VerifyKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import SIGNATURE_SIZE
from culm.spark import start_session
from culm.spark.archive import ArchiveWriter, read_archive
from culm.spark.jobs import Options, Store, audit_job
from culm.wire.multihash import YASMF
from sodium import NoLoop, build_loop

KIND = "bamboo/YASMF"
FILES = 8
WARM_PART = 5
SMALL = 10  # entries of a small log
PYNACL_STEP = 11  # the loops of PyNaCl take every eleventh entry: all places of small logs alike
TURNS = 3
SODIUM_MIN = 0.95
PYNACL_MIN = 0.9
AUDIT_MAX = 0.25
MEMORY_MAX = 3 << 30
#: The allowed factor of time for four times the size; for others by proportion.
GROWTH = 4.2 / 4
SETTINGS = {"spark.log.level": "ERROR"}

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLE_S = 0.25


class Cost(NamedTuple):
    """Seconds of processors, Java's and all others', and of the wall clock."""

    java: float
    python: float
    wall: float

    @property
    def processor(self) -> float:
        return self.java + self.python

    def since(self, before: Cost) -> Cost:
        return Cost(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """The cost of this process and all below it, from ``/proc``; a context manager.

    Memory is the sum of resident sizes, with shared memory counted once for each process. An ended
    process counts with its last known values: Spark ends idle workers, and their costs are in no
    sum of their parents.
    """

    def __init__(self) -> None:
        self.memory_max = 0
        self._own = 0.0
        self._spent: dict[tuple[int, str], tuple[str, float]] = {}
        self._lock = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def read(self) -> Cost:
        with self._lock:
            self._look()
            java = sum(spent for name, spent in self._spent.values() if name == "java")
            python = sum(spent for name, spent in self._spent.values() if name != "java")
            return Cost(java, python - self._own, time.monotonic())

    def _look(self) -> int:
        """Note each process's cost so far, and that of looking; the resident memory."""
        began = time.thread_time()
        resident = 0
        for pid, name, fields in _below(os.getpid()):
            spent = sum(map(int, fields[11:13])) / _TICK
            # numbers are used again, but not with that start
            self._spent[pid, fields[19]] = name, spent
            resident += int(fields[21]) * _PAGE
        self._own += time.thread_time() - began
        return resident

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            with self._lock:
                self.memory_max = max(self.memory_max, self._look())


def _below(root: int) -> Iterator[tuple[int, str, list[str]]]:
    """The number, name and fields, from the state on, of a process and all its descendants."""
    found: dict[int, tuple[str, list[str]]] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text(errors="replace")
            except OSError:
                continue  # the process is gone
            name, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            found[int(path.name)] = name, fields
            children.setdefault(int(fields[1]), []).append(int(path.name))
    waiting = [root]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        if process in found:
            yield process, *found[process]


def make_archive(folder: Path, entries: int) -> Path:
    """An archive of that many entries, kept from an earlier run or made now."""
    target = folder / f"archive-{entries}"
    if target.exists():
        return target
    partial = folder / f".archive-{entries}"
    partial.mkdir(exist_ok=True)
    share = entries // FILES
    for number in range(FILES):
        with (partial / f"{number}.culm").open("wb") as file, ArchiveWriter(file, KIND) as writer:
            first = 1 + number * share
            for record in _log(first, share // 2):
                writer.append(*record)
            for log in range(share // 2 // SMALL):
                for record in _log(first + 1 + log, SMALL):
                    writer.append(*record)
    partial.rename(target)
    return target


def _log(author: int, length: int) -> Iterator[tuple[bytes, bytes]]:
    log = LogAuthor(SigningKey(author.to_bytes(32, "big")), family=YASMF, log_id=0)
    for number in range(length):
        text = b"%d of %d, some payload text of sixty bytes or so, as posts have"
        made = log.publish(text % (number, author))
        yield made.entry.encode(), made.payload


def _entries(files: Iterable[Path], step: int = 1) -> Iterator[bytes]:
    """Every entry of these files, or one of `step`."""
    for path in files:
        with path.open("rb") as file:
            yield from (entry for entry, _ in islice(read_archive(file), 0, None, step))


def pynacl_loop(archive: Path) -> float:
    """Processor seconds a signature of a loop over entries of all files."""
    entries = list(_entries(archive.iterdir(), PYNACL_STEP))
    before = time.process_time()
    for entry in entries:
        VerifyKey(entry[1:33]).verify(entry[:-SIGNATURE_SIZE], entry[-SIGNATURE_SIZE:])
    return (time.process_time() - before) / len(entries)


def _columns(entries: Iterable[bytes]) -> tuple[bytes, bytes, bytes, array[int]]:
    """The keys and signatures of entries, and what is signed, with offsets into that."""
    keys, signatures, data, offsets = bytearray(), bytearray(), bytearray(), array("i", [0])
    for entry in entries:
        keys += entry[1:33]
        signatures += entry[-SIGNATURE_SIZE:]
        data += entry[:-SIGNATURE_SIZE]
        offsets.append(len(data))
    return bytes(keys), bytes(signatures), bytes(data), offsets


def libsodium_loops(archive: Path, folder: Path) -> Callable[[], float]:
    """Two loops that share all entries; a call returns processor seconds a signature."""
    files = sorted(archive.iterdir())
    halves = [_columns(_entries(half)) for half in (files[::2], files[1::2])]
    count = sum(len(offsets) - 1 for *_, offsets in halves)
    loop = build_loop(folder)

    def run_one(half: tuple[bytes, bytes, bytes, array[int]]) -> tuple[int, float]:
        before = time.thread_time()
        return loop(*half), time.thread_time() - before

    def run() -> float:
        with ThreadPoolExecutor(2) as pool:
            valid, spent = map(sum, zip(*pool.map(run_one, halves), strict=True))
        if valid != count:
            raise SystemExit("libsodium does not find the entries valid")
        return spent / count

    return run


def run_audit(spark: Any, meter: Meter, archive: Path, folder: Path) -> dict[str, Cost]:
    """The cost of each step of the job `audit`."""
    steps = [("", meter.read())]
    options = Options(inputs={"archive": str(archive)}, kind=KIND)
    outcome = audit_job(
        spark,
        options,
        Store(spark, str(folder / "out")),
        lambda step: steps.append((step, meter.read())),
    )
    steps.append(("end", meter.read()))
    if not outcome.is_clean:
        raise SystemExit(f"the archive is not sound: {json.dumps(outcome.numbers)}")
    pairs = pairwise(steps[1:])
    return {step.partition(" ")[0]: after.since(before) for (step, before), (_, after) in pairs}


def verified_without_sink(spark: Any, meter: Meter, archive: Path) -> Cost:
    """Reading, decoding, hashing and verifying, without writing."""
    from culm.spark.columns import schema_text
    from culm.spark.decode import VERIFIED
    from culm.spark.source import register

    register(spark)
    before = meter.read()
    reader = spark.read.format("culm").option("verify", KIND).schema(schema_text(VERIFIED))
    reader.load(str(archive)).write.format("noop").mode("overwrite").save()
    return meter.read().since(before)


def beside_loops(spark: Any, entries: int, folder: Path) -> tuple[float, float]:
    """The speed of verification alone, by turns with two loops of libsodium, and of PyNaCl."""
    archive = make_archive(folder, entries)
    loops = libsodium_loops(archive, folder)
    bare, called, whole = [], [], []
    processes = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    with processes as pool, Meter() as meter:
        for turn in range(1 + TURNS):
            cost = verified_without_sink(spark, meter, archive)
            each, wall = cost.processor / entries, cost.wall
            if turn:
                whole.append(each)
                bare.append(loops())
                called.append(sum(pool.map(pynacl_loop, [archive] * 2)) / 2)
                print(
                    f"  turn {turn}: verification {each * 1e6:.1f} µs ({wall:.1f} s by the wall),"
                    f" libsodium {bare[-1] * 1e6:.1f}, PyNaCl {called[-1] * 1e6:.1f} µs an entry",
                    flush=True,
                )
    return median(bare) / median(whole), median(called) / median(whole)


class Measured(NamedTuple):
    """For one archive: verification alone, the job `verify`, and the extra cost of the audit."""

    entries: int
    plain: Cost
    verify: Cost
    audit: Cost

    @property
    def total(self) -> float:
        return self.verify.processor + self.audit.processor


def measure(spark: Any, meter: Meter, entries: int, folder: Path) -> Measured:
    archive = make_archive(folder, entries)
    plain = verified_without_sink(spark, meter, archive)
    steps = run_audit(spark, meter, archive, folder)
    verify = Cost(*map(sum, zip(steps["verifying"], steps["setting"], strict=True)))
    return Measured(entries, plain, verify, steps["auditing"])


def tell(found: Measured) -> None:
    print(
        f"{found.entries:,} entries{'Python':>21}{'Java':>8}{'wall':>8}{'µs of processor':>20}",
        flush=True,
    )
    rows = {
        "read, decode, hash, verify": found.plain,
        "and write (job verify)": found.verify,
        "audit beyond that": found.audit,
    }
    for name, cost in rows.items():
        each = cost.processor / found.entries * 1e6
        print(f"  {name:<28}{cost.python:>8.1f}{cost.java:>8.1f}{cost.wall:>8.1f}{each:>16.1f}")


class Targets:
    """Reports whether each target is met, and remembers a missed one."""

    def __init__(self) -> None:
        self.missed = False

    def check(self, what: str, value: float, limit: float, *, least: bool = False) -> None:
        met = value >= limit if least else value <= limit
        self.missed |= not met
        bound = "at least" if least else "at most"
        print(f"{what}: {value:.2f} ({bound} {limit:.2f}){'' if met else '  MISSED'}", flush=True)


def check_all(options: argparse.Namespace, folder: Path) -> bool:
    """Measure, print, and return whether all targets are met."""
    targets = Targets()
    spark = start_session("culm bench", master="local[2]", settings=SETTINGS)
    with Meter() as meter:
        measure(spark, meter, options.entries // WARM_PART, folder)
        found = measure(spark, meter, options.entries, folder)
        tell(found)
    # Apart, since the loops hold all signatures in memory.
    try:
        speed, beside_pynacl = beside_loops(spark, options.entries, folder)
    except NoLoop as error:
        print(f"libsodium in a loop cannot be had: {error}")
    else:
        targets.check("verification / two loops of libsodium", speed, SODIUM_MIN, least=True)
        what = "verification / two loops of PyNaCl"
        targets.check(what, beside_pynacl, PYNACL_MIN, least=True)
    share = found.audit.processor / found.verify.processor
    targets.check("audit beyond verification / verification", share, AUDIT_MAX)
    memory = meter.memory_max
    if options.times > 1:
        with Meter() as meter:
            more = measure(spark, meter, options.entries * options.times, folder)
        tell(more)
        memory = max(memory, meter.memory_max)
        wanted = GROWTH * options.times
        what = f"{options.times} times the entries take so many times as long"
        targets.check(what, more.total / found.total, wanted)
    targets.check("GiB of all processes at once", memory / (1 << 30), MEMORY_MAX / (1 << 30))
    spark.stop()
    return not targets.missed


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=4, help="as large (%(default)s); 1 for not")
    parser.add_argument("--folder", type=Path, help="for archives and outputs; kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="culm-bench-spark-") as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if check_all(options, folder) else 1


if __name__ == "__main__":
    sys.exit(main())

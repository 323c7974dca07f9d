"""Commits a second of three servers as processes over loopback, ours and PySyncObj's.

64-byte values are submitted in the leader's process, with a window of values in flight: one by one,
and with ours also together, as many in one call as there is room for.  Run::

    python benchmarks/bench_raft_cluster.py [--seconds 2] [--rounds 3] [--windows 1 1000]
        [--before CHECKOUT] [--sqlite]

Prints one line of JSON for each library and window (medians of some rounds, which take turns), then
one for each window with the medians of the rounds' ratios.  ``us`` is the processor time of all
three servers, in microseconds for each commit: on a busy machine it says more than the commits a
second.  PySyncObj is left out where it is not installed.

``--before`` takes turns with another checkout, too.  Nothing is written to disk, except with
``--sqlite``: then our servers write to SQLite, in a separate thread; PySyncObj has no storage that
survives a crash in the same way, and is left out.

PySyncObj (0.3.17, pure Python; it has no compiled part) runs at its fastest settings,
found by trying them out on this benchmark:

* no journal and no dump file (its default), and no log compaction during the run;
* ``autoTick=False``: the calling thread ticks, instead of a thread of its own every 50 ms;
* one at a time: ``appendEntriesUseBatch=False``, with which a command is sent the moment
  it is taken from the queue (with batches it waits for the next period; 5 times slower),
  and a poll that waits for sockets as long as need be;
* many at a time: batches, every 0.5 ms (periods of 5 and 20 ms, sending each command at
  once, a poll that never waits, buffers and batches of 1 MiB, ``select`` are all slower);
* its log of warnings is off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from culm.garlic.limits import Limits, Timing
from culm.garlic.node import Node
from culm.garlic.raft import (
    Committed,
    Server,
    State,
    Stored,
)
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.store import MemoryStore, Store
from culm.machine import Event
from culm_io.asyncio.garlic import NodeDriver
from culm_io.stores.raft import RaftSqliteStore
from stateless import Nothing

VALUE = bytes(64)
HERE = Path(__file__).resolve()
WARM_UP_S = 0.5

Tell: TypeAlias = Callable[[int], None]  # the commits so far: at the start and the end of measuring
Serve: TypeAlias = Callable[[int, Sequence[int], int, float, Tell], None]


class Measured(NamedTuple):
    """Commits a second, and microseconds of processor time for each, over all servers."""

    rate: float
    us: float


@contextlib.contextmanager
def make_store(stored: Stored, *, sqlite: bool) -> Iterator[Store]:
    if not sqlite:
        yield MemoryStore(Nothing(), stored)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield RaftSqliteStore(Path(folder) / "raft", Nothing(), stored)


async def run_culm(
    number: int,
    ports: Sequence[int],
    window: int,
    seconds: float,
    tell: Tell,
    store: Store,
    *,
    together: bool,
) -> None:
    node = Node(
        server_id=number,
        stored=store.load(),
        rng=random.Random(number),
        now=asyncio.get_running_loop().time(),
        timing=Timing(
            raft=RaftTiming(
                election_timeout_min_s=1.0,
                election_timeout_max_s=2.0,
                heartbeat_interval_s=0.3,
                request_timeout_s=1.0,
            )
        ),
        limits=Limits(raft=RaftLimits(in_flight_max=4, snapshot_distance=100_000)),
    )
    done = 0
    waiting = 0

    def take(event: Event) -> None:
        nonlocal done, waiting
        if isinstance(event, Committed):
            done += event.count
            waiting -= event.count
            submit()

    def submit() -> None:
        nonlocal waiting
        while waiting < window:
            count = window - waiting if together else 1
            node.propose([VALUE] * count)
            waiting += count

    executor = None if isinstance(store, MemoryStore) else ThreadPoolExecutor(1)
    driver = NodeDriver(node, store, on_event=take, perform_in=executor)
    await driver.listen("127.0.0.1", ports[number - 1])
    until = time.monotonic() + seconds + 12
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        if node.state is State.LEADER and node.applied_index > 0:
            submit()
            driver.soon()
            await asyncio.sleep(WARM_UP_S)
            tell(done)
            await asyncio.sleep(seconds)
            tell(done)
            await asyncio.sleep(10)  # the others are still measured
    await driver.stop()


def serve_culm(
    number: int,
    ports: Sequence[int],
    window: int,
    seconds: float,
    tell: Tell,
    *,
    sqlite: bool = False,
    together: bool = False,
) -> None:
    servers = tuple(Server(at, f"tcp://127.0.0.1:{port}") for at, port in enumerate(ports, 1))
    with make_store(Stored.founding(servers), sqlite=sqlite) as store:
        asyncio.run(run_culm(number, ports, window, seconds, tell, store, together=together))


def serve_culm_together(
    number: int, ports: Sequence[int], window: int, seconds: float, tell: Tell
) -> None:
    serve_culm(number, ports, window, seconds, tell, together=True)


def serve_culm_sqlite(
    number: int, ports: Sequence[int], window: int, seconds: float, tell: Tell
) -> None:
    serve_culm(number, ports, window, seconds, tell, sqlite=True)


def serve_pysyncobj(
    number: int, ports: Sequence[int], window: int, seconds: float, tell: Tell
) -> None:
    from pysyncobj import SyncObj, SyncObjConf, replicated

    logging.disable()
    batches = window > 1
    wait_s = 0.002 if batches else 0.05  # for sockets, in one tick

    class Log(SyncObj):  # type: ignore[misc]
        @replicated  # type: ignore[untyped-decorator]
        def add(self, value: bytes) -> None:
            pass

    addresses = [f"127.0.0.1:{port}" for port in ports]
    own = addresses.pop(number - 1)
    conf = SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=batches,
        appendEntriesPeriod=0.0005,
        raftMinTimeout=1.0,
        raftMaxTimeout=2.0,
        commandsQueueSize=1_000_000,
        logCompactionMinEntries=10_000_000,
        logCompactionMinTime=10_000,
    )
    log: Any = Log(own, addresses, conf)
    done = waiting = 0

    def committed(result: object, error: object) -> None:
        nonlocal done, waiting
        done += 1
        waiting -= 1

    start, warm = 0.0, 0.0
    until = time.monotonic() + seconds + 12
    while time.monotonic() < until:
        log.doTick(wait_s)
        if log._getLeader() is not None and log._isLeader() and log._isReady():
            while waiting < window:
                log.add(VALUE, callback=committed)
                waiting += 1
            now = time.perf_counter()
            if not warm:
                warm = now
            elif not start and now - warm > WARM_UP_S:
                tell(done)
                start = now
            elif start and now - start > seconds:
                tell(done)
                time.sleep(10)  # the others are still measured


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _process(
    serve: Serve,
    number: int,
    ports: Sequence[int],
    window: int,
    seconds: float,
    results: Queue[tuple[int, float]],
) -> None:
    serve(number, ports, window, seconds, lambda done: results.put((done, time.perf_counter())))


def _processor_s(pid: int) -> float:
    """Processor time of another process so far (Linux: see clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def measure(serve: Serve, window: int, seconds: float) -> Measured:
    context = multiprocessing.get_context("spawn")
    results: Queue[tuple[int, float]] = context.Queue()
    ports = free_ports(3)
    processes = [
        context.Process(target=_process, args=(serve, number, ports, window, seconds, results))
        for number in (1, 2, 3)
    ]
    for process in processes:
        process.start()
    try:
        told = []
        for _ in range(2):
            done, at = results.get(timeout=seconds + 60)
            spent = sum(_processor_s(process.pid) for process in processes if process.pid)
            told.append((done, at, spent))
        commits, elapsed, spent = (last - first for first, last in zip(*told, strict=True))
        return Measured(commits / elapsed, spent / max(commits, 1) * 1e6)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def measure_checkout(checkout: Path, serve: str, window: int, seconds: float) -> Measured:
    """`measure` in a process that imports culm from there."""
    given = f"--one {serve} --windows {window} --seconds {seconds}".split()
    path = os.pathsep.join(str(checkout.resolve() / folder) for folder in ("src", "examples"))
    found = subprocess.run(
        [sys.executable, str(HERE), *given],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return Measured(*json.loads(found.stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--sqlite", action="store_true", help="write to disk")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        serve: Serve = globals()[arguments.one]
        print(json.dumps(measure(serve, arguments.windows[0], arguments.seconds)))
        return
    ours = "serve_culm_sqlite" if arguments.sqlite else "serve_culm"
    contenders = {"culm": (HERE.parents[1], ours)}
    if arguments.before is not None:
        contenders["before"] = (arguments.before, ours)
    if not arguments.sqlite:
        contenders["culm, together"] = (HERE.parents[1], "serve_culm_together")
    if not arguments.sqlite and find_spec("pysyncobj") is not None:
        contenders["pysyncobj"] = (HERE.parents[1], "serve_pysyncobj")
    for window in arguments.windows:
        found: dict[str, list[Measured]] = {name: [] for name in contenders}
        for _ in range(arguments.rounds):
            for name, (checkout, serve_name) in contenders.items():
                found[name].append(
                    measure_checkout(checkout, serve_name, window, arguments.seconds)
                )
        for name, rounds in found.items():
            line = {
                "library": name,
                "in_flight": window,
                "commits_per_s": round(median(each.rate for each in rounds)),
                "us": round(median(each.us for each in rounds), 1),
            }
            print(json.dumps(line), flush=True)
        for name, rounds in found.items():
            pairs = list(zip(found["culm"], rounds, strict=True))
            line = {
                "in_flight": window,
                "culm_to": name,
                "commits_per_s": round(median(a.rate / b.rate for a, b in pairs), 2),
                "us": round(median(a.us / b.us for a, b in pairs), 2),
            }
            if name != "culm":
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

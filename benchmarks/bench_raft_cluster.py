"""Commits a second of three servers as processes over loopback, ours and PySyncObj's.

64-byte values, nothing is written to disk, and values are submitted in the leader's
process, with so and so many in flight.  Run::

    python benchmarks/bench_raft_cluster.py [--seconds 2] [--rounds 3] [--windows 1 1000]

Prints one line of JSON for each library and window (the best of some rounds, which take
turns), then one for each window with the ratios to what is wanted and to PySyncObj, which
is left out where it is not installed.

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
import json
import logging
import multiprocessing
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

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
from culm.garlic.store import MemoryStore
from culm.machine import Event
from culm_io.asyncio.garlic import NodeDriver
from stateless import Nothing

VALUE = bytes(64)
WARM_UP_S = 0.5
WANTED = {1: 675, 1000: 60_000}  # commits a second, by window


async def run_culm(number: int, ports: Sequence[int], window: int, seconds: float) -> float:
    servers = tuple(Server(at, f"tcp://127.0.0.1:{port}") for at, port in enumerate(ports, 1))
    stored = Stored.founding(servers)
    store = MemoryStore(Nothing(), stored)
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
            node.propose([VALUE])
            waiting += 1

    driver = NodeDriver(node, store, on_event=take)
    await driver.listen("127.0.0.1", ports[number - 1])
    until = time.monotonic() + seconds + 12
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        if node.state is State.LEADER and node.applied_index > 0:
            submit()
            driver.soon()
            await asyncio.sleep(WARM_UP_S)
            before, start = done, time.perf_counter()
            await asyncio.sleep(seconds)
            rate = (done - before) / (time.perf_counter() - start)
            await driver.stop()
            return rate
    await driver.stop()
    return 0.0


def serve_culm(number: int, ports: Sequence[int], window: int, seconds: float) -> float:
    return asyncio.run(run_culm(number, ports, window, seconds))


def serve_pysyncobj(number: int, ports: Sequence[int], window: int, seconds: float) -> float:
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

    before, start, warm = 0, 0.0, 0.0
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
                before, start = done, now
            elif start and now - start > seconds:
                return (done - before) / (now - start)
    return 0.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _process(
    serve: Callable[[int, Sequence[int], int, float], float],
    number: int,
    ports: Sequence[int],
    window: int,
    seconds: float,
    results: Queue[float],
) -> None:
    rate = serve(number, ports, window, seconds)
    if rate:
        results.put(rate)


def measure(
    serve: Callable[[int, Sequence[int], int, float], float], window: int, seconds: float
) -> float:
    context = multiprocessing.get_context("spawn")
    results: Queue[float] = context.Queue()
    ports = free_ports(3)
    processes = [
        context.Process(target=_process, args=(serve, number, ports, window, seconds, results))
        for number in (1, 2, 3)
    ]
    for process in processes:
        process.start()
    try:
        return results.get(timeout=seconds + 30)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 1000])
    arguments = parser.parse_args()
    contenders = {"culm": serve_culm}
    if find_spec("pysyncobj") is not None:
        contenders["pysyncobj"] = serve_pysyncobj
    found: dict[int, dict[str, float]] = {}
    for window in arguments.windows:
        rates = found[window] = {}
        for _ in range(arguments.rounds):
            for name, serve in contenders.items():
                rate = measure(serve, window, arguments.seconds)
                rates[name] = max(rate, rates.get(name, 0.0))
        for name, rate in rates.items():
            line = {"library": name, "in_flight": window, "commits_per_s": round(rate)}
            print(json.dumps(line), flush=True)
    for window, rates in found.items():
        ratios = {f"to_{name}": rates["culm"] / rate for name, rate in rates.items() if rate}
        del ratios["to_culm"]
        if window in WANTED:
            ratios["to_wanted"] = rates["culm"] / WANTED[window]
        rounded = {name: round(ratio, 2) for name, ratio in ratios.items()}
        print(json.dumps({"in_flight": window, **rounded}), flush=True)


if __name__ == "__main__":
    main()

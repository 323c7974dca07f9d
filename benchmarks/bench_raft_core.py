"""Committed entries a second of three Raft cores in one process, without any I/O.

Run: ``python benchmarks/bench_raft_core.py [--seconds 2] [--batch 100] [--size 64]``.
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from culm.garlic.raft import (
    Apply,
    Limits,
    Raft,
    Server,
    State,
    Stored,
    TakeSnapshot,
)


class Memory:
    """Drives cores: every effect is done at once, every message arrives at once."""

    def __init__(self, servers: int) -> None:
        founders = tuple(Server(number, f"mem://{number}") for number in range(1, servers + 1))
        stored = Stored.founding(founders)
        limits = Limits(snapshot_distance=50_000)
        self.applied = dict.fromkeys((one.server_id for one in founders), 0)
        self.cores = {
            one.server_id: Raft(
                server_id=one.server_id,
                stored=stored,
                limits=limits,
                rng=random.Random(one.server_id),
                now=0.0,
            )
            for one in founders
        }

    def run(self) -> None:
        """Run until nothing moves."""
        busy = True
        while busy:
            busy = False
            for number, core in self.cores.items():
                while core.next_event() is not None:
                    pass
                while (effect := core.next_effect()) is not None:
                    if isinstance(effect, Apply):
                        self.applied[number] += len(effect.entries)
                    elif isinstance(effect, TakeSnapshot):
                        pass
                    core.complete(effect.ticket, None)
                for message in core.messages_to_send():
                    busy = True
                    self.cores[message.destination].receive_message(message)

    def elect(self) -> Raft:
        now = 0.0
        while True:
            now += 0.01
            for core in self.cores.values():
                core.advance(now)
            self.run()
            for core in self.cores.values():
                if core.state is State.LEADER:
                    return core


def measure(seconds: float, batch: int, size: int) -> dict[str, float | int]:
    cluster = Memory(3)
    leader = cluster.elect()
    value = bytes(size)
    before = cluster.applied[leader.server_id]
    start, cpu_start = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            leader.propose([value] * batch)
            cluster.run()
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    entries = cluster.applied[leader.server_id] - before
    return {
        "batch": batch,
        "size": size,
        "committed_per_second": round(entries / elapsed),
        "committed_per_cpu_second": round(entries / cpu),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=64)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.seconds, arguments.batch, arguments.size)))


if __name__ == "__main__":
    main()

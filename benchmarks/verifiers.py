"""One transfer of many small entries, with and without threads that verify signatures.

``python benchmarks/verifiers.py`` sends a log of 20,000 entries of 100 bytes from one process to
another over a loopback socket, by Point-2-Point, memory to memory, under asyncio; and does so by
turns with each number of verifiers.  It prints medians of the receiver's seconds: by the wall
clock, of the processor, and of the processor in the loop's thread.  Other load on the machine shows
in the first; the last is the part that stays serial when there are cores for the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import perf_counter, process_time, thread_time

from nacl.signing import SigningKey

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from culm.bamboo import LogAuthor, MemoryStore
from culm.machine import Event
from culm.point2point import Role
from culm.point2point.replication import (
    Interest,
    LogSynced,
    Replicator,
    ReplicatorLimits,
)
from culm.wire.multihash import YAMF
from culm_io.asyncio.driver import MachineProtocol

SIZE = 100


def log(count: int) -> MemoryStore:
    """A store with one log."""
    author, rng = LogAuthor(SigningKey(bytes(32)), family=YAMF), Random(1)
    store = MemoryStore(family=YAMF)
    store.append(author.log, [author.publish(rng.randbytes(SIZE)) for _ in range(count)])
    return store


@contextmanager
def served(store: MemoryStore) -> Iterator[tuple[str, int]]:
    """Another process that sends everything it has; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(serve(store, listening)), daemon=True
        )
        server.start()
        try:
            yield listening.getsockname()
        finally:
            server.kill()
            server.join()


async def serve(store: MemoryStore, listening: socket.socket) -> None:
    """Send everything in the store to each client."""
    loop = asyncio.get_running_loop()

    def made() -> MachineProtocol:
        machine = Replicator(role=Role.REACTIVE)
        return MachineProtocol(machine, perform=store.perform)

    server = await loop.create_server(made, sock=listening)
    await server.serve_forever()


async def fetch(address: tuple[str, int], count: int, verifiers: int) -> tuple[float, ...]:
    """Fetch the log once; see above for the seconds returned."""
    store, synced = MemoryStore(family=YAMF), asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, LogSynced) and event.seqnum == count:
            synced.set()

    machine = Replicator(
        role=Role.PROACTIVE,
        limits=ReplicatorLimits(verifying_max=4096 if verifiers else 0),
        interest=Interest(live=True, accept_new_logs=True),
    )
    protocol = MachineProtocol(machine, perform=store.perform, on_event=hear, verifiers=verifiers)
    clocks = perf_counter, process_time, thread_time
    began = [clock() for clock in clocks]
    await asyncio.get_running_loop().create_connection(lambda: protocol, *address)
    await synced.wait()
    took = tuple(clock() - start for clock, start in zip(clocks, began, strict=True))
    protocol.call(machine.close)
    await protocol.wait_closed()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--verifiers", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    with served(log(options.count)) as address:
        took: dict[int, list[tuple[float, ...]]] = {each: [] for each in options.verifiers}
        for _ in range(options.rounds):
            for verifiers, all_of_it in took.items():
                all_of_it.append(asyncio.run(fetch(address, options.count, verifiers)))
    for verifiers, all_of_it in took.items():
        medians = [statistics.median(column) for column in zip(*all_of_it, strict=True)]
        wall, processor, thread = (f"{each:.2f} s" for each in medians)
        print(f"{verifiers} verifiers: {wall}; of the processor {processor}, in the loop {thread}")


if __name__ == "__main__":
    main()

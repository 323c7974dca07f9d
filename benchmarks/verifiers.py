"""One transfer of many small entries, with and without threads that verify signatures.

``python benchmarks/verifiers.py`` sends a log of 20,000 entries of 100 bytes from one process to
another over a loopback socket, by Point-2-Point, memory to memory, under asyncio; and does so by
turns with each number of verifiers.  It prints the receiver's seconds by the wall clock and of the
processor, the median of each; what the machine does besides is in the first of them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import sys
from pathlib import Path
from random import Random
from time import perf_counter, process_time

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


async def serve(store: MemoryStore, listening: socket.socket) -> None:
    """Send all that there is to each that connects."""
    loop = asyncio.get_running_loop()

    def made() -> MachineProtocol:
        machine = Replicator(role=Role.REACTIVE)
        return MachineProtocol(machine, perform=store.perform)

    server = await loop.create_server(made, sock=listening)
    await server.serve_forever()


async def fetch(address: tuple[str, int], count: int, verifiers: int) -> tuple[float, float]:
    """Fetch the log once: seconds by the wall clock, and of the processor."""
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
    began, spent = perf_counter(), process_time()
    await asyncio.get_running_loop().create_connection(lambda: protocol, *address)
    await synced.wait()
    took = perf_counter() - began, process_time() - spent
    protocol.call(machine.close)
    await protocol.wait_closed()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--verifiers", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    store = log(options.count)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(serve(store, listening)), daemon=True
        )
        server.start()
        address = listening.getsockname()
        took: dict[int, list[tuple[float, float]]] = {each: [] for each in options.verifiers}
        for _ in range(options.rounds):
            for verifiers, all_of_it in took.items():
                all_of_it.append(asyncio.run(fetch(address, options.count, verifiers)))
        server.kill()
    for verifiers, all_of_it in took.items():
        wall, processor = (statistics.median(column) for column in zip(*all_of_it, strict=True))
        least = min(all_of_it)
        print(
            f"{verifiers} verifiers: {wall:.2f} s by the wall clock, {processor:.2f} s of the "
            f"processor; least {least[0]:.2f} s"
        )


if __name__ == "__main__":
    main()

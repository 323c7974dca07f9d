"""The cost of a proposal at the leader beyond the core: in a node, and in a node under asyncio.

``python benchmarks/bench_proposals.py`` proposes values one by one to a leader that is the core
alone, to one that is a node, and to a node under asyncio (`culm_io.asyncio.garlic`), by turns.  It
prints for one value the steps (`counts`) and the microseconds of processor time: of the call
alone, and until it is committed, with events and effects; and the difference to the core.  With a
driver the call is ``propose`` and ``soon``, and values proposed in one turn of the loop are drained
together.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples")]

from counts import Steps  # noqa: E402
from culm.garlic.node import Node  # noqa: E402
from culm.garlic.raft import Committed, Raft, Server, State, Stored  # noqa: E402
from culm.garlic.store import MemoryStore  # noqa: E402
from culm.machine import Event  # noqa: E402
from culm_io.asyncio.garlic import NodeDriver  # noqa: E402
from stateless import Nothing  # noqa: E402

VALUE = bytes(64)
COUNT, ROUNDS = 1000, 40


class Alone:
    """A machine that leads a cluster of one, taken care of by hand."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._store, now = new_store(), 0.0
        self._machine = machine = kind(
            server_id=1, stored=self._store.load(), rng=Random(1), now=now
        )
        while machine.state is not State.LEADER or machine.applied_index == 0:
            now += 0.1
            machine.advance(now)
            self.commit(0)

    def propose(self) -> None:
        self._machine.propose([VALUE])

    def commit(self, _count: int) -> None:
        machine, more = self._machine, True
        while more:
            more = False
            while machine.next_event() is not None:
                more = True
            while (effect := machine.next_effect()) is not None:
                machine.complete(effect.ticket, self._store.perform(effect))
                more = True


class Driven:
    """A node that leads a cluster of one, under asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._committed, self._wanted = 0, asyncio.Event()
        self._loop.run_until_complete(self._lead())

    async def _lead(self) -> None:
        store = new_store()
        self._node = Node(server_id=1, stored=store.load(), rng=Random(1), now=self._loop.time())
        self._driver = NodeDriver(self._node, store, on_event=self._hear)
        await self._driver.listen("127.0.0.1", 0)
        while self._node.state is not State.LEADER or self._node.applied_index == 0:
            await asyncio.sleep(0.1)
        self._committed = 0

    def _hear(self, event: Event) -> None:
        if isinstance(event, Committed):
            self._committed += event.count
            self._wanted.set()

    def propose(self) -> None:
        self._node.propose([VALUE])
        self._driver.soon()

    def commit(self, count: int) -> None:
        self._loop.run_until_complete(self._until(count))

    async def _until(self, count: int) -> None:
        while self._committed < count:
            self._wanted.clear()
            await self._wanted.wait()
        self._committed -= count

    def end(self) -> None:
        self._loop.run_until_complete(self._driver.stop())
        self._loop.close()


def new_store() -> MemoryStore:
    return MemoryStore(Nothing(), Stored.founding((Server(1, "tcp://127.0.0.1:1"),)))


def main() -> None:
    driven = Driven()
    leaders: dict[str, Alone | Driven] = {
        "core": Alone(Raft),
        "node": Alone(Node),
        "node under asyncio": driven,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in leaders}
    for _ in range(ROUNDS):
        for name, leader in leaders.items():
            start = process_time()
            for _ in range(COUNT):
                leader.propose()
            proposed = process_time()
            leader.commit(COUNT)
            times[name].append((proposed - start, process_time() - start))
    core = [whole for _, whole in times["core"]]
    for name, leader in leaders.items():
        steps = Steps().count(leader.propose)
        leader.commit(1)
        call, whole = (median(each) / COUNT * 1e6 for each in zip(*times[name], strict=True))
        more = (
            median(one - other for (_, one), other in zip(times[name], core, strict=True))
            / COUNT
            * 1e6
        )
        print(
            f"{name}: {steps} steps, {call:.2f} µs, until it is committed {whole:.2f} µs, "
            f"{more:.2f} beyond the core"
        )
    driven.end()


if __name__ == "__main__":
    main()

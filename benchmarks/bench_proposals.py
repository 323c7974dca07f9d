"""The cost of a proposal at the leader in a Raft node, beyond its cost in the core.

``python benchmarks/bench_proposals.py`` proposes values one by one to a leader that is a node and
to one that is the core alone, by turns, and prints for one value the steps (`counts`) and the
microseconds of processor time: of the call alone, and until it is committed, with events and
effects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

sys.path.append(str(Path(__file__).parent))

from counts import Steps
from culm.garlic.node import Node
from culm.garlic.raft import Raft, Server, State, Stored
from culm.garlic.store import MemoryStore
from stateless import Nothing

VALUE = bytes(64)
COUNT, ROUNDS = 1000, 40
MACHINES: dict[str, Any] = {"node": Node, "core": Raft}


def drain(machine: Any, store: MemoryStore) -> None:
    more = True
    while more:
        more = False
        while machine.next_event() is not None:
            more = True
        while (effect := machine.next_effect()) is not None:
            machine.complete(effect.ticket, store.perform(effect))
            more = True


def leader(kind: Callable[..., Any]) -> tuple[Any, MemoryStore]:
    """The leader of a cluster of one."""
    store = MemoryStore(Nothing(), Stored.founding((Server(1, "tcp://127.0.0.1:1"),)))
    machine, now = kind(server_id=1, stored=store.load(), rng=Random(1), now=0.0), 0.0
    while machine.state is not State.LEADER or machine.applied_index == 0:
        now += 0.1
        machine.advance(now)
        drain(machine, store)
    return machine, store


def main() -> None:
    leaders = {name: leader(kind) for name, kind in MACHINES.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in leaders}
    for _ in range(ROUNDS):
        for name, (machine, store) in leaders.items():
            start = process_time()
            for _ in range(COUNT):
                machine.propose([VALUE])
            proposed = process_time()
            drain(machine, store)
            times[name].append((proposed - start, process_time() - start))
    for name, (machine, store) in leaders.items():
        steps = Steps().count(lambda: machine.propose([VALUE]))  # noqa: B023
        drain(machine, store)
        call, whole = (median(each) / COUNT * 1e6 for each in zip(*times[name], strict=True))
        print(f"{name}: {steps} steps, {call:.2f} µs, until it is committed {whole:.2f} µs")


if __name__ == "__main__":
    main()

"""Followers that lack compacted entries catch up while writes go on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from raft_lab import TIMING, founders

from culm.garlic import MemoryStore
from culm.garlic.raft import Limits, Raft, State, TakeSnapshot
from culm.garlic.raft.messages import Message
from culm.testing.raft_store_model import Values

# A round carries a message one way; the leader gets this many values in each.
WRITES = 5
LIMITS = Limits(
    snapshot_distance=20, trailing_entries=5, chunk_size=1024, append_entries_max=20, sync_gap=5
)

# Limits of a single value, snapshot or configuration, rather than numbers of places.
SIZES_OF_ALL = {
    "proposal_size_max",
    "snapshot_size_max",
    "chunk_size_max",
    "servers_max",
    "endpoint_size_max",
    "configuration_size_max",
}


class Rounds:
    """Three cores with stores; messages of one round are heard in the next."""

    def __init__(self, **changes: int) -> None:
        self.now = 0.0
        self.machines = {number: Values() for number in (1, 2, 3)}
        self.stores = {
            number: MemoryStore(machine, founders(1, 2, 3))
            for number, machine in self.machines.items()
        }
        self.limits = replace(LIMITS, **changes)
        self.cores: dict[int, Raft] = {}
        for number in self.stores:
            self.start(number)
        self.under_way: list[Message] = []
        self.rounds = 0
        self.writes, self.pause = (
            WRITES,
            1,
        )  # values at a time, and rounds between two times
        self.distance_max = 0  # between two snapshots
        self.kept_max = 0  # entries in the leader's memory

    def start(self, number: int) -> None:
        self.cores[number] = Raft(
            server_id=number,
            stored=self.stores[number].load(),
            timing=TIMING,
            limits=self.limits,
            rng=random.Random(number),
            now=self.now,
        )

    def round(self) -> None:
        self.now += 0.01
        self.rounds += 1
        arrived, self.under_way = self.under_way, []
        for message in arrived:
            if message.destination in self.cores:
                self.cores[message.destination].receive_message(message)
        for number, core in self.cores.items():
            core.advance(self.now)
            self._drain(core, self.stores[number])
            if core.state is State.LEADER:
                if self.rounds % self.pause == 0:
                    core.propose([b"%020d" % core.last_index for _ in range(self.writes)])
                log = core.log
                self.kept_max = max(self.kept_max, log.last_index - log.base_index)
            self._drain(core, self.stores[number])

    def _drain(self, core: Raft, store: MemoryStore) -> None:
        while True:
            while core.next_event() is not None:
                pass
            effect = core.next_effect()
            if effect is None:
                break
            if isinstance(effect, TakeSnapshot):
                distance = effect.snapshot.index - core.log.snapshot.index
                self.distance_max = max(self.distance_max, distance)
            core.complete(effect.ticket, store.perform(effect))
        self.under_way += core.messages_to_send()

    def until(self, done: Callable[[], bool], rounds: int) -> bool:
        for _ in range(rounds):
            self.round()
            if done():
                return True
        return False

    def leader(self) -> Raft:
        def leaders() -> Sequence[Raft]:
            return [core for core in self.cores.values() if core.state is State.LEADER]

        assert self.until(lambda: bool(leaders()), 1000)
        return leaders()[0]


def without_one(**changes: int) -> tuple[Rounds, Raft, int]:
    """A cluster, its leader, and another server, which has gone."""
    rounds = Rounds(**changes)
    leader = rounds.leader()
    gone = next(number for number, core in rounds.cores.items() if core is not leader)
    del rounds.cores[gone]
    assert rounds.until(lambda: leader.applied_index > 1000, 1000)
    rounds.distance_max = rounds.kept_max = 0
    return rounds, leader, gone


def test_a_follower_that_needs_a_snapshot_catches_up_while_writes_go_on() -> None:
    """The snapshot takes the time of some hundred writes, and every twenty bring another one."""
    rounds, leader, gone = without_one()
    rounds.start(gone)
    late = rounds.cores[gone]
    assert rounds.until(lambda: late.applied_index >= leader.commit_index - 4 * WRITES, 400)
    assert rounds.until(lambda: rounds.distance_max > 0, 100)
    # And afterwards everything is as before.
    rounds.kept_max = 0
    rounds.until(lambda: False, 20)
    assert rounds.kept_max <= 20 + 5 + 10 * WRITES


@pytest.mark.parametrize("most", [60, 100])
def test_what_is_kept_for_it_is_bounded(most: int) -> None:
    rounds, leader, gone = without_one(catch_up_entries=most, chunk_size=64, chunk_size_max=64)
    rounds.start(gone)
    rounds.until(lambda: False, 200)
    assert rounds.cores[gone].applied_index < leader.applied_index
    assert most <= rounds.distance_max <= most + 2 * WRITES
    assert rounds.kept_max <= 2 * most + 4 * WRITES


def test_with_every_limit_1_a_follower_catches_up_while_writes_go_on() -> None:
    """Each write made a snapshot, which replaced the one that was being sent byte by byte."""
    least = {name: 1 for name in Limits.__dataclass_fields__ if name not in SIZES_OF_ALL}
    rounds = Rounds(**least)
    rounds.writes, rounds.pause = 1, 60
    leader = rounds.leader()
    gone = next(number for number, core in rounds.cores.items() if core is not leader)
    del rounds.cores[gone]
    rounds.until(lambda: False, 20 * rounds.pause)
    rounds.start(gone)
    late = rounds.cores[gone]
    assert rounds.until(lambda: late.applied_index == leader.applied_index, 20 * rounds.pause)
    assert rounds.kept_max <= 3


def test_nothing_is_kept_for_who_does_not_answer() -> None:
    rounds, _, _ = without_one()
    rounds.until(lambda: False, 100)
    assert rounds.kept_max <= 20 + 5 + 10 * WRITES

"""Many seeds of the simulator, and proof that it would notice.

``CULM_RAFT_SEEDS`` sets the number of seeds (600 by default, 100,000 in a long campaign),
``CULM_RAFT_FIRST_SEED`` the first one.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from itertools import combinations, permutations

import pytest
import raft_simulator
from hypothesis import given
from hypothesis import strategies as st
from linearizability import Operation, find_violation
from raft_checks import Violation
from raft_simulator import Simulator, Weather, run_seed
from raft_weather import ELECTION_TIMEOUT, TIMING

import effort
from culm.garlic.raft import Configuration, Persist
from culm.garlic.raft.journal import Journal
from culm.garlic.raft.replicator import Replicator

SEEDS = effort.seeds("RAFT", usual=600, long=100_000)
BLOCK = 100

STORM = Weather(
    loss=0.3,
    duplication=0.0,
    delay_max=0.05,
    crash=0.1,
    partition=0.0,
    change=0.0,
    transfer=0.0,
    skew=0.0,
    disk_delay_max=0.01,
    pause=0.1,
    leader_crash=0.1,
)


CALM = dataclasses.replace(STORM, loss=0.0, delay_max=0.002, crash=0.0, leader_crash=0.0)


@pytest.mark.parametrize("first", SEEDS[::BLOCK])
def test_safety_linearizability_and_liveness(first: int) -> None:
    commits = 0
    for seed in range(first, min(first + BLOCK, SEEDS.stop)):
        commits += len(run_seed(seed).checker.committed)
    assert commits > 0


@pytest.mark.parametrize("wait", [0.5, 4])
def test_a_disk_that_is_slow_changes_no_leader(
    wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server alone is behind: it stands against nobody who waits for its answer."""
    timing = dataclasses.replace(TIMING, request_timeout_s=wait * ELECTION_TIMEOUT)
    monkeypatch.setattr(raft_simulator, "TIMING", timing)
    for seed in range(20):
        simulator = Simulator(seed, weather=CALM, size=3, pre_vote=False)
        slow = random.Random(seed).uniform(1, raft_simulator.SLOW)
        simulator.slow_persists[1] = slow * ELECTION_TIMEOUT
        simulator.clients.client(0.1)
        simulator.run_until(20 * ELECTION_TIMEOUT)
        terms = [node.disk.term for node in simulator.nodes.values()]
        simulator.run_until(60 * ELECTION_TIMEOUT)
        assert [node.disk.term for node in simulator.nodes.values()] == terms, seed


def test_snapshots_that_differ_and_take_long() -> None:
    """Images of one index differ, in length too, and leaders change while chunks are written."""
    weather = dataclasses.replace(CALM, crash=0.6, transfer=0.5, leader_crash=0.02)
    installed = 0
    for seed in range(12):
        rng = random.Random(seed)
        simulator = Simulator(seed, weather=weather, size=3, intrudes=False)
        simulator.pads = True
        simulator.limits = dataclasses.replace(
            simulator.limits,
            chunk_size=rng.choice((200, 400)),
            chunk_size_max=400,
            snapshot_distance=10,
            trailing_entries=0,
            catch_up_entries=0,
        )
        for node in simulator.nodes.values():
            simulator.crash(node)
            simulator.start(node)
        simulator.slow_writes = dict.fromkeys((1, 2, 3), rng.uniform(0.3, 1.5) * ELECTION_TIMEOUT)
        simulator.run(10.0)
        installed += simulator.happened["SnapshotInstalled"]
    assert installed > 10


def test_one_seed_gives_one_history() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.history == second.history
    assert first.checker.applied == second.checker.applied
    assert first.now == second.now


def test_the_faults_of_the_simulator_happen() -> None:
    """At least in this many of 100 seeds; about half of the measured number."""
    seeds = 100
    found: Counter[str] = Counter()
    sizes: set[int] = set()
    committed = 0
    for seed in range(seeds):
        simulator = run_seed(seed)
        found.update(kind for kind, times in simulator.happened.items() if times)
        sizes.add(len(simulator.nodes))
        found["commands of a session"] += bool(simulator.clients.acknowledged)
        found["retries"] += simulator.clients.retries > 0
        said = (data for _, data in simulator.checker.committed.values())
        made = [data for data in said if isinstance(data, Configuration)]
        found["learners"] += any(one.ids != one.voters for one in made)
        found["skewed clocks"] += simulator.weather.skew > 0
        found["changed members"] += len(member_sets(simulator)) > 1
        found["several terms"] += len(simulator.checker.leaders) > 1
        committed += len(simulator.checker.committed)
    wanted = {
        "message lost": 30,
        "message doubled": 30,
        "message overtaken": 40,
        "partition": 25,
        "one-way partition": 20,
        "crash": 45,
        "torn write": 20,
        "crash with changes pending": 5,
        "skewed clocks": 30,
        "changed members": 7,
        "several terms": 40,
        "TakeSnapshot": 20,
        "SnapshotInstalled": 15,
        "ReadReady": 40,
        "ReadFailed": 15,
        "ReadReady elsewhere": 15,
        "ReadFailed elsewhere": 15,
        "Forwarded": 40,
        "ForwardFailed": 20,
        "ForwardFailed for certain": 10,
        "commands of a session": 20,
        "retries": 40,
        "writes under way at once": 10,
        "write told of late": 10,
        "Left": 4,
        "learners": 1,
        "transfer": 5,
        "forged": 10,
        "steps": 8,
        "change cancelled": 3,
        "stalled process": 30,
        "joiner crashed": 7,
        "server buried": 1,
    }
    assert {kind: found[kind] for kind in wanted if found[kind] < wanted[kind]} == {}
    assert sizes == {2, 3, 4, 5, 6, 7}
    assert committed > 10 * seeds


def member_sets(simulator: Simulator) -> set[frozenset[int]]:
    """The sets of members that were committed."""
    said = (data for _, data in simulator.checker.committed.values())
    return {data.ids for data in said if isinstance(data, Configuration)}


def caught(
    weather: Weather, *, size: int, seeds: int, seconds: float, check_sends: bool, first: int = 0
) -> bool:
    """Whether one of the seeds breaks a safety property."""
    for seed in range(first, first + seeds):
        try:
            Simulator(seed, weather=weather, size=size, check_sends=check_sends).run(seconds)
        except Violation as violation:
            if "live" not in str(violation):
                return True
    return False


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = raft_simulator.draw_limits
    monkeypatch.setattr(
        raft_simulator,
        "draw_limits",
        lambda rng: dataclasses.replace(
            draw(rng), append_entries_max=1, snapshot_distance=0, in_flight_max=1
        ),
    )


@pytest.mark.usefixtures("small_steps")
def test_canary_commit_by_counting_in_older_terms_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replicator, "may_commit", lambda self, index: True)
    assert caught(STORM, size=5, seeds=100, seconds=10, check_sends=True, first=100)


def test_canary_sending_before_persistence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "send", Journal.send_now)
    weather = dataclasses.replace(
        STORM, loss=0.1, crash=0.5, partition=0.4, disk_delay_max=0.05, pause=0.06, leader_crash=0.0
    )
    assert caught(weather, size=3, seeds=500, seconds=1.5, check_sends=False)


def test_canary_sending_before_persistence_is_caught_at_the_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Journal, "send", Journal.send_now)
    assert caught(STORM, size=3, seeds=1, seconds=1.5, check_sends=True)


def test_canary_persisting_a_commit_index_ahead_of_its_entries_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A torn write would leave it ahead of entries that were to be replaced."""
    next_effect = Journal.next_effect

    def ahead(journal: Journal) -> Persist | None:
        effect = next_effect(journal)
        if effect is None:
            return None
        index = min(journal.commit_index, journal.log.last_index)
        return dataclasses.replace(effect, commit_index=index)

    monkeypatch.setattr(Journal, "next_effect", ahead)
    weather = dataclasses.replace(
        STORM,
        loss=0.0,
        delay_max=0.002,
        crash=0.0,
        partition=0.4,
        pause=0.3,
        leader_crash=0.0,
        write_crash=0.2,
    )
    assert caught(weather, size=3, seeds=500, seconds=3, check_sends=True)


def test_canary_reads_without_a_quorum_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replicator, "acknowledged_sequence", lambda self: self.sequence + 1)
    weather = dataclasses.replace(
        STORM, loss=0.0, delay_max=0.002, crash=0.0, partition=0.2, leader_crash=0.0
    )
    assert caught(weather, size=3, seeds=100, seconds=5, check_sends=True)


def test_without_canaries_the_same_storm_is_weathered() -> None:
    assert not caught(STORM, size=5, seeds=20, seconds=3, check_sends=True)


def write(value: str, start: float, end: float = float("inf")) -> Operation:
    return Operation("k", True, start, value, end)


def read(value: str | None, start: float, end: float) -> Operation:
    return Operation("k", False, start, value, end)


@pytest.mark.parametrize(
    "history",
    [
        [write("1", 0, 1), read("1", 2, 3)],
        [write("1", 0, 5), read(None, 1, 2), read("1", 3, 4)],
        [write("1", 0), read(None, 1, 2), read("1", 3, 4)],
        [write("1", 0), write("2", 1, 2), read("2", 3, 4), read("1", 5, 6)],
    ],
)
def test_linearizable_histories_are_accepted(history: list[Operation]) -> None:
    assert find_violation(history) is None


@pytest.mark.parametrize(
    "history",
    [
        [write("1", 0, 1), read(None, 2, 3)],
        [write("1", 0, 5), read("1", 1, 2), read(None, 3, 4)],
        [write("1", 0, 1), write("2", 2, 3), read("1", 4, 5)],
        [read("1", 0, 1), write("1", 2, 3)],
    ],
)
def test_other_histories_are_refused(history: list[Operation]) -> None:
    assert find_violation(history) == "k"


def twin_fits(history: list[Operation]) -> bool:
    """All orders of all calls that happened, one after the other."""
    sure = [op for op in history if op.end < math.inf]
    unsure = [op for op in history if op.end == math.inf and op.write]
    for size in range(len(unsure) + 1):
        for happened in combinations(unsure, size):
            if any(map(fits_in_order, permutations([*sure, *happened]))):
                return True
    return False


def fits_in_order(order: tuple[Operation, ...]) -> bool:
    value = None
    for at, op in enumerate(order):
        if any(later.end < op.start for later in order[at + 1 :]):
            return False
        if op.write:
            value = op.value
        elif op.value != value:
            return False
    return True


@given(st.integers(0, 2**32))
def test_histories_are_judged_as_all_orders_of_their_calls_are(seed: int) -> None:
    rng = random.Random(seed)
    history: list[Operation] = []
    written = [None, "never"]
    for number in range(rng.randint(1, 5)):
        start = rng.randint(0, 8)
        end = rng.choice((start + rng.randint(0, 5), start + rng.randint(0, 5), math.inf))
        if rng.random() < 0.5:
            written.append(str(number))
            history.append(write(str(number), start, end))
        else:
            history.append(read(rng.choice(written), start, end))
    assert (find_violation(history) is None) is twin_fits(history)

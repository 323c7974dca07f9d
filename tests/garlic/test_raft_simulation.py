"""Many seeds of the simulator, and proof that it would notice.

``CULM_RAFT_SEEDS`` (default 1000) seeds from ``CULM_RAFT_FIRST_SEED`` (default 0) on are
run, in blocks.
"""

from __future__ import annotations

import dataclasses
import os

import pytest
import raft_simulator
from linearizability import Operation, find_violation
from raft_checks import Violation
from raft_simulator import Simulator, Weather, run_seed

from culm.garlic.raft.journal import Journal
from culm.garlic.raft.replicator import Replicator

SEEDS = int(os.environ.get("CULM_RAFT_SEEDS", "1000"))
FIRST = int(os.environ.get("CULM_RAFT_FIRST_SEED", "0"))
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


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, BLOCK))
def test_safety_linearizability_and_liveness(first: int) -> None:
    commits = 0
    for seed in range(first, min(first + BLOCK, FIRST + SEEDS)):
        commits += len(run_seed(seed).checker.committed)
    assert commits > 0


def test_one_seed_gives_one_history() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.history == second.history
    assert first.checker.applied == second.checker.applied
    assert first.now == second.now


def test_the_faults_of_the_simulator_happen() -> None:
    """Crashes, changes of membership, snapshots and their installation all occur."""
    snapshots = changes = terms = 0
    for seed in range(60):
        simulator = run_seed(seed)
        snapshots += any(node.disk.snapshot.index for node in simulator.nodes.values())
        changes += any(
            node.core is not None and len(node.core.configuration.servers) != 0
            for number, node in simulator.nodes.items()
            if number > 3
        )
        terms += len(simulator.checker.leaders)
    assert snapshots > 10
    assert changes > 10
    assert terms > 80


def caught(weather: Weather, *, size: int, seeds: int, seconds: float, check_sends: bool) -> bool:
    """Whether one of some seeds ends in a broken safety property."""
    for seed in range(seeds):
        try:
            Simulator(seed, weather=weather, size=size, check_sends=check_sends).run(seconds)
        except Violation as violation:
            if "live" not in str(violation):
                return True
    return False


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = raft_simulator.draw_settings
    monkeypatch.setattr(
        raft_simulator,
        "draw_settings",
        lambda rng: dataclasses.replace(
            draw(rng), append_entries_max=1, snapshot_distance=0, in_flight_max=1
        ),
    )


@pytest.mark.usefixtures("small_steps")
def test_canary_commit_by_counting_in_older_terms_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replicator, "may_commit", lambda self, index: True)
    assert caught(STORM, size=5, seeds=100, seconds=10, check_sends=True)


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


def test_canary_reads_without_a_quorum_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replicator, "acknowledged_sequence", lambda self: 1 << 62)
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

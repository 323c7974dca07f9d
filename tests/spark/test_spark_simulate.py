"""Campaigns of simulators: one row a seed, the same as when it is run here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from culm.spark.simulate import RUNS, load_simulator, run_seed, simulate

HERE = Path(__file__).parent


def moody(seed: int) -> SimpleNamespace:
    """Breaks a promise at each seventh seed, and itself at one."""
    assert seed % 7, f"seed {seed} is a seventh"
    if seed == 10:
        raise KeyError(seed)
    return SimpleNamespace(steps=seed * 2)


def test_each_seed_has_a_row_that_can_be_had_again(spark):
    name = "test_spark_simulate:moody"
    runs = simulate(spark, name, range(5, 250), paths=[str(HERE)])
    assert runs.dtypes == list(RUNS)
    rows = {row.seed: row for row in runs.collect()}
    assert rows.keys() == set(range(5, 250))
    broken = {seed for seed, row in rows.items() if row.verdict == "broken"}
    assert broken == {seed for seed in rows if not seed % 7}
    assert [seed for seed, row in rows.items() if row.verdict == "failed"] == [10]
    for seed in (6, 7, 10):
        again = run_seed(load_simulator(name, [str(HERE)]), seed)
        said = rows[seed].asDict()
        assert (said["steps"], said["verdict"]) == (again.get("steps"), again["verdict"])
    assert "seed 7 is a seventh" in rows[7].transcript
    assert rows[6].transcript is None


@pytest.mark.parametrize(
    ("folder", "name"),
    [("garlic", "raft_simulator:run_seed"), ("oxen", "oxen_simulation:simulate")],
)
def test_the_simulators_of_protocols_keep_their_promises(spark, folder, name):
    paths = [str(HERE.parent), str(HERE.parent / folder)]
    rows = simulate(spark, name, range(3), paths=paths).collect()
    assert [row.transcript for row in rows] == [None] * 3
    assert {row.verdict for row in rows} == {"kept"}
    assert all(row.cpu_s > 0 for row in rows)


@pytest.mark.parametrize("name", ["moody", ":moody", "test_spark_simulate:"])
def test_a_simulator_has_a_name_of_two_parts(spark, name):
    with pytest.raises(ValueError, match="module:function"):
        simulate(spark, name, range(1))


def test_a_simulator_that_is_not_there_is_missed_at_once(spark):
    with pytest.raises(ImportError):
        simulate(spark, "no_such_module:run", range(1))

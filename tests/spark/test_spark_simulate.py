"""Campaigns of simulators: one row a seed, the same as in a run here."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import simulators

from culm.spark.simulate import (
    KEPT,
    RUNS,
    load_simulator,
    main,
    pack_modules,
    run_seed,
    simulate,
)

HERE = Path(__file__).parent


def test_each_seed_has_a_row_that_can_be_had_again(spark):
    name = "moods:moody"
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


@pytest.mark.parametrize("name", simulators.ROOMS)
def test_the_simulators_of_protocols_keep_their_promises(name):
    """In the way executors run them; one of them runs there, in the next test."""
    run = load_simulator(f"simulators:{name}", simulators.modules_of(name))
    row = run_seed(run, 2)
    assert (row["verdict"], row.get("transcript")) == (KEPT, None)
    assert row["steps"] > 0
    assert (row["bytes"] or 0) > 0 or name in ("ebt", "raft")
    again = run_seed(run, 2)
    assert [again[each] for each in ("steps", "bytes")] == [
        row[each] for each in ("steps", "bytes")
    ]


def test_executors_are_sent_what_a_simulator_needs(spark):
    runs = simulate(spark, "simulators:ebt", range(3), paths=simulators.modules_of("ebt")).collect()
    assert [row.transcript for row in runs] == [None] * 3
    assert all(row.cpu_s > 0 and row.steps > 0 for row in runs)


def test_a_seed_is_run_again_without_spark(capsys):
    arguments = ["moods:moody", "--modules", str(HERE)]
    assert main([*arguments, "6"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert main([*arguments, "7"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "broken"
    assert "seed 7 is a seventh" in said.err


def test_of_two_modules_with_one_name_the_first_is_sent(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(name)
    both = [str(tmp_path / "one"), str(tmp_path / "two")]
    packed = pack_modules(tmp_path, both)
    with zipfile.ZipFile(packed) as found:
        assert found.read("same.py") == b"one"
    assert pack_modules(tmp_path, both) == packed
    assert pack_modules(tmp_path, both[::-1]) != packed


@pytest.mark.parametrize("name", ["moody", ":moody", "moods:"])
def test_a_simulator_has_a_name_of_two_parts(spark, name):
    with pytest.raises(ValueError, match="module:function"):
        simulate(spark, name, range(1))


def test_a_simulator_that_is_not_there_is_missed_at_once(spark):
    with pytest.raises(ImportError):
        simulate(spark, "no_such_module:run", range(1))

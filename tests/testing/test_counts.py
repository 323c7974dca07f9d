"""The counted cost of whole paths: what is told of a step back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import counts
from culm.arguments import check_int

KNOWN = {"a path": 100.0}


@pytest.mark.parametrize("steps", [50.0, 100.0, 103.0])
def test_up_to_three_percent_more_steps_are_no_step_back(steps: float) -> None:
    assert counts.faults({"a path": steps}, KNOWN) == []


def test_more_steps_are_a_step_back() -> None:
    assert counts.faults({"a path": 103.1}, KNOWN) == ["a path: 103.1 steps, 100.0 before"]


def test_a_path_has_a_committed_count() -> None:
    assert counts.faults({"another": 1.0}, KNOWN) == ["another: not in counts.json"]


def test_lines_and_calls_of_culm_are_steps_and_nothing_else() -> None:
    steps = counts.Steps()
    assert steps.count(lambda: sum(range(10))) == 0
    once = steps.count(lambda: check_int("a number", 1))
    assert once > 0
    assert steps.count(lambda: [check_int("a number", 1) for _ in range(2)]) == 2 * once

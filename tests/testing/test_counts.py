"""The counted cost of whole paths, and the reports of a step back."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections import Counter
from pathlib import Path
from typing import Any

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


def test_a_value_in_flight_by_itself_takes_two_turns_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one loop for all three servers: followers read in one turn, the leader in the next."""
    select, soon = selectors.DefaultSelector.select, asyncio.BaseEventLoop.call_soon
    at = asyncio.BaseEventLoop.call_at
    happened: Counter[str] = Counter()

    def counted_select(selector: Any, timeout: float | None = None) -> Any:
        found = select(selector, timeout)
        happened["turns"] += bool(found)
        happened["reads"] += len(found)
        return found

    def counted_soon(*args: Any, **kwargs: Any) -> Any:
        happened["later"] += 1
        return soon(*args, **kwargs)

    def counted_at(*args: Any, **kwargs: Any) -> Any:
        happened["later"] += 1
        return at(*args, **kwargs)

    monkeypatch.setattr(selectors.DefaultSelector, "select", counted_select)
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon", counted_soon)
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_at", counted_at)
    told = []
    for values in (50, 150):
        happened.clear()
        counts.driven.garlic(values, 1)()
        told.append(happened.copy())
    each = {name: (told[1][name] - told[0][name]) / 100 for name in told[1]}
    # Each follower reads a request, the leader two answers; tasks and timers are rare.
    assert 1.95 < each["turns"] < 2.05
    assert 3.9 < each["reads"] < 4.1
    assert each["later"] < 0.1

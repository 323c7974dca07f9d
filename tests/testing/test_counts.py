"""The counted cost of whole paths, and the reports of a step back."""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import callgrind
import counts
import idle
import kernel_counts
from culm import machines
from culm.arguments import check_int

KNOWN = {"a path": 100.0}


@pytest.mark.parametrize("steps", [50.0, 100.0, 103.0])
def test_up_to_three_percent_more_steps_are_no_step_back(steps: float) -> None:
    assert counts.faults({"a path": steps}, KNOWN) == []


def test_more_steps_are_a_step_back() -> None:
    assert counts.faults({"a path": 103.1}, KNOWN) == ["a path: 103.1 counted, 100.0 before"]


def test_a_path_has_a_committed_count() -> None:
    assert counts.faults({"another": 1.0}, KNOWN) == ["another: not in counts.json"]


def test_every_kernel_has_a_committed_count() -> None:
    committed = json.loads(counts.BASELINE.read_text(encoding="utf-8"))
    by_compiler = [known for key, known in committed.items() if "," in key]
    assert by_compiler
    assert all(known.keys() == kernel_counts.TITLES.keys() for known in by_compiler)
    assert all(count > 100 for known in by_compiler for count in known.values())


def test_the_work_for_kernels_reaches_its_end() -> None:
    for work in kernel_counts.WORKS:
        work()


def test_instructions_count_for_the_library_that_carries_them_out() -> None:
    told = """
        events: Ir
        ob=(1) /usr/lib/one.so
        fn=(1) caller
        16 3
        cob=(2) /usr/lib/other.so
        cfn=(2) called
        calls=2 7
        +1 400
        * 4
        ob=(2)
        fn=(2)
        7 200
        -2 200
        totals: 407
    """
    lines = (line.strip() for line in told.splitlines())
    assert callgrind.in_libraries(lines) == {"/usr/lib/one.so": 7, "/usr/lib/other.so": 400}


def test_every_machine_is_measured_while_idle() -> None:
    measured = {name.partition(",")[0] for name in idle.CULM}
    # A layer of `ssb-peer`'s links, which are sealed there, and nothing by themselves.
    assert set(machines.names()) - measured == {"ssb-box-stream", "ssb-handshake"}


@pytest.mark.parametrize("name", idle.CULM)
def test_idle_machines_come_to_rest(name: str) -> None:
    assert len(idle.CULM[name]()) == 2


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

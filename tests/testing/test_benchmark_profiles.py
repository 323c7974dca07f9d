"""The functions on which the benchmarks report that time is spent."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from sampled import profiled, shares, watched


def busy(amount: int) -> int:
    return sum(number * number for number in range(amount))


def once(amount: int) -> int:
    return len(sorted(range(amount), key=lambda number: -number))


def test_the_busiest_function_has_the_largest_part() -> None:
    with profiled() as taken:
        assert watched(lambda: busy(3_000_000) and once(1000)) == 1000
    name, part = next(iter(shares(taken).items()))
    assert name.endswith("busy.<locals>.<genexpr>")
    assert part > 0.5


def test_what_is_not_watched_does_not_count() -> None:
    with profiled() as taken:
        busy(300_000)
    watched(lambda: busy(300_000))
    assert shares(taken) == {}


def test_parts_are_the_whole() -> None:
    assert shares({"a": 97.0, "b": 2.0, "c": 1.0}) == {"a": 0.97, "b": 0.02, "others": 0.01}

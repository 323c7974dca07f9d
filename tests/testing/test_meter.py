"""Steps are lines and returned bytes; they are the same in every run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from culm.testing.suite.meter import EndlessWorkError, Meter


def rounds(count: int) -> None:
    for _ in range(count):
        pass


def copies(count: int) -> bytes:
    return bytes(16 * count)


def steps_of(function: Callable[[int], object], count: int) -> int:
    meter = Meter()
    meter.count(partial(function, count))
    return meter.steps


def test_a_line_is_a_step_each_time() -> None:
    assert steps_of(rounds, 1000) - steps_of(rounds, 500) == 1000  # `for` and `pass`


def test_sixteen_bytes_returned_are_a_step() -> None:
    assert steps_of(copies, 1000) - steps_of(copies, 500) == 500


def test_a_loop_in_one_line_counts() -> None:
    assert steps_of(lambda count: [n for n in range(count)], 1000) > 1000  # noqa: C416


def test_work_beyond_what_is_allowed_is_stopped() -> None:
    meter = Meter()
    meter.allowed = 100
    before = sys.gettrace()
    with pytest.raises(EndlessWorkError):
        meter.count(lambda: rounds(10**12))
    assert 100 <= meter.steps <= 102
    assert sys.gettrace() is before


def test_what_is_not_the_machines_does_not_count() -> None:
    meter = Meter()
    apart = meter.apart(rounds)
    meter.count(lambda: apart(1000))
    assert meter.steps < 10

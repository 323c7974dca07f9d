"""The property that time is checked before it is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from culm.machine import ContractErrorCode
from culm.machines.driver import Driver, Turn
from culm.machines.operations import Advance
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import (
    PropertyError,
    check_idle,
    check_unchanged,
    driver_for,
    expect_equal,
    finish,
    refused,
    retold,
    visible,
)
from culm.testing.suite.strategies import Draw, Story, conversation, variant

_STEP_S = 0.25


def time(spec: MachineSpec, draw: Draw) -> None:
    """Values that are no times are refused at every moment, and nothing changes.

    NaN and the infinities (``NOT_A_TIME``) and times before the last (``TIME_WENT_BACK``)
    may be told before the first time, between any two inputs and after the end.  The last time
    may be told again: unless something is due, that makes no difference either, now or later.
    """
    told = conversation(spec, draw)
    story = _with_times(variant(told.operations, draw), draw)
    with retold(spec, told):
        plain, bothered = driver_for(spec, told), driver_for(spec, told)
        expected, found = plain.start(), bothered.start()
        _bother(bothered, found)
        for operation in story:
            expected += plain.run(operation)
            found += bothered.run(operation)
            _bother(bothered, found)
        expected += finish(plain)
        found += finish(bothered)
        _bother(bothered, found)
        expect_equal("times that were refused made a difference", expected, found)


def _with_times(story: Story, draw: Draw) -> Story:
    """The story, with times between its operations if it has none."""
    if any(isinstance(operation, Advance) for operation in story):
        return story
    now: float = draw(st.integers(0, 8)) * _STEP_S
    timed: Story = []
    for operation in story:
        timed.append(operation)
        if passed := draw(st.integers(0, 3)):
            now += passed * _STEP_S
            timed.append(Advance(now))
    return timed


def _bother(driver: Driver, turns: Sequence[Turn]) -> None:
    """Tell values that are not times, after `turns`."""
    told = (turn.operation.now for turn in turns if isinstance(turn.operation, Advance))
    last = max(told, default=None)
    _tell_again(driver, last)
    for now, code in _no_times(last):
        before = visible(driver)
        error = refused(driver, Advance(now))
        if error is None or error.code is not code:
            raise PropertyError(
                f"told that it is {now}, after {last}, the machine said {error!r}, not {code!r}"
            )
        check_unchanged(f"{now}", driver, before)


def _tell_again(driver: Driver, last: float | None) -> None:
    """Tell the last time again, like a driver that tells it before every input."""
    due = driver.deadline()
    if last is None or (due is not None and due <= last):
        return
    before = visible(driver)
    check_idle(f"{last}, told again,", driver, driver.do(Advance(last)))
    expect_equal(f"{last} was told again, which changed", before, visible(driver))


def _no_times(last: float | None) -> Iterator[tuple[float, ContractErrorCode]]:
    for now in (math.nan, math.inf, -math.inf):
        yield now, ContractErrorCode.NOT_A_TIME
    if last is not None:
        yield math.nextafter(last, -math.inf), ContractErrorCode.TIME_WENT_BACK
        yield last - 1e9, ContractErrorCode.TIME_WENT_BACK

"""Virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.testing.clock import SkewedClock, Timetable, VirtualClock


def test_a_clock_stands_still_and_never_goes_back() -> None:
    clock = VirtualClock(2.0)
    assert clock.now == 2.0
    clock.advance_to(3.0)
    clock.advance_to(1.0)
    assert clock.now == 3.0


@given(st.floats(-1e6, 1e6), st.floats(0.5, 2), st.floats(0, 1e6))
def test_a_skewed_clock_can_be_read_both_ways(offset: float, rate: float, time: float) -> None:
    clock = SkewedClock(offset, rate)
    assert clock.true(clock.local(time)) == pytest.approx(time, abs=1e-6)
    assert clock.local(time + 1) - clock.local(time) == pytest.approx(rate, abs=1e-6)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5])))
def test_calls_come_by_time_and_then_in_the_order_of_their_entry(times: list[float]) -> None:
    table = Timetable()
    made: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        table.at(time, lambda time=time, number=number: made.append((time, number)))
    assert table.next_time() == min(times, default=None)
    while table.step():
        assert table.clock.now == made[-1][0]
    assert made == sorted(made)
    assert len(table) == 0


def test_what_is_past_is_called_as_soon_as_possible() -> None:
    table = Timetable(VirtualClock(5.0))
    times: list[float] = []
    table.after(1.0, lambda: times.append(table.clock.now))
    table.at(0.0, lambda: times.append(table.clock.now))
    while table.step():
        pass
    assert times == [5.0, 6.0]


def test_what_is_past_waits_its_turn_among_what_is_due() -> None:
    table = Timetable(VirtualClock(5.0))
    made: list[str] = []
    table.at(5.0, lambda: made.append("first"))
    table.at(0.0, lambda: made.append("second"))
    while table.step():
        pass
    assert made == ["first", "second"]


def test_calls_may_enter_calls() -> None:
    table = Timetable()
    made: list[str] = []
    table.at(1.0, lambda: (made.append("first"), table.after(0.0, lambda: made.append("last"))))
    table.at(1.0, lambda: made.append("second"))
    while table.step():
        pass
    assert made == ["first", "second", "last"]

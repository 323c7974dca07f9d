"""Deadlines compared with a dict that is searched from end to end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from culm.machines.memory import retained_size
from culm.timers import Deadlines

keys = st.sampled_from("abcdef")
times = st.sampled_from([0.0, 1.0, 1.5, 2.0, 7.0]) | st.floats(0, 10)


class DeadlinesTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[str] = Deadlines()
        self.twin: dict[str, float] = {}  # in the order of the last settings

    def due(self, now: float) -> str | None:
        reached = [key for key, time in self.twin.items() if time <= now]
        return min(reached, key=lambda key: self.twin[key], default=None)

    @rule(key=keys, time=times)
    def set(self, key: str, time: float) -> None:
        self.deadlines.set(key, time)
        self.twin.pop(key, None)
        self.twin[key] = time

    @rule(key=keys)
    def cancel(self, key: str) -> None:
        self.deadlines.cancel(key)
        self.twin.pop(key, None)

    @rule(now=times)
    def pop_due(self, now: float) -> None:
        expected = self.due(now)
        assert self.deadlines.pop_due(now) == expected
        if expected is not None:
            del self.twin[expected]

    @rule(now=times)
    def pop_all_due(self, now: float) -> None:
        popped = list(iter(lambda: self.deadlines.pop_due(now), None))
        for key in popped:
            assert key == self.due(now)
            del self.twin[key]
        assert self.due(now) is None

    @rule()
    def clear(self) -> None:
        self.deadlines.clear()
        self.twin.clear()

    @invariant()
    def next_is_the_earliest(self) -> None:
        assert self.deadlines.next() == min(self.twin.values(), default=None)

    @invariant()
    def knows_its_keys(self) -> None:
        assert len(self.deadlines) == len(self.twin)
        for key in "abcdef":
            assert (key in self.deadlines) == (key in self.twin)
            assert self.deadlines.get(key) == self.twin.get(key)


TestDeadlines = DeadlinesTwin.TestCase


def test_keys_due_at_one_time_come_in_the_order_in_which_they_were_set() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key in ("x", "a", "m", "x"):
        deadlines.set(key, 1.0)
    assert [deadlines.pop_due(1.0) for _ in range(4)] == ["a", "m", "x", None]


def test_a_deadline_is_due_at_its_time_and_not_before() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1.0)
    assert deadlines.pop_due(0.999) is None
    assert deadlines.pop_due(1.0) == "a"


def test_keys_that_cannot_be_ordered_may_be_due_at_one_time() -> None:
    deadlines: Deadlines[object] = Deadlines()
    deadlines.set(1, 1.0)
    deadlines.set("one", 1.0)
    assert [deadlines.pop_due(1.0), deadlines.pop_due(1.0)] == [1, "one"]


def test_moving_one_deadline_for_ever_takes_no_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("early", 0.0)
    for time in range(10_000):
        deadlines.set("late", 1.0 + time)
    assert retained_size(deadlines) < 5000


def test_what_was_cleared_takes_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    empty = retained_size(deadlines)
    for key in range(1000):
        deadlines.set(key, 1.0)
    deadlines.clear()
    assert retained_size(deadlines) < empty + 100
    assert deadlines.pop_due(9.0) is None

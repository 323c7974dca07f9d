"""On a slow line everything arrives, however long one message takes."""

from __future__ import annotations

from typing import Any

import pytest
from p2panda_nodes import SCHEMA
from test_p2panda_again import Line

from culm.effects import Effect
from culm.machine import Closed
from culm.p2panda import Mode, ReplicatorLimits, SessionEnded
from culm.p2panda import line as movement


class SlowLine(Line):
    """One that carries so many bytes in 10 s."""

    def crawl(self, size: int, turns: int) -> None:
        for _ in range(turns):
            while self.turn(0):
                pass
            if self.equal and not any(self._pipes):
                break
            self.wait(10.0)
            self.turn(size)


@pytest.mark.parametrize("both_ask", [False, True])
@pytest.mark.parametrize("mode", Mode)
def test_log_heights_that_take_longer_than_an_answer_may(mode: Mode, both_ask: bool):
    line = SlowLine(mode, both_ask=both_ask, documents=100)
    line.crawl(1000, 300)
    assert line.equal
    assert line.told(SessionEnded) == []


@pytest.mark.parametrize("mode", Mode)
def test_an_operation_that_takes_longer_than_a_session_may_stand_still(mode: Mode):
    line = SlowLine(mode, documents=1)
    line.nodes[1].author.create(SCHEMA, {"name": "x" * 60_000})
    line.crawl(1000, 300)
    assert line.equal
    assert line.told(SessionEnded) == []


@pytest.mark.parametrize("mode", Mode)
def test_a_line_that_carries_next_to_nothing_stands_still(mode: Mode):
    line = SlowLine(mode, documents=100)
    line.crawl(100, 300)
    assert not line.equal
    assert line.told(SessionEnded) != []
    assert line.told(Closed) == []


class SlowStores(Line):
    """A line between stores that take so many seconds for each effect, all at a time."""

    def __init__(
        self, mode: Mode, *seconds: float, both_ask: bool, **limits: ReplicatorLimits
    ) -> None:
        self._seconds = seconds
        self._due: list[tuple[float, int, Effect[Any]]] = []
        super().__init__(mode, both_ask=both_ask, **limits)

    def serve(self, side: int, effect: Effect[Any]) -> None:
        self._due.append((self.now + self._seconds[side], side, effect))

    def work(self, seconds: int) -> None:
        until = self.now + seconds
        while self.now < until:
            while self.turn(1 << 20):
                pass
            self.wait(5.0)
            due = [each for each in self._due if each[0] <= self.now]
            self._due = [each for each in self._due if each[0] > self.now]
            for _, side, effect in due:
                super().serve(side, effect)


@pytest.mark.parametrize("both_ask", [False, True])
@pytest.mark.parametrize("seconds", [(25.0, 100.0), (100.0, 25.0), (50.0, 50.0), (100.0, 100.0)])
@pytest.mark.parametrize("mode", Mode)
def test_stores_that_take_longer_than_an_answer_may(
    mode: Mode, seconds: tuple[float, float], both_ask: bool
):
    line = SlowStores(mode, *seconds, both_ask=both_ask)
    line.work(10_000)
    assert line.equal
    assert line.told(Closed) == []


@pytest.mark.parametrize("both_ask", [False, True])
@pytest.mark.parametrize("mode", Mode)
def test_documents_that_have_been_found_do_not_wait_for_others(mode: Mode, both_ask: bool):
    """Nine documents are looked for one by one, which takes longer than a session may stand still.

    Nothing was sent before all were found, and each next session came no further.
    """
    one = ReplicatorLimits(spans_max=1)
    line = SlowStores(mode, 80.0, 80.0, both_ask=both_ask, asker=one, other=one)
    line.work(10_000)
    assert line.equal


def test_what_has_waited_behind_others_is_judged_from_when_it_left():
    line = movement.Line()
    for number in range(10):
        line.look(10.0 * number, 1024 * (number + 1), is_busy=True)
    line.look(100.0, 1024 * 11, is_busy=False)
    assert line.still_since(0.0, 0) == 100.0


def test_what_leaves_last_on_a_slow_line_has_left_when_it_is_through():
    """Less than a kilobyte did not count, and its answer was not waited for long enough."""
    line = movement.Line()
    line.look(0.0, 2000, is_busy=True)
    line.look(5.0, 2500, is_busy=False)
    assert line.still_since(0.0, 0) == 5.0

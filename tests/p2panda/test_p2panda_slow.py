"""On a slow line everything arrives, however long one message takes."""

from __future__ import annotations

import pytest
from p2panda_nodes import SCHEMA
from test_p2panda_again import Line

from culm.machine import Closed
from culm.p2panda import Mode, SessionEnded


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

"""A bound on the time in which a failing example is made smaller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from culm.testing.suite.strategies import Draw


class EnoughError(KeyboardInterrupt):
    """The time is over; Hypothesis takes it for Ctrl-C, and ends the search."""


class Patience:
    """Checks examples until `seconds` after the first failure.

    Hypothesis itself shrinks for up to five minutes, which no setting changes.

    failure: the error of the smallest example that has failed; in a search that is cut off, the one
        to raise.
    """

    def __init__(self, seconds: float) -> None:
        self.failure: Exception | None = None
        self._seconds = seconds
        self._until = 0.0
        self._size = 0

    def check(self, check: Callable[[Draw], None], draw: Draw) -> None:
        """Call `check` with `draw`; raises its errors, and `EnoughError` once time is over."""
        if self.failure is not None and time.monotonic() > self._until:
            raise EnoughError
        size = 0

        def counted(strategy: st.SearchStrategy[Any]) -> Any:
            nonlocal size
            size += 1
            return draw(strategy)

        try:
            check(counted)
        except HypothesisException:  # such as an assumption that does not hold
            raise
        except Exception as error:
            if self.failure is None:
                self._until = time.monotonic() + self._seconds
            if self.failure is None or size <= self._size:
                self.failure, self._size = error, size
            raise

"""The time that a node was told last, shared by its parts."""

from __future__ import annotations

from math import inf, nextafter

_EPOCH_MAX = 1e11
"""Seconds before or after 1970: three thousand years, far beyond any real clock."""


class Clock:
    """Monotonic seconds (`now`) for deadlines, and Unix seconds (`unix`) for shared contact times.

    Deadlines are not kept in Unix time because sums of such large numbers lose precision.

    Raises `ValueError` for an epoch more than three thousand years from 1970, or not a number.
    """

    __slots__ = ("_epoch", "is_set", "now", "unix")

    def __init__(self, epoch: float) -> None:
        if not abs(epoch) < _EPOCH_MAX:
            raise ValueError(f"epoch must be a Unix time in seconds, not {epoch}")
        self._epoch = epoch
        self.is_set = False
        """Whether the node was ever told the time."""
        self.now = 0.0
        self.unix = epoch

    def after(self, seconds: float) -> float:
        """The time `seconds` from now, always later than now, so that no timer fires forever."""
        return max(self.now + seconds, nextafter(self.now, inf))

    def advance(self, now: float) -> None:
        self.is_set = True
        self.now = now
        self.unix = self._epoch + now

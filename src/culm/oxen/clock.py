"""The time as a node was last told it, shared by its parts."""

from __future__ import annotations

from math import inf, nextafter

__all__ = ["Clock"]

_EPOCH_MAX = 1e11
"""Seconds to or from 1970: three thousand years, which is nobody's clock."""


class Clock:
    """`now` is monotonic seconds and for deadlines; `unix` is for contacts, as others see them.

    Deadlines are not kept in Unix time, as sums of large numbers do not come back exactly.

    Raises `ValueError` for an epoch that is no time within three thousand years of 1970.
    """

    __slots__ = ("_epoch", "is_set", "now", "unix")

    def __init__(self, epoch: float) -> None:
        if not abs(epoch) < _EPOCH_MAX:
            raise ValueError(f"epoch must be a Unix time in seconds, not {epoch}")
        self._epoch = epoch
        self.is_set = False
        """Whether the time was ever told."""
        self.now = 0.0
        self.unix = epoch

    def after(self, seconds: float) -> float:
        """So many seconds from now, and always later: what is due at once again never rests."""
        return max(self.now + seconds, nextafter(self.now, inf))

    def advance(self, now: float) -> None:
        self.is_set = True
        self.now = now
        self.unix = self._epoch + now

"""The time as a node was last told it, shared by its parts."""

from __future__ import annotations

__all__ = ["Clock"]


class Clock:
    """`now` is monotonic seconds and for deadlines; `unix` is for contacts, as others see them.

    Deadlines are not kept in Unix time, as sums of large numbers do not come back exactly.
    """

    __slots__ = ("_epoch", "is_set", "now", "unix")

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self.is_set = False
        """Whether the time was ever told."""
        self.now = 0.0
        self.unix = epoch

    def advance(self, now: float) -> None:
        self.is_set = True
        self.now = now
        self.unix = self._epoch + now

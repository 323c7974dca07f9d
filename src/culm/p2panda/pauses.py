"""Pauses between attempts."""

from __future__ import annotations

__all__ = ["Pauses"]


class Pauses:
    """The pauses between one attempt and the next: each is twice as long as the one before.

    min_s, max_s: the first pause, and the longest one; seconds.
    until: the end of the current pause; ``None`` if there is none.
    """

    __slots__ = ("_max_s", "_min_s", "_next_s", "until")

    def __init__(self, *, min_s: float, max_s: float) -> None:
        self._min_s = self._next_s = min_s
        self._max_s = max_s
        self.until: float | None = None

    def begin(self, now: float) -> None:
        """Begin the next pause, unless there is one already."""
        if self.until is None:
            self.until = now + self._next_s
            self._next_s = min(2 * self._next_s, self._max_s)

    def end(self) -> None:
        """The next attempt is made."""
        self.until = None

    def reset(self) -> None:
        """The attempt has come to something: the next pause is a short one."""
        self.until, self._next_s = None, self._min_s

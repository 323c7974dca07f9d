"""The movement of a line, which may be slow: what has not come may be behind something else."""

from __future__ import annotations

from typing import Final

# A line that carries so many bytes, both ways, moves; so many may be ahead of what is waited for.
_MOVED_MIN: Final = 1024
_AHEAD_MAX: Final = 1 << 26


class Line:
    """How much the line to a peer has carried, both ways, and when.

    carried: the bytes of which it is known when they were carried.
    """

    __slots__ = ("_is_busy", "_moved_at", "_moves", "carried")

    def __init__(self) -> None:
        self.carried = 0
        self._moved_at = 0.0
        self._is_busy = self._moves = False

    def look(self, before: float, carried: int, *, is_busy: bool) -> None:
        """Note what it has carried since a time, and whether it is in the midst of something."""
        if carried >= self.carried + _MOVED_MIN:
            self.carried = carried
            if is_busy or self._is_busy:
                self._moved_at, self._moves = before, True
        elif self._moves and self._is_busy and not is_busy:  # the rest of it is through
            self._moved_at, self._moves = before, False
        self._is_busy = is_busy

    def still_since(self, since: float, carried: int) -> float:
        """The time from which to wait for what is due since `since`, when so much was carried."""
        return max(since, self._moved_at) if self.carried - carried < _AHEAD_MAX else since

"""Our own feed after a backup, when others may have more of it than the store."""

from __future__ import annotations

from math import isinf

from culm.ssb.ebt import Replicator

__all__ = ["OwnFeed"]


class OwnFeed:
    """Our own feed, of which others may have more if it comes from a backup.

    restored: whether it does, and its length is not confirmed.
    confirm_s: the wait for others once a friend has told that it has less, or nothing.
    """

    def __init__(self, core: Replicator, *, restored: bool, confirm_s: float, now: float) -> None:
        self.restored = restored
        self._core = core
        self._confirm_s = confirm_s
        self._now = now
        self._told_less_at: float | None = None

    def confirm(self) -> None:
        """Take the user's word that no peer has more of it."""
        self.restored = False

    def look(self) -> bool:
        """Whether the restored feed is confirmed just now, by peers that we follow or by time."""
        due = self._core.is_confirmed(self._core.me) or self._is_due()
        self.restored = not due
        return due

    def _is_due(self) -> bool:
        if not self._core.is_unsurpassed(self._core.me):
            self._told_less_at = None
        elif self._told_less_at is None:
            self._told_less_at = self._now
        return self._told_less_at is not None and self._now >= self._told_less_at + self._confirm_s

    def next_deadline(self) -> float | None:
        if not self.restored or self._told_less_at is None or isinf(self._confirm_s):
            return None
        return self._told_less_at + self._confirm_s

    def advance(self, now: float) -> None:
        self._now = now

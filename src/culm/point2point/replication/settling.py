"""Noticing that nothing is going on any more."""

from __future__ import annotations

__all__ = ["Settling"]


class Settling:
    """Tells once, after each disturbance, that it has been quiet for `settle_s` (seconds)."""

    __slots__ = ("_quiet_since", "_settle_s", "_settled", "now")

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self.now: float | None = None
        self._quiet_since: float | None = None
        self._settled = False

    def disturb(self) -> None:
        """Something has happened."""
        self._quiet_since, self._settled = None, False

    def advance(self, now: float, *, quiet: bool) -> None:
        """Tell the time, and whether it is quiet."""
        self.now = now
        if not quiet:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now

    def deadline(self, quiet: bool) -> float | None:
        """When `advance` is due; a pure query.

        Since when it has been quiet is known only once the time has been told again.
        """
        if self.now is None or self._settled or not quiet:
            return None
        return self.now if self._quiet_since is None else self._quiet_since + self._settle_s

    def settles(self) -> bool:
        """Whether it has been quiet for long enough just now."""
        if self._settled or self.now is None or self._quiet_since is None:
            return False
        self._settled = self.now >= self._quiet_since + self._settle_s
        return self._settled

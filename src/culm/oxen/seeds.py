"""Servers that are asked for help again and again whenever they are not peers."""

from __future__ import annotations

from collections.abc import Iterator

from culm.oxen.limits import Timing

# As for peers that are out of reach.
_SEEK_SHARE = 1 / 8


class Seeds:
    """The seeds, and the time since which each is missing.  Times are Unix seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._missing: dict[bytes, float | None] = {}  # since when; `None` while it is a peer
        self._pauses: dict[bytes, float] = {}  # since when it is missing and not being asked

    def __contains__(self, sid: object) -> bool:
        return sid in self._missing

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._missing)

    def add(self, sid: bytes, now: float) -> None:
        """Ask `sid` from now on; it is asked for the first time at `now`."""
        self._missing[sid] = now
        self._pauses.pop(sid, None)

    def remove(self, sid: bytes) -> None:
        """Stop asking `sid`."""
        self._missing.pop(sid, None)
        self._pauses.pop(sid, None)

    def clear(self) -> None:
        """Stop asking all seeds."""
        self._missing.clear()
        self._pauses.clear()

    def found(self, sid: bytes) -> None:
        """Note that `sid` has become a peer."""
        self._missing[sid] = None
        self._pauses.pop(sid, None)

    def miss(self, sid: bytes, now: float) -> bool:
        """Note that `sid` is missing and not being asked; returns whether to ask it again now.

        The pause before that grows with the time for which it is missing.
        """
        since = self._missing[sid]
        if since is None:
            self._missing[sid] = since = now
        timing = self._timing
        pause = max(timing.keepalive_s, min(_SEEK_SHARE * (now - since), timing.seek_max_s))
        return now - self._pauses.setdefault(sid, now) >= pause

    def asked(self, sid: bytes) -> None:
        """Note that `sid` is being asked once more."""
        self._pauses.pop(sid, None)

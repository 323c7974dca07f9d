"""Noticing a peer that has fallen silent."""

from __future__ import annotations

__all__ = ["Silence"]


class Silence:
    """How long the peer has been silent, and what is to be done about it.

    Times are monotonic seconds.  Nothing is known before the first `advance`.  A peer
    that has begun something (`inside`) must go on within `silence_max_s`.  Otherwise it
    is asked for a sign of life after `keepalive_s`, and then has `silence_max_s`.
    """

    __slots__ = ("_asked", "_heard", "_keepalive_s", "_silence_max_s", "_since", "now")

    def __init__(self, *, silence_max_s: float, keepalive_s: float) -> None:
        self._silence_max_s = silence_max_s
        self._keepalive_s = keepalive_s
        self.now: float | None = None
        self._since = 0.0  # when the peer was heard last
        self._heard = False  # since the time was told last
        self._asked = False

    def heard(self) -> None:
        """The peer has given a sign of life."""
        self._heard = True
        self._asked = False

    def deadline(self, inside: bool) -> float | None:
        """When `advance` is due."""
        if self.now is None:
            return None
        since = self.now if self._heard else self._since
        if inside:
            return since + self._silence_max_s
        return since + self._keepalive_s + (self._silence_max_s if self._asked else 0.0)

    def advance(self, now: float, inside: bool) -> bool:
        """Tell the time; returns whether the peer is to be asked for a sign of life."""
        if self.now is None or self._heard:
            self._since, self._heard = now, False
        self.now = now
        if inside or self._asked or now < self._since + self._keepalive_s:
            return False
        self._asked = True
        return True

    def is_over(self, inside: bool) -> bool:
        """Whether the peer has been silent for too long."""
        deadline = self.deadline(inside)
        return (
            deadline is not None
            and self.now is not None
            and self.now >= deadline
            and (inside or self._asked)
        )

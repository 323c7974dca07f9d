"""The silence of a link's peer, whichever side has dialled."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from culm.machine import RemoteProtocolError
from culm.ssb.peer.errors import ErrorCode

__all__ = ["Liveness"]


class Liveness:
    """Signs of life, and the times to ask for one and to give up.

    patience_s: the silence allowed to the peer, and again after a question; infinite: for ever.
    now: the time of the machine.

    Any byte received is a sign of life, and answers a question asked at the same time or before.
    The time after a question counts from the moment when bytes of ours last left, since the
    question may be behind them in a queue.
    """

    __slots__ = ("_asked_at", "_began_at", "_heard_at", "_look_at", "_now", "_patience_s")

    def __init__(self, *, patience_s: float, now: Callable[[], float]) -> None:
        self._patience_s = patience_s
        self._now = now
        self._began_at = now()
        self._heard_at = -inf
        self._asked_at = -inf  # or when bytes have left last, as long as there is no answer
        self._look_at = self._due()

    def heard(self) -> None:
        """Note that bytes have arrived, or were held up by us."""
        self._heard_at = self._now()

    @property
    def heard_at(self) -> float:
        """The time at which `heard` was last called."""
        return self._heard_at

    def left(self) -> None:
        """Note that bytes of ours have left."""
        if self._is_asked():
            self._asked_at = self._now()

    def asked(self) -> None:
        """Note that the peer has been asked for a sign of life."""
        if not self._is_asked():
            self._asked_at = self._now()
            self._look_at = self._due()

    def deadline(self) -> float:
        """The time to `look`, which may turn out to be too early."""
        return self._look_at

    def look(self) -> bool:
        """Whether to ask for a sign of life.  Raises `RemoteProtocolError` (``SILENT``)."""
        now, due = self._now(), self._due()
        if now < due:
            self._look_at = due
            return False
        if self._is_asked():
            raise RemoteProtocolError(ErrorCode.SILENT)
        self.asked()
        return True

    def _is_asked(self) -> bool:
        return self._asked_at > self._heard_at

    def _due(self) -> float:
        return max(self._began_at, self._heard_at, self._asked_at) + self._patience_s

"""A machine that a driver has to stop."""

from __future__ import annotations

from culm.machine import Event, StreamBase
from toy_machines import LineReceived

__all__ = ["Endless"]


class Endless(StreamBase):
    """Always has one more event, as a machine does whose peer has declared 2^64 - 1 bytes."""

    state = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(receive_max=256)
        self.taken = 0

    def _step(self) -> Event:
        self.taken += 1
        return LineReceived(text=b"one more")

    def _step_eof(self) -> Event:
        return self._step()

    def _goodbye(self) -> None:
        pass

    def _ended(self, error: object) -> None:
        pass

"""Bounds on what a pump holds, what it does in a row, and what it waits for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from culm.arguments import check_int, check_seconds

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a pump.

    Raises `ValueError` for a size or a number below 1, and for an infinite time.

    piece_size_max
        Bytes taken from a machine, or from a link, that its peer has not taken yet; and the
        most that `StreamPump.read_size` asks for.  What has been taken is beyond the machine's
        reach: the smaller a piece, the sooner the next important thing is on its way.
    steps_max
        Steps of a machine in a row, after which the pump lets others go first: it is due at
        once.
    linger_s
        How long after its end a connection waits for the peer to take our last words and to
        end its own half.
    linger_after_error_s
        The same after an error of the peer's, which may go on for ever; and for a link.
    """

    piece_size_max: int = 1 << 16
    steps_max: int = 1000
    linger_s: float = 5.0
    linger_after_error_s: float = 1.0

    def __post_init__(self) -> None:
        check_int("piece_size_max", self.piece_size_max, 1)
        check_int("steps_max", self.steps_max, 1)
        for name in ("linger_s", "linger_after_error_s"):
            seconds = getattr(self, name)
            check_seconds(name, seconds)
            if math.isinf(seconds):
                raise ValueError(f"{name} must be finite")

"""Bounds on a pump's memory and its steps in a row, and its waits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from culm.arguments import check_int, check_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a pump.

    Raises `ValueError` for one below 1.

    piece_size_max
        Bytes taken from a machine, or from a link, and not yet by its peer; also the most that
        `StreamPump.read_size` asks for.  The machine cannot put anything before a piece that has
        been taken, so on a slow line pieces have what leaves in a second: 1 KiB at least.
    steps_max
        Steps of a machine in a row, after which the pump lets others go first: it is due again
        at once.
    """

    piece_size_max: int = 1 << 16
    steps_max: int = 1000

    def __post_init__(self) -> None:
        check_int("piece_size_max", self.piece_size_max, 1)
        check_int("steps_max", self.steps_max, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Waits of a pump, in seconds.  Raises `ValueError` for one that is negative or infinite.

    linger_s
        The wait, after the machine's end, for the peer to take our last words and to end its
        own half.
    linger_after_error_s
        The same after an error of the peer, which may never end its half; also for every link.
    """

    linger_s: float = 5.0
    linger_after_error_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("linger_s", "linger_after_error_s"):
            seconds = getattr(self, name)
            check_seconds(name, seconds)
            if math.isinf(seconds):
                raise ValueError(f"{name} must be finite")

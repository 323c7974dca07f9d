"""The memory that a peer may make a handshake and a box stream use, and the time that it has."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from culm.arguments import check_int

HANDSHAKE_SIZE_MIN = 112  # bytes of the longest message


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a handshake and of the `BoxStream` after it.

    Raises `ValueError` for less than one packet, or one message of a handshake.

    packets_max
        Packets of a box stream to read at a time, 4,130 bytes each; each costs less when there are
        more of them.
    handshake_size_max
        Bytes of a handshake to hold; those after its last message are for the box stream.
    """

    packets_max: int = 16
    handshake_size_max: int = 2 * HANDSHAKE_SIZE_MIN

    def __post_init__(self) -> None:
        check_int("packets_max", self.packets_max, 1)
        check_int("handshake_size_max", self.handshake_size_max, HANDSHAKE_SIZE_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times, in seconds.  Raises `TypeError` and `ValueError` for something that is not a time.

    handshake_s
        Time for the whole handshake, from the first `advance` on.
    """

    handshake_s: float = 15.0

    def __post_init__(self) -> None:
        if not (isfinite(self.handshake_s) and self.handshake_s >= 0):
            raise ValueError(f"{self.handshake_s} s is no time to wait")

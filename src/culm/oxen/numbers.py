"""Starts of sequence numbers."""

from __future__ import annotations

from random import Random

from culm.oxen.clock import Clock
from culm.oxen.incoming import RESTART_GAP, START_MAX

_EPOCH_S = 1_420_070_400  # 2015-01-01
_SHIFT = 22
_FAR_BITS = 46  # some hours of the clock


class Numbers:
    """Starts of streams, each far above all numbers that this node has used, in this life or an
    earlier one.

    A start has the milliseconds since 2015, modulo 2^40 (35 years), above 22 random bits.
    Fewer than 2^22 messages are sent in a millisecond, so time stays ahead of the numbers,
    and greater numbers distinguish a restarted node from a late duplicate.
    """

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._last = -2 * RESTART_GAP

    def next_start(self, above: int = 0) -> int:
        """The next start, also far above the number `above`, if that may be a former one.

        How far is up to chance: another life may have been told of the same number, and whoever
        told it must not know ours.
        """
        elapsed_ms = int((self._clock.unix - _EPOCH_S) * 1000) % (START_MAX >> _SHIFT)
        start = (elapsed_ms << _SHIFT) + self._rng.getrandbits(_SHIFT)
        self._last = max(start, self._last + 2 * RESTART_GAP)
        if max(0, self._last - 2 * RESTART_GAP) < above < START_MAX:
            return above + 2 * RESTART_GAP + self._rng.getrandbits(_FAR_BITS)
        return self._last

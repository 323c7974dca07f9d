"""How long a message to one peer and its acknowledgement take.

Source: RFC 6298, section 2.
"""

from __future__ import annotations

import math

from culm.oxen.limits import Timing

__all__ = ["RoundTrip"]

_GAIN = 1 / 8  # weight of a sample in the smoothed time
_VARIATION_GAIN = 1 / 4
_VARIATIONS = 4

# After how many round trips without an acknowledgement a probe is sent, and its shortest delay.
_PROBE_ROUND_TRIPS = 2
_PROBE_MIN_S = 0.01

# How much longer than the shortest recent one the shortest of a round is if something queues.
_QUEUE_SHARE = 1 / 4
_QUEUE_S = 0.005
_QUEUE_VARIATIONS = 2

# The shortest time of the last one to two periods is what the path takes when nothing queues.
_LEAST_PERIOD_S = 10.0


class RoundTrip:
    """Estimates from samples in seconds, of messages that were sent once (Karn's algorithm)."""

    __slots__ = (
        "_before",
        "_max_s",
        "_min_s",
        "_now",
        "_turn",
        "_variation",
        "probe",
        "smoothed",
        "timeout",
        "usual",
    )

    def __init__(self, timing: Timing) -> None:
        self._min_s = timing.redelivery_min_s
        self._max_s = timing.redelivery_max_s
        self.smoothed: float | None = None
        """The smoothed round trip (SRTT); ``None`` before the first sample."""
        self.timeout = timing.redelivery_first_s
        """After how long without any acknowledgement a message is sent again (RTO)."""
        self.probe = self.timeout
        """After how long without any acknowledgement a probe is sent, when there are samples."""
        self.usual = self.timeout
        """Nearly all acknowledgements come within that time."""
        self._variation = 0.0
        self._turn = -math.inf
        self._before = self._now = math.inf

    @property
    def unhurried(self) -> float:
        """If the shortest round trip of a round exceeds this, something queues on the way."""
        least = self.least
        return least + max(_QUEUE_SHARE * least, _QUEUE_S, _QUEUE_VARIATIONS * self._variation)

    @property
    def least(self) -> float:
        """The shortest recent round trip; infinite before the first sample."""
        return min(self._before, self._now)

    def sample(self, seconds: float, now: float) -> None:
        """An acknowledgement came at `now`, so long after its message had been sent."""
        if now >= self._turn:
            self._turn = now + _LEAST_PERIOD_S
            self._before, self._now = self._now, seconds
        elif seconds < self._now:
            self._now = seconds
        if self.smoothed is None:
            self.smoothed = seconds
            self._variation = seconds / 2
        else:
            error = seconds - self.smoothed
            self._variation += _VARIATION_GAIN * (abs(error) - self._variation)
            self.smoothed += _GAIN * error
        self.usual = usual = self.smoothed + _VARIATIONS * self._variation
        timeout = self._min_s if usual < self._min_s else usual
        self.timeout = timeout = self._max_s if timeout > self._max_s else timeout
        probe = _PROBE_ROUND_TRIPS * self.smoothed
        probe = _PROBE_MIN_S if probe < _PROBE_MIN_S else probe
        self.probe = timeout if probe > timeout else probe

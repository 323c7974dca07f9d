"""Estimates of the round trip time to one peer.

Source: RFC 6298, section 2.
"""

from __future__ import annotations

import math

from culm.oxen.limits import Timing

_GAIN = 1 / 8  # weight of a sample in the smoothed time
_VARIATION_GAIN = 1 / 4
_VARIATIONS = 4

# Round trips without an acknowledgement until a probe is sent, and the shortest delay of one.
_PROBE_ROUND_TRIPS = 2
_PROBE_MIN_S = 0.01

# Excess of a round's shortest round trip over the shortest recent one if messages queue.
_QUEUE_SHARE = 1 / 4
_QUEUE_S = 0.005
_QUEUE_VARIATIONS = 2

# Doublings without a sample, and further transmissions until the next ones if they were in vain.
_DOUBLINGS = 6
_DOUBLING_PAUSE = 64

# The path without queues takes the shortest time of the last one to two periods.
_LEAST_PERIOD_S = 10.0

# A round trip longer than that number of whole rounds is unusual.  In parts of rounds the
# shortest come first.
_SAMPLES_MIN = 64


class RoundTrip:
    """Estimates from samples in seconds, of messages that were sent once (Karn's algorithm)."""

    __slots__ = (
        "_before",
        "_doubled",
        "_doublings",
        "_longest",
        "_longest_before",
        "_max_s",
        "_min_s",
        "_now",
        "_samples",
        "_turn",
        "_variation",
        "measured",
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
        self.measured = self.timeout = timing.redelivery_first_s
        """Time without any acknowledgement until a message is sent again (RTO): as measured,
        and doubled since then by `hesitate`."""
        self.probe = self.timeout
        """Time without any acknowledgement until a probe is sent, once there are samples."""
        self.usual = self.timeout
        """Time within which nearly all acknowledgements come."""
        self._variation = 0.0
        self._doubled, self._doublings = -math.inf, 0
        self._turn = -math.inf
        self._before = self._now = math.inf
        self._samples = 0
        self._longest = 0.0
        self._longest_before: float | None = None  # of the former samples, once there are enough

    @property
    def unhurried(self) -> float:
        """Longest round trip without queues: if all of a round exceed it, messages queue."""
        least = self.least
        return least + max(_QUEUE_SHARE * least, _QUEUE_S, _QUEUE_VARIATIONS * self._variation)

    @property
    def least(self) -> float:
        """The shortest recent round trip; infinite before the first sample."""
        return min(self._before, self._now)

    def hesitate(self, now: float) -> None:
        """Double all times until the next sample: a message is sent again, which can give none.

        Otherwise no sample would ever show that the path has become slower.
        """
        self._doublings += 1
        if 0 < self._doublings <= _DOUBLINGS:
            self._doubled = now
            self.timeout = min(2 * self.timeout, self._max_s)
            self.probe = min(2 * self.probe, self.timeout)
            self.usual = max(self.usual, min(2 * self.usual, self._max_s))

    def answer(self, sent: float, now: float) -> None:
        """Take an answer at `now` to a message that was sent again at `sent`.

        After so many doublings it is a sample: had the answer been to an earlier transmission, it
        would have come before.  Then the peer refuses first transmissions, and doubling is no help.
        """
        if self._doublings >= _DOUBLINGS and sent >= self._doubled:
            self.smoothed = None  # the path has changed, as RFC 6298 has it
            self.sample(now - sent, now)
            self._doublings = -_DOUBLING_PAUSE

    def late(self, seconds: float) -> None:
        """Take the round trip of a message that was taken for lost too soon."""
        if seconds > self._longest:
            self._longest = seconds

    def end_round(self) -> None:
        """All messages that were under way at the end of the former round are settled."""
        if self._samples >= _SAMPLES_MIN:
            self._samples = 0
            self._longest, self._longest_before = 0.0, self._longest

    def sample(self, seconds: float, now: float) -> None:
        """Take an acknowledgement that came at `now`, `seconds` after its message was sent."""
        if now >= self._turn:
            self._turn = now + _LEAST_PERIOD_S
            self._before, self._now = self._now, seconds
        elif seconds < self._now:
            self._now = seconds
        if seconds > self._longest:
            self._longest = seconds
        self._samples += 1
        self._doublings = min(0, self._doublings)
        if self.smoothed is None:
            self.smoothed = seconds
            self._variation = seconds / 2
        else:
            error = seconds - self.smoothed
            self._variation += _VARIATION_GAIN * (abs(error) - self._variation)
            self.smoothed += _GAIN * error
        usual = self.smoothed + _VARIATIONS * self._variation
        timeout = self._min_s if usual < self._min_s else usual
        timeout = self._max_s if timeout > self._max_s else timeout
        self.measured = self.timeout = timeout
        probe = _PROBE_ROUND_TRIPS * self.smoothed
        probe = _PROBE_MIN_S if probe < _PROBE_MIN_S else probe
        self.probe = timeout if probe > timeout else probe
        longest = self._longest_before
        if longest is not None:
            longest = self._longest if self._longest > longest else longest
            usual = probe if probe > usual else usual
            usual = longest if usual > longest else usual
            self.probe = usual if usual > _PROBE_MIN_S else _PROBE_MIN_S
        self.usual = usual

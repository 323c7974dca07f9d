"""The number of messages that may be under way to one peer: a window that grows and shrinks.

Source: RFC 5681 while messages queue; for the rest docs/decisions/oxen-congestion.md.
"""

from __future__ import annotations

import math

WINDOW_FIRST = 16
"""Messages that may be under way before anything is known of the path."""

_WINDOW_MIN = 2

# Growth in messages a round while nothing queues; while messages queue it is one, as in TCP.
_STEP = 4

# Where nothing queues, a loss of less than this part of a round says nothing about the window.
_TOO_MUCH = 1 / 8

# The window stops doubling once this part of a round is lost; fewer messages may be chance.
_TOO_FAR = 1 / 4
_TOO_FAR_MIN = 8

# Round trips needed to judge whether all of a round were long.
_SAMPLES_MIN = 8


class Window:
    """The number of messages that may be under way, `size`.

    A round lasts until all messages under way at its beginning are acknowledged or found to be
    lost.

    long_s: a round trip in seconds at which messages queue for so long that others suffer.
    """

    __slots__ = (
        "_arrived",
        "_former",
        "_least",
        "_limited",
        "_long_s",
        "_lost",
        "_queued",
        "_samples",
        "_threshold",
        "clear",
        "size",
    )

    def __init__(self, long_s: float = math.inf) -> None:
        self._long_s = long_s
        self.size = float(WINDOW_FIRST)
        self._threshold = math.inf  # the size up to which the window doubles
        self._former: tuple[float, float] | None = None  # size and threshold before a timeout
        self.clear = False
        """Whether it is known of the last round that nothing queued."""
        self._queued = False  # in the last round
        self._begin()

    def _begin(self) -> None:
        self._arrived = 0
        self._samples = 0
        self._lost = 0
        self._limited = False
        self._least = math.inf

    def arrived(self, round_trip: float | None) -> None:
        """Count an acknowledged message, with its round trip in seconds if it was sent once."""
        self._arrived += 1
        if round_trip is not None:
            self._samples += 1
            if round_trip < self._least:
                self._least = round_trip
            if round_trip > self._long_s:
                self._threshold = self.size = max(self.size - 1, _WINDOW_MIN)

    def lost(self) -> None:
        """Count a lost message."""
        self._lost += 1

    def found(self) -> bool:
        """Note that a message taken for lost has arrived after all.

        Returns whether that was the first one since a timeout, which came too soon.
        """
        self._lost = max(0, self._lost - 1)
        if self._former is None:
            return False
        (self.size, self._threshold), self._former = self._former, None
        return True

    def limit(self) -> None:
        """Note that a larger window would have been used: only then does it grow."""
        self._limited = True

    def end_round(self, unhurried: float) -> None:
        """Adapt the size at the end of a round; round trips all above `unhurried` mean a queue."""
        arrived, lost = self._arrived, self._lost
        share = lost / (arrived + lost) if lost else 0.0
        known = self._samples >= _SAMPLES_MIN
        bound = min(unhurried, self._long_s) if known else self._long_s
        queues = self._samples > 0 and self._least > bound
        queued, self._queued = self._queued, queues
        self.clear = known and not queues
        too_far = share >= _TOO_FAR and lost >= _TOO_FAR_MIN
        if self.size < self._threshold and not queues and not too_far:
            if self._limited:
                self.size = min(self.size + arrived, self._threshold)
        elif queues:
            # A round that only the slowest were left for looks the same, once.
            self.size = self.size / 2 if lost and queued else self.size + self._limited
            self._threshold = self.size
        else:
            loss = share / 2 * self.size if share >= _TOO_MUCH else 0.0
            self.size += _STEP * self._limited - loss
            self._threshold = self.size
        self.size = max(self.size, _WINDOW_MIN)
        self._former = None
        self._begin()

    def collapse(self) -> None:
        """Begin again after a timeout, and double up to half of the former size."""
        if self._former is None:
            self._former = self.size, self._threshold
        self.clear = False
        self._threshold = max(self.size / 2, _WINDOW_MIN)
        self.size = float(_WINDOW_MIN)
        self._begin()

    def rest(self) -> None:
        """Halve the size after an idle time, as half of that knowledge is out of date."""
        self.size = max(self.size / 2, min(self.size, WINDOW_FIRST))

"""How far apart two sets are, judged by the fingerprints of one round."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

__all__ = ["Estimate"]

#: Above this share of unequal ranges, the share tells less than the counts do.
_SHARE_MAX = 0.8
_LOAD_MIN = 1.5


@dataclass(slots=True)
class Estimate:
    """Differences for each range, in the mean: from the share of unequal ranges, and from counts.

    If differences fall into ranges at random, `load` of them into each, a share of
    ``exp(-load)`` stays equal, and the differences of the two counts have a variance of `load`,
    whether one side lacks items or both do.
    """

    ranges: int = 0
    unequal: int = 0
    sum: int = 0
    sum_of_squares: int = 0

    def note(self, difference: int, equal: bool) -> None:
        """One more range; `difference` is our count less theirs."""
        self.ranges += 1
        self.unequal += not equal
        self.sum += difference
        self.sum_of_squares += difference * difference

    @property
    def load(self) -> float:
        """Differences in a range, in the mean of all."""
        if self.ranges == 0:
            return 0.0
        share = self.unequal / self.ranges
        if share < _SHARE_MAX:
            return -log(1 - share)
        mean = self.sum / self.ranges
        return max(_LOAD_MIN, self.sum_of_squares / self.ranges - mean * mean)

    @property
    def expected(self) -> float:
        """Differences in an unequal range, in the mean of these."""
        load = self.load
        return load / (1 - exp(-load)) if load > 0 else 1.0

    def differences(self, difference: int) -> float:
        """How many differences to expect in an unequal range with that difference of counts."""
        # Equal sums of different sets do not happen: an even difference means two at least.
        return max(abs(difference), 3 if difference % 2 else 2, self.expected)

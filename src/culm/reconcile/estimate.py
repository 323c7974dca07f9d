"""The distance of two sets, judged by the fingerprints of one round."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

#: Above this share of unequal ranges, the counts are the better estimate.
_SHARE_MAX = 0.8
_LOAD_MIN = 1.5


@dataclass(slots=True)
class Estimate:
    """The mean number of differences in a range, from the share of unequal ranges and from counts.

    If differences fall into ranges at random, with a mean of `load` for each, a share of
    ``exp(-load)`` of the ranges stays equal, and the differences of the two counts have a variance
    of `load`, whether one side lacks items or both do.
    """

    ranges: int = 0
    unequal: int = 0
    sum: int = 0
    sum_of_squares: int = 0

    def note(self, difference: int, equal: bool) -> None:
        """Note one more range; `difference` is our count minus theirs."""
        self.ranges += 1
        self.unequal += not equal
        self.sum += difference
        self.sum_of_squares += difference * difference

    @property
    def load(self) -> float:
        """The mean number of differences in all ranges."""
        if self.ranges == 0:
            return 0.0
        share = self.unequal / self.ranges
        if share < _SHARE_MAX:
            return -log(1 - share)
        mean = self.sum / self.ranges
        return max(_LOAD_MIN, self.sum_of_squares / self.ranges - mean * mean)

    @property
    def expected(self) -> float:
        """The mean number of differences in the unequal ranges."""
        load = self.load
        return load / (1 - exp(-load)) if load > 0 else 1.0

    def differences(self, difference: int) -> float:
        """The differences to expect in an unequal range whose counts differ by `difference`."""
        # Different sets do not have equal sums, so an even difference means at least two.
        return max(abs(difference), 3 if difference % 2 else 2, self.expected)

"""What the receiver of data wants of its sender."""

from __future__ import annotations

from dataclasses import dataclass

from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import EVERYTHING, Adjust, Eagerness, Proposal
from culm.wire.varu64 import MAX

__all__ = ["Demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What the receiver of a track wants of its sender.  Sizes in bytes."""

    eagerness: Eagerness = EVERYTHING
    skipping_allowed: bool = False
    size_min: int = 0
    size_max: int = MAX

    @classmethod
    def of(cls, proposal: Proposal) -> Demand:
        """What the proposing endpoint wants."""
        return cls(
            proposal.eagerness,
            not proposal.payload_mandatory,
            proposal.size_min,
            proposal.size_max,
        )

    def adjusted(self, adjust: Adjust) -> Demand:
        """The demand after an adjustment.

        Raises `Violation` if the minimum size decreases or the maximum increases.
        """
        size_min = self.size_min if adjust.size_min is None else adjust.size_min
        size_max = self.size_max if adjust.size_max is None else adjust.size_max
        if size_min < self.size_min:
            raise Violation(ErrorCode.SIZE_MIN_DECREASED, f"{self.size_min} to {size_min}")
        if size_max > self.size_max:
            raise Violation(ErrorCode.SIZE_MAX_INCREASED, f"{self.size_max} to {size_max}")
        return Demand(
            self.eagerness if adjust.eagerness is None else adjust.eagerness,
            self.skipping_allowed or adjust.allow_skipping,
            size_min,
            size_max,
        )

    def admits_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes is within the sizes of interest."""
        return self.size_min <= size <= self.size_max

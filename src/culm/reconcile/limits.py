"""What a compact session may take."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers

__all__ = ["RANGES_MIN", "Limits"]

#: A first round asks about no more.
RANGES_MIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a compact session, each with the memory that it implies.

    Raises `ValueError` for less than 4096 ranges.

    ranges_max
        Ranges that a round of the peer may ask about, rounded down to a power of two: about 120
        bytes for each in which the sets differ, and 8 for each id in the peer's lists.  Of those
        that we ask about, of which the peer decides, each takes some 60 bytes.  Once an honest
        side has asked about a quarter of them, it lists instead of splitting.
    """

    ranges_max: int = 1 << 20

    def __post_init__(self) -> None:
        check_numbers(self, low=RANGES_MIN)

"""The limits of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_int
from culm.kernels import symbols as _symbols

#: A first round asks about at most this number of ranges.
RANGES_MIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a compact session, each with the memory that it implies.

    Raises `ValueError` for fewer than 4096 ranges, and for more than 2**24 symbols.

    ranges_max
        Ranges that a round of the peer may ask about, rounded down to a power of two: about 120
        bytes for each in which the sets differ, and 8 for each id in the peer's lists.  Ranges that
        we ask about, whose number the peer limits, take some 60 bytes each.  The lower limit of
        the two sides holds for both: once an honest side has asked about a quarter of that, it
        lists instead of splitting.
    symbols_max
        Coded symbols that we make or receive in a rateless run: 16 bytes for each, and 25 more for
        each received.  If more are needed, a run of ranges takes its place.
    """

    ranges_max: int = 1 << 20
    symbols_max: int = 1 << 18

    def __post_init__(self) -> None:
        check_int("ranges_max", self.ranges_max, RANGES_MIN)
        check_int("symbols_max", self.symbols_max, 0, _symbols.SYMBOLS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Upper bounds of a session of abstract messages.  Raises `ValueError` for one below 1.

    rounds_max
        The greatest number of rounds of both sides; at least 2 more than `Parameters.list_from`, so
        that even a late list is answered.
    ranges_max
        The greatest number of ranges in a round of the peer: some 200 bytes, and two bounds, are
        held for each that differs, and 8 bytes for each of our items that the peer lists.  It
        bounds our own rounds as well: a range that cannot be split for that reason is listed.
    """

    rounds_max: int = 12
    ranges_max: int = 1 << 20

    def __post_init__(self) -> None:
        check_int("rounds_max", self.rounds_max, 1)
        check_int("ranges_max", self.ranges_max, 1)

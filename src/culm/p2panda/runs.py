"""Sets of numbers that mostly follow each other."""

from __future__ import annotations

from bisect import bisect_right

__all__ = ["Runs"]


class Runs:
    """A set of integers, kept as runs without a gap: a long one costs as much as a short one."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # the last number of each run

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number <= self._ends[at]

    def add(self, number: int) -> None:
        """Add a number, wherever it belongs."""
        starts, ends = self._starts, self._ends
        at = bisect_right(starts, number)
        if at and number <= ends[at - 1]:
            return
        behind = at > 0 and ends[at - 1] == number - 1
        before = at < len(starts) and starts[at] == number + 1
        if behind and before:
            ends[at - 1] = ends.pop(at)
            del starts[at]
        elif behind:
            ends[at - 1] = number
        elif before:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number)

    def forget(self, number: int) -> None:
        """Drop the runs that end with `number` at the latest."""
        count = bisect_right(self._ends, number)
        del self._starts[:count]
        del self._ends[:count]

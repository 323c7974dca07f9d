"""A set of integers that keeps runs of neighbours as one interval."""

from __future__ import annotations

from bisect import bisect_right


class Intervals:
    """A set of integers; memory is linear in the number of its runs."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number <= self._ends[index]

    def __len__(self) -> int:
        return len(self._starts)

    def runs(self) -> tuple[tuple[int, int], ...]:
        """First and last number of each run of neighbours."""
        return tuple(zip(self._starts, self._ends, strict=True))

    def add(self, number: int) -> None:
        starts, ends = self._starts, self._ends
        if ends and ends[-1] == number - 1:  # by far the most frequent case
            ends[-1] = number
            return
        if number in self:
            return
        index = bisect_right(starts, number)
        joins_left = index > 0 and ends[index - 1] == number - 1
        joins_right = index < len(starts) and starts[index] == number + 1
        if joins_left and joins_right:
            ends[index - 1] = ends.pop(index)
            del starts[index]
        elif joins_left:
            ends[index - 1] = number
        elif joins_right:
            starts[index] = number
        else:
            starts.insert(index, number)
            ends.insert(index, number)

    def add_run(self, first: int, last: int) -> None:
        """Add the numbers from `first` to `last`."""
        self.add(first)
        if self._ends[-1] == first:  # nothing is above it, nearly always
            self._ends[-1] = last
        else:
            for number in range(first + 1, last + 1):
                self.add(number)

    def discard(self, number: int) -> None:
        if number not in self:
            return
        index = bisect_right(self._starts, number) - 1
        start, end = self._starts.pop(index), self._ends.pop(index)
        if number < end:
            self._starts.insert(index, number + 1)
            self._ends.insert(index, end)
        if start < number:
            self._starts.insert(index, start)
            self._ends.insert(index, number - 1)

    def forget_until(self, number: int) -> None:
        """Forget the runs that end with `number` or before it."""
        count = bisect_right(self._ends, number)
        del self._starts[:count]
        del self._ends[:count]

    def keep_last(self, count: int) -> None:
        """Forget all but the `count` highest runs."""
        surplus = len(self._starts) - count
        if surplus > 0:
            del self._starts[:surplus]
            del self._ends[:surplus]

    def join_lowest(self, count: int) -> None:
        """Join the lowest runs, with all that lies between them, until there are `count` runs."""
        surplus = len(self._starts) - count
        if surplus > 0:
            del self._starts[1 : surplus + 1]
            del self._ends[:surplus]

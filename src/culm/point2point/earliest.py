"""Who came first among those whose number is within a range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Earliest"]

# A block of twice as many is split.  All that is done within one is done by a list.
_BLOCK_SIZE = 512

_NEVER = 1 << 64


class _Block:
    """Pairs that follow each other, in the order of their numbers, then of their times."""

    __slots__ = ("numbers", "times")

    def __init__(self, numbers: list[int], times: list[int]) -> None:
        self.numbers = numbers
        self.times = times

    @property
    def lowest(self) -> tuple[int, int]:
        return self.numbers[0], self.times[0]

    @property
    def came_first(self) -> int:
        return min(self.times)

    def find(self, number: int, time: int) -> int:
        """Where that pair is, or belongs."""
        low = bisect_left(self.numbers, number)
        return bisect_left(self.times, time, low, bisect_right(self.numbers, number, low))

    def first(self, low: int, high: int) -> int:
        at = bisect_left(self.numbers, low)
        return min(self.times[at : bisect_right(self.numbers, high, at)], default=_NEVER)

    def upper_half(self) -> _Block:
        """Split it; the rest is left."""
        middle = len(self.numbers) // 2
        upper = _Block(self.numbers[middle:], self.times[middle:])
        del self.numbers[middle:]
        del self.times[middle:]
        return upper


class Earliest:
    """Pairs of a number and the time at which it came; no time twice.

    A call costs what it costs a list of some hundred, and a thousandth of a step for each pair.
    """

    __slots__ = ("_blocks", "_firsts", "_lows")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._lows: list[tuple[int, int]] = []  # of each block, the lowest pair
        self._firsts: list[int] = []  # of each block, the smallest time

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, number: int, time: int) -> None:
        """Put a pair in, which is not there."""
        if not self._blocks:
            self._put(0, _Block([number], [time]))
            return
        index = self._index(number, time)
        block = self._blocks[index]
        at = block.find(number, time)
        block.numbers.insert(at, number)
        block.times.insert(at, time)
        self._lows[index] = block.lowest
        self._firsts[index] = min(self._firsts[index], time)
        if len(block.numbers) > 2 * _BLOCK_SIZE:
            self._put(index + 1, block.upper_half())
            self._firsts[index] = block.came_first

    def remove(self, number: int, time: int) -> None:
        """Take a pair out, which is there."""
        index = self._index(number, time)
        block = self._blocks[index]
        at = block.find(number, time)
        del block.numbers[at]
        del block.times[at]
        if block.numbers:
            self._lows[index], self._firsts[index] = block.lowest, block.came_first
        else:
            del self._blocks[index], self._lows[index], self._firsts[index]

    def first(self, low: int, high: int) -> int | None:
        """The smallest time of the numbers from `low` to `high`."""
        if not self._blocks:
            return None
        begin, end = self._index(low, 0), self._index(high, _NEVER)
        found = min(
            self._blocks[begin].first(low, high),
            self._blocks[end].first(low, high),
            min(self._firsts[begin + 1 : end], default=_NEVER),
        )
        return None if found == _NEVER else found

    def _index(self, number: int, time: int) -> int:
        """In which block that pair is, or belongs."""
        return max(0, bisect_right(self._lows, (number, time)) - 1)

    def _put(self, index: int, block: _Block) -> None:
        self._blocks.insert(index, block)
        self._lows.insert(index, block.lowest)
        self._firsts.insert(index, block.came_first)

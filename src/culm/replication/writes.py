"""What is on its way into a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

__all__ = ["Write", "Writes"]

T = TypeVar("T")


class Write(Generic[T]):
    """What goes into the store in one go, in order."""

    __slots__ = ("full", "items", "size")

    def __init__(self) -> None:
        self.items: list[T] = []
        self.size = 0
        self.full = False
        """Nothing more goes with it."""

    @staticmethod
    def of(items: Sequence[T], size: int) -> Write[T]:
        """A write of just these items."""
        write = Write[T]()
        write.items, write.size, write.full = list(items), size, True
        return write

    def fill(self, items: Sequence[T], sizes: Sequence[int], size_max: int, count_max: int) -> int:
        """Take the first of the items, at least one, until it is full; returns how many."""
        size, count, room = self.size, 0, count_max - len(self.items)
        for more in sizes:
            size += more
            count += 1
            if size >= size_max or count >= room:
                self.full = True
                break
        self.items += items[:count]
        self.size = size
        return count

    def add(self, item: T, size: int, size_max: int, count_max: int) -> None:
        """Take an item, unless it is full."""
        self.items.append(item)
        self.size += size
        self.full = self.size >= size_max or len(self.items) >= count_max

    def append(self, item: T) -> None:
        """Take an item that is the last, however full it is."""
        self.items.append(item)
        self.full = True

    def close(self) -> None:
        self.full = True


class Writes(Generic[T]):
    """Items on their way into a store, in order: one write at a time, of as many as fit together.

    Items gather while a write is under way.  So a slow store gets few large writes, and a fast one
    gets small ones early.

    size_max, count_max
        The item that reaches one of them is the last of its write.
    """

    __slots__ = ("_count_max", "_size_max", "_under_way", "_waiting")

    def __init__(self, *, size_max: int, count_max: int) -> None:
        self._size_max = size_max
        self._count_max = count_max
        self._waiting: deque[Write[T]] = deque()
        self._under_way = False

    def __bool__(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the last write that waits is as large as it gets."""
        return bool(self._waiting) and self._waiting[-1].full

    @property
    def first(self) -> T | None:
        """The item that comes next, unless a write is under way."""
        return None if self._under_way or not self._waiting else self._waiting[0].items[0]

    def add(self, item: T, size: int) -> bool:
        """Take an item; returns whether it begins another write."""
        begins = not self._waiting or self._waiting[-1].full
        if begins:
            self._waiting.append(Write())
        self._waiting[-1].add(item, size, self._size_max, self._count_max)
        return begins

    def extend(self, items: Sequence[T], sizes: Sequence[int]) -> int:
        """Take items of these sizes; returns how many writes they begin."""
        begun = 0
        while items:
            if not self._waiting or self._waiting[-1].full:
                self._waiting.append(Write())
                begun += 1
            count = self._waiting[-1].fill(items, sizes, self._size_max, self._count_max)
            items, sizes = items[count:], sizes[count:]
        return begun

    def add_last(self, item: T) -> None:
        """Take an item that goes with the one before it, and is the last of that write."""
        self._waiting[-1].append(item)

    def put_back(self, items: Sequence[T], size: int) -> None:
        """Let these have their turn again, in a write of their own, before all others.

        They belong to the write that is under way, which ends without them.
        """
        if items:
            self._waiting.appendleft(Write.of(items, size))

    def close(self) -> None:
        """What comes from now on goes into another write."""
        if self._waiting:
            self._waiting[-1].close()

    def next(self) -> Write[T] | None:
        """The next write, unless one is under way; `done` follows."""
        if self._under_way or not self._waiting:
            return None
        self._under_way = True
        return self._waiting.popleft()

    def done(self) -> None:
        """The write that was under way has come to its end."""
        self._under_way = False

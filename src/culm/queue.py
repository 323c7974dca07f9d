"""First in, first out, for queues that are empty most of the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: Shared by all that are empty: it takes nothing in.
NOTHING: Final[deque[Any]] = deque(maxlen=0)


class Queue(Generic[T]):
    """A `deque` as long as anything is in it.

    An empty `deque` takes 760 bytes, and an idle machine has ten of them; this takes 40.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: deque[T] = deque(items) or NOTHING

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __getitem__(self, index: int) -> T:
        return self._items[index]

    def append(self, item: T) -> None:
        """Add an item at the end."""
        if self._items:
            self._items.append(item)
        else:
            self._items = deque((item,))

    def appendleft(self, item: T) -> None:
        """Add an item at the front."""
        if self._items:
            self._items.appendleft(item)
        else:
            self._items = deque((item,))

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end, in order."""
        if self._items:
            self._items.extend(items)
        else:
            self._items = deque(items) or NOTHING

    def popleft(self) -> T:
        """Take the first item; raises `IndexError` if there is none."""
        items = self._items
        item = items.popleft()
        if not items:
            self._items = NOTHING
        return item

    def pop(self) -> T:
        """Take the last item; raises `IndexError` if there is none."""
        items = self._items
        item = items.pop()
        if not items:
            self._items = NOTHING
        return item

    def clear(self) -> None:
        """Drop all items."""
        self._items = NOTHING

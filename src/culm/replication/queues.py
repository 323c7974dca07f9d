"""Turns, room for reads, and writes in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from culm.buffer import Queue, take_first

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Turns(Generic[K]):
    """Those that may have something to do take turns, in the order in which they came.

    One that has just got something new does not wait for those that go on and on, and they wait
    for no more than one of these.
    """

    __slots__ = ("_fresh", "_fresh_had_turn", "_going_on")

    def __init__(self) -> None:
        # Keys taken from the front of a dict would have to be passed over every time after that.
        self._fresh: OrderedDict[K, None] = OrderedDict()
        self._going_on: OrderedDict[K, None] = OrderedDict()
        self._fresh_had_turn = False

    def __bool__(self) -> bool:
        return bool(self._fresh or self._going_on)

    def __contains__(self, key: object) -> bool:
        return key in self._fresh or key in self._going_on

    def add(self, key: K, *, fresh: bool = True) -> None:
        """Give it a turn, unless it waits for one; `fresh`: because of something new."""
        if key not in self:
            queue = self._fresh if fresh else self._going_on
            queue[key] = None

    def go_on(self, key: K) -> None:
        """It has had its turn, and there may be more."""
        self._fresh.pop(key, None)
        self._going_on[key] = None

    def discard(self, key: K) -> None:
        self._fresh.pop(key, None)
        self._going_on.pop(key, None)

    def first(self) -> K:
        """The one whose turn is next; there has to be one."""
        return next(iter(self._queue()))

    def take(self) -> K:
        """The same; it has had its turn then."""
        queue = self._queue()
        self._fresh_had_turn = queue is self._fresh
        return take_first(queue)[0]

    def _queue(self) -> OrderedDict[K, None]:
        if self._fresh and not (self._going_on and self._fresh_had_turn):
            return self._fresh
        return self._going_on


class Room(Generic[K]):
    """Shares out `size_max` bytes: a reader that asks gets up to half of the free ones.

    So there is something left for those that come later, down to `read_size_max`, which a single
    read may bring however little was asked for.  When there is less than that, readers wait for
    each other, in order: each gets a turn when there is room again.  One read is always possible.
    """

    __slots__ = ("_called", "_held", "_read_size_max", "_size", "_size_max", "_turns", "_waiting")

    def __init__(self, turns: Turns[K], *, size_max: int, read_size_max: int) -> None:
        self._turns = turns
        self._size_max = size_max
        self._read_size_max = read_size_max
        self._held: dict[K, int] = {}
        self._size = 0
        self._waiting: dict[K, None] = {}
        self._called: set[K] = set()  # they have got turns because of room, and not asked since

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._size

    def awaits(self, key: K) -> bool:
        """Whether it waits for room."""
        return key in self._waiting

    def claim(self, key: K, size: int, *, lasting: bool = False) -> int:
        """Room for a read in place of the bytes held: `size` of them, or less.

        0 if there is none for the moment.  `lasting`: for something that takes long; it leaves a
        quarter of the whole to others.
        """
        others = self._size - self._held.get(key, 0)
        free = self._size_max - others - (self._size_max // 4 if lasting else 0)
        share = max(min(size, free // 2), self._read_size_max)
        self._called.discard(key)
        if share > free and others:
            self.hold(key, 0)
            self._waiting[key] = None
            return 0
        self._waiting.pop(key, None)
        self.hold(key, share)
        return share

    def hold(self, key: K, size: int) -> None:
        """Note the size that it holds now; others get turns as far as there is room."""
        before = self._held.pop(key, 0)
        if size:
            self._held[key] = size
        self._size += size - before
        if size < before:
            self._give_turns()

    def _give_turns(self) -> None:
        places = max((self._size_max - self._size) // self._read_size_max, self._size == 0)
        for waiting in list(islice(self._waiting, max(0, places - len(self._called)))):
            del self._waiting[waiting]
            self._called.add(waiting)
            self._turns.add(waiting, fresh=False)

    def forget(self, key: K) -> None:
        """It reads no more for now; a turn that it was given goes to another."""
        self._waiting.pop(key, None)
        self._called.discard(key)
        self._size -= self._held.pop(key, 0)
        self._give_turns()


class Write(Generic[T]):
    """Items that go into the store in one go, in order."""

    __slots__ = ("full", "items", "size")

    def __init__(self, items: Sequence[T] = (), size: int = 0, *, full: bool = False) -> None:
        self.items: list[T] = list(items)
        self.size = size
        self.full = full
        """Nothing more goes with it."""

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
        self._waiting: Queue[Write[T]] = Queue()
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
            self._waiting.appendleft(Write(items, size, full=True))

    def close(self) -> None:
        """Later items go into another write."""
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

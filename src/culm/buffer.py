"""Queues of bytes, which have come in or wait to be taken, and of things, most often none."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")
K = TypeVar("K")


def check_buffer(data: Buffer) -> None:
    """Raise `TypeError` unless `data` is a buffer; for callers that discard it."""
    if type(data) is not bytes:
        memoryview(data)


def check_size_max(size_max: object) -> None:
    """Raise `TypeError` or `ValueError` unless `size_max` is a number of bytes or ``None``."""
    if size_max is None:
        return
    if not isinstance(size_max, int):
        raise TypeError(f"size_max must be int or None, not {type(size_max).__name__}")
    if size_max < 0:
        raise ValueError(f"size_max must be at least 0, not {size_max}")


# A buffer may occupy this many times the size of its content.
_WASTE_MAX = 4


class ReceiveBuffer:
    """Bytes received and not yet consumed; index 0 is the oldest of them.

    Appending and consuming take time linear in the bytes moved, whatever the sizes of the
    pieces, and the content takes at most about four times its size in memory.  Bytes that
    come into an empty buffer are kept as they are, and not copied before they are taken.

    `size` is their number.
    """

    __slots__ = ("_backing_size", "_data", "_start", "size")

    def __init__(self) -> None:
        # Either bytes as they came, consumed up to _start, or a bytearray, which drops bytes
        # at its front by moving its start, and the rest once half of its memory is free.
        self._data: Buffer = b""
        self._start = 0
        self._backing_size = 0  # of the bytes that _data may be a view of
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index < 0:
            raise IndexError(index)
        return self._data[self._start + index]

    def append(self, data: Buffer) -> None:
        if not self.size:
            self._keep(data if _is_lasting(data) else _copied(data))
            return
        kept = self._data
        if self.size <= len(data) and type(data) is bytes:
            self._keep(b"".join((memoryview(kept)[self._start :], data)))
            return
        if type(kept) is not bytearray:
            kept = bytearray(memoryview(kept)[self._start :])
        kept += data
        self._keep(kept)

    def _keep(self, data: Buffer) -> None:
        self._data, self._start, self.size = data, 0, len(data)
        self._backing_size = _backing_size_of(data)

    def peek(self, size: int, offset: int = 0) -> bytes:
        """Copy at most `size` bytes from `offset` on without consuming them."""
        start = self._start + offset
        if type(self._data) is bytes:
            return self._data[start : start + size]
        return bytes(memoryview(self._data)[start : start + size])

    def view(self) -> memoryview:
        """All bytes, not copied; release it (``with``) before the buffer is used again."""
        return memoryview(self._data)[self._start :]

    def find(self, needle: bytes, offset: int = 0, size_max: int | None = None) -> int:
        """Index of the first `needle` within ``[offset, size_max)``, or -1."""
        data = self._data
        if isinstance(data, memoryview):
            data = bytes(data[self._start :])
            self._keep(data)
        end = None if size_max is None else self._start + size_max
        found = data.find(needle, self._start + offset, end)
        return found if found < 0 else found - self._start

    def take(self, size: int) -> bytes:
        """Consume and return at most `size` bytes."""
        data = self.peek(size)
        self.consume(size)
        return data

    def take_view(self, size: int) -> bytes | memoryview:
        """Like `take`, for callers that use the bytes at once: copied only where needed."""
        data, start = self._data, self._start
        whole = type(data) is bytes and not start and size >= len(data)  # not copied, either
        if whole or type(data) is bytearray:
            return self.take(size)
        self.consume(size)
        return memoryview(data)[start : start + size]

    def consume(self, size: int) -> None:
        """Drop the `size` oldest bytes, or all if there are fewer."""
        if size >= self.size:
            self.clear()
            return
        self.size -= size
        if type(self._data) is bytearray:
            del self._data[:size]
            return
        self._start += size
        if _WASTE_MAX * self.size < self._backing_size:
            self._keep(bytes(self._data[self._start :]))

    def clear(self) -> None:
        self._data, self._start, self._backing_size, self.size = b"", 0, 0, 0


def _is_lasting(data: Buffer) -> bool:
    """Whether `data` cannot change, and keeping it does not keep much else alive."""
    if type(data) is bytes:
        return True
    if not isinstance(data, memoryview) or type(data.obj) is not bytes:
        return False
    plain = data.c_contiguous and data.format == "B" and data.ndim == 1
    return plain and _backing_size_of(data) <= _WASTE_MAX * len(data)


def _backing_size_of(data: Buffer) -> int:
    """How many bytes `data` keeps alive, as it may be a view of a part of them."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)


def _copied(data: Buffer) -> bytearray:
    copy = bytearray()
    copy += data  # takes buffers only, and their bytes, whatever their items are
    return copy


_SMALL_SIZE_MAX = 32  # an object of its own takes more than that, on top of the piece

LARGE_SIZE_MIN = 1 << 19
"""From this size on a copy takes longer than another call: such a piece leaves by itself."""


class _Joined(bytearray):
    """Small pieces joined to one, to which more can be added until it is taken."""

    __slots__ = ()


def is_large(data: Buffer) -> bool:
    """Whether these bytes leave by themselves, and so need not be copied."""
    return len(data) >= LARGE_SIZE_MIN and type(data) is bytes


class Outbox:
    """Bytes on their way out, in order.  Pieces are kept as they came; only small ones are joined.

    `size` is their number.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[Buffer] = []  # many are empty, and a deque would be ten times as large
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def append(self, data: Buffer) -> None:
        """Queue `data`, which the caller must not change afterwards."""
        # TypeError now rather than in `take`
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        if not size:
            return
        if size > _SMALL_SIZE_MAX or not self._join(data):
            # A view is cut by bytes, whatever its items are.
            plain = isinstance(data, (bytes, bytearray))
            self._pieces.append(data if plain else memoryview(data).cast("B"))
        self.size += size

    def _join(self, data: Buffer) -> bool:
        """Add `data` to the last piece, if that is a small one."""
        last = self._pieces[-1] if self._pieces else None
        if type(last) is _Joined:
            last += data
            return True
        if last is None or len(last) > _SMALL_SIZE_MAX:
            return False
        self._pieces[-1] = joined = _Joined(last)
        joined += data
        return True

    def take(self, size_max: int | None = None) -> bytes:
        """Remove and return at most `size_max` bytes (everything by default)."""
        return b"".join(self.take_pieces(size_max))

    def take_part(self, size_max: int | None = None) -> bytes:
        """Like `take`, but within `size_max` a large piece leaves by itself, not copied."""
        if size_max is not None and min(size_max, self.size) >= LARGE_SIZE_MIN:
            size_max = self.first_size(size_max)
        return self.take(size_max)

    def first_size(self, size_max: int) -> int:
        """The size of the bytes before a large piece, or of that piece, if it fits by itself."""
        before = 0
        for piece in self._pieces:
            size = len(piece)
            if size <= size_max and is_large(piece):
                return before or size
            before += size
            if before >= size_max:
                break
        return size_max

    def take_pieces(self, size_max: int | None = None) -> list[Buffer]:
        """Like `take`, but leave the bytes in their pieces, cut and not copied."""
        pieces = self._pieces
        if size_max is None or size_max >= self.size:
            self._pieces, self.size = [], 0
            return pieces
        wanted, count = max(0, size_max), 0
        self.size -= wanted
        while wanted and len(pieces[count]) <= wanted:
            wanted -= len(pieces[count])
            count += 1
        parts = pieces[:count]
        del pieces[:count]
        if wanted:
            cut = memoryview(pieces[0])
            parts.append(cut[:wanted])
            pieces[0] = cut[wanted:]
        return parts

    def clear(self) -> None:
        self._pieces.clear()
        self.size = 0


#: Shared by all that are empty: it takes nothing in.  `StoreWork` and a read-ahead, through which
#: each entry goes, put it in the place of a `deque` by hand: a `Queue` costs 1 to 4 % of a path.
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


def take_first(waiting: OrderedDict[K, T]) -> tuple[K, T]:
    """Take the first waiting item, with its key; raises `KeyError` if there is none."""
    first = waiting.popitem(last=False)
    if not waiting:
        waiting.clear()  # gives its table back, as most are idle
    return first

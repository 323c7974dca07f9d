"""Datagrams that have come in and are not looked at yet."""

from __future__ import annotations

from collections import deque

from culm.buffer import Buffer

__all__ = ["Inbox"]


class Inbox:
    """Datagrams with their sources, of at most `size_max` bytes together."""

    __slots__ = ("_datagrams", "_size", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._datagrams: deque[tuple[bytes, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._datagrams)

    def put(self, source: bytes, data: Buffer) -> bool:
        """Keep a datagram; false if there is no room for it."""
        view = memoryview(data)
        if self._size + view.nbytes > self._size_max:
            return False
        self._datagrams.append((source, bytes(view)))
        self._size += view.nbytes
        return True

    def take(self) -> tuple[bytes, bytes]:
        """The oldest datagram."""
        source, data = self._datagrams.popleft()
        self._size -= len(data)
        return source, data

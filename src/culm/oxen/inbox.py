"""Datagrams received and not yet processed."""

from __future__ import annotations

from collections import deque

from culm.buffer import Buffer

DATAGRAM_OVERHEAD = 160
"""Bytes for the objects around a waiting datagram, beyond its own bytes and its source's."""


class Inbox:
    """Datagrams with their sources, of at most `size_max` bytes together, overhead included."""

    __slots__ = ("_datagrams", "_size", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._datagrams: deque[tuple[bytes, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._datagrams)

    def put(self, source: bytes, data: Buffer) -> bool:
        """Keep a datagram; false if there is no room for it."""
        data_size = len(data) if type(data) is bytes else memoryview(data).nbytes
        size = self._size + data_size + len(source) + DATAGRAM_OVERHEAD
        if size > self._size_max:
            return False
        self._datagrams.append((source, data if type(data) is bytes else bytes(memoryview(data))))
        self._size = size
        return True

    def take(self) -> tuple[bytes, bytes] | None:
        """Take the oldest datagram, if there is one."""
        if not self._datagrams:
            return None
        datagram = self._datagrams.popleft()
        source, data = datagram
        self._size -= len(data) + len(source) + DATAGRAM_OVERHEAD
        return datagram

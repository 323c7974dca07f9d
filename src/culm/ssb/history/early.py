"""Messages that come before their turn."""

from __future__ import annotations

from typing import Final

from culm.arguments import check_int

__all__ = ["Early", "EarlyRoom"]

_OVERHEAD: Final = 256  # bytes of a message besides its data


class EarlyRoom:
    """The room of all connections together for messages that come before their turn.

    size_max: bytes that they may hold; each message counts 256 bytes more than its size.

    A connection may hold as much as is free: one alone takes half of the room, two take a third
    each, and the room left for another one is always as large as each of their parts.
    """

    def __init__(self, *, size_max: int = 1 << 23) -> None:
        check_int("size_max", size_max, 1)
        self.size = 0
        self._size_max = size_max

    def take(self, size: int, *, held: int) -> bool:
        """Take `size` bytes for a connection that holds `held`; false if there is no room."""
        if held + size > self._size_max - self.size - size:
            return False
        self.size += size
        return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.size -= size


class Early:
    """The early messages of one connection, which are not verified yet."""

    def __init__(self, room: EarlyRoom) -> None:
        self._room = room
        self._size = 0
        self._feeds: dict[str, dict[int, bytes]] = {}  # by sequence

    def has(self, feed: str) -> bool:
        """Whether a message of the feed waits for its turn."""
        return feed in self._feeds

    def keep(self, feed: str, sequence: int, data: bytes) -> bool:
        """Keep a message; false if there is no room."""
        self._remove(feed, sequence)
        size = len(data) + _OVERHEAD
        if not self._room.take(size, held=self._size):
            return False
        self._feeds.setdefault(feed, {})[sequence] = data
        self._size += size
        return True

    def take(self, feed: str, first: int) -> list[bytes]:
        """Take the messages from sequence `first` on that are next; earlier ones are dropped."""
        for sequence in [each for each in self._feeds.get(feed, ()) if each < first]:
            self._remove(feed, sequence)
        found: list[bytes] = []
        while (data := self._remove(feed, first + len(found))) is not None:
            found.append(data)
        return found

    def drop(self, feed: str) -> None:
        """Drop all messages of a feed."""
        for sequence in list(self._feeds.get(feed, ())):
            self._remove(feed, sequence)

    def clear(self) -> None:
        """Drop all messages."""
        self._feeds.clear()
        self._give(self._size)

    def _remove(self, feed: str, sequence: int) -> bytes | None:
        waiting = self._feeds.get(feed, {})
        data = waiting.pop(sequence, None)
        if data is not None:
            self._give(len(data) + _OVERHEAD)
            if not waiting:
                del self._feeds[feed]
        return data

    def _give(self, size: int) -> None:
        self._size -= size
        self._room.give(size)

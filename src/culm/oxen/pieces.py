"""Messages larger than a datagram: cut into pieces in a row, and put together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from culm.oxen.errors import DropReason
from culm.oxen.events import Delivery
from culm.oxen.messages import Piece, Position

__all__ = ["Assemblies", "cut"]


def cut(data: bytes, size: int) -> Iterator[tuple[Position, bytes]]:
    """The two or more pieces of `data`, each of at most `size` bytes."""
    yield Position.FIRST, data[:size]
    last = (len(data) - 1) // size * size
    for at in range(size, last, size):
        yield Position.MIDDLE, data[at : at + size]
    yield Position.LAST, data[last:]


class _Assembly:
    """One message, of which some pieces have come, or none yet."""

    __slots__ = ("_data", "_next")

    def __init__(self) -> None:
        self._data: bytearray | None = None
        self._next = 0

    def continues(self, sequence: int) -> bool:
        """Whether the message of number `sequence` may continue something."""
        return self._data is not None and sequence == self._next

    def add(self, piece: Piece, size_max: int) -> bytes | None:
        """Take the next piece; returns the whole message if that was the last one.

        Raises `ValueError` for one that continues nothing, or makes the message too large: it is
        lost then, with all that still comes of it.
        """
        if piece.position is Position.FIRST:
            self._data = bytearray()
        elif self._data is None or piece.sequence != self._next:
            self._data = None
            raise ValueError("nothing to be continued")
        if len(self._data) + len(piece.data) > size_max:
            self._data = None
            raise ValueError("too large")
        self._data += piece.data
        self._next = piece.sequence + 1
        if piece.position is not Position.LAST:
            return None
        data, self._data = bytes(self._data), None
        return data


class Assemblies:
    """Messages that are put together of pieces: a place for each stream of each peer.

    A stream has its place from its first piece until nothing waits for more of them. Whoever has a
    place can finish what it has begun, so those that have to wait do not wait for each other.

    size_max: bytes of one message; 0 if none may come in pieces.
    count_max: how many there may be at the same time.
    """

    def __init__(self, *, size_max: int, count_max: int, dropped: Counter[DropReason]) -> None:
        self.size_max = size_max
        self._count_max = count_max
        self._dropped = dropped
        self.held: dict[tuple[bytes, Delivery], _Assembly] = {}

    def admit(self, sid: bytes, delivery: Delivery) -> bool:
        """Find a place for that stream of `sid`; false if there is none."""
        key = sid, delivery
        if key not in self.held:
            if len(self.held) >= self._count_max:
                return False
            self.held[key] = _Assembly()
        return True

    def add(self, sid: bytes, delivery: Delivery, piece: Piece) -> bytes | None:
        """Take a piece whose turn it is; returns the whole message if it is complete now."""
        try:
            return self.held[sid, delivery].add(piece, self.size_max)
        except ValueError:
            self._dropped[DropReason.INCOMPLETE] += 1
            return None

    def settle(self, sid: bytes, delivery: Delivery, position: int) -> None:
        """Nothing of that stream waits for its turn behind `position`, its last number so far.

        It needs its place no longer, unless for a message that the next number may continue.
        """
        assembly = self.held.get((sid, delivery))
        if assembly is not None and not assembly.continues(position + 1):
            del self.held[sid, delivery]

    def remove(self, sid: bytes) -> None:
        """Nothing continues what has come of `sid`."""
        for delivery in Delivery:
            self.held.pop((sid, delivery), None)

    def holders(self) -> set[bytes]:
        """The peers that have a place."""
        return {sid for sid, _ in self.held}

"""Messages larger than a datagram: cut into pieces in a row, and put together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from culm.oxen.errors import DropReason
from culm.oxen.events import Delivery
from culm.oxen.messages import Piece, Position

__all__ = ["Assemblies", "cut"]


def cut(data: bytes, size: int) -> Iterator[tuple[Position, bytes]]:
    """The pieces of `data`, two or more, each of at most `size` bytes."""
    yield Position.FIRST, data[:size]
    last = (len(data) - 1) // size * size
    for at in range(size, last, size):
        yield Position.MIDDLE, data[at : at + size]
    yield Position.LAST, data[last:]


class _Assembly:
    """One message of which some pieces are there, or none yet."""

    __slots__ = ("_data", "_next")

    def __init__(self) -> None:
        self._data: bytearray | None = None
        self._next = 0

    def continues(self, sequence: int) -> bool:
        """Whether something is there that the message of number `sequence` may continue."""
        return self._data is not None and sequence == self._next

    def add(self, piece: Piece, size_max: int) -> bytes | None:
        """Take the next piece: the whole message, if that was the last of it.

        Raises `ValueError` for one that continues nothing, or makes it too large: the message
        is lost with all that still comes of it.
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
    """What is put together of pieces, by peers and their streams: a place for each.

    A stream has its place from its first piece until nothing is there that waits for more. Who has
    one can finish what it has begun, so those who have to wait do not wait for each other.

    size_max: bytes of one message; 0 if none is to come in pieces.
    count_max: how many there are at the same time.
    """

    def __init__(self, *, size_max: int, count_max: int, dropped: Counter[DropReason]) -> None:
        self.size_max = size_max
        self._count_max = count_max
        self._dropped = dropped
        self.held: dict[tuple[bytes, Delivery], _Assembly] = {}

    def admit(self, sid: bytes, delivery: Delivery) -> bool:
        """Have a place for that stream of `sid`; false if there is none."""
        key = sid, delivery
        if key not in self.held:
            if len(self.held) >= self._count_max:
                return False
            self.held[key] = _Assembly()
        return True

    def add(self, sid: bytes, delivery: Delivery, piece: Piece) -> bytes | None:
        """Take a piece whose turn it is: the whole message, if it is complete now."""
        try:
            return self.held[sid, delivery].add(piece, self.size_max)
        except ValueError:
            self._dropped[DropReason.INCOMPLETE] += 1
            return None

    def settle(self, sid: bytes, delivery: Delivery, position: int) -> None:
        """Nothing of that stream waits for its turn behind `position`, its last number so far.

        It needs no place any more, unless for a message that the next number may continue.
        """
        assembly = self.held.get((sid, delivery))
        if assembly is not None and not assembly.continues(position + 1):
            del self.held[sid, delivery]

    def remove(self, sid: bytes) -> None:
        """What has come of `sid` is continued by nothing."""
        for delivery in Delivery:
            self.held.pop((sid, delivery), None)

    def holders(self) -> set[bytes]:
        """The peers that have a place."""
        return {sid for sid, _ in self.held}

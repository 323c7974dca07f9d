"""Messages larger than a datagram: cut into pieces in a row, and put together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from culm.oxen.errors import DropReason
from culm.oxen.events import Delivery
from culm.oxen.messages import Piece, Position, write_message
from culm.wire.xenc import Value


def cut(data: bytes, size: int) -> Iterator[tuple[Position, bytes]]:
    """The two or more pieces of `data`, each of at most `size` bytes."""
    yield Position.FIRST, data[:size]
    last = (len(data) - 1) // size * size
    for at in range(size, last, size):
        yield Position.MIDDLE, data[at : at + size]
    yield Position.LAST, data[last:]


def cut_broadcast(
    data: bytes, size: int, number: int, next_sequence: Callable[[], int]
) -> list[tuple[int, int, Value]]:
    """The encoded pieces of a broadcast, each after two numbers: the caller's, which is 0 except
    for the last piece, and its own."""
    parts: list[tuple[int, int, Value]] = []
    for position, piece in cut(data, size):
        sequence = next_sequence()
        d = write_message(Piece(b"b", sequence, position, piece))
        parts.append((number if position is Position.LAST else 0, sequence, d))
    return parts


class _Assembly:
    """One message, of which some pieces have arrived, or none yet."""

    __slots__ = ("_data", "_next", "latest")

    def __init__(self) -> None:
        self._data: bytearray | None = None
        self._next = 0
        self.latest = 0
        """The number of the first piece of the latest message that was admitted."""

    @property
    def begun(self) -> bool:
        """Whether some pieces of a message have come, but not all."""
        return self._data is not None

    def continues(self, sequence: int) -> bool:
        """Whether a piece of number `sequence` continues the message."""
        return self._data is not None and sequence == self._next

    def add(self, piece: Piece, size_max: int) -> bytes | None:
        """Take the next piece; returns the whole message if that was the last one.

        Raises `ValueError` if it continues nothing, or makes the message too large: the message is
        then lost, and so are all its pieces that follow.
        """
        if piece.position is Position.FIRST:
            self._data = bytearray()
        elif self._data is None or piece.sequence != self._next:  # nor does anything later
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


Key: TypeAlias = tuple[bytes, Delivery]
"""A stream of a peer."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A stream that waits for a place, with the number of its message's first piece."""

    sequence: int
    heard: float
    told: bool = False


class Assemblies:
    """Messages that are put together from pieces: a place for each stream of each peer.

    A stream has its place from the first piece of a message until the message is complete, and for
    the next message if that has begun and no other stream waits.  A stream with a place can finish
    its message, so waiting streams never wait for each other; they get places in the order in
    which they have asked.

    size_max: bytes of one message; 0 turns pieces off.
    count_max: messages at the same time.
    patience_s: time without a request after which a stream loses its turn.
    """

    def __init__(
        self, *, size_max: int, count_max: int, patience_s: float, dropped: Counter[DropReason]
    ) -> None:
        self.size_max = size_max
        self._count_max = count_max
        self._patience_s = patience_s
        self._dropped = dropped
        self.held: dict[Key, _Assembly] = {}
        self.queue: dict[Key, _Turn] = {}
        """Streams that wait for a place, in the order in which they have asked."""

    def admit(self, key: Key, sequence: int, now: float) -> bool:
        """Find a place for the message of stream `key` that begins with number `sequence`.

        Without a place it waits for its turn.
        """
        assembly = self.held.get(key)
        if assembly is None and self._is_next(key):
            self.held[key] = assembly = _Assembly()
            self.queue.pop(key, None)
        elif assembly is None or (sequence > assembly.latest and self._others_wait(key)):
            self.queue[key] = _Turn(sequence, now)
            return False
        assembly.latest = max(assembly.latest, sequence)
        return True

    def _is_next(self, key: Key) -> bool:
        free = self._count_max - len(self.held)
        return len(self.queue) < free or key in islice(self.queue, free)

    def _others_wait(self, key: Key) -> bool:
        return len(self.queue) > (key in self.queue)

    def waits(self, key: Key, sequence: int) -> bool:
        """Whether the message that begins with that number waits for its turn."""
        turn = self.queue.get(key)
        return turn is not None and turn.sequence == sequence

    def invite(self) -> list[tuple[Key, int]]:
        """Take the streams to be told that it is their turn, with the numbers of their messages."""
        free = self._count_max - len(self.held)
        found = [(key, turn) for key, turn in islice(self.queue.items(), free) if not turn.told]
        for key, turn in found:
            self.queue[key] = replace(turn, told=True)
        return [(key, turn.sequence) for key, turn in found]

    def expire(self, now: float) -> None:
        """End the turns of streams that have not asked for a place for long."""
        oldest = now - self._patience_s
        for key in [key for key, turn in self.queue.items() if turn.heard < oldest]:
            del self.queue[key]

    def add(self, sid: bytes, delivery: Delivery, piece: Piece) -> bytes | None:
        """Take the next piece of a stream; returns the whole message if it is complete now."""
        assembly = self.held.get((sid, delivery))
        try:
            if assembly is None:
                raise ValueError("nothing has begun")
            return assembly.add(piece, self.size_max)
        except ValueError:
            self._dropped[DropReason.INCOMPLETE] += 1
            return None

    def settle(self, sid: bytes, delivery: Delivery, position: int) -> None:
        """Free the place of a stream, unless a message has begun there.

        position: the last number that has come out of the stream.
        """
        assembly = self.held.get((sid, delivery))
        if (
            assembly is not None
            and assembly.latest <= position
            and not assembly.continues(position + 1)
        ):
            del self.held[sid, delivery]
        turn = self.queue.get((sid, delivery))
        if turn is not None and turn.sequence <= position:  # it was given up
            del self.queue[sid, delivery]

    def skip(self, sid: bytes) -> None:
        """`sid` loses its turns."""
        for delivery in Delivery:
            self.queue.pop((sid, delivery), None)

    def remove(self, sid: bytes) -> None:
        """Forget all unfinished messages of `sid`."""
        self.skip(sid)
        for delivery in Delivery:
            self.held.pop((sid, delivery), None)

    def begun(self, sid: bytes) -> list[Delivery]:
        """The streams of `sid` with a message of which only the first pieces have come."""
        return [of for (peer, of), assembly in self.held.items() if peer == sid and assembly.begun]

    def holders(self) -> list[bytes]:
        """The peers that have a place, in the order in which they got them."""
        return [sid for sid, _ in self.held]

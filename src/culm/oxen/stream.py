"""Messages to one peer, numbered or not, that wait their turn.

Source: manual/dev-oxen.md, "Messaging".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from culm.oxen.messages import Piece, Position, write_message, write_one_to_one
from culm.wire.xenc import Value

__all__ = ["Item", "Stream"]


@dataclass(slots=True, eq=False)
class Item:
    """One message to one peer.  Times are monotonic seconds.

    number: the caller's number for it; 0 if it is our own, or a piece that is not the last.
    stream: where it has its `sequence` number, if it is sent in order.
    order: its place among all that was sent to this peer when it was last sent, at `sent`;
        `first` is that of the first time.
    before: when it was sent the time before that.
    way: which path it took last, as `Routes.hop` counts attempts.
    gap: the first number that is skipped, up to `sequence`; 0 if none is.
    """

    number: int
    d: Value
    stream: Stream | None = None
    sequence: int = 0
    gap: int = 0
    id: int = field(init=False)
    order: int = field(init=False)
    first: int = field(init=False)
    sent: float = field(init=False)
    before: float | None = field(init=False)
    way: int = field(init=False)

    def dispatch(self, id: int, order: int, now: float, way: int) -> None:
        """It is sent for the first time, under that ID."""
        self.id = id
        self.order = self.first = order
        self.sent = now
        self.before = None
        self.way = way

    def resend(self, order: int, now: float, way: int) -> None:
        """It is sent again."""
        self.order, self.before, self.sent, self.way = order, self.sent, now, way


class Stream:
    """Numbered messages, of which those within the window are on their way."""

    __slots__ = ("_acknowledged", "_window", "first", "last", "waiting")

    def __init__(self, last: int, window: int) -> None:
        self._window = window
        self.first = last + 1  # the first that is not acknowledged
        self.last = last  # the last that there is
        self.waiting: deque[Item] = deque()
        self._acknowledged: dict[int, int] = {}  # after the first: the callers' numbers

    def restart(self, last: int) -> list[int]:
        """Go on after the message of number `last`, whatever became of those before.

        Returns the caller's numbers of those that are acknowledged and may still wait for
        earlier ones at the peer.
        """
        held = [number for number in self._acknowledged.values() if number]
        self.first = last + 1
        self.last = last
        self.waiting.clear()
        self._acknowledged.clear()
        return held

    def append(self, number: int, data: bytes) -> None:
        """Queue a message under the next sequence number."""
        self.last += 1
        self.waiting.append(Item(number, write_one_to_one(self.last, data), self, self.last))

    def append_piece(self, number: int, position: Position, data: bytes) -> None:
        """Queue a piece of a message; the last one has the message's `number`, the others 0."""
        self.last += 1
        d = write_message(Piece(b"1", self.last, position, data))
        self.waiting.append(Item(number, d, self, self.last))

    def append_as(self, number: int, sequence: int, d: Value) -> None:
        """Queue a message that has a sequence number already."""
        self.last = sequence
        self.waiting.append(Item(number, d, self, sequence))

    def skip(self, sequence: int, d: Value) -> bool:
        """Leave out the message of that number, and tell the peer with `d`.

        Returns whether that takes one more item: several in a row are skipped at once.
        """
        gap = sequence
        if self.waiting and self.waiting[-1].gap:
            gap = self.waiting.pop().gap
        self.last = sequence
        self.waiting.append(Item(0, d, self, sequence, gap))
        return gap == sequence

    def acknowledge(self, item: Item) -> list[int]:
        """The peer has `item`; returns the caller's numbers of those that it has delivered now."""
        delivered = [item.number] if item.number else []
        if item.gap:
            self.first = item.sequence
        elif item.sequence != self.first:
            self._acknowledged[item.sequence] = item.number
            return []
        self.first += 1
        if not self._acknowledged:
            return delivered
        while (number := self._acknowledged.pop(self.first, None)) is not None:
            if number:
                delivered.append(number)
            self.first += 1
        return delivered

    def take_into(self, taken: list[Item], room: int) -> None:
        """Take what may go of what waits, until `taken` holds `room` messages.

        An item that skips others waits until all before it is acknowledged: otherwise the peer
        would give that up.
        """
        waiting, end = self.waiting, self.first + self._window
        while waiting and len(taken) < room:
            item = waiting[0]
            if item.gap != self.first if item.gap else item.sequence >= end:
                return
            taken.append(waiting.popleft())

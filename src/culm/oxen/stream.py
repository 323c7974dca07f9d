"""Messages to one peer, numbered or not, that wait their turn.

Source: manual/dev-oxen.md, "Messaging".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from culm.oxen.messages import Piece, Position, write_message, write_one_to_one
from culm.wire.xenc import Value


@dataclass(slots=True, eq=False)
class Item:
    """One message to one peer.  Times are monotonic seconds.

    number: the caller's number for it; 0 if it is our own, or a piece that is not the last.
    stream: the stream of its `sequence` number, if it is sent in order.
    order: rank of its last transmission, at `sent`, among all transmissions to this peer; `first`
        is that of the first one.
    before: time of the transmission before the last one.
    way: the path that it took last, as `Routes.hop` counts attempts.
    reviews: how often the messages to this peer had been reviewed when it began to be under way.
    gap: the first number that is skipped, up to `sequence`; 0 if none is.
    """

    number: int
    d: Value
    stream: Stream | None = None
    sequence: int = 0
    gap: int = 0
    id: int = field(default=-1, init=False)
    order: int = field(init=False)
    first: int = field(default=0, init=False)
    sent: float = field(init=False)
    before: float | None = field(init=False)
    way: int = field(init=False)
    reviews: int = field(init=False)

    @property
    def is_next(self) -> bool:
        """Whether it is the next in its stream, or our own word that is in none."""
        if self.stream is None:
            return not self.number
        return (self.gap or self.sequence) == self.stream.first

    @property
    def size(self) -> int:
        """Bytes of the user's that it carries."""
        data = self.d.get(b"d") if isinstance(self.d, dict) else self.d
        return len(data) if isinstance(data, bytes) else 0

    def reword(self, d: Value) -> None:
        self.d = d

    def dispatch(self, id: int, order: int, now: float, way: int, reviews: int) -> None:
        """Note that it is sent under that ID, for the first time or after it had to wait again."""
        self.id = id
        self.order = order
        self.first = self.first or order
        self.sent = now
        self.before = None
        self.way = way
        self.reviews = reviews

    def resend(self, order: int, now: float, way: int) -> None:
        """Note that it is sent again."""
        self.order, self.before, self.sent, self.way = order, self.sent, now, way


class Stream:
    """Numbered messages, of which those within the window may be under way.

    A message in pieces that finds no place at the peer rests, with all later ones.
    """

    __slots__ = (
        "_acknowledged",
        "_refused",
        "_window",
        "barrier",
        "begun",
        "first",
        "last",
        "rest",
        "rests_until",
        "waiting",
    )

    def __init__(self, last: int, window: int) -> None:
        self._window = window
        self.first = last + 1  # the first number that is not acknowledged
        self.last = last  # the last number in use
        self.waiting: deque[Item] = deque()
        self._acknowledged: dict[int, int] = {}  # beyond `first`, with the caller's numbers
        self.begun: dict[int, tuple[Item, int]] = {}
        """First pieces that are not acknowledged, by number, with the caller's numbers."""
        self._refused: set[int] = set()  # numbers of first pieces without a place
        self._rest_all()

    def _rest_all(self) -> None:
        self.barrier: int | None = None
        """The first piece of the first message without a place, where all later ones wait."""
        self.rests_until: float | None = None
        """When to ask for a place again."""
        self.rest = 0.0
        """Length of the last pause in seconds; 0 if there was none."""

    def restart(self, last: int) -> list[int]:
        """Go on after the message of number `last`, and forget earlier ones.

        Returns the caller's numbers of acknowledged messages that may still wait for earlier ones
        at the peer.
        """
        held = [number for number in self._acknowledged.values() if number]
        self.first = last + 1
        self.last = last
        self.waiting.clear()
        self._acknowledged.clear()
        self.begun.clear()
        self._refused.clear()
        self._rest_all()
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

    def begin(self, number: int) -> None:
        """Mark the latest piece as the first one of the caller's message `number`."""
        self.begun[self.last] = self.waiting[-1], number

    def append_as(self, number: int, sequence: int, d: Value) -> None:
        """Queue a message that has a sequence number already."""
        self.last = sequence
        self.waiting.append(Item(number, d, self, sequence))

    def skip(self, sequence: int, d: Value) -> bool:
        """Leave out the message of that number, and tell the peer with `d`.

        Returns whether that takes one more item: a row of skipped messages takes only one.
        """
        gap = sequence
        if self.waiting and self.waiting[-1].gap:
            gap = self.waiting.pop().gap
        self.last = sequence
        self.waiting.append(Item(0, d, self, sequence, gap))
        return gap == sequence

    def beginning(self, sequence: int) -> Item | None:
        """The first piece with that number, if it is not acknowledged."""
        begun = self.begun.get(sequence)
        return None if begun is None else begun[0]

    def put_back(self, item: Item) -> int:
        """Let `item` wait again: the peer has no place for the message that it begins.

        Returns the caller's number of the message if that is news, else 0.
        """
        before = 0
        while before < len(self.waiting) and self.waiting[before].sequence < item.sequence:
            before += 1  # these were refused as well
        self.waiting.insert(before, item)
        if item.sequence in self._refused:
            return 0
        self._refused.add(item.sequence)
        self.barrier = min(self._refused)
        return self.begun[item.sequence][1]

    def take_back(self, items: Iterable[Item]) -> None:
        """Let `items`, which were sent, wait again."""
        self.waiting = deque(sorted((*items, *self.waiting), key=lambda item: item.sequence))

    def leave_out(self, late: Item, word_of: Callable[[int, Stream], Value]) -> list[Item]:
        """Leave out `late`, which was sent and is the next one, and those that wait and are no
        smaller, and tell the peer; returns them."""
        self.waiting.appendleft(late)
        large = [item for item in self.waiting if item.number and item.size >= late.size]
        out = {item.sequence for item in large}
        self.waiting = deque(
            Item(0, word_of(item.sequence, self), self, item.sequence, item.sequence)
            if item.sequence in out
            else item
            for item in self.waiting
        )
        return large

    @property
    def owed(self) -> int | None:
        """The first of the messages without which a peer may not take later ones that were sent."""
        if self.barrier is not None:
            return self.barrier
        waiting = self.waiting
        if waiting and waiting[0].sequence + len(waiting) <= self.last:
            return waiting[0].sequence
        return None

    @property
    def held(self) -> int:
        """Number of messages that wait, and a first piece that is asking for a place."""
        asks = self.barrier is not None and not (
            self.waiting and self.waiting[0].sequence <= self.barrier
        )
        return len(self.waiting) + asks

    def sleep(self, until: float, seconds: float) -> None:
        """Do not ask for a place again before `until`, in `seconds` from now."""
        self.rests_until, self.rest = until, seconds

    def wake(self) -> None:
        """Ask for a place now."""
        self.rests_until = None

    def find_place(self, sequence: int) -> int:
        """Note that the message that begins with number `sequence` has a place.

        Returns the caller's number of the message if it was refused before, else 0.
        """
        _, number = self.begun.pop(sequence, (None, 0))
        if sequence not in self._refused:
            return 0
        self._refused.discard(sequence)
        self._rest_all()
        self.barrier = min(self._refused, default=None)
        return number

    def is_over(self, sequence: int, under_way: Iterable[Item]) -> bool:
        """Whether no message with that number is ever sent, for the first time or again.

        A number ahead of the next one is that of another association, whose receiver would take
        ours for duplicates.

        under_way: messages that are sent and not acknowledged.
        """
        if sequence > self.last:
            return sequence > self.last + 1
        items = (item for item in chain(under_way, self.waiting) if item.stream is self)
        return sequence < self.first or not any(
            (item.gap or item.sequence) <= sequence <= item.sequence for item in items
        )

    def acknowledge(self, item: Item) -> list[int]:
        """Note that the peer has `item`; returns the caller's numbers of messages delivered now."""
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

    def take_next(self, taken: list[Item]) -> None:
        """Take the first waiting message if it is the next one: then none is under way."""
        if self.waiting and self.waiting[0].is_next:
            self.take_into(taken, len(taken) + 1)

    def take_into(self, taken: list[Item], room: int) -> None:
        """Take waiting messages that may go, until `taken` holds `room` messages.

        An item that skips others waits until all earlier ones are acknowledged: otherwise the peer
        would give those up, too.
        """
        waiting, end = self.waiting, self.first + self._window
        if self.barrier is not None:
            end = self.barrier + (self.rests_until is None)
        while waiting and len(taken) < room:
            item = waiting[0]
            if item.gap != self.first if item.gap else item.sequence >= end:
                return
            taken.append(waiting.popleft())

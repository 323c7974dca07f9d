"""What waits for a peer's acknowledgement, and when it is sent again.

Source: manual/dev-oxen.md, "Messaging"; the first interval from src/oxen/core.rs of ircd-oxide.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from culm.oxen.events import Delivery
from culm.oxen.limits import Timing
from culm.oxen.messages import Finalize, Synchronize, write_message, write_one_to_one
from culm.timers import Deadlines
from culm.wire.xenc import Value

__all__ = ["Item", "Outgoing"]

_JITTER = 0.2

_IN_ORDER = Delivery.IN_ORDER  # by itself, as in `reception`


class Stream:
    """Numbered messages of which those within the window are on their way."""

    __slots__ = ("_acknowledged", "_window", "first", "last", "waiting")

    def __init__(self, last: int, window: int) -> None:
        self._window = window
        self.restart(last)

    def restart(self, last: int) -> None:
        """Go on after the message of number `last`, whatever came of those before."""
        self.first = last + 1  # the first that is not acknowledged
        self.last = last  # the last that there is
        self.waiting: deque[Item] = deque()
        self._acknowledged: set[int] = set()  # after the first

    def append(self, number: int, data: bytes) -> None:
        """Queue a message under the next sequence number."""
        self.last += 1
        self.waiting.append(Item(number, write_one_to_one(self.last, data), self, self.last))

    def append_as(self, number: int, sequence: int, d: Value) -> None:
        """Queue a message that has a sequence number already."""
        self.last = sequence
        self.waiting.append(Item(number, d, self, sequence))

    def acknowledge(self, sequence: int) -> None:
        if sequence != self.first:
            self._acknowledged.add(sequence)
            return
        self.first += 1
        while self.first in self._acknowledged:
            self._acknowledged.remove(self.first)
            self.first += 1

    def release_into(self, ready: list[Item]) -> None:
        waiting, end = self.waiting, self.first + self._window
        while waiting and waiting[0].sequence < end:
            ready.append(waiting.popleft())


@dataclass(slots=True)
class Item:
    """One message to one peer.

    number: what the caller knows it by; 0 if it is our own.
    stream: where it has its `sequence` number, if it is sent in order.
    """

    number: int
    d: Value
    stream: Stream | None = None
    sequence: int = 0
    id: int = 0
    attempts: int = 0

    def dispatch(self, id: int) -> None:
        """It leaves for the first time, under that ID."""
        self.id = id

    def resend(self) -> int:
        """It leaves again; returns how often it has by now, the first time not counted."""
        self.attempts += 1
        return self.attempts


class Outgoing:
    """All messages to one peer.  Nothing but our synchronize message goes before `open`."""

    def __init__(
        self, start: Synchronize, *, window: int, queue_max: int, timing: Timing, rng: Random
    ) -> None:
        self.open = False
        self._queue_max = queue_max
        self._timing = timing
        self._rng = rng
        self._broadcast = Stream(start.broadcast, window)
        self._one = Stream(start.one, window)
        self._waiting: deque[Item] = deque()
        self._last_word: Item | None = None
        self._in_flight: dict[int, Item] = {}
        self._size = 0  # of what waits and what is in flight
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return self._size

    @property
    def full(self) -> bool:
        """Whether there is no room for another message."""
        return self._size >= self._queue_max

    def release(self) -> None:
        """The peer has synchronized: everything may go now."""
        self.open = True

    def next_deadline(self) -> float | None:
        """When something is to be sent again."""
        return self._deadlines.next()

    def add(self, number: int, delivery: Delivery, data: bytes) -> None:
        """Queue a one-to-one message or a plain datagram."""
        self._size += 1
        if delivery is _IN_ORDER:
            self._one.append(number, data)
        else:
            self._waiting.append(Item(number, data))

    def add_broadcast(self, number: int, sequence: int, d: Value) -> None:
        """Queue an in-order broadcast message, `d`, for this peer."""
        self._size += 1
        self._broadcast.append_as(number, sequence, d)

    def add_finalize(self) -> None:
        """Queue the announcement that nothing follows what was queued before.

        It numbers what is sent in order, so that the peer can wait for it; for plain
        datagrams we wait ourselves.
        """
        d = write_message(Finalize(self._broadcast.last, self._one.last))
        self._last_word = Item(0, d)
        self._size += 1

    def synchronize(self, now: float) -> Item:
        """The synchronize message, to be sent; earlier ones are not sent again."""
        for item in [item for item in self._in_flight.values() if not item.number]:
            self._forget(item)
        start = Synchronize(self._broadcast.first - 1, self._one.first - 1)
        item = Item(0, write_message(start))
        self._size += 1
        self._dispatch(item, now)
        return item

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent for the first time."""
        return self._size == len(self._in_flight)

    def ready(self, now: float) -> list[Item]:
        """Take what may be sent for the first time now."""
        if not self.open:
            return []
        items = list(self._waiting)
        self._waiting.clear()
        for stream in (self._broadcast, self._one):
            if stream.waiting:
                stream.release_into(items)
        if self._last_word is not None and not (items or self._has_datagrams):
            items.append(self._last_word)
            self._last_word = None
        for item in items:
            self._dispatch(item, now)
        return items

    def due(self, now: float) -> list[Item]:
        """What is to be sent again now."""
        items: list[Item] = []
        timing = self._timing
        while (id := self._deadlines.pop_due(now)) is not None:
            item = self._in_flight[id]
            interval = timing.redelivery_first_s * 2.0 ** min(item.resend(), 64)
            jitter = self._rng.uniform(1 - _JITTER, 1 + _JITTER)
            self._deadlines.set(id, now + min(interval, timing.redelivery_max_s) * jitter)
            items.append(item)
        return items

    def acknowledge(self, id: int) -> Item | None:
        """The peer has got message `id`; what that was, ``None`` if nothing is known of it."""
        item = self._in_flight.get(id)
        if item is not None:
            self._forget(item)
            if item.stream is not None:
                item.stream.acknowledge(item.sequence)
        return item

    def restart(self, broadcast: int) -> list[Item]:
        """Forget everything and go on after what was numbered so far, `broadcast` and all.

        Returns the caller's messages that are lost by that, in the order of their numbers.
        """
        lost = [*self._in_flight.values(), *self._waiting]
        lost += [*self._one.waiting, *self._broadcast.waiting]
        self.open = False
        self._one.restart(self._one.last)
        self._broadcast.restart(broadcast)
        self._waiting.clear()
        self._last_word = None
        self._in_flight.clear()
        self._size = 0
        self._deadlines.clear()
        return sorted((item for item in lost if item.number), key=lambda item: item.number)

    @property
    def _has_datagrams(self) -> bool:
        return any(item.number and item.stream is None for item in self._in_flight.values())

    def _dispatch(self, item: Item, now: float) -> None:
        id = self._rng.getrandbits(32)
        while id in self._in_flight:
            id = self._rng.getrandbits(32)
        item.dispatch(id)
        self._in_flight[id] = item
        self._deadlines.set(id, now + self._timing.redelivery_first_s)

    def _forget(self, item: Item) -> None:
        del self._in_flight[item.id]
        self._size -= 1
        self._deadlines.cancel(item.id)

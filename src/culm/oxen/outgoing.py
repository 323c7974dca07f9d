"""Messages to one peer: those that wait, and those that are not acknowledged yet.

Source: manual/dev-oxen.md, "Messaging"; the first interval from src/oxen/core.rs of ircd-oxide.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from random import Random

from culm.oxen.events import Delivery
from culm.oxen.flight import Flight
from culm.oxen.limits import Timing
from culm.oxen.messages import (
    Finalize,
    Position,
    Synchronize,
    Tags,
    write_message,
    write_one_to_one,
)
from culm.oxen.states import Pressure
from culm.oxen.stream import Item, Stream
from culm.wire.xenc import Value

_DATAGRAM, _IN_ORDER, _IN_ORDER_BROADCAST = Delivery  # global names, as in `reception`
_FULL = Pressure.FULL

_JITTER = 0.2  # of the pauses between two requests for a place


class Outgoing:
    """All messages to one peer.  Before `open` nothing is sent but our synchronize message."""

    def __init__(
        self, start: Synchronize, *, window: int, queue_max: int, timing: Timing, rng: Random
    ) -> None:
        self.open = False
        self._queue_max = queue_max
        self._start = start
        self._known = 0  # the peer's one-to-one number at synchronization
        self._timing = timing
        self._rng = rng
        self.broadcast = Stream(start.broadcast, window)
        self.one = Stream(start.one, window)
        self._waiting: deque[Item] = deque()
        self._last_word: Item | None = None
        self._challenge: Item | None = None
        self._tags: Item | None = None
        self.answered = -math.inf
        """Time of the last answer to a challenge, in monotonic seconds."""
        self.flight = Flight(timing=timing, rng=rng)
        self._size = 0  # messages that wait or are not acknowledged
        self._turn = False  # whether broadcasts went first the last time
        self.pressure = Pressure.NONE
        self.resting: list[Stream] = []
        """Streams with a message that has no place at the peer."""
        self.resumed: list[int] = []
        """The caller's numbers of messages that have found a place, until they are taken."""

    def __len__(self) -> int:
        return self._size

    def is_full(self, delivery: Delivery) -> bool:
        """Whether there is no room for another message with that delivery.

        Messages in a stream that waits for a place count for that stream alone.
        """
        return self._size >= self._queue_max and self._is_full_but_for_rest(delivery)

    def _is_full_but_for_rest(self, delivery: Delivery) -> bool:
        """Whether there is no room even apart from streams that wait for a place."""
        held = 0
        for stream in self.resting:
            held += stream.held
            if stream is self._stream(delivery) and stream.held >= self._queue_max:
                return True
        return self._size - held >= self._queue_max

    def holds_up(self, delivery: Delivery) -> bool:
        """Whether broadcasts with that delivery have to wait while there is no room here.

        They do not wait for a peer that does not answer, or has no place for a large message.
        """
        return not self.flight.is_stuck and self._stream(delivery) not in self.resting

    def relieve(self) -> bool:
        """Whether the user, who has found the queue full, may try again."""
        full = [delivery for delivery in Delivery if self.is_full(delivery)]
        if not full:
            self.pressure = Pressure.NONE
            return True
        if self.pressure is _FULL and not any(map(self.holds_up, full)):
            self.pressure = Pressure.STUCK
            return True
        return False

    def _stream(self, delivery: Delivery) -> Stream | None:
        if delivery is _IN_ORDER:
            return self.one
        return self.broadcast if delivery is _IN_ORDER_BROADCAST else None

    def _grow(self, delivery: Delivery = _DATAGRAM) -> None:
        self._size += 1
        if self._size >= self._queue_max and self.is_full(delivery):
            self.pressure = _FULL

    def _press(self) -> None:
        """Note it if the queue has become full without a message of the user's."""
        if self.pressure is Pressure.NONE and any(map(self.is_full, Delivery)):
            self.pressure = _FULL

    def release(self, known: int) -> None:
        """Let all messages go: the peer has synchronized, with one-to-one number `known`.

        It would not acknowledge messages that name another.
        """
        self.open = True
        self._known = known
        for item in (*self.flight, *self.one.waiting, *self.broadcast.waiting):
            if item.gap and item.stream is not None:
                item.reword(self._word_of(item.sequence, item.stream))

    def add(self, number: int, delivery: Delivery, data: bytes) -> None:
        """Queue a one-to-one message or a plain datagram."""
        if delivery is _IN_ORDER:
            self.one.append(number, data)
        else:
            self._waiting.append(Item(number, data))
        self._grow(delivery)

    def add_piece(self, number: int, position: Position, data: bytes) -> None:
        """Queue a piece of a one-to-one message; only the last has a `number` other than 0."""
        self.one.append_piece(number, position, data)
        self._grow(_IN_ORDER)

    def add_broadcast(self, number: int, sequence: int, d: Value) -> None:
        """Queue an in-order broadcast, or a piece of one, encoded in `d`."""
        self.broadcast.append_as(number, sequence, d)
        self._grow(_IN_ORDER_BROADCAST)

    def begin(self, delivery: Delivery, number: int) -> None:
        """Mark the latest piece in that stream as the first of the caller's message `number`."""
        stream = self._stream(delivery)
        assert stream is not None
        stream.begin(number)

    def skip_broadcast(self, sequence: int) -> None:
        """Leave out our broadcast of that number, and tell the peer once it has earlier ones."""
        self._size += self.broadcast.skip(sequence, self._word_of(sequence, self.broadcast))
        self._press()

    def _word_of(self, sequence: int, stream: Stream) -> Value:
        """The message that tells the peer to expect none up to that number in a stream."""
        word = self.naming(self._known)
        if stream is self.one:
            return write_message(word._replace(one=sequence))
        return write_message(word._replace(broadcast=sequence))

    def naming(self, known: int) -> Synchronize:
        """Our synchronize message for a peer whose one-to-one number may be `known`.

        Broadcasts that a message under way leaves out are passed already.
        """
        first, stream = self.broadcast.first, self.broadcast
        gaps = (item for item in self.flight if item.gap == first and item.stream is stream)
        broadcast = next((item.sequence for item in gaps), first - 1)
        return self._start._replace(broadcast=broadcast, one=self.one.first - 1, known=known)

    def add_finalize(self) -> None:
        """Queue the announcement that no further messages follow.

        It gives the last numbers of messages in order, so that the peer can wait for those; for
        plain datagrams we wait ourselves.  Our tags no longer matter by then.
        """
        self._forget_tags()
        d = write_message(Finalize(self.broadcast.last, self.one.last, self._known))
        self._last_word = Item(0, d)
        self._size += 1

    def synchronize(self, now: float, *, known: int) -> Item:
        """Our synchronize message, to be sent; earlier ones are not sent again.

        known: the peer's one-to-one number; 0 if unknown.
        """
        self._known = known
        for item in [item for item in self.flight if not item.number and item.stream is None]:
            self.flight.forget(item)
            self._size -= 1
        self._challenge = None
        item = Item(0, write_message(self.naming(known)))
        self._size += 1
        if self.open:  # else the user cannot have found it full
            self._press()
        self.flight.dispatch(item, now)
        return item

    def tell(self, version: int, tags: Mapping[str, str], now: float) -> Item:
        """Our tags, to be sent; earlier ones are not sent again."""
        self._forget_tags()
        self._tags = item = Item(0, write_message(Tags(self.one.first - 1, version, tags)))
        self._grow()
        self.flight.dispatch(item, now)
        return item

    def _forget_tags(self) -> None:
        if self._tags is not None and self.flight.forget(self._tags):
            self._size -= 1
        self._tags = None

    def challenge(self, now: float) -> Item:
        """A message, to be sent, that only a peer in the present association acknowledges.

        It has the one-to-one number after which the association began, and so is a duplicate to
        a peer that has any synchronize message of it, which acknowledges it without looking at its
        content.  An unanswered challenge is returned again.
        """
        if self._challenge is not None:
            return self._challenge
        item = Item(0, write_one_to_one(self._start.one, b""))
        self._grow()
        self.flight.dispatch(item, now)
        self._challenge = item
        return item

    def never_sends(self, delivery: Delivery, sequence: int) -> bool:
        """Whether the message with that number in a stream will never be sent (again)."""
        stream = self._stream(delivery)
        return stream is not None and stream.is_over(sequence, self.flight)

    def withdraw(self) -> None:
        """Drop the challenge, if there is one."""
        if self._challenge is not None and self.flight.forget(self._challenge):
            self._size -= 1
        self._challenge = None

    def is_challenge(self, item: Item) -> bool:
        """Whether `item` is the unanswered challenge."""
        return item is self._challenge

    def late(self, seconds: float) -> list[Item]:
        """Messages under way for as many reviews as fit into `seconds`, but for tags."""
        return [item for item in self.flight.late(seconds) if item is not self._tags]

    def expire(self, seconds: float) -> list[int]:
        """Drop whole messages that are as `late` and wait for no other; returns their numbers.

        With each go those that wait like it and are no smaller, as they would not arrive either.
        The peer is told to go on after those in order.
        """
        late = [item for item in self.late(seconds) if item.number]
        failed, least = list[Item](), math.inf
        for item in late:
            if item.stream is None:
                self._size -= self.flight.forget(item)
                failed.append(item)
                least = min(least, item.size)
            elif item.is_next and self.flight.forget(item):
                failed += item.stream.leave_out(item, self._word_of)
        large = [item for item in self._waiting if item.size >= least]
        if large:
            self._waiting = deque(item for item in self._waiting if item.size < least)
            self._size -= len(large)
        return [item.number for item in failed + large]

    @property
    def challenged(self) -> bool:
        """Whether there is an unanswered challenge."""
        return self._challenge is not None

    @property
    def idle(self) -> bool:
        """Whether no message waits to be sent, for the first time or again."""
        return self._size == len(self.flight.under_way)

    def ready(self, now: float) -> list[Item]:
        """Take the messages that may be sent now: first lost ones, then waiting ones."""
        flight = self.flight
        if flight.lost:
            self._take_back()
        items = again = flight.take_lost(now) if flight.lost else []
        if not self.open:
            return items
        if self.resting:
            self._wake(now)
        room = flight.room
        if room > 0 or flight.is_stuck_on_datagrams:
            fresh = self._take(room)
            for item in fresh:
                flight.dispatch(item, now)
            room -= len(fresh)
            items = items + fresh if items else fresh
        if again:
            items = items + flight.copies_of(again)
        if room <= 0:
            flight.limit()
        return items

    def _take(self, room: int) -> list[Item]:
        """Take at most `room` waiting messages."""
        fresh: list[Item] = []
        waiting = self._waiting
        while waiting and len(fresh) < room:
            fresh.append(waiting.popleft())
        one, broadcast = self.one, self.broadcast
        if not broadcast.waiting:
            one.take_into(fresh, room)
        elif not one.waiting:
            broadcast.take_into(fresh, room)
        else:  # in turns, so that neither stream holds up the other
            self._turn = not self._turn
            for stream in (broadcast, one) if self._turn else (one, broadcast):
                stream.take_into(fresh, room)
        if self.flight.is_stuck_on_datagrams:
            one.take_next(fresh)
            broadcast.take_next(fresh)
        if self._last_word is not None and not (fresh or self.flight.holds_datagrams):
            fresh.append(self._last_word)
            self._last_word = None
        return fresh

    def due(self, now: float) -> list[Item]:
        """Take the messages to be sent now because time has passed."""
        return [*self.flight.look(now), *self.ready(now)]

    def acknowledge(self, id: int, now: float) -> list[int] | None:
        """Take the acknowledgement of message `id`; ``None`` if that is unknown.

        Returns the caller's numbers of the messages delivered by then.
        """
        item = self.flight.acknowledge(id, now)
        if item is None:
            return None
        self._size -= 1
        stream = item.stream
        if stream is None:
            if item is self._challenge:
                self._challenge = None
                self.answered = now
            return [item.number] if item.number else []
        if stream.begun:
            self._find_place(stream, item)
        return stream.acknowledge(item)

    def _wake(self, now: float) -> None:
        for stream in self.resting:
            if stream.rests_until is not None and stream.rests_until <= now:
                stream.wake()

    def _take_back(self) -> None:
        """Let lost messages wait that come after one that waits, as it had no place.

        A peer with a smaller window does not take them before that one, and while they fill ours
        it is never sent.
        """
        for stream in (self.one, self.broadcast):
            owed = stream.owed
            if owed is None:
                continue
            later = [
                item
                for item in self.flight.lost.values()
                if item.stream is stream and item.sequence > owed
            ]
            if later and all(map(self.flight.forget, later)):
                stream.take_back(later)
                self._press()

    def _find_place(self, stream: Stream, item: Item) -> None:
        """Note that the message that `item` may begin has a place, as `item` is acknowledged."""
        number = stream.find_place(item.sequence)
        if number:
            self.resumed.append(number)
            if stream.barrier is None:
                self.resting.remove(stream)
                self._press()

    def refuse(self, delivery: Delivery, sequence: int, now: float) -> int:
        """Hold back the message whose first piece has that number: the peer has no place for it.

        That piece has arrived, so it is no longer under way; it is sent again after a pause that
        doubles each time, or when the peer invites it.  Returns the caller's number of the message
        if it has not been refused before, else 0.
        """
        stream = self._stream(delivery)
        item = None if stream is None else stream.beginning(sequence)
        if stream is None or item is None or not self.flight.carries(item):
            return 0
        self.flight.acknowledge(item.id, now)
        number = stream.put_back(item)
        if stream not in self.resting:
            self.resting.append(stream)
        self._press()
        if sequence == stream.barrier:
            least, most = self._timing.redelivery_first_s, self._timing.redelivery_max_s
            pause = min(max(2 * stream.rest, least), max(least, most))
            stream.sleep(now + pause * self._rng.uniform(1 - _JITTER, 1 + _JITTER), pause)
        return number

    def come(self, delivery: Delivery, sequence: int) -> None:
        """Send on the message that begins with that number: the peer has a place for it now."""
        stream = self._stream(delivery)
        if stream is not None and stream.barrier == sequence:
            stream.wake()

    def next_deadline(self) -> float | None:
        """When `due` is due."""
        deadline = self.flight.next_deadline()
        for stream in self.resting:
            until = stream.rests_until
            if until is not None and (deadline is None or until < deadline):
                deadline = until
        return deadline

    def restart(self, broadcast: int) -> list[int]:
        """Forget all messages; go on after the last one-to-one one, and after number `broadcast`.

        Returns the caller's numbers of the messages that may be lost thereby, in order.
        """
        items = [*self.flight, *self._waiting, *self.one.waiting, *self.broadcast.waiting]
        lost = [item.number for item in items if item.number]
        self.open = False
        lost += self.one.restart(self.one.last)
        lost += self.broadcast.restart(broadcast)
        self._waiting.clear()
        self._last_word = self._challenge = self._tags = None
        self.flight = Flight(timing=self._timing, rng=self._rng)
        self._size = 0
        self.pressure = Pressure.NONE
        self.resting.clear()
        self.resumed.clear()
        return sorted(lost)

    def excess_of(self, known: int) -> int:
        """The excess of the one-to-one number that the peer names over our last one.

        0 if that number is of the present association, or the peer names none.
        """
        return known - self.one.last if known and not self.holds(known) else 0

    def holds(self, known: int) -> bool:
        """Whether the one-to-one number that the peer names is of the present association."""
        return self._start.one <= known <= self.one.last

    def renumber(self, one: int) -> None:
        """Go on after one-to-one number `one`, while there are no one-to-one messages."""
        self._start = self._start._replace(one=one)
        self.one.restart(one)

"""Messages under way to one peer, and the detection of lost ones.

Source: RFC 6298 (the timer), RFC 6675 (three later acknowledgements), RFC 8985 (loss is judged
by times of sending, and a probe goes out before the timeout).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from culm.oxen.limits import Timing
from culm.oxen.roundtrip import RoundTrip
from culm.oxen.stream import Item
from culm.oxen.window import Window

_JITTER = 0.2
_BACKOFF_MAX = 64

# A round trip as long as this part of `usable_s` leaves hardly time for signs of life.
_LONG_SHARE = 1 / 4

# Three timeouts in a row are the fault of the path, not bad luck; another path that works is then
# kept for two of the longest intervals before the first one is tried again.
_BAD_WAY = 3
_PATIENT_TIMEOUTS = 1 + 2 + 4  # of a message that is lost three times
_WAY_INTERVALS = 2


class Flight:
    """Messages without acknowledgement: under way, or lost and to be sent again."""

    def __init__(self, *, timing: Timing, rng: Random) -> None:
        self._rng = rng
        self._interval_max = timing.redelivery_max_s
        self._review_s = timing.keepalive_retry_s
        self._round_trip = RoundTrip(timing)
        self._window = Window(timing.usable_s * _LONG_SHARE)
        self.under_way: dict[int, Item] = {}
        """Messages not known to have arrived or to be lost, by ID, in the order of sending."""
        self.lost: dict[int, Item] = {}
        """Messages to be sent again as soon as there is room."""
        self._order = 0
        self._round_end = 0
        self._newest = self._second = self._third = 0  # places of the acknowledged
        self._since = 0.0  # since when the timer runs
        self._interval: float | None = None  # of the timer; none while the next thing is a probe
        self._backoff = 0
        self._silent_since = 0.0  # counts only after a timeout
        self._doubt: float | None = None  # when the oldest message must be taken for lost
        self._way = 0
        self._way_until = 0.0
        self._copies = self._copies_before = 0  # sent in this round and the one before
        self._reviews = 0

    def __len__(self) -> int:
        return len(self.under_way) + len(self.lost)

    def __iter__(self) -> Iterator[Item]:
        yield from self.under_way.values()
        yield from self.lost.values()

    @property
    def patience(self) -> float:
        """Longest time that a message may take if it is lost three times, in seconds."""
        return min(_PATIENT_TIMEOUTS * self._round_trip.measured, 2 * self._interval_max)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has come back for three timeouts in a row."""
        return self._backoff >= _BAD_WAY

    @property
    def is_stuck_on_datagrams(self) -> bool:
        """Whether that is so, and only messages are under way for which no other one waits."""
        return self.is_stuck and all(item.stream is None for item in self.under_way.values())

    @property
    def holds_datagrams(self) -> bool:
        """Whether plain datagrams lack their acknowledgement."""
        return any(item.number and item.stream is None for item in self)

    def silence(self, now: float) -> float:
        """Seconds without any acknowledgement until `now`; 0 unless a message has timed out."""
        return now - self._silent_since if self._backoff and len(self) else 0.0

    def rest(self, now: float) -> float:
        """Seconds until `now` since the last acknowledgement; 0 while a message is under way."""
        return 0.0 if len(self) else now - self._since

    def review(self) -> None:
        """Count a review: messages are late by reviews, as this node may have been stopped."""
        self._reviews += 1

    def late(self, seconds: float) -> list[Item]:
        """The messages that have been under way for as many reviews as fit into `seconds`."""
        return [i for i in self if (self._reviews - i.reviews) * self._review_s >= seconds]

    @property
    def room(self) -> int:
        """Number of further messages that may be under way; copies count for a round or two."""
        copies = self._copies + self._copies_before
        return int(self._window.size) - len(self.under_way) - copies

    def limit(self) -> None:
        """Note that there was not enough room."""
        self._window.limit()

    def next_deadline(self) -> float | None:
        """When `look` is due."""
        if not self.under_way:
            return None
        interval, doubt = self._interval, self._doubt
        timer = self._since + (self._round_trip.probe if interval is None else interval)
        return timer if doubt is None or timer < doubt else doubt

    def dispatch(self, item: Item, now: float) -> None:
        """Send `item` for the first time, under an unused ID."""
        under_way, lost = self.under_way, self.lost
        if not under_way:
            if not lost:
                self._begin(now)
            self._since = now
            self._interval = None
        id = self.unused_id()
        self._order = order = self._order + 1
        item.dispatch(id, order, now, self._way, self._reviews)
        under_way[id] = item

    def unused_id(self) -> int:
        """An ID that no message without acknowledgement bears."""
        id = self._rng.getrandbits(32)
        while id in self.under_way or id in self.lost:
            id = self._rng.getrandbits(32)
        return id

    def take_lost(self, now: float) -> list[Item]:
        """Take the lost messages to be sent again now, as far as there is room."""
        items: list[Item] = []
        lost = self.lost
        while lost and self.room > 0:
            item = lost.pop(next(iter(lost)))
            if not self.under_way:
                self._since = now
            self._resend(item, now)
            items.append(item)
        return items

    def copies_of(self, items: list[Item]) -> list[Item]:
        """Those of `items`, sent again now, of which to send a copy, as there is room for it.

        All later ones in the stream wait for them, and the fourth transmission is far away.  But
        where messages queue, more of them is no help against losses.
        """
        if not self._window.clear:
            return []
        copies = [item for item in items if item.stream is not None and not item.way]
        del copies[max(0, self.room) :]
        self._copies += len(copies)
        return copies

    def look(self, now: float) -> list[Item]:
        """Detect the messages lost by `now`; returns the probe to be sent at once, if any."""
        if self._doubt is not None and self._doubt <= now:
            self._find_lost(now)
        deadline = self.next_deadline()
        if deadline is None or deadline > now:
            return []
        if self._interval is None and self._round_trip.smoothed is not None:
            self._since = now
            self._interval = self._round_trip.timeout
            self._round_trip.hesitate(now)
            oldest = self.under_way.pop(next(iter(self.under_way)))
            self._resend(oldest, now)
            return [oldest]
        self._time_out(now)
        return []

    def acknowledge(self, id: int, now: float) -> Item | None:
        """Take an acknowledgement; returns the message with that `id`, ``None`` if unknown."""
        under_way, seconds = self.under_way, None
        item = under_way.pop(id, None)
        found = item is None
        if item is None:
            item = self.lost.pop(id, None)
            if item is None:
                return None
            self._round_trip.late(now - item.sent)
        elif item.before is None:
            seconds = now - item.sent
            self._round_trip.sample(seconds, now)
        else:
            found = now - item.sent < self._round_trip.least  # answers the previous transmission
            if found:
                self._round_trip.late(now - item.before)
            if not self._backoff:
                self._round_trip.answer(item.sent, now)
        if found:
            if self._window.found():  # the rest of what timed out too soon is on its way as well
                rest = [*self.lost.values(), *under_way.values()]
                self.lost.clear()
                under_way.clear()
                under_way.update(
                    (each.id, each) for each in sorted(rest, key=lambda item: item.order)
                )
        elif item.order > self._newest:
            self._newest, self._second, self._third = item.order, self._newest, self._second
        elif item.order > self._second:
            self._second, self._third = item.order, self._second
        elif item.order > self._third:
            self._third = item.order
        self._window.arrived(seconds)
        self._since = now
        self._interval = None
        self._backoff = 0
        self._way = item.way if item.way >= _BAD_WAY else 0
        if under_way and next(iter(under_way.values())).order < self._third:
            self._find_lost(now)
        if self._newest >= self._round_end:
            self._end_round()
        return item

    def repeat(self, item: Item, now: float) -> None:
        """Send `item`, which is not acknowledged, once more at once."""
        self.forget(item)
        if not self.under_way:
            self._since = now
        self._resend(item, now)

    def carries(self, item: Item) -> bool:
        """Whether `item` has been sent and is not acknowledged."""
        return self.under_way.get(item.id) is item or self.lost.get(item.id) is item

    def forget(self, item: Item) -> bool:
        """Never send `item` again; returns whether it was still unacknowledged."""
        for items in (self.under_way, self.lost):
            if items.get(item.id) is item:
                del items[item.id]
                return True
        return False

    # -- inside ---------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """Prepare for a message that leaves while nothing is under way."""
        self._silent_since = now
        if now - self._since > self._round_trip.timeout:
            self._window.rest()
        if now >= self._way_until:
            self._way = 0

    def _resend(self, item: Item, now: float) -> None:
        if now >= self._way_until:
            self._way = 0
        self._order += 1
        item.resend(self._order, now, self._way)
        self.under_way[item.id] = item

    def _find_lost(self, now: float) -> None:
        """Find messages that are overdue while three sent later are acknowledged: they are lost."""
        third, under_way = self._third, self.under_way
        self._doubt = None
        patience = self._round_trip.usual
        while under_way:
            item = next(iter(under_way.values()))
            if item.order >= third:
                return
            if item.sent + patience > now:
                self._doubt = item.sent + patience
                return
            del under_way[item.id]
            self.lost[item.id] = item
            self._window.lost()

    def _end_round(self) -> None:
        self._round_end = self._order + 1
        self._copies_before, self._copies = self._copies, 0
        self._round_trip.end_round()
        self._window.end_round(self._round_trip.unhurried)

    def _in_turns(self) -> list[Item]:
        """All messages, the oldest first, but for one of those for which nobody makes way.

        These are the next in each stream and our own words, by turns: other messages may be too
        large for the path, and they alone would fill the window.
        """
        rest = sorted(self, key=lambda item: item.first)
        first = [item for item in rest if item.is_next]
        if first and self.holds_datagrams:
            rest.insert(0, rest.pop(rest.index(first[self._backoff % len(first)])))
        return rest

    def _time_out(self, now: float) -> None:
        """Take all messages under way for lost, as nothing has come back for too long."""
        self.lost = {item.id: item for item in self._in_turns()}
        self.under_way.clear()
        self._doubt = None
        self._window.collapse()
        self._copies = self._copies_before = 0
        if not self._backoff:
            self._silent_since = self._since
        self._backoff = min(self._backoff + 1, _BACKOFF_MAX)
        self._way += 1
        self._way_until = now + _WAY_INTERVALS * self._interval_max
        if self._backoff == 1 and self._round_trip.smoothed is None:
            self._round_trip.hesitate(now)  # as the probe does otherwise
        doubled = self._round_trip.timeout * 2.0 ** (self._backoff - 1)
        interval = min(doubled, self._interval_max)
        self._interval = interval * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

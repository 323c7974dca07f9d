"""Asks a peer for feeds with createHistoryStream."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from culm.arguments import check_int, check_type
from culm.replication import Turns
from culm.ssb.feed_id import check_feed_id
from culm.ssb.history.limits import Limits, Timing
from culm.ssb.history.request import METHOD, HistoryRequest
from culm.ssb.history.states import FEED_RULES, FeedInput, FeedState
from culm.ssb.messages import ClassicMessage, MessageError, read_message
from culm.ssb.muxrpc import (
    BodyType,
    Call,
    CallEnded,
    CallState,
    CallType,
    Connection,
    State,
    ValueReceived,
)
from culm.timers import Deadlines

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


_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()
_LONGER_MAX: Final = 4
_TICK_S: Final = 0.1  # the least pause: with times of 0, feeds would be asked for without end


class _Feed:
    """The state of a feed that is wanted."""

    __slots__ = ("call", "first", "id", "longer", "reached", "received", "since", "state")

    def __init__(self, feed: str) -> None:
        self.id = feed
        self.state = FeedState.QUEUED
        self.call: Call | None = None
        self.first = 1  # the sequence from which on the call asks
        self.received = 0  # values in the call
        self.reached = 0  # the highest sequence among them
        self.since = 0.0  # when the call was made, or has last brought the feed forward
        self.longer = 1  # the factor of its times, after calls that were in vain

    def move(self, happened: FeedInput) -> None:
        self.state = FEED_RULES[self.state][happened]

    def begin(self, call: Call, first: int) -> None:
        """Begin a call that asks for messages from `first` on."""
        self.call, self.first, self.received, self.reached = call, first, 0, 0

    def end(self) -> Call | None:
        """Detach the call; returns it."""
        call, self.call = self.call, None
        return call

    def count(self) -> None:
        """Count one more value in the call."""
        self.received += 1

    def wait(self, now: float) -> None:
        """Wait for the next value from now on."""
        self.since = now

    def wait_longer(self) -> None:
        """Have twice the time in the next call: this one was in vain."""
        self.longer = min(2 * self.longer, _LONGER_MAX)

    def reach(self, sequence: int) -> bool:
        """Note a sequence that has come; returns whether it is the highest so far."""
        is_beyond = sequence > self.reached
        self.reached = max(self.reached, sequence)
        return is_beyond


class HistoryReader:
    """Our calls on one connection: each wanted feed is caught up with, and then followed.

    next_of
        Returns the sequence of a feed's next message: the one after the last that was taken.
    heard_at
        Returns when the last bytes came from the peer, or were held up by us: over a slow line a
        message takes time, and several feeds share the line.  As long as bytes come, a silent call
        stays open for longer, but another feed has its place.
    room
        Shared by the readers of all connections.

    Nothing is asked for while the connection has no room (`Connection.send_size`); call `fill` when
    bytes have been taken.

    `receive` returns the peer's messages, well-formed and in order; the caller verifies signatures,
    and calls `reject` for an invalid message.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        next_of: Callable[[str], int],
        heard_at: Callable[[], float] = lambda: -inf,
        room: EarlyRoom | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
    ) -> None:
        check_type("room", room, EarlyRoom, type(None))
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        self._connection = connection
        self._next_of = next_of
        self._heard_at = heard_at
        self._limits = limits
        self._timing = timing
        self._early = Early(room or EarlyRoom())
        self._feeds: dict[str, _Feed] = {}
        self._queue: Turns[_Feed] = Turns()
        self._by_call: dict[int, _Feed] = {}
        self._asked = 0  # feeds in state ASKED
        self._live = 0  # feeds in state LIVE
        self._peer_is_live = True  # false once the peer has ended a live call
        self._deadlines: Deadlines[str] = Deadlines()

    def state(self, feed: str) -> FeedState | None:
        """The state of a feed; ``None`` if it is not wanted."""
        found = self._feeds.get(feed)
        return None if found is None else found.state

    def want(self, feed: str, now: float) -> None:
        """Ask for a feed.  Again: no effect."""
        check_feed_id("feed", feed)
        if feed not in self._feeds:
            self._feeds[feed] = made = _Feed(feed)
            self._queue.add(made, fresh=False)
            self._ask(now)

    def forget(self, feed: str, now: float) -> None:
        """Stop asking for a feed."""
        found = self._feeds.pop(feed, None)
        if found is not None:
            self._queue.discard(found)
            self._drop_call(found)
            self._deadlines.cancel(feed)  # of one that rests, too
            self._ask(now)

    def fill(self, now: float) -> None:
        """Ask for feeds whose turn it is, if the connection has room for that again."""
        self._ask(now)

    def is_of(self, number: int) -> bool:
        """Whether a call asks for a feed."""
        return number in self._by_call

    def receive(self, event: ValueReceived, now: float) -> list[ClassicMessage]:
        """Take a value; returns the messages of a feed that are now next, in order.

        There are none if the message is known already, or has to wait for earlier ones: ssb-db2
        sends messages of the same millisecond in any order.  A value that is not a message, or of
        another feed, or too far ahead, ends the call, and the peer is not asked for the feed again.
        One for which there is no room ends the call, too, and the feed is asked for later.
        """
        feed = self._by_call[event.number]
        feed.count()
        message = _message_in(event)
        wanted = self._next_of(feed.id)
        ahead = 0 if message is None else message.sequence - wanted
        if message is None or message.author != feed.id or ahead > self._limits.early_max:
            self.reject(feed.id, now)
            return []
        if ahead > 0 and not self._early.keep(feed.id, message.sequence, message.data):
            self._give_up(feed, now)
            return []
        found = [] if ahead else [message]
        found += map(read_message, self._early.take(feed.id, wanted + len(found)))
        is_beyond = feed.reach(message.sequence)
        if found or (ahead < 0 and is_beyond) or feed.id not in self._deadlines:
            self._wait(feed, now)
        return found

    def reject(self, feed: str, now: float) -> None:
        """Ask no more for a feed of which the peer has sent an invalid message."""
        found = self._feeds.get(feed)
        if found is not None:
            self._queue.discard(found)
            self._drop_call(found)
            found.move(FeedInput.WRONG)
            self._deadlines.cancel(feed)
            self._ask(now)

    def call_ended(self, event: CallEnded, now: float) -> None:
        """Take the peer's end of a call, or its answer to our end."""
        feed = self._by_call.get(event.number)
        if feed is None:
            return
        state, left_out = feed.state, self._early.has(feed.id)
        # A limit may cut off a message that belongs before others, since they come in any order.
        cut_off = feed.received >= self._limits.messages_max
        more = cut_off and self._next_of(feed.id) > feed.first
        self._drop_call(feed)
        if state is FeedState.LIVE:
            self._peer_is_live = False
            self._rest(feed, FeedInput.ENDED, now, self._timing.pause_s)
        elif event.failure is not None or (left_out and not more):
            self._rest(feed, FeedInput.ENDED, now, self._timing.retry_s)
        elif more:
            feed.move(FeedInput.MORE)
            self._queue.add(feed, fresh=False)
        elif self._peer_is_live and self._live < self._limits.live_max:
            feed.move(FeedInput.FOLLOWED)
            self._live += 1
            self._make_call(feed, live=True)
        else:
            self._rest(feed, FeedInput.LEVEL, now, self._timing.pause_s)
        self._ask(now)

    def stop(self, now: float) -> None:
        """Forget all feeds, and end open calls."""
        self._queue = Turns()
        for feed in list(self._feeds):
            self.forget(feed, now)

    def close(self) -> None:
        """Forget everything: the connection has ended."""
        self._feeds.clear()
        self._queue = Turns()
        self._by_call.clear()
        self._deadlines.clear()
        self._early.clear()

    # Time

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def advance(self, now: float) -> None:
        """Ask again for feeds that have rested; give up silent calls, or their places."""
        while (feed_id := self._deadlines.pop_due(now)) is not None:
            feed = self._feeds[feed_id]
            if feed.state is FeedState.RESTING:
                feed.move(FeedInput.RESTED)
                self._queue.add(feed, fresh=False)
            elif self._is_slow(feed, now):
                self._let_wait(feed)
            else:
                feed.wait_longer()
                self._give_up(feed, now)
        self._ask(now)

    def _is_slow(self, feed: _Feed, now: float) -> bool:
        """Whether the line, or the peer, may only be slow: other bytes come meanwhile, or might."""
        if feed.state is FeedState.LIVE or self._early.has(feed.id):
            return False
        return self._slow_until(feed) > now

    def _let_wait(self, feed: _Feed) -> None:
        """Keep a silent call, but not its place."""
        if feed.state is FeedState.ASKED:
            feed.move(FeedInput.SLOWED)
            self._asked -= 1
        self._deadlines.set(feed.id, self._slow_until(feed))

    def _slow_until(self, feed: _Feed) -> float:
        """The end of a silent call's time, unless other bytes of the peer come before.

        It is longer after calls in vain: the line, or the peer's store, may take that long.
        """
        last = feed.since + self._patience_s + feed.longer * self._timing.retry_s
        return min(last, max(self._heard_at(), feed.since) + feed.longer * self._patience_s)

    def _wait(self, feed: _Feed, now: float) -> None:
        """Set the deadline of a call: an answer must come in time, later messages need not.

        But messages missing before others that have come early must.
        """
        if feed.state is FeedState.LIVE and not self._early.has(feed.id):
            self._deadlines.cancel(feed.id)
        else:
            feed.wait(now)
            self._deadlines.set(feed.id, now + self._patience_s)

    def _give_up(self, feed: _Feed, now: float) -> None:
        """End a call of which nothing more is expected; the feed is asked for again later."""
        self._drop_call(feed)
        self._rest(feed, FeedInput.ENDED, now, self._timing.retry_s)
        self._ask(now)

    @property
    def _patience_s(self) -> float:
        return max(self._timing.patience_s, _TICK_S)

    def _rest(self, feed: _Feed, happened: FeedInput, now: float, pause_s: float) -> None:
        feed.move(happened)
        self._deadlines.set(feed.id, now + max(pause_s, _TICK_S))

    # Calls

    def _ask(self, now: float) -> None:
        if self._connection.state is not State.OPEN:
            return
        while self._queue and self._asked < self._limits.calls_max and self._connection.send_size:
            feed = self._queue.take()
            feed.move(FeedInput.TURN)
            self._asked += 1
            self._make_call(feed, live=False)
            self._wait(feed, now)

    def _make_call(self, feed: _Feed, *, live: bool) -> None:
        first = self._next_of(feed.id)
        request = HistoryRequest(
            feed=feed.id,
            first=first,
            limit=None if live else self._limits.messages_max,
            live=live,
            keys=False,
        )
        call = self._connection.make_call(METHOD, CallType.SOURCE, request.to_json())
        feed.begin(call, first)
        self._by_call[call.number] = feed

    def _drop_call(self, feed: _Feed) -> None:
        """Drop the feed's call; end it unless the peer has ended it."""
        call = feed.end()
        if call is None:
            return
        del self._by_call[call.number]
        self._early.drop(feed.id)
        self._deadlines.cancel(feed.id)
        self._asked -= feed.state is FeedState.ASKED
        self._live -= feed.state is FeedState.LIVE
        if call.state is CallState.RECEIVING and self._connection.state is State.OPEN:
            call.end()


def _message_in(event: ValueReceived) -> ClassicMessage | None:
    if event.type is not BodyType.JSON:
        return None
    try:
        return read_message(event.body)
    except MessageError:
        return None

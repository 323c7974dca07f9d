"""Answers a peer's calls of createHistoryStream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from culm.arguments import check_type
from culm.replication import Turns
from culm.ssb.history.limits import Limits
from culm.ssb.history.request import HistoryRequest
from culm.ssb.history.states import REPLY_RULES, ReplyInput, ReplyState
from culm.ssb.messages import MessageError, read_message
from culm.ssb.muxrpc import Call, Connection
from culm.ssb.v8json import JsonValue, stringify

_DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Messages of a feed that the store is to read, as they are stored.

    From sequence `first` on, which is there: at most `count_max` messages of at most `size_max`
    bytes together, but at least one, whatever its size.
    """

    number: int
    feed: str
    first: int
    count_max: int
    size_max: int


class _Reply:
    """The state of an answer."""

    __slots__ = ("call", "left", "next", "request", "state")

    def __init__(self, call: Call, request: HistoryRequest, last: int) -> None:
        self.call = call
        self.request = request
        self.state = ReplyState.QUEUED
        self.next = request.first if request.old else max(request.first, last + 1)
        self.left = request.limit  # number of messages still wanted; ``None``: all

    def move(self, happened: ReplyInput) -> None:
        self.state = REPLY_RULES[self.state][happened]

    def sent(self) -> None:
        """Count one more message as sent."""
        self.next += 1
        if self.left is not None:
            self.left -= 1


class HistoryServer:
    """The peer's calls on one connection.

    last_of
        Returns the last sequence of a feed in the store; 0 if there is none.
    may_read
        Returns whether the peer may have a feed.
    time_ms
        Returns the time in milliseconds since 1970, sent as the time at which a message arrived.

    Calls are served in turn, as far as the connection has room (`Connection.send_size`).  After
    every other verb, and whenever there may be room again, take the due reads with `next_read`
    until there is none; `take` follows when the store has read.  Call `make_room` when the peer
    has called something else, which may have taken the last place.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        last_of: Callable[[str], int],
        may_read: Callable[[str], bool],
        time_ms: Callable[[], int],
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        check_type("limits", limits, Limits)
        self._connection = connection
        self._last_of = last_of
        self._may_read = may_read
        self._time_ms = time_ms
        self._limits = limits
        self._replies: dict[int, _Reply] = {}
        self._live: dict[str, dict[int, _Reply]] = {}  # by feed
        self._queue: Turns[_Reply] = Turns()
        self._reads: dict[int, _Reply] = {}  # under way
        self._numbers = count(1)

    @property
    def reads(self) -> int:
        """The number of reads under way."""
        return len(self._reads)

    def state(self, number: int) -> ReplyState:
        """The state of our answer to the call of that number."""
        reply = self._replies.get(number)
        return ReplyState.OVER if reply is None else reply.state

    def open(self, call: Call, args: Sequence[JsonValue]) -> None:
        """Take a call of the peer; an invalid one is ended with an error."""
        try:
            request = HistoryRequest.from_args(args)
        except ValueError as error:
            call.fail(str(error))
            return
        if not self._may_read(request.feed):
            call.fail("not for you")
        elif len(self._replies) >= self._limits.replies_max and not self._end_oldest():
            call.fail("too many history streams")
        else:
            reply = _Reply(call, request, self._last_of(request.feed))
            self._replies[call.number] = reply
            self._queue.add(reply, fresh=False)
            self.make_room()

    def make_room(self) -> None:
        """Let the peer make one more call, if those that wait for news have all the places.

        Otherwise feeds beyond the limit would never come to a peer that keeps a call for each.
        """
        while self._connection.is_full and self._end_oldest():
            pass

    def _end_oldest(self) -> bool:
        """End the call that has waited longest for news; it lacks no message."""
        waiting = next(iter(self._live.values()), None)
        if waiting is None:
            return False
        self._finish(next(iter(waiting.values())))
        return True

    def is_of(self, number: int) -> bool:
        """Whether a call is answered here."""
        return number in self._replies

    def call_ended(self, number: int) -> None:
        """Forget a call that the peer has ended."""
        reply = self._replies.pop(number, None)
        if reply is not None:
            self._queue.discard(reply)
            self._leave(reply)
            reply.move(ReplyInput.DONE)

    def close(self) -> None:
        """Forget all calls: the connection has ended."""
        for number in list(self._replies):
            self.call_ended(number)

    def withdraw(self, feed: str) -> None:
        """End calls for a feed that the peer may no longer have."""
        for reply in [each for each in self._replies.values() if each.request.feed == feed]:
            self.call_ended(reply.call.number)
            if reply.call.may_send:
                reply.call.fail("not for you")

    def grown(self, feed: str) -> None:
        """Serve new messages of a feed, which have to be read from the store first."""
        for reply in list(self._live.get(feed, {}).values()):
            if reply.next <= self._last_of(feed):
                self._fall_behind(reply)

    def extended(self, feed: str, first: int, messages: Sequence[bytes]) -> None:
        """Serve new messages of a feed that are at hand, from sequence `first` on."""
        for reply in list(self._live.get(feed, {}).values()):
            last = first + len(messages) - 1
            if last < reply.next:
                continue
            if first <= reply.next and self._connection.send_size:
                if self._send(reply, messages[reply.next - first :]) and reply.left == 0:
                    self._finish(reply)
            else:
                self._fall_behind(reply)

    def _fall_behind(self, reply: _Reply) -> None:
        self._leave(reply)
        reply.move(ReplyInput.BEHIND)
        self._queue.add(reply, fresh=False)

    def next_read(self) -> Read | None:
        """The messages to read next; ``None`` if there are none, or no room for them."""
        while self._queue and self._connection.send_size:
            if len(self._reads) >= self._limits.reads_max:
                return None
            reply = self._queue.take()
            reply.move(ReplyInput.TURN)
            wanted = self._last_of(reply.request.feed) + 1 - reply.next
            if wanted > 0:
                number = next(self._numbers)
                self._reads[number] = reply
                return Read(
                    number=number,
                    feed=reply.request.feed,
                    first=reply.next,
                    count_max=min(wanted, reply.left or wanted, self._limits.read_count_max),
                    size_max=self._limits.read_size_max,
                )
            self._settle(reply)
        return None

    def take(self, number: int, messages: Sequence[bytes]) -> None:
        """Take the messages of a read, whose call may be over by now, or the connection closing."""
        reply = self._reads.pop(number)
        if reply.state is not ReplyState.READING or not reply.call.may_send:
            return
        if self._send(reply, messages):
            self._settle(reply)

    def _settle(self, reply: _Reply) -> None:
        """Choose the next state of a reply, after a read or without one."""
        feed = reply.request.feed
        if reply.left == 0:
            self._finish(reply)
        elif reply.next <= self._last_of(feed):
            reply.move(ReplyInput.BEHIND)
            self._queue.add(reply, fresh=False)
        elif reply.request.live:
            reply.move(ReplyInput.LEVEL)
            self._live.setdefault(feed, {})[reply.call.number] = reply
            self.make_room()
        else:
            self._finish(reply)

    def _finish(self, reply: _Reply, error: str | None = None) -> None:
        self._leave(reply)
        reply.move(ReplyInput.DONE)
        del self._replies[reply.call.number]
        if not reply.call.may_send:
            return
        if error is None:
            reply.call.end()
        else:
            reply.call.fail(error)

    def _leave(self, reply: _Reply) -> None:
        """Stop waiting for new messages."""
        waiting = self._live.get(reply.request.feed)
        if waiting is not None:
            waiting.pop(reply.call.number, None)
            if not waiting:
                del self._live[reply.request.feed]

    def _send(self, reply: _Reply, messages: Sequence[bytes]) -> bool:
        """Send them; false if the store has come to harm: then the call ends with an error."""
        for data in messages if reply.left is None else messages[: reply.left]:
            try:
                body = self._written(reply.request, data)
            except MessageError:
                self._finish(reply, "this message cannot be read")
                return False
            reply.call.send_body(body)
            reply.sent()
        return True

    def _written(self, request: HistoryRequest, data: bytes) -> bytes:
        if not request.keys:
            return data
        key = read_message(data).id
        if not request.values:
            return stringify(key).encode()
        return b'{"key":"%b","value":%b,"timestamp":%d}' % (key.encode(), data, self._time_ms())

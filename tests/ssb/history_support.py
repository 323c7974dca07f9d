"""Two peers that speak only createHistoryStream, on one connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from typing import Any

from nacl.signing import SigningKey

from culm.machine import Event
from culm.ssb.history import METHOD, HistoryReader, HistoryServer, Limits, Timing
from culm.ssb.messages import ClassicMessage, FeedPlace, check_place, create_message
from culm.ssb.muxrpc import (
    CallEnded,
    CallReceived,
    CallType,
    Closed,
    Connection,
    Manifest,
    ValueReceived,
)
from culm.ssb.muxrpc import Limits as RpcLimits

OFFER = Manifest({".".join(METHOD): CallType.SOURCE})


def key(author: str) -> SigningKey:
    return SigningKey(sha256(author.encode()).digest())


@cache
def messages(author: str, count: int) -> tuple[ClassicMessage, ...]:
    """The first messages of a feed."""
    made: list[ClassicMessage] = []
    for number in range(count):
        last = made[-1].place if made else None
        content = {"type": "post", "text": f"{author} {number + 1}"}
        made.append(create_message(key(author), content=content, timestamp=number, last=last))
    return tuple(made)


def feed(author: str) -> str:
    return messages(author, 1)[0].author


class Side:
    """One of them: a store, with feeds as lists, and a connection."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        timing: Timing | None = None,
        rpc: RpcLimits | None = None,
        offer: Manifest = OFFER,
    ) -> None:
        self.now = 0.0
        self.feeds: dict[str, list[ClassicMessage]] = {}
        self.hidden: set[str] = set()
        self.rejected: list[str] = []
        self.events: list[Event] = []
        self.reads: list[Callable[[], None]] = []
        self.read_counts: list[int] = []
        self.connection = Connection(manifest=offer, limits=rpc or RpcLimits())
        self.server = HistoryServer(
            connection=self.connection,
            last_of=self.last_of,
            may_read=lambda feed: feed not in self.hidden,
            time_ms=lambda: 1234,
            limits=limits or Limits(),
        )
        self.reader = HistoryReader(
            connection=self.connection,
            next_of=lambda feed: self.last_of(feed) + 1,
            limits=limits or Limits(),
            timing=timing or Timing(),
        )

    def store(self, author: str, count: int) -> Side:
        self.feeds[feed(author)] = list(messages(author, count))
        return self

    def last_of(self, feed: str) -> int:
        return len(self.feeds.get(feed, ()))

    def read(self) -> None:
        """Begin the reads for which the server has room."""
        while (read := self.server.next_read()) is not None:
            found: list[bytes] = []
            for message in self.feeds[read.feed][read.first - 1 :][: read.count_max]:
                if found and sum(map(len, found)) + len(message.data) > read.size_max:
                    break
                found.append(message.data)
            self.read_counts.append(len(found))
            self.reads.append(partial(self.server.take, read.number, found))

    def append(self, author: str, count: int = 1) -> None:
        """Write the next messages of a feed."""
        have = self.last_of(feed(author))
        new = messages(author, have + count)[have:]
        self.feeds.setdefault(feed(author), []).extend(new)
        self.server.extended(feed(author), have + 1, [message.data for message in new])

    def advance(self, now: float) -> None:
        self.now = now
        self.reader.advance(now)

    def step(self) -> None:
        """Take all events, do all reads."""
        while (event := self.connection.next_event()) is not None:
            self.events.append(event)
            self.take(event)
        reads, self.reads = self.reads, []
        for read in reads:
            read()
        self.read()

    def take(self, event: Event) -> None:
        if isinstance(event, CallReceived):
            self.server.open(self.connection.call(event.number), event.args)
            self.read()
        elif isinstance(event, ValueReceived):
            if self.reader.is_of(event.number):
                for message in self.reader.receive(event, self.now):
                    self.take_message(message)
        elif isinstance(event, CallEnded):
            self.server.call_ended(event.number)
            self.reader.call_ended(event, self.now)
        elif isinstance(event, Closed):
            self.server.close()
            self.reader.close()

    def take_message(self, message: ClassicMessage) -> None:
        have = self.feeds.setdefault(message.author, [])
        last = have[-1].place if have else None
        if not message.verify() or not fits(message, last):
            self.rejected.append(message.author)
            self.reader.reject(message.author, self.now)
            return
        have.append(message)
        self.server.extended(message.author, message.sequence, [message.data])


def fits(message: ClassicMessage, last: FeedPlace | None) -> bool:
    try:
        check_place(message, last)
    except ValueError:
        return False
    return True


def run(left: Side, right: Side, *, piece: int | None = None) -> None:
    """Carry bytes both ways until there are none."""
    moved = True
    while moved:
        moved = False
        for sender, receiver in ((left, right), (right, left)):
            sender.step()
            data = sender.connection.data_to_send(piece)
            if data or sender.reads:
                moved = True
                receiver.connection.receive_data(data)
                receiver.step()


def values(side: Side, number: int) -> list[Any]:
    """The values received in a call."""
    return [
        event.read()
        for event in side.events
        if isinstance(event, ValueReceived) and event.number == number
    ]

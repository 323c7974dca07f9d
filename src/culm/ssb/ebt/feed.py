"""One feed, as far as we have it, and its part in a session."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from culm.ssb.ebt.model import Head, Message
from culm.ssb.ebt.states import (
    FEED_RULES,
    SUPPLY_RULES,
    Demand,
    FeedInput,
    FeedState,
    Supply,
    SupplyInput,
)

__all__ = ["TURNS", "Feed", "Relation", "turn_of"]

TURNS: Final = 16
"""Each feed is mentioned in one of this number of sessions in a row, whatever is remembered."""


def turn_of(feed_id: str) -> int:
    """The session, of `TURNS` in a row, in which a feed is mentioned."""
    return crc32(feed_id.encode()) % TURNS


class Feed:
    """The state of a feed.

    received: the last sequence received.
    stored: the last one in the store; peers are told only of this.
    claimed: the highest one that any peer has told us of.
    moved: time of the last message's arrival, or of the first claim that there is more than ours.
    turn: in which of `TURNS` sessions in a row it is mentioned in any case.
    """

    __slots__ = (
        "claimed",
        "followed",
        "id",
        "last_id",
        "moved",
        "received",
        "state",
        "stored",
        "turn",
    )

    def __init__(self, feed_id: str, head: Head | None, state: FeedState) -> None:
        self.id = feed_id
        self.last_id = None if head is None else head.id
        self.received = self.stored = 0 if head is None else head.sequence
        self.state = state
        self.claimed = 0
        self.moved = 0.0
        self.followed = False
        self.turn = turn_of(feed_id)

    @property
    def head(self) -> Head | None:
        return None if self.last_id is None else Head(self.received, self.last_id)

    @property
    def wanted(self) -> bool:
        """Whether we exchange the feed at all."""
        return self.followed and self.state is FeedState.WHOLE

    def follow(self, value: bool) -> None:
        self.followed = value

    def take(self, message: Message, now: float) -> None:
        """Take the next message, which is going to be stored."""
        self.received = message.sequence
        self.last_id = message.id
        self.moved = now

    def claim(self, sequence: int, now: float) -> bool:
        """Note that a peer has the feed up to there; returns whether it is first ahead of us."""
        begins = self.claimed <= self.received < sequence
        if begins:
            self.moved = now
        self.claimed = max(self.claimed, sequence)
        return begins

    def forget_claims(self) -> None:
        """Note that no peer claims any more to have more than we do."""
        self.claimed = 0

    def store(self, last: int) -> None:
        self.stored = last

    def move(self, happened: FeedInput) -> None:
        self.state = FEED_RULES[self.state][happened]


class Relation:
    """A feed that we follow, in one session.

    told: the last sequence that we have told the peer.
    asked: the last one that we had when we asked for the feed; asks: the number of requests.
    brought: the number of next messages that have arrived since the last request.
    base: the last one that the peer had by its note; sent: the last one that is on its way to it.
    """

    __slots__ = (
        "asked",
        "asks",
        "base",
        "brought",
        "demand",
        "feed",
        "sent",
        "supply",
        "told",
    )

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.supply = Supply.UNTOLD
        self.demand = Demand.UNTOLD
        self.sent = 0
        self.told = -1
        self.asked = 0
        self.asks = 0
        self.brought = 0
        self.base = 0

    def tell(self, demand: Demand) -> None:
        """Note that the peer is told our sequence, and whether we want more from it."""
        self.demand = demand
        self.told = self.feed.stored

    def ask(self) -> None:
        """Make the peer our source."""
        self.asked = self.feed.received
        self.asks += 1
        self.brought = 0

    def bring(self) -> None:
        """Count the next message as brought by the peer."""
        self.brought += 1

    def release(self) -> None:
        """End the peer's time as our source: it refuses the feed, or the feed is dropped."""
        self.demand = Demand.UNTOLD

    def move(self, happened: SupplyInput) -> None:
        self.supply = SUPPLY_RULES[self.supply][happened]

    def restart(self, base: int) -> None:
        """Note that the peer has the feed up to `base`, and nothing is on its way to it."""
        self.base = self.sent = base

    def send(self, last: int) -> None:
        """Note that messages up to `last` are on their way to the peer, or that it has them."""
        self.sent = last

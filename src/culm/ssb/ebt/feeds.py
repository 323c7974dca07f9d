"""The feeds that we know, those that are followed, and the blocks between authors."""

from __future__ import annotations

from collections.abc import Iterable

from culm.ssb.ebt.feed import Feed
from culm.ssb.ebt.model import Head, Stored
from culm.ssb.ebt.states import FeedState

__all__ = ["Feeds"]


class Feeds:
    """All feeds by id; the followed ones also in the order in which following began.

    stored: the number of messages in the store.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = sum(head.sequence for head in stored.heads.values())
        self._feeds: dict[str, Feed] = {}
        for feed_id, head in stored.heads.items():
            forked = feed_id in stored.forked
            state = FeedState.FORKED if forked else FeedState.WHOLE
            self._feeds[feed_id] = Feed(feed_id, head, state)
        self._followed: dict[str, Feed] = {}
        self._blocks: dict[str, set[str]] = {}  # blocker -> blocked

    def __getitem__(self, feed_id: str) -> Feed:
        """A feed; one that is not known yet is empty."""
        feed = self._feeds.get(feed_id)
        if feed is None:
            feed = self._feeds[feed_id] = Feed(feed_id, None, FeedState.WHOLE)
        return feed

    def get(self, feed_id: str) -> Feed | None:
        return self._feeds.get(feed_id)

    @property
    def followed(self) -> Iterable[Feed]:
        return self._followed.values()

    def follows(self, feed_id: str) -> bool:
        return feed_id in self._followed

    def follow(self, feed_id: str) -> Feed:
        feed = self._followed[feed_id] = self[feed_id]
        feed.follow(True)
        return feed

    def unfollow(self, feed_id: str) -> Feed:
        feed = self._followed.pop(feed_id)
        feed.follow(False)
        return feed

    def store(self, feed: Feed, last: int) -> None:
        """Note that the store has the feed up to `last`."""
        self.stored += last - feed.stored
        feed.store(last)

    def blocks(self, author: str, target: str) -> bool:
        blocked = self._blocks.get(author)
        return blocked is not None and target in blocked

    def block(self, author: str, target: str) -> None:
        self._blocks.setdefault(author, set()).add(target)

    def unblock(self, author: str, target: str) -> None:
        blocked = self._blocks.get(author, set())
        blocked.discard(target)
        if not blocked:
            self._blocks.pop(author, None)

    def clock(self) -> dict[str, int]:
        """The last stored sequence of each feed."""
        return {feed_id: feed.stored for feed_id, feed in self._feeds.items()}

    def head(self, feed_id: str) -> Head | None:
        feed = self._feeds.get(feed_id)
        return None if feed is None else feed.head

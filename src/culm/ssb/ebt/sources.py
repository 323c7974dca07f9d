"""Whom each feed is received from: one peer at a time, and another one when that stalls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from culm.ssb.ebt.events import SourceChanged
from culm.ssb.ebt.feed import Feed, Relation
from culm.ssb.ebt.limits import Timing
from culm.ssb.ebt.session import Session
from culm.timers import Deadlines

__all__ = ["Sources"]

_TICK_S = 0.1  # so that whoever has no patience is not asked without end


class Sources:
    """One source a feed; all other peers that have it stand by.

    sessions: those that there are, oldest first, by number.
    """

    def __init__(self, *, sessions: Mapping[int, Session], timing: Timing, now: float) -> None:
        self._sessions = sessions
        self._timing = timing
        self._now = now
        self._sources: dict[str, Session] = {}
        self._fed: dict[int, dict[str, Feed]] = {}  # feeds by the number of their source
        self._deadlines: Deadlines[str] = Deadlines()
        self._feeds: dict[str, Feed] = {}  # with a deadline

    def session_of(self, feed: Feed) -> Session | None:
        """From whom the feed is received."""
        return self._sources.get(feed.id)

    def peer_of(self, feed_id: str) -> str | None:
        """The same, by name."""
        session = self._sources.get(feed_id)
        return None if session is None else session.peer

    # What happens

    def take(self, feed: Feed, session: Session) -> None:
        """Receive the feed from that session from now on, and from no other one."""
        before = self._sources.get(feed.id)
        if before is session:
            return
        if before is not None:
            del self._fed[before.number][feed.id]
            before.tell(feed, receive=False)
        self._sources[feed.id] = session
        self._fed.setdefault(session.number, {})[feed.id] = feed
        session.tell(feed, receive=True).ask(self._now)
        self.wait(feed)

    def offered(self, feed: Feed, session: Session) -> None:
        """A peer has told that it has more of the feed than we."""
        feed.claim(max(feed.claimed, session.clock[feed.id]))
        source = self._sources.get(feed.id)
        if source is None or (
            source is not session
            and not source.claims(feed)
            and not self._is_productive(source.relations[feed.id])
        ):
            self.take(feed, session)
        else:
            self.wait(feed)

    def lose(self, feed: Feed, session: Session) -> None:
        """The feed will not come from that session."""
        if self._sources.get(feed.id) is session:
            self._release(feed, session)
            self._seek(feed)

    def drop(self, feed: Feed) -> None:
        """The feed is not received any more."""
        session = self._sources.get(feed.id)
        if session is not None:
            self._release(feed, session)
        self._forget(feed)

    def end(self, session: Session) -> None:
        """The session has ended."""
        for feed in self._fed.pop(session.number, {}).values():
            del self._sources[feed.id]
            self._seek(feed)

    # Time

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def advance(self, now: float, *, excused: bool) -> Iterator[SourceChanged]:
        """What changes because of the time.

        excused: nobody could send anything, because we did not take it.
        """
        self._now = now
        while (feed_id := self._deadlines.pop_due(now)) is not None:
            feed = self._feeds.pop(feed_id)
            if excused:
                self._deadlines.set(feed_id, now + max(self._timing.stall_s, _TICK_S))
                self._feeds[feed_id] = feed
                continue
            change = self._decide(feed)
            if change is not None:
                yield change

    def _decide(self, feed: Feed) -> SourceChanged | None:
        """A deadline has passed: is it the source's fault, and is there a better one?"""
        source = self._sources.get(feed.id)
        if source is None:
            self._seek(feed)
            return None
        promised = source.claims(feed)
        if promised and self._patience(feed, source) > self._now:
            self.wait(feed)
            return None
        other = next(filter(lambda session: session.claims(feed), self._after(source)), None)
        if other is None:
            if not promised:
                feed.claim(0)
            return None
        self.take(feed, other)
        if not promised:
            return None
        return SourceChanged(feed=feed.id, peer=other.peer, stalled=source.peer)

    def wait(self, feed: Feed) -> None:
        """Look again when the source has had its time, if anybody claims to have more."""
        source = self._sources.get(feed.id)
        if source is None or feed.received >= feed.claimed:
            return
        due = self._now + self._timing.overtake_s
        if source.claims(feed):
            due = max(self._patience(feed, source), self._now)
        set_to = self._deadlines.get(feed.id)
        if set_to is None or due < set_to:
            self._deadlines.set(feed.id, due)
            self._feeds[feed.id] = feed

    def _patience(self, feed: Feed, source: Session) -> float:
        """Until when the source may be silent, given that it has promised more."""
        relation = source.relations[feed.id]
        last = max(relation.heard, source.heard)
        return min(last + self._timing.stall_s, relation.heard + self._timing.stall_feed_s)

    def _is_productive(self, relation: Relation) -> bool:
        return relation.delivers and relation.heard + self._timing.stall_s > self._now

    # Choosing

    def _after(self, source: Session) -> Iterable[Session]:
        """The other sessions, beginning after the source's, so that all get their turn."""
        sessions = list(self._sessions.values())
        numbers = [session.number for session in sessions]
        at = numbers.index(source.number)
        return sessions[at + 1 :] + sessions[:at]

    def _seek(self, feed: Feed) -> None:
        """Receive the feed, which has no source, from whoever says that it has the most."""
        claiming = [session for session in self._sessions.values() if session.claims(feed)]
        if claiming:
            self.take(feed, max(claiming, key=lambda session: session.clock[feed.id]))
        else:
            self._forget(feed)

    def _release(self, feed: Feed, session: Session) -> None:
        del self._sources[feed.id], self._fed[session.number][feed.id]
        relation = session.relations.get(feed.id)
        if relation is not None:
            relation.release()

    def _forget(self, feed: Feed) -> None:
        feed.claim(0)
        self._deadlines.cancel(feed.id)
        self._feeds.pop(feed.id, None)

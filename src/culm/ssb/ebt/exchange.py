"""The interplay of sessions and feeds: the notes and messages that each peer gets."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from culm.machine import RemoteProtocolError
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.ebt.events import (
    FeedExtended,
    FeedForked,
    FeedsLeftOut,
    MessageRefused,
    ReplicatorEvent,
    SessionEnded,
    SessionOpened,
)
from culm.ssb.ebt.feed import Feed
from culm.ssb.ebt.feeds import Feeds
from culm.ssb.ebt.limits import Limits, Timing
from culm.ssb.ebt.model import (
    ForkedFeedError,
    Format,
    InvalidMessageError,
    Message,
    PeerClock,
    Stored,
)
from culm.ssb.ebt.notes import REFUSAL
from culm.ssb.ebt.session import Session
from culm.ssb.ebt.sources import Sources
from culm.ssb.ebt.states import (
    Demand,
    EndReason,
    FeedInput,
    SessionInput,
    SessionRole,
    SessionState,
)
from culm.ssb.ebt.work import Work
from culm.timers import Deadlines

__all__ = ["Exchange"]

_NO_SEQUENCE: Final = "it has no sequence"
_NO_FIRST: Final = "the first message of a feed follows no other one"


class Exchange:
    """All sessions, and all feeds."""

    def __init__(
        self,
        *,
        me: str,
        stored: Stored,
        format: Format,
        now: float,
        timing: Timing,
        limits: Limits,
    ) -> None:
        self.feeds = Feeds(stored)
        self.work = Work(limits, on_written=self._written)
        self._write = self.work.writer.add
        self.events: deque[ReplicatorEvent] = deque()
        self.sessions: dict[int, Session] = {}
        self.sources = Sources(
            sessions=self.sessions,
            follows=self.feeds.follows,
            timing=timing,
            now=now,
            tell=self.events.append,
        )
        self._searches = self.sources.searches
        self._me = me
        self._format = format
        self._now = now
        self._notes_s = timing.notes_s
        self._by_peer: dict[str, Session] = {}
        self._silent: Deadlines[int] = Deadlines()  # sessions that wait for the first notes
        self._contradictions: dict[str, bytes] = {}  # by feed: for a proof, once ours is stored

    # Feeds

    def follow(self, feed_id: str) -> None:
        feed = self.feeds.follow(feed_id)
        # The peer that has the most of it becomes its source.
        sessions = sorted(self.sessions.values(), key=lambda each: -each.told(feed_id))
        for session in sessions:
            self._inform(feed, session)

    def unfollow(self, feed_id: str) -> None:
        self._withdraw(self.feeds.unfollow(feed_id))

    def block(self, author: str, target: str) -> None:
        self.feeds.block(author, target)
        session, feed = self._by_peer.get(target), self.feeds.get(author)
        if session is not None and author == self._me:
            self.end(session, EndReason.BLOCKED)
        elif session is not None and feed is not None:
            self._withdraw_from(feed, session)

    def unblock(self, author: str, target: str) -> None:
        self.feeds.unblock(author, target)
        session, feed = self._by_peer.get(target), self.feeds.get(author)
        if session is not None and feed is not None:
            self._inform(feed, session)

    def append(self, feed: Feed, message: Message) -> None:
        """Take the next message of a feed, wherever it comes from."""
        feed.take(message, self._now)
        self._write(message)

    def _written(self, messages: Mapping[str, list[Message]]) -> None:
        for feed_id, new in messages.items():
            feed = self.feeds[feed_id]
            first, last = new[0].sequence, new[-1].sequence
            self.feeds.store(feed, last)
            self.events.append(FeedExtended(feed=feed_id, first=first, last=last))
            if feed.wanted:
                data = [message.data for message in new]
                for session in self.sessions.values():
                    if self._shares(feed, session):
                        session.extend(feed, first, data)
            self._prove(feed)

    # Sessions

    def has_session(self, peer: str) -> bool:
        return peer in self._by_peer

    def connect(self, session: Session) -> None:
        earlier = self._by_peer.get(session.peer)
        if earlier is not None:
            self.end(earlier, EndReason.RECONNECTED)
        self.sessions[session.number] = self._by_peer[session.peer] = session
        self.work.load_clock(session.peer, partial(self._loaded, session))

    def fail(self, session: Session, error: RemoteProtocolError) -> None:
        """End a session whose peer has broken a rule."""
        self.end(session, EndReason.FAULT, error.detached())

    def end(
        self, session: Session, reason: EndReason, error: RemoteProtocolError | None = None
    ) -> None:
        """End a session that has not ended."""
        loaded = session.state is not SessionState.LOADING
        session.move(SessionInput.END)
        del self.sessions[session.number], self._by_peer[session.peer]
        self._silent.cancel(session.number)
        self.sources.end(session)
        if loaded:
            self.work.save_clock(session.peer, session.memory(self.feeds))
        self.events.append(
            SessionEnded(session=session.number, peer=session.peer, reason=reason, error=error)
        )

    def _loaded(self, session: Session, clock: PeerClock) -> None:
        if session.state is SessionState.ENDED:
            return
        clock = session.remember(clock, stored=self.feeds.stored)
        if clock.told:
            self.work.save_clock(session.peer, clock)
        if session.role is SessionRole.SERVER:
            session.move(SessionInput.LOADED_AS_SERVER)
            self._introduce(session)
        else:
            session.move(SessionInput.LOADED_AS_CLIENT)
            self._silent.set(session.number, self._now + self._notes_s)

    def _introduce(self, session: Session) -> None:
        """Send our first notes; see `Session.first_notes`."""
        self.events.append(SessionOpened(session=session.number, peer=session.peer))
        session.outgoing.open()
        for feed in session.first_notes(self._me, self.feeds.followed):
            self._share(feed, session)

    def receive_notes(self, session: Session, notes: Mapping[str, int]) -> None:
        first = session.state is SessionState.AWAITING_NOTES
        session.move(SessionInput.NOTES)
        if first:
            self._silent.cancel(session.number)
            self._introduce(session)
        for feed_id, value in notes.items():
            feed = self.feeds.get(feed_id)
            # All sessions share one string for a feed that we know.
            known = feed_id if feed is None else feed.id
            if (feed is not None and feed.followed) or session.has_place(known):
                session.hear_note(known, value)
                self._hear(session, known, feed)
            elif session.leave_out():
                self.events.append(FeedsLeftOut(session=session.number, peer=session.peer))

    def _hear(self, session: Session, feed_id: str, feed: Feed | None) -> None:
        """Take a note of the peer about a feed, which may be unknown."""
        told = session.told(feed_id)
        if feed is None or not self._shares(feed, session):
            if told >= 0:
                session.refuse(feed_id)
            return
        relation = session.relations.get(feed_id)
        if relation is None or (relation.demand is Demand.UNTOLD and told >= 0):
            is_source = told > feed.received and self.sources.session_of(feed) is None
            relation = session.tell(feed, receive=is_source)
        self.sources.told(feed, session)
        session.serve(relation)

    def receive_message(self, session: Session, author: str, sequence: int, received: Any) -> None:
        """Take a message; only the next one of a feed that we exchange is checked."""
        relation = session.relations.get(author)
        if relation is None:
            return
        feed = relation.feed
        if sequence != feed.received + 1:
            if not sequence and relation.demand is Demand.SOURCE:  # it answers our request
                self._refuse(session, feed, feed.received + 1, _NO_SEQUENCE)
            elif session.is_gap(relation, sequence):
                gap = f"{author}: {sequence} after {feed.received}"
                self.fail(session, RemoteProtocolError(ErrorCode.OUT_OF_ORDER, gap))
            return
        try:
            message = self._format.check(feed.last_id, received)
        except ForkedFeedError as error:
            if feed.last_id is None:  # there is nothing that it could contradict
                self._refuse(session, feed, sequence, _NO_FIRST)
            else:
                self._contradict(feed, error.data)
        except InvalidMessageError as error:
            self._refuse(session, feed, sequence, str(error))
        else:
            feed.take(message, self._now)
            self._write(message)
            if session.reach(relation, sequence, self._now) and sequence < feed.claimed:
                self.sources.wait(feed)  # another peer is ahead
            if self._searches:
                self.sources.moved(feed, session)

    def receive_outside(self, peer: str, author: str, sequence: int, received: Any) -> bool:
        """Take a message from a peer outside of sessions; returns whether more are welcome."""
        feed = self.feeds.get(author)
        if feed is None or not self.shares(author, peer):
            return False
        if sequence != feed.received + 1:
            return True
        try:
            message = self._format.check(feed.last_id, received)
        except ForkedFeedError as error:
            if feed.last_id is None:
                self._tell_refused(None, peer, feed, sequence, _NO_FIRST)
            else:
                self._contradict(feed, error.data)
        except InvalidMessageError as error:
            self._tell_refused(None, peer, feed, sequence, str(error))
        else:
            self.append(feed, message)
            return True
        return False

    def is_confirmed(self, feed_id: str) -> bool:
        return 0 < self._most_told(feed_id) == self.feeds[feed_id].stored

    def is_unsurpassed(self, feed_id: str) -> bool:
        return 0 <= self._most_told(feed_id) <= self.feeds[feed_id].stored

    def _most_told(self, feed_id: str) -> int:
        """The highest sequence of a feed told by peers that we follow; -1 if none of them has."""
        told = (
            session.told(feed_id)
            for session in self.sessions.values()
            if session.has_told(feed_id) and self.feeds.follows(session.peer)
        )
        return max(told, default=REFUSAL)

    # Sharing

    def shares(self, feed_id: str, peer: str) -> bool:
        """Whether the feed is exchanged with that peer."""
        feed = self.feeds.get(feed_id)
        return feed is not None and feed.wanted and not self.feeds.blocks(feed_id, peer)

    def _shares(self, feed: Feed, session: Session) -> bool:
        """Whether the feed is exchanged in that session."""
        return (
            feed.wanted
            and not session.distrusts(feed.id)
            and not self.feeds.blocks(feed.id, session.peer)
        )

    def _inform(self, feed: Feed, session: Session) -> None:
        """Tell a peer about a feed, unless it knows already."""
        if not session.is_level(feed):
            self._share(feed, session)

    def _share(self, feed: Feed, session: Session) -> None:
        """Tell a peer about a feed, and send the messages that it has asked for."""
        if session.state is not SessionState.OPEN or not self._shares(feed, session):
            return
        if self.sources.session_of(feed) is None:
            self.sources.take(feed, session)
        else:
            session.tell(feed, receive=False)
        if session.has_told(feed.id):
            if session.claims(feed):
                self.sources.told(feed, session)
            session.serve(session.relations[feed.id])

    def _withdraw(self, feed: Feed) -> None:
        """Stop exchanging the feed with all peers."""
        self.sources.drop(feed)
        for session in self.sessions.values():
            if feed.id in session.relations:
                session.refuse(feed.id)

    def _withdraw_from(self, feed: Feed, session: Session) -> None:
        if feed.id in session.relations:
            session.refuse(feed.id)
            self.sources.lose(feed, session)

    # Invalid messages and forks

    def _refuse(self, session: Session, feed: Feed, sequence: int, reason: str) -> None:
        self._tell_refused(session.number, session.peer, feed, sequence, reason)
        try:
            session.distrust(feed.id)
        except RemoteProtocolError as error:
            self.fail(session, error)
        else:
            self._withdraw_from(feed, session)

    def _tell_refused(
        self, session: int | None, peer: str, feed: Feed, sequence: int, reason: str
    ) -> None:
        self.events.append(
            MessageRefused(
                session=session, peer=peer, feed=feed.id, sequence=sequence, reason=reason
            )
        )

    def _contradict(self, feed: Feed, theirs: bytes) -> None:
        """Freeze a feed whose author has signed two messages that contradict each other."""
        feed.move(FeedInput.CONTRADICTED)
        self._contradictions[feed.id] = theirs
        self._withdraw(feed)
        self._prove(feed)

    def _prove(self, feed: Feed) -> None:
        """Read our message for the proof once the store has it."""
        if feed.id in self._contradictions and feed.stored == feed.received:
            theirs = self._contradictions.pop(feed.id)
            self.work.read_one(feed, lambda ours: self._mark(feed, ours, theirs))

    def _mark(self, feed: Feed, ours: bytes, theirs: bytes) -> None:
        def proved(_: None) -> None:
            feed.move(FeedInput.PROVED)
            self.events.append(FeedForked(feed=feed.id, ours=ours, theirs=theirs))

        self.work.mark_forked(feed, ours, theirs, proved)

    # Time

    def next_deadline(self) -> float | None:
        times = (self.sources.next_deadline(), self._silent.next())
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: float) -> None:
        self._now = now
        while (number := self._silent.pop_due(now)) is not None:
            session = self.sessions[number]
            due = (session.heard_at() if self.work.has_room else now) + self._notes_s
            if due > now:
                self._silent.set(number, due)  # a part has come, or our slow store held it up
            else:
                self.fail(session, RemoteProtocolError(ErrorCode.NO_NOTES))
        self.sources.advance(now, takes=self.work.has_room)

"""The interplay of sessions and feeds: the notes and messages that each peer gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from culm.effects import StoreWork
from culm.machine import Effect, RemoteProtocolError
from culm.replication import Turns, Write, Writes
from culm.ssb.ebt.effects import AppendMessages, LoadClock, MarkForked, ReadMessages, SaveClock
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.ebt.events import (
    FeedExtended,
    FeedForked,
    FeedsLeftOut,
    MessageRefused,
    SessionEnded,
    SessionOpened,
    SessionSynced,
)
from culm.ssb.ebt.limits import Limits, Timing
from culm.ssb.ebt.model import (
    ForkedFeedError,
    Format,
    Head,
    InvalidMessageError,
    Message,
    PeerClock,
    StoredFeeds,
)
from culm.ssb.ebt.notes import REFUSAL
from culm.ssb.ebt.session import Feed, PeerSession, Relation
from culm.ssb.ebt.sources import Sources
from culm.ssb.ebt.states import (
    Demand,
    EndReason,
    FeedInput,
    FeedState,
    SessionInput,
    SessionRole,
    SessionState,
)
from culm.timers import Deadlines, earliest


class Feeds:
    """All feeds by id; the followed ones also in the order in which following began.

    stored: the number of messages in the store.
    """

    def __init__(self, stored: StoredFeeds) -> None:
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
    def followed(self) -> Mapping[str, Feed]:
        return self._followed

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
        return target in self._blocks.get(author, ())

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


_OVERHEAD: Final = 512  # bytes of a message besides its data
_NO_SEQUENCE: Final = "it has no sequence"
_NOTES: Final = ""  # stands for notes to come, among feeds
_NO_FIRST: Final = "the first message of a feed follows no other one"


class FeedExchange:
    """All sessions, and all feeds.

    Effects for the store come in this order: small ones, one write at a time, then reads, of which
    a session has one under way when there is room for its messages.
    """

    __slots__ = (
        "_by_peer",
        "_contradictions",
        "_format",
        "_lacking",
        "_limits",
        "_loading",
        "_me",
        "_notes_s",
        "_now",
        "_readers",
        "_saving",
        "_searches",
        "_silent",
        "_writes",
        "feeds",
        "sessions",
        "sources",
        "work",
    )

    def __init__(
        self,
        *,
        me: str,
        stored: StoredFeeds,
        format: Format,
        now: float,
        timing: Timing,
        limits: Limits,
    ) -> None:
        self.feeds = Feeds(stored)
        self.work = StoreWork()
        self._writes: Writes[Message] = Writes(
            size_max=limits.unwritten_size_max, count_max=limits.write_count_max
        )
        self._readers: Turns[PeerSession] = Turns()  # with something to read, perhaps
        self._loading: set[str] = set()  # peers whose clocks are on their way from the store
        self._saving: dict[str, PeerClock] = {}  # peers' clocks on their way to the store
        self._limits = limits
        self.sessions: dict[int, PeerSession] = {}
        self.sources = Sources(
            sessions=self.sessions,
            follows=self.feeds.follows,
            timing=timing,
            now=now,
            tell=self.work.emit,
        )
        self._searches = self.sources.searches
        self._me = me
        self._format = format
        self._now = now
        self._notes_s = timing.notes_s
        self._by_peer: dict[str, PeerSession] = {}
        self._silent: Deadlines[int] = Deadlines()  # sessions that wait for the first notes
        self._lacking: dict[int, dict[str, None]] = {}  # by session: see `_compare`
        self._contradictions: dict[str, bytes] = {}  # by feed: for a proof, once ours is stored

    # Feeds

    def follow(self, feed_id: str) -> None:
        feed = self.feeds.follow(feed_id)
        # The peer that has the most of it becomes its source.
        for session in sorted(self.sessions.values(), key=lambda each: -each.told(feed_id)):
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
        size = len(message.data) + _OVERHEAD
        self.work.hold(size)
        self._writes.add(message, size)

    def _written(self, write: Write[Message], _: None) -> None:
        self._writes.done()
        self.work.release(write.size)
        messages: dict[str, list[Message]] = {}
        for message in write.items:
            messages.setdefault(message.author, []).append(message)
        for feed_id, new in messages.items():
            feed = self.feeds[feed_id]
            first, last = new[0].sequence, new[-1].sequence
            self.feeds.store(feed, last)
            self.work.emit(FeedExtended(feed=feed_id, first=first, last=last))
            if feed.wanted:
                data = [message.data for message in new]
                for session in self.sessions.values():
                    if self._shares(feed, session):
                        session.extend(feed, first, data)
                    if feed_id in self._lacking[session.number]:
                        self._compare(feed, session)
            self._prove(feed)

    # Sessions

    def has_session(self, peer: str) -> bool:
        return peer in self._by_peer

    def connect(self, session: PeerSession) -> None:
        earlier = self._by_peer.get(session.peer)
        if earlier is not None:
            self.end(earlier, EndReason.RECONNECTED)
        self.sessions[session.number] = self._by_peer[session.peer] = session
        self._lacking[session.number] = {_NOTES: None}
        saving = self._saving.get(session.peer)
        if saving is not None:
            self._loaded(session.peer, saving)
        elif session.peer not in self._loading:  # otherwise it was asked for an earlier session
            self._loading.add(session.peer)
            self.work.ask(LoadClock, partial(self._loaded, session.peer), peer=session.peer)

    def fail(self, session: PeerSession, error: RemoteProtocolError) -> None:
        """End a session whose peer has broken a rule."""
        self.end(session, EndReason.FAULT, error.detached())

    def end(
        self, session: PeerSession, reason: EndReason, error: RemoteProtocolError | None = None
    ) -> None:
        """End a session that has not ended."""
        loaded = session.state is not SessionState.LOADING
        session.move(SessionInput.END)
        del self.sessions[session.number], self._by_peer[session.peer]
        del self._lacking[session.number]
        self._silent.cancel(session.number)
        self.sources.end(session)
        if loaded:
            stored = self.feeds.stored
            self._save(session.peer, session.memory(self.feeds.followed, stored=stored))
        self.work.emit(
            SessionEnded(session=session.number, peer=session.peer, reason=reason, error=error)
        )

    def _loaded(self, peer: str, clock: PeerClock) -> None:
        self._loading.discard(peer)
        if (session := self._by_peer.get(peer)) is None:
            return
        clock = session.remember(clock, stored=self.feeds.stored)
        if clock.told:
            self._save(peer, clock)
        if session.role is SessionRole.SERVER:
            session.move(SessionInput.LOADED_AS_SERVER)
            self._introduce(session)
        else:
            session.move(SessionInput.LOADED_AS_CLIENT)
            self._silent.set(session.number, self._now + self._notes_s)

    def _save(self, peer: str, clock: PeerClock) -> None:
        """Save a clock; of those that come while one is on its way to the store, the last one."""
        is_saving = peer in self._saving
        self._saving[peer] = clock
        if not is_saving:
            self.work.ask(SaveClock, partial(self._saved, peer, clock), peer=peer, clock=clock)

    def _saved(self, peer: str, clock: PeerClock, _: None) -> None:
        last = self._saving.pop(peer)
        if last is not clock:
            self._save(peer, last)
        elif not self._saving:
            self._saving.clear()  # of its room, too

    def _introduce(self, session: PeerSession) -> None:
        """Send our first notes; see `PeerSession.first_notes`."""
        self.work.emit(SessionOpened(session=session.number, peer=session.peer))
        session.outgoing.open()
        for feed in session.first_notes(self._me, self.feeds.followed.values()):
            self._share(feed, session)

    def receive_notes(self, session: PeerSession, notes: Mapping[str, int]) -> None:
        first = session.state is SessionState.AWAITING_NOTES
        session.move(SessionInput.NOTES)
        if first:
            self._silent.cancel(session.number)
            self._introduce(session)
        lacking = self._lacking[session.number]
        if lacking:
            lacking[_NOTES] = None
        for feed_id, value in notes.items():
            feed = self.feeds.get(feed_id)
            # All sessions share one string for a feed that we know.
            known = feed_id if feed is None else feed.id
            if (feed is not None and feed.followed) or session.has_place(known):
                session.hear_note(known, value)
                self._hear(session, known, feed)
            elif session.leave_out():
                self.work.emit(FeedsLeftOut(session=session.number, peer=session.peer))
        self._lack_no_more(_NOTES, session)

    def _hear(self, session: PeerSession, feed_id: str, feed: Feed | None) -> None:
        """Take a note of the peer about a feed, which may be unknown."""
        told = session.told(feed_id)
        if feed is None or not self._shares(feed, session):
            if told >= 0:
                session.refuse(feed_id)
            self._lack_no_more(feed_id, session)
            return
        relation = session.relations.get(feed_id)
        if relation is None or (relation.demand is Demand.UNTOLD and told >= 0):
            is_source = told > feed.received and self.sources.session_of(feed) is None
            relation = session.tell(feed, receive=is_source)
        self.sources.told(feed, session)
        if told < 0:
            relation.release()
        session.serve(relation)
        self._compare(feed, session)

    def _compare(self, feed: Feed, session: PeerSession) -> None:
        """Note whether the store has less of a feed than the peer has told; see `SessionSynced`."""
        if session.told(feed.id) > feed.stored and feed.id in session.relations:
            self._lacking[session.number][feed.id] = None
        else:
            self._lack_no_more(feed.id, session)

    def _lack_no_more(self, feed_id: str, session: PeerSession) -> None:
        lacking = self._lacking[session.number]
        if feed_id in lacking:
            del lacking[feed_id]
            if not lacking:
                lacking.clear()  # of its room, too
                self.work.emit(SessionSynced(session=session.number, peer=session.peer))

    def receive_message(
        self, session: PeerSession, author: str, sequence: int, received: Any
    ) -> None:
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
            self.append(feed, message)
            if session.reach(relation, sequence, self._now) and sequence < feed.claimed:
                self.sources.wait(feed)  # another peer is ahead
            if self._searches:
                self.sources.moved(feed, session)

    def expects(self, session: int, author: str, sequence: int, *, last: int) -> bool:
        """Whether a message is checked in its turn, if those before it, up to `last`, are taken."""
        found = self.sessions.get(session)
        relation = None if found is None else found.relations.get(author)
        if found is None or relation is None or sequence != max(last, relation.feed.received) + 1:
            return False
        self.sources.arrives(relation.feed, found, sequence)
        return True

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

    def _shares(self, feed: Feed, session: PeerSession) -> bool:
        """Whether the feed is exchanged in that session."""
        return (
            feed.wanted
            and not session.distrusts(feed.id)
            and not self.feeds.blocks(feed.id, session.peer)
        )

    def _inform(self, feed: Feed, session: PeerSession) -> None:
        """Tell a peer about a feed, unless it knows already."""
        if not session.is_level(feed):
            self._share(feed, session)

    def _share(self, feed: Feed, session: PeerSession) -> None:
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
            self._compare(feed, session)

    def _withdraw(self, feed: Feed) -> None:
        """Stop exchanging the feed with all peers."""
        self.sources.drop(feed)
        for session in self.sessions.values():
            self._withdraw_from(feed, session)

    def _withdraw_from(self, feed: Feed, session: PeerSession) -> None:
        if feed.id in session.relations:
            session.refuse(feed.id)
            self._lack_no_more(feed.id, session)
            self.sources.lose(feed, session)

    # Invalid messages and forks

    def _refuse(self, session: PeerSession, feed: Feed, sequence: int, reason: str) -> None:
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
        self.work.emit(
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
            self.work.ask(
                ReadMessages,
                lambda messages: self._mark(feed, messages[0], theirs),
                feed=feed.id,
                first=feed.stored,
                count_max=1,
                size_max=self._limits.unsent_size_max,
            )

    def _mark(self, feed: Feed, ours: bytes, theirs: bytes) -> None:
        def proved(_: None) -> None:
            feed.move(FeedInput.PROVED)
            self.work.emit(FeedForked(feed=feed.id, ours=ours, theirs=theirs))

        self.work.ask(MarkForked, proved, feed=feed.id, ours=ours, theirs=theirs)

    # The store

    @property
    def has_room(self) -> bool:
        """Whether messages may come: there is room for them until they are written."""
        return self.work.unwritten_size < self._limits.unwritten_size_max

    @property
    def is_done(self) -> bool:
        """Whether the store has done everything."""
        return not (len(self.work) or self._writes)

    def read_for(self, session: PeerSession) -> None:
        """Note that there may be something to read for that session."""
        self._readers.add(session, fresh=False)

    def next_effect(self) -> Effect[Any] | None:
        effect = self.work.next_effect()
        if effect is not None or self.work.has_failed:
            return effect
        write = self._writes.next()
        if write is not None:
            then, messages = partial(self._written, write), tuple(write.items)
            return self.work.hand_out(AppendMessages, then, messages=messages)
        while self._readers and effect is None:
            effect = self._read_for(self._readers.take())
        return effect

    def _read_for(self, session: PeerSession) -> Effect[Any] | None:
        relation = session.next_read()
        if relation is None:
            return None
        first = session.next_to_send(relation)
        return self.work.hand_out(
            ReadMessages,
            partial(self._have_read, session.number, relation, first),
            feed=relation.feed.id,
            first=first,
            count_max=min(self._limits.read_count_max, relation.feed.stored + 1 - first),
            size_max=session.outgoing.read_size,
        )

    def _have_read(
        self, number: int, relation: Relation, first: int, messages: Sequence[bytes]
    ) -> None:
        """Take messages for a session, which a slow store does not keep once it has ended."""
        session = self.sessions.get(number)
        if session is not None:
            session.receive_read(relation, first, messages)

    # Time

    def next_deadline(self) -> float | None:
        return earliest(self.sources.next_deadline(), self._silent.next())

    def advance(self, now: float) -> None:
        self._now = now
        while (number := self._silent.pop_due(now)) is not None:
            session = self.sessions[number]
            due = (session.heard_at() if self.has_room else now) + self._notes_s
            if due > now:
                self._silent.set(number, due)  # a part has come, or our slow store held it up
            else:
                self.fail(session, RemoteProtocolError(ErrorCode.NO_NOTES))
        self.sources.advance(now, takes=self.has_room)

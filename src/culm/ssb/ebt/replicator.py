"""The machine: one peer's feeds, and its sessions with other peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final, TypeVar, cast

from culm.arguments import check_int, check_type
from culm.machine import (
    Closed,
    ContractErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    Ticket,
    check_time,
)
from culm.signatures import Signed, Verify
from culm.ssb.ebt.effects import ReadMessages, ReplicatorEffect
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.ebt.events import ReplicatorEvent
from culm.ssb.ebt.exchange import FeedExchange
from culm.ssb.ebt.limits import Limits, Timing
from culm.ssb.ebt.model import Format, Head, Message, StoredFeeds, SyncProgress
from culm.ssb.ebt.notes import NOTE_MAX
from culm.ssb.ebt.session import PeerSession, Relation
from culm.ssb.ebt.states import (
    Demand,
    EndReason,
    FeedState,
    SessionRole,
    SessionState,
    State,
    Supply,
)
from culm.ssb.feed_id import check_feed_id

R = TypeVar("R")

_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()


class Replicator:
    """Exchanges feeds with any number of peers, in a session with each.

    me
        Our own feed; peers that it blocks get no session.  Like any other, it is exchanged only if
        it is followed.
    stored
        The feeds in the store.
    format
        Checks messages.
    now
        The time (monotonic seconds).
    timing
        The times that peers are given.
    limits
        Bounds on the memory that peers may make us use.

    It does not read the wire: `frames_to_send` gives a session's frames, and `receive_notes` and
    `receive_message` take arrived frames.  Drive it like every machine:
    one input, then events until ``None``, then effects, then the frames of the sessions in
    `sessions_to_send`, in rounds until one brings nothing; then the deadline.

    A peer's fault ends only its session (`SessionEnded`).  If the store fails, everything ends.

    Worst-case memory besides that of the feeds (about 500 bytes each): for each session the amounts
    that `Limits` gives for `feeds_max` and `unsent_size_max`, and `unwritten_size_max` once.
    """

    def __init__(
        self,
        *,
        me: str,
        stored: StoredFeeds,
        format: Format,
        now: float,
        timing: Timing = _DEFAULT_TIMING,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        check_feed_id("me", me)
        check_type("stored", stored, StoredFeeds)
        check_type("timing", timing, Timing)
        check_type("limits", limits, Limits)
        check_time(now, None)
        self._me = me
        self._limits = limits
        self._now = now
        self._state = State.OPEN
        self._numbers = count(1)
        self._stirred: dict[int, None] = {}  # sessions which may have something to send
        self._exchange = FeedExchange(
            me=me, stored=stored, format=format, now=now, timing=timing, limits=limits
        )

    # Its state

    @property
    def state(self) -> State:
        return self._state

    @property
    def me(self) -> str:
        return self._me

    @property
    def goes_on(self) -> bool:
        """Whether more frames may be taken: no event or write has to come first."""
        return self._exchange.work.all_told and self._exchange.has_room

    @property
    def takes_messages(self) -> bool:
        """Whether there is room for messages; otherwise leave sessions' frames waiting."""
        return self._exchange.has_room

    @property
    def progress(self) -> SyncProgress:
        """The progress of replication; looks at every feed of every session."""
        current = target = 0
        for session in self._exchange.sessions.values():
            for done, wanted in map(partial(_progress_of, session), session.relations.values()):
                current += done
                target += wanted
        return SyncProgress(current, target)

    @property
    def clock(self) -> dict[str, int]:
        """The last sequence in the store of each feed that is known."""
        return self._exchange.feeds.clock()

    def head(self, feed: str) -> Head | None:
        """The last message taken of a feed, perhaps not stored yet."""
        return self._exchange.feeds.head(feed)

    def stored(self, feed: str) -> int:
        """The last sequence of a feed in the store; 0 if there is none."""
        found = self._exchange.feeds.get(feed)
        return 0 if found is None else found.stored

    def is_confirmed(self, feed: str) -> bool:
        """Whether the store has as much of a feed as the peers that we follow have told.

        At least one of them has told, in an open session, that it has some of the feed.
        """
        return self._exchange.is_confirmed(feed)

    def is_unsurpassed(self, feed: str) -> bool:
        """Whether such peers have told of the feed, and none of them more than the store has."""
        return self._exchange.is_unsurpassed(feed)

    def source(self, feed: str) -> str | None:
        """The peer from which a feed is received."""
        return self._exchange.sources.peer_of(feed)

    def follows(self, feed: str) -> bool:
        return self._exchange.feeds.follows(feed)

    def blocks(self, author: str, target: str) -> bool:
        """Whether `author` blocks `target`."""
        return self._exchange.feeds.blocks(author, target)

    @property
    def followed(self) -> tuple[str, ...]:
        """The feeds that are followed, in the order in which following began."""
        return tuple(self._exchange.feeds.followed)

    def shares(self, feed: str, peer: str) -> bool:
        """Whether the feed is exchanged with that peer, in both directions.

        It is if it is followed and has not forked, and its author does not block the peer.
        """
        return self._exchange.shares(feed, peer)

    def has_session(self, peer: str) -> bool:
        """Whether there is a session with that peer, over any stream."""
        return self._exchange.has_session(peer)

    @property
    def takes_sessions(self) -> bool:
        """Whether there is room for a session with one more peer."""
        return len(self._exchange.sessions) < self._limits.sessions_max

    def is_ready(self, session: int) -> bool:
        """Whether the session takes frames: it has loaded the peer's clock."""
        found = self._exchange.sessions.get(session)
        return found is not None and found.state is not SessionState.LOADING

    def is_loading(self, session: int) -> bool:
        """Whether the session still waits for the peer's clock from the store."""
        found = self._exchange.sessions.get(session)
        return found is not None and found.state is SessionState.LOADING

    # Requests of the user

    def follow(self, feed: str, value: bool = True) -> None:
        """Exchange a feed with all peers, or stop doing so.  Again: no effect.

        Raises `LocalProtocolError` (``ALREADY_CLOSED``), `ValueError` for something that is not a
        feed's id.
        """
        check_feed_id("feed", feed)
        check_type("value", value, bool)
        self._check_open()
        if value is not self._exchange.feeds.follows(feed):
            (self._exchange.follow if value else self._exchange.unfollow)(feed)

    def block(self, author: str, target: str, value: bool = True) -> None:
        """Note that `author` blocks `target` or no longer does: that peer does not get its feed.

        If we are the author, there is no session with that peer.  Raises as `follow`.
        """
        check_feed_id("author", author)
        check_feed_id("target", target)
        check_type("value", value, bool)
        self._check_open()
        if value is not self._exchange.feeds.blocks(author, target):
            (self._exchange.block if value else self._exchange.unblock)(author, target)

    def append(self, message: Message) -> None:
        """Take the next message of a feed that is written on this side.

        `FeedExtended` says when it is stored.  Raises `LocalProtocolError`:
        ``WRONG_SEQUENCE``, ``NOT_WHOLE``, ``ALREADY_CLOSED``.
        """
        check_type("message", message, Message)
        if self._exchange.feeds.get(message.author) is None:
            check_feed_id("author", message.author)
        check_int("sequence", message.sequence, 1)
        check_type("id", message.id, str)
        check_type("data", message.data, bytes)
        if not message.data:
            raise ValueError("a message has data")
        self._check_open()
        feed = self._exchange.feeds[message.author]
        if feed.state is not FeedState.WHOLE:
            raise LocalProtocolError(ErrorCode.NOT_WHOLE, message.author)
        if message.sequence != feed.received + 1:
            gap = f"{message.sequence} after {feed.received}"
            raise LocalProtocolError(ErrorCode.WRONG_SEQUENCE, gap)
        self._exchange.append(feed, message)

    def expects(self, session: int, author: str, sequence: int, *, last: int = 0) -> bool:
        """Whether a message that is here is checked in its turn: the next one of a feed of theirs.

        last: the last one of that feed, from there, that waits.
        """
        return self._exchange.expects(session, author, sequence, last=last)

    def verify(self, signatures: tuple[Signed, ...], then: Callable[[list[bool]], None]) -> None:
        """Have signatures of messages verified by the driver (`culm.signatures.Verify`).

        `then` gets the verdicts, and never if that could not be done.
        """
        if self._state in (State.OPEN, State.CLOSING):
            self._exchange.work.ask(Verify, then, signatures=signatures)

    # Outside of sessions

    def read(
        self,
        feed: str,
        *,
        first: int,
        count_max: int,
        size_max: int,
        then: Callable[[tuple[bytes, ...]], None],
    ) -> None:
        """Have messages read for a peer that has no session; the first one must be there.

        `then` gets them when the store has read them (`ReadMessages`), and never if it could not.
        """
        check_int("first", first, 1, self.stored(feed))
        check_int("count_max", count_max, 1)
        check_int("size_max", size_max, 1)
        if self._state in (State.OPEN, State.CLOSING):
            self._exchange.work.ask(
                ReadMessages, then, feed=feed, first=first, count_max=count_max, size_max=size_max
            )

    def receive_outside(self, peer: str, author: str, sequence: int, received: Any) -> bool:
        """Take a message that a peer has sent outside of a session; see `receive_message`.

        Returns whether more of that feed is welcome from that peer.
        """
        if self._state is not State.OPEN:
            return False
        return self._exchange.receive_outside(peer, author, sequence, received)

    # Sessions

    def connect(
        self, peer: str, *, role: SessionRole, heard_at: Callable[[], float] = lambda: -inf
    ) -> int:
        """Open a session with `peer` over a new stream; returns the session's number.

        heard_at
            Returns when the last bytes came from the peer, even a part of a frame (seconds): the
            wait for a server's first notes counts from then, since they take time over a slow line.

        An earlier session with the peer ends.  Raises `LocalProtocolError`:
        ``BLOCKED`` (by us), ``TOO_MANY_SESSIONS``, ``ALREADY_CLOSED``.
        """
        check_feed_id("peer", peer)
        check_type("role", role, SessionRole)
        self._check_open()
        if self._exchange.feeds.blocks(self._me, peer):
            raise LocalProtocolError(ErrorCode.BLOCKED, peer)
        if not (self.takes_sessions or self._exchange.has_session(peer)):
            raise LocalProtocolError(ErrorCode.TOO_MANY_SESSIONS)
        session = PeerSession(
            number=next(self._numbers),
            peer=peer,
            role=role,
            limits=self._limits,
            heard_at=heard_at,
            wake=self._wake,
        )
        self._exchange.connect(session)
        return session.number

    def disconnect(self, session: int, error: RemoteProtocolError | None = None) -> None:
        """Note that the stream of a session has ended, or brought an invalid frame (`error`).

        `SessionEnded` follows, once.  No effect if there is no such session.
        """
        check_type("error", error, RemoteProtocolError, type(None))
        found = self._exchange.sessions.get(session)
        if found is None:
            return
        if error is None:
            self._exchange.end(found, EndReason.DISCONNECTED)
        else:
            self._exchange.fail(found, error)

    def receive_notes(self, session: int, notes: Mapping[str, int]) -> None:
        """Take the peer's notes (`decode_notes` reads them).

        Raises `LocalProtocolError`: ``NO_SESSION``, ``NOT_READY``; `ValueError` for a note above
        `NOTE_MAX`.
        """
        if max(notes.values(), default=0) > NOTE_MAX:
            raise ValueError(f"a note is at most {NOTE_MAX}, not {max(notes.values())}")
        self._exchange.receive_notes(self._ready(session), notes)

    def receive_message(self, session: int, author: str, sequence: int, received: Any) -> None:
        """Take a message of the peer; `received` is passed to `Format.check`.

        A message that was not asked for, or is there already, is dropped without a check.
        One without a sequence, given as 0, is invalid, and counts as the next one of its feed.
        Raises as `receive_notes`.
        """
        found = self._exchange.sessions.get(session)
        if found is None or found.state is SessionState.LOADING:
            found = self._ready(session)
        self._exchange.receive_message(found, author, sequence, received)

    def frames_to_send(self, session: int, size_max: int | None = None) -> list[bytes]:
        """Take frames, each a JSON text, up to `size_max` bytes, or more with the last one.

        Gives nothing for a session that does not exist.
        """
        found = self._exchange.sessions.get(session)
        return [] if found is None else found.outgoing.take(size_max)

    def sessions_to_send(self) -> list[int]:
        """Take the sessions that may have new frames since the last call."""
        stirred, self._stirred = self._stirred, {}
        return list(stirred)

    def _ready(self, number: int) -> PeerSession:
        session = self._exchange.sessions.get(number)
        if session is None:
            raise LocalProtocolError(ErrorCode.NO_SESSION, f"{number}")
        if session.state is SessionState.LOADING:
            raise LocalProtocolError(ErrorCode.NOT_READY, f"{number}")
        return session

    def _wake(self, session: PeerSession) -> None:
        self._stirred[session.number] = None
        self._exchange.read_for(session)

    def _check_open(self) -> None:
        if self._state is not State.OPEN:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    # The contract

    def next_event(self) -> ReplicatorEvent | None:
        event = cast("ReplicatorEvent | None", self._exchange.work.next_event())
        ends = self._state is State.CLOSING and self._exchange.is_done
        if event is None and (ends or self._state is State.FAILING):
            self._state = State.CLOSED
            return Closed()
        return event

    def next_effect(self) -> ReplicatorEffect | None:
        return cast("ReplicatorEffect | None", self._exchange.next_effect())

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect; see each effect for its result.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET``, ``WRONG_RESULT``.
        """
        self._exchange.work.complete(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """The store could not do it: everything ends, and nothing more is sent.

        Raises `LocalProtocolError` as `complete` does.
        """
        self._exchange.work.fail(ticket, error)
        if self._state in (State.OPEN, State.CLOSING):
            self._end_sessions()
            self._state = State.FAILING

    def next_deadline(self) -> float | None:
        return self._exchange.next_deadline() if self._state is State.OPEN else None

    def advance(self, now: float) -> None:
        """Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``)."""
        check_time(now, self._now)
        self._now = now
        if self._state is State.OPEN:
            self._exchange.advance(now)

    def close(self) -> None:
        """End all sessions; messages taken are still written, and peers' clocks saved."""
        if self._state is State.OPEN:
            self._state = State.CLOSING
            self._end_sessions()

    def _end_sessions(self) -> None:
        for session in list(self._exchange.sessions.values()):
            self._exchange.end(session, EndReason.DISCONNECTED)


def _progress_of(session: PeerSession, relation: Relation) -> tuple[int, int]:
    """The messages that have been moved, and those to be moved in all: see `SyncProgress`."""
    feed = relation.feed
    current = target = 0
    if relation.demand is Demand.SOURCE:
        claimed = max(session.told(feed.id), relation.asked)
        current += min(feed.received, claimed) - relation.asked
        target += claimed - relation.asked
    if relation.supply in (Supply.READING, Supply.LIVE):
        has = session.next_to_send(relation) - 1  # or it is on its way
        current += has - relation.base
        target += max(feed.stored, has) - relation.base
    return current, target

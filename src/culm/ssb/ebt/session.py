"""One session: the notes and messages of its peer, and ours to it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from culm.machine import RemoteProtocolError
from culm.replication import Turns
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.ebt.limits import Limits
from culm.ssb.ebt.model import TURNS, Head, Message, PeerClock, turn_of
from culm.ssb.ebt.notes import REFUSAL
from culm.ssb.ebt.states import (
    FEED_RULES,
    SESSION_RULES,
    SUPPLY_RULES,
    Demand,
    FeedInput,
    FeedState,
    SessionInput,
    SessionRole,
    SessionState,
    Supply,
    SupplyInput,
)

_NO_FEEDS: frozenset[str] = frozenset()


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
        self.received, self.last_id, self.moved = message.sequence, message.id, now

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

    __slots__ = ("asked", "asks", "base", "brought", "demand", "feed", "sent", "supply", "told")

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
        self.demand, self.told = demand, self.feed.stored

    def restart(self, base: int) -> None:
        self.base = self.sent = base

    def send(self, last: int) -> None:
        self.sent = last

    def bring(self) -> None:
        self.brought += 1

    def ask(self) -> None:
        """Make the peer our source."""
        self.asked = self.feed.received
        self.asks += 1
        self.brought = 0

    def release(self) -> None:
        """End the peer's time as our source: it refuses the feed, or the feed is dropped."""
        self.demand = Demand.UNTOLD

    def move(self, happened: SupplyInput) -> None:
        self.supply = SUPPLY_RULES[self.supply][happened]


_READ_SIZE_MIN = 2048


class SendQueue:
    """Notes are sent first, at most one for each feed: the latest.

    The messages of a feed are sent in order, and feeds take turns.  Messages are read from the
    store when there is room, one read at a time.

    read_size: bytes to read at a time, and the most that may wait.  It is halved each time the
        peer no longer wants messages read for it, and doubled when it has taken all of them, so
        that few bytes are read in vain for a peer that keeps changing its mind.
    """

    __slots__ = (
        "_limits",
        "_notes",
        "_queues",
        "_reading",
        "_refusals",
        "_size",
        "_wake",
        "_wanting",
        "read_size",
    )

    def __init__(self, limits: Limits, *, wake: Callable[[], None]) -> None:
        self._limits = limits
        self._wake = wake  # called when there may be something to send or to read
        self._notes: dict[str, int] | None = None  # none are due; an empty frame may be due, too
        self._refusals: dict[str, int] = {}  # before all other notes
        self._queues: dict[Relation, list[bytes]] = {}  # in turns
        self._size = 0
        self._wanting: Turns[Relation] = Turns()
        self._reading = False
        self.read_size = limits.unsent_size_max

    @property
    def has_room(self) -> bool:
        return self._size < self.read_size

    # Notes

    def open(self) -> None:
        """Make a frame of notes due, even an empty one."""
        if self._notes is None:
            self._notes = {}
        self._wake()

    def note(self, feed: str, value: int) -> None:
        if self._notes is None:
            self._notes = {}
        self._notes[feed] = value
        self._wake()

    def refuse_first(self, feed: str) -> None:
        """Put a refusal before the note about a feed that follows."""
        self._refusals[feed] = REFUSAL

    # Messages

    def put(self, relation: Relation, messages: Sequence[bytes], last: int) -> None:
        """Queue messages of a feed, the last of which has the sequence `last`."""
        self._queues.setdefault(relation, []).extend(messages)
        self._size += sum(map(len, messages))
        relation.send(last)
        self._wake()

    def restart(self, relation: Relation, base: int) -> None:
        """Forget the queued messages of a feed: the peer wants it from `base` on, or not at all."""
        dropped = self._queues.pop(relation, None)
        if dropped is not None:
            self._size -= sum(map(len, dropped))
            self.waste()
        self.want_no_more(relation)
        relation.restart(base)

    # Reading

    def want(self, relation: Relation) -> None:
        """Note that there are messages to read for the peer."""
        self._wanting.add(relation, fresh=False)
        self._wake()

    def want_no_more(self, relation: Relation) -> None:
        """Note that there is nothing to read of that feed now."""
        self._wanting.discard(relation)

    @property
    def can_read(self) -> bool:
        """Whether `next_read` has something."""
        return bool(self._wanting) and not self._reading and self.has_room

    def next_read(self) -> Relation:
        """The feed to read next; `read` follows."""
        self._reading = True
        return self._wanting.take()

    def read(self) -> None:
        """Note that the read is done, or that there was nothing to read."""
        self._reading = False
        self._wake()

    def waste(self) -> None:
        """Read less at a time: the peer no longer wants the messages read for it."""
        self.read_size = max(self.read_size // 2, min(self.read_size, _READ_SIZE_MIN))

    # Taking

    def take(self, size_max: int | None) -> list[bytes]:
        """Take frames until they have `size_max` bytes, or more with the last one."""
        frames: list[bytes] = []
        room = float("inf") if size_max is None else size_max
        while room > 0 and (self._refusals or self._notes is not None):
            frames.append(self._take_notes())
            room -= len(frames[-1])
        while room > 0 and self._queues:
            relation = next(iter(self._queues))
            messages = self._queues.pop(relation)
            totals = list(accumulate(map(len, messages)))
            count = len(totals) if totals[-1] <= room else bisect_left(totals, room) + 1
            size = totals[count - 1]
            if count < len(messages):
                self._queues[relation] = messages[count:]  # others first, next time
                del messages[count:]
            frames += messages
            room -= size
            self._size -= size
            if not self._queues and self.read_size < self._limits.unsent_size_max:
                self.read_size = min(2 * self.read_size, self._limits.unsent_size_max)
        if frames and self._wanting:
            self._wake()
        return frames

    def _take_notes(self) -> bytes:
        notes = self._refusals or self._notes or {}
        taken = {feed: notes.pop(feed) for feed in list(islice(notes, self._limits.notes_max))}
        self._notes = self._notes or None
        return json.dumps(taken, separators=(",", ":")).encode()


class PeerSession:
    """The state of a session; its consequences for other sessions are left to `FeedExchange`.

    heard_at: returns when the last bytes came from the peer, even a part of a frame.
    """

    def __init__(
        self,
        *,
        number: int,
        peer: str,
        role: SessionRole,
        limits: Limits,
        heard_at: Callable[[], float],
        wake: Callable[[PeerSession], None],
    ) -> None:
        self.number = number
        self.peer = peer
        self.role = role
        self.heard_at = heard_at
        self.state = SessionState.LOADING
        self.relations: dict[str, Relation] = {}
        self.outgoing = SendQueue(limits, wake=lambda: wake(self))
        self.heard = 0.0  # time of the last message that we wanted
        self._limits = limits
        self._told: dict[str, int] = {}  # by feed: the sequence, in this session; -1 is a refusal
        self._others = 0  # feeds it has told of that we do not follow
        self._leaves_out = False
        self._receives: dict[str, bool] = {}  # by feed: the receive flag, told in this session
        # Sets, most of them empty: an empty `set` is three times as large.
        self._refused: dict[str, None] = {}  # in this session
        self._refused_before: dict[str, None] = {}  # in earlier ones; see `PeerClock.refused`
        self._memory = PeerClock()  # of the session before
        self._turn = 0  # of the feeds that are mentioned in any case
        self._distrusted: dict[str, None] = {}  # feeds of which it has sent an invalid message
        self._distrusted_before: dict[str, None] = {}  # in earlier sessions, and not yet again
        self._tried = _NO_FEEDS  # those of them that have another chance

    def move(self, happened: SessionInput) -> None:
        self.state = SESSION_RULES[self.state][happened]

    # Memory of the peer

    def remember(self, clock: PeerClock, *, stored: int) -> PeerClock:
        """Start from the clock of an earlier session; returns the clock to keep from now on.

        stored: the number of messages in our store.
        """
        if clock.stored > stored:
            clock = PeerClock(sessions=clock.sessions)
        self._memory = clock
        self._turn = clock.sessions % TURNS
        self._refused_before.update(dict.fromkeys(clock.refused))
        self._distrusted_before.update(dict.fromkeys(clock.distrusted))
        self._tried = self._in_turn(clock)
        return replace(clock, sessions=clock.sessions + 1)

    def _in_turn(self, clock: PeerClock) -> frozenset[str]:
        """Distrusted feeds whose turn it is: too few to end the session."""
        found = sorted(feed for feed in clock.distrusted if turn_of(feed) == self._turn)
        if not found:
            return _NO_FEEDS
        count_max = self._limits.invalid_max
        start = clock.sessions // TURNS * count_max % len(found)
        return frozenset((found[start:] + found[:start])[:count_max])

    def memory(self, followed: Mapping[str, Feed], *, stored: int) -> PeerClock:
        """The clock to keep for the next session, without feeds that we do not follow.

        Those are mentioned to the peer anyway once we follow them, and are private until then.
        """
        told: dict[str, int] = {}
        held: dict[str, int] = {}
        last_told = {**self._memory.told, **self._told}
        for feed in followed.values():
            if (sequence := last_told.get(feed.id)) is not None:
                told[feed.id] = sequence
                if feed.stored != sequence:
                    held[feed.id] = feed.stored
        return PeerClock(
            told=told,
            refused=frozenset(followed.keys() & (self._refused | self._refused_before).keys()),
            held=held,
            stored=stored,
            sessions=self._memory.sessions + 1,
            distrusted=frozenset(
                followed.keys() & (self._distrusted | self._distrusted_before).keys()
            ),
        )

    def is_level(self, feed: Feed) -> bool:
        """Whether the peer knows our sequence of the feed, so that no note is needed.

        It does not if we have less than before.  A refusal counts only in the session in which it
        was told: since then the peer may have followed the feed, and one of us may have been killed
        before that could be saved.
        """
        feed_id = feed.id
        told = self.last_told(feed_id)
        if told == REFUSAL:
            is_level = feed_id in self._receives  # it has said so in this session
        else:
            is_level = told == feed.stored >= self._memory.held.get(feed_id, 0)
        return is_level and feed_id not in self._refused and feed_id not in self._refused_before

    def first_notes(self, me: str, feeds: Iterable[Feed]) -> list[Feed]:
        """The feeds that our first notes mention; all others are left out (request skipping).

        They are our own one, those whose sequence the peer may not know, and, since the memory of
        either side may be wrong, one in `culm.ssb.ebt.TURNS`.  Feeds that the peer has refused are
        mentioned in every session as long as one frame has room for them.
        """
        told, held, turn = self._memory.told, self._memory.held, self._turn
        refuses_many = list(told.values()).count(REFUSAL) > self._limits.notes_max
        certain = {me, *self._refused_before}
        return [
            feed
            for feed in feeds
            if feed.turn == turn
            or (
                (sequence := told.get(feed.id)) != feed.stored
                and not (refuses_many and sequence == REFUSAL)
            )
            or held.get(feed.id, 0) > feed.stored
            or feed.id in certain
        ]

    # Notes and messages of the peer

    def last_told(self, feed_id: str) -> int | None:
        """The last sequence that the peer has told, in this or an earlier session."""
        told = self._told.get(feed_id)
        return self._memory.told.get(feed_id) if told is None else told

    def told(self, feed_id: str) -> int:
        """The last sequence that the peer has told; 0 if it has told none."""
        told = self._told.get(feed_id)
        return self._memory.told.get(feed_id, 0) if told is None else told

    def hear_note(self, feed_id: str, value: int) -> None:
        """Take a note for which there is a place; see `culm.ssb.ebt.decode_note`.

        A note about a feed that we refused in an earlier session proves that the peer no longer
        believes us to refuse it: such feeds are not mentioned (request skipping).
        """
        self._told[feed_id] = max(value >> 1, REFUSAL)
        self._receives[feed_id] = value >= 0 and not value & 1
        self._refused_before.pop(feed_id, None)

    def has_place(self, feed_id: str) -> bool:
        """Whether a note about a feed that we do not follow is heard; a new one takes a place."""
        if self.last_told(feed_id) is not None:
            return True
        if self._others == self._limits.feeds_max:
            return False
        self._others += 1
        return True

    def leave_out(self) -> bool:
        """Record that a note was not heard; returns whether it is the first one."""
        first, self._leaves_out = not self._leaves_out, True
        return first

    def has_told(self, feed_id: str) -> bool:
        """Whether the peer has sent a note about the feed in this session."""
        return feed_id in self._receives

    def reach(self, relation: Relation, sequence: int, now: float) -> bool:
        """Take the next message of a feed; returns whether the peer claims no later one."""
        self.heard = now
        relation.bring()
        feed_id = relation.feed.id
        self._distrusted_before.pop(feed_id, None)
        told = self._told[feed_id] if feed_id in self._told else self.told(feed_id)
        if told < sequence:
            self._told[feed_id] = sequence
        return told <= sequence

    def claims(self, feed: Feed) -> bool:
        """Whether the peer claims more of the feed than we have, and would send it."""
        if self.state is not SessionState.OPEN or self.told(feed.id) <= feed.received:
            return False
        return feed.id in self.relations

    def distrust(self, feed_id: str) -> None:
        """Record that the peer has sent an invalid message of this feed.

        Raises `RemoteProtocolError` (``INVALID_MESSAGES``) when there are too many such feeds.
        """
        self._distrusted[feed_id] = None
        if len(self._distrusted) > self._limits.invalid_max:
            raise RemoteProtocolError(ErrorCode.INVALID_MESSAGES)

    def distrusts(self, feed_id: str) -> bool:
        """Whether a feed is not exchanged with the peer because of invalid messages.

        Those of earlier sessions are only a hint: each such feed has its turn in one of
        `culm.ssb.ebt.TURNS` sessions.
        """
        before = feed_id in self._distrusted_before and feed_id not in self._tried
        return before or feed_id in self._distrusted

    # Notes for the peer

    def tell(self, feed: Feed, *, receive: bool) -> Relation:
        """Tell the peer our sequence of a feed, and whether we want later messages from it."""
        relation = self.relations.get(feed.id)
        if relation is None:
            relation = self.relations[feed.id] = Relation(feed)
            if self._leaves_out and self.last_told(feed.id) is None:
                self.outgoing.refuse_first(feed.id)  # then the peer repeats a note left out
        relation.tell(Demand.SOURCE if receive else Demand.STANDBY)
        self.outgoing.note(feed.id, feed.stored << 1 | (not receive))
        return relation

    def tell_news(self, relation: Relation) -> None:
        """Tell the peer our sequence, unless it knows or has as much; nothing else changes."""
        feed = relation.feed
        if relation.told != feed.stored and 0 <= self.told(feed.id) < feed.stored:
            self.tell(feed, receive=relation.demand is Demand.SOURCE)

    def refuse(self, feed_id: str) -> None:
        """Tell the peer that we do not want a feed, unless it knows already."""
        relation = self.relations.pop(feed_id, None)
        if relation is not None:
            self.outgoing.restart(relation, 0)
        elif feed_id in self._refused:
            return
        self._refused[feed_id] = None
        self.outgoing.note(feed_id, REFUSAL)

    # Messages for the peer

    def serve(self, relation: Relation) -> None:
        """Send the messages that the peer has asked for in its last note."""
        feed = relation.feed
        told = self._told[feed.id]
        self.outgoing.restart(relation, max(told, 0))
        if told < 0:
            relation.move(SupplyInput.REFUSES)
        elif not self._receives[feed.id]:
            relation.move(SupplyInput.STANDS_BY)
            self.tell_news(relation)
        elif told >= feed.stored:
            relation.move(SupplyInput.RECEIVES_LEVEL)
        else:
            relation.move(SupplyInput.RECEIVES_BEHIND)
            self.outgoing.want(relation)

    def extend(self, feed: Feed, first: int, messages: Sequence[bytes]) -> None:
        """Send new messages of the feed, from sequence `first` on, or a note about them."""
        if self.state is not SessionState.OPEN:
            return
        relation = self.relations.get(feed.id)
        if relation is None:
            if not self.is_level(feed):
                self.tell(feed, receive=False)
        elif relation.supply is Supply.STANDBY:
            self.tell_news(relation)
        elif relation.supply is Supply.LIVE:
            self._follow_up(relation, first, messages)

    def _follow_up(self, relation: Relation, first: int, messages: Sequence[bytes]) -> None:
        last = first + len(messages) - 1
        begin = self.next_to_send(relation)
        if begin > last:
            return
        if begin >= first and self.outgoing.has_room:
            self.outgoing.put(relation, messages[begin - first :], last)
        else:
            relation.move(SupplyInput.FELL_BEHIND)
            self.outgoing.want(relation)

    def is_gap(self, relation: Relation, sequence: int) -> bool:
        """Whether the peer skips messages without an excuse.

        It is excused if it was asked twice: then its messages may answer either request.
        """
        asked_once = relation.asks == 1 and relation.feed.id not in self._refused
        return sequence > relation.feed.received + 1 and asked_once

    def next_to_send(self, relation: Relation) -> int:
        """The first sequence that the peer does not have, and that is not on its way to it."""
        return max(relation.sent, self.told(relation.feed.id)) + 1

    def next_read(self) -> Relation | None:
        """The feed to read for the peer now, from `next_to_send` on."""
        while self.state is not SessionState.ENDED and self.outgoing.can_read:
            relation = self.outgoing.next_read()
            if self.next_to_send(relation) <= relation.feed.stored:
                return relation
            self.outgoing.read()
            relation.move(SupplyInput.CAUGHT_UP)
        return None

    def receive_read(self, relation: Relation, first: int, messages: Sequence[bytes]) -> None:
        """Take messages read for the peer, which may have changed its request meanwhile."""
        self.outgoing.read()
        feed = relation.feed
        if self.relations.get(feed.id) is not relation or relation.supply is not Supply.READING:
            self.outgoing.waste()
            return
        if self.next_to_send(relation) == first:
            self.outgoing.put(relation, messages, first + len(messages) - 1)
        else:
            self.outgoing.waste()
        if self.next_to_send(relation) > feed.stored:
            self.outgoing.want_no_more(relation)  # the peer may have asked for it again meanwhile
            relation.move(SupplyInput.CAUGHT_UP)
        else:
            self.outgoing.want(relation)

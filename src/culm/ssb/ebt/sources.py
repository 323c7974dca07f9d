"""The source of each feed: one peer at a time, and another one when it stalls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import nsmallest
from math import inf
from typing import Final

from culm.ssb.ebt.events import SourceChanged
from culm.ssb.ebt.limits import Timing
from culm.ssb.ebt.session import Feed, PeerSession, Relation
from culm.timers import Deadlines

_FAILURES_MAX: Final = 6  # further ones do not make the pause longer


class SourceTurn:
    """The turn of one peer as the source of a feed.

    began: when it became the source, or when a new part of its turn began.
    promised: the highest sequence that it has claimed meanwhile.
    """

    __slots__ = ("_arrived", "_counted", "_feed", "_relation", "began", "promised", "session")

    def __init__(self, feed: Feed, session: PeerSession, relation: Relation, now: float) -> None:
        self.session = session
        self.began = now
        self.promised = 0
        self._feed = feed
        self._relation = relation
        self._counted = 0  # messages that had come before `began`
        self._arrived = 0  # the last one that has come, verified or not

    def promise(self, sequence: int) -> None:
        """Note that the peer claims the feed up to there."""
        self.promised = max(self.promised, sequence)

    def begin_part(self, now: float) -> None:
        """Begin a new part of the turn: only messages from now on count."""
        self.began = now
        self._counted = self._relation.brought

    def arrive(self, sequence: int) -> None:
        """Note that a message is here; it counts only if it follows the last one."""
        if sequence == max(self._arrived, self._feed.received) + 1:
            self._arrived = sequence

    @property
    def waits_for_us(self) -> bool:
        """Whether the next message is here, and waits for a verdict on its signature."""
        return self._arrived > self._feed.received

    @property
    def is_kept(self) -> bool:
        """Whether the peer has brought everything that it promised."""
        return self.promised <= self._feed.received

    @property
    def is_in_vain(self) -> bool:
        """Whether the peer has promised more than we have, and brought nothing."""
        return not self._relation.brought and self.promised > self._feed.received

    def brings(self, since: float) -> bool:
        """Whether the peer has brought something, and the feed has moved since then."""
        return bool(self._relation.brought) and self._feed.moved > since

    def pace(self, now: float) -> float:
        """Messages a second in this part; infinite if it has only begun."""
        if now <= self.began:
            return inf
        return (self._relation.brought - self._counted) / (now - self.began)


class Record:
    """The record of a peer's turns with one feed.

    pace: messages a second in its last turn; 0 if it brought nothing, or was not measured.
    rests_until: end of its pause; until then other peers come first.
    place: its place in the line; see `Sources`.
    """

    __slots__ = ("_failures", "_passed", "pace", "place", "rests_until")

    def __init__(self, number: int) -> None:
        self.pace = 0.0
        self.rests_until = -inf
        self.place = (number, -inf)
        self._failures = 0  # turns in vain, one after the other
        self._passed = 0  # times that another peer was preferred since the pace was measured

    def finish(
        self, turn: SourceTurn, now: float, place: tuple[int, float], pause_s: float
    ) -> None:
        """End a turn.  One that was in vain leads to a pause, twice as long each time."""
        self.place = place
        self._passed = 0
        if turn.is_in_vain:
            self._failures = min(self._failures + 1, _FAILURES_MAX)
            self.pace = 0.0
            self.rests_until = now + pause_s * 2**self._failures
        else:
            self.pace = turn.pace(now)
            self.forgive()

    def forgive(self) -> None:
        """Forget turns in vain: the peer has brought something after all."""
        self._failures = 0
        self.rests_until = -inf

    @property
    def has_failed(self) -> bool:
        """Whether its last turn was in vain, and it has brought nothing since."""
        return self._failures > 0

    def pass_over(self) -> None:
        """Note that another peer was preferred for being faster."""
        self._passed += 1

    @property
    def hope(self) -> float:
        """The messages a second to be hoped for: the longer ago the measurement, the more.

        So a peer that was slow at a bad moment is tried again, more and more rarely if it stays
        slow.
        """
        return self.pace * 2.0**self._passed if self.pace else inf


class Search:
    """Peers that are asked for a feed besides its source, since it does not move.

    Their number may double with every turn in vain, so that even many peers are soon asked; and if
    only few make empty promises, few peers bring the same messages.

    asked: their sessions, by number.
    """

    __slots__ = ("_width", "asked")

    def __init__(self) -> None:
        self.asked: dict[int, PeerSession] = {}
        self._width = 1  # number of peers that may be asked, the source included

    def widen(self) -> None:
        """Another turn was in vain."""
        self._width *= 2

    @property
    def room(self) -> int:
        """The number of further peers that may be asked."""
        return max(0, self._width - 1 - len(self.asked))


_STRANGER: Final = 2
_TICK_S: Final = 0.1  # the least pause: with times of 0, peers would be asked without end
_LOOKS_MAX: Final = 4096  # sessions to look at in one call, unless one feed needs more


class Sources:
    """One source for each feed; all other peers that have it stand by, as long as it moves.

    sessions: the open ones by number, oldest first.
    follows: whether we follow a peer.
    tell: gets the events.
    searches: feeds that do not move, for which others are asked besides the source.

    Peers that claim more of a feed stand in a line: each at the place of its session's number and,
    once it has had a turn, at the end of the line as it is then.  While a feed moves, the peer that
    claims most comes first, since then no other one has to be asked.  If it does not move, the peer
    that has waited longest comes first, whatever others claim: a promise costs nothing, and neither
    does taking it back, nor a new name.  Every other turn is for peers whose names cost something,
    if there are any: the feed's author, then peers that we follow.  At the head of the line are
    peers that have brought something of the feed, and at its end those that rest because their
    turns were in vain.

    One call looks at a bounded number of sessions; feeds left over follow a tenth of a second
    later, in the order in which they were due.
    """

    __slots__ = (
        "_deadlines",
        "_fed",
        "_feeds",
        "_follows",
        "_full_at",
        "_goes_on_at",
        "_known",
        "_now",
        "_pause_s",
        "_records",
        "_sessions",
        "_tell",
        "_timing",
        "_turns",
        "searches",
    )

    def __init__(
        self,
        *,
        sessions: dict[int, PeerSession],
        follows: Callable[[str], bool],
        timing: Timing,
        now: float,
        tell: Callable[[SourceChanged], None],
    ) -> None:
        self._sessions = sessions
        self._follows = follows
        self._timing = timing
        self._now = now
        self._tell = tell
        self._pause_s = max(timing.stall_s, _TICK_S)
        self._full_at = -inf  # the last time at which we did not take messages
        self._goes_on_at = -inf  # when feeds left over by the last call are due
        self._turns: dict[str, SourceTurn] = {}  # by feed
        self._known: dict[str, None] = {}  # feeds whose last turn was not a stranger's
        self._fed: dict[int, dict[str, Feed]] = {}  # feeds by the number of their source
        self.searches: dict[str, Search] = {}
        self._records: dict[int, dict[str, Record]] = {}  # of past turns, by session and feed
        self._deadlines: Deadlines[str] = Deadlines()
        self._feeds: dict[str, Feed] = {}  # with a deadline

    def session_of(self, feed: Feed) -> PeerSession | None:
        """The session that the feed is received from."""
        turn = self._turns.get(feed.id)
        return None if turn is None else turn.session

    def peer_of(self, feed_id: str) -> str | None:
        """The peer that the feed is received from."""
        turn = self._turns.get(feed_id)
        return None if turn is None else turn.session.peer

    # Notes and messages

    def take(self, feed: Feed, session: PeerSession) -> None:
        """Receive the feed from that session from now on."""
        turn = self._turns.get(feed.id)
        if turn is not None:
            if turn.session is session:
                return
            self._widen(feed, turn)
        relation = session.relations.get(feed.id)
        if relation is not None and relation.brought:
            self._record_of(feed, session).forgive()
        self._ask(feed, session)
        self._change(feed, session)
        self._ask_besides(feed)

    def _change(self, feed: Feed, session: PeerSession) -> None:
        """Make a peer that was asked the source."""
        turn = self._turns.get(feed.id)
        if turn is not None:
            self._finish(feed, turn)
            turn.session.tell(feed, receive=False)
        relation = session.relations[feed.id]
        self._turns[feed.id] = made = SourceTurn(feed, session, relation, self._now)
        made.promise(session.told(feed.id))
        self._note_known(feed, session)
        self._fed.setdefault(session.number, {})[feed.id] = feed
        self.wait(feed)
        if turn is not None and not turn.is_kept:
            self._tell_stalled(feed, turn)

    def told(self, feed: Feed, session: PeerSession) -> None:
        """Take a peer's note about the feed."""
        told = session.told(feed.id)
        turn = self._turns.get(feed.id)
        if told > feed.received:
            self._offered(feed, session, told)
        elif turn is not None and turn.session is session:
            self._taken_back(feed, turn, told)
        elif told < 0:
            self.lose(feed, session)  # it may have been asked besides

    def arrives(self, feed: Feed, session: PeerSession, sequence: int) -> None:
        """Note that a message has come whose signature is verified first."""
        turn = self._turns.get(feed.id)
        if turn is not None and turn.session is session:
            turn.arrive(sequence)

    def _taken_back(self, feed: Feed, turn: SourceTurn, told: int) -> None:
        """Look for another source: this one no longer claims to have more than we have."""
        if told < 0:
            self.lose(feed, turn.session)
            if not turn.is_kept:
                self._tell_stalled(feed, turn)
        elif not (turn.is_kept or self._replace(feed, turn)):
            self.wait(feed)

    def _offered(self, feed: Feed, session: PeerSession, told: int) -> None:
        turn = self._turns.get(feed.id)
        brings = turn is not None and turn.brings(self._now - self._timing.stall_s)
        if feed.claim(told, self._now) and turn is not None:
            turn.begin_part(self._now)
        if turn is None:
            self._seek(feed)
        elif turn.session is session:
            turn.promise(told)
            self.wait(feed)
        elif (
            turn.session.claims(feed)
            or turn.waits_for_us
            or brings
            or self._rests(feed, session, self._record_of(feed, session))
            or not self._replace(feed, turn)
        ):
            self.wait(feed)

    def lose(self, feed: Feed, session: PeerSession) -> None:
        """The feed will not come from that session."""
        search = self.searches.get(feed.id)
        if search is not None:
            search.asked.pop(session.number, None)
        turn = self._turns.get(feed.id)
        if turn is not None and turn.session is session:
            self._widen(feed, turn)
            self._release(feed, turn)
            self._seek(feed)

    def drop(self, feed: Feed) -> None:
        """The feed is not received any more."""
        self.searches.pop(feed.id, None)
        turn = self._turns.get(feed.id)
        if turn is not None:
            self._release(feed, turn)
        self._forget(feed)

    def end(self, session: PeerSession) -> None:
        """The session has ended."""
        self._records.pop(session.number, None)
        for search in self.searches.values():
            search.asked.pop(session.number, None)
        count_max = self._feeds_at_once()
        for count, feed in enumerate(self._fed.pop(session.number, {}).values()):
            self._widen(feed, self._turns.pop(feed.id))
            if count < count_max:
                self._seek(feed)
            else:
                self._look(feed, self._now)

    def _tell_stalled(self, feed: Feed, turn: SourceTurn) -> None:
        peer = self.peer_of(feed.id)
        self._tell(SourceChanged(feed=feed.id, peer=peer, stalled=turn.session.peer))

    # Searching

    def moved(self, feed: Feed, session: PeerSession) -> None:
        """Make the sender of the next message the source, if it was asked besides the source.

        The search also ends if the message is the last that any peer claims, even if it comes from
        a peer that was told to stop meanwhile.
        """
        search, turn = self.searches.get(feed.id), self._turns.get(feed.id)
        if search is None:
            return
        was_asked = search.asked.pop(session.number, None) is not None
        is_source = turn is not None and turn.session is session
        if was_asked or is_source or feed.received >= feed.claimed:
            self._end_search(feed)
        if was_asked:
            self._change(feed, session)

    def _widen(self, feed: Feed, turn: SourceTurn) -> None:
        """Let more peers be asked if a turn that is over was in vain."""
        if turn.is_in_vain:
            self.searches.setdefault(feed.id, Search()).widen()

    def _ask(self, feed: Feed, session: PeerSession) -> None:
        """Ask a peer for the feed, unless it was asked in the search."""
        search = self.searches.get(feed.id)
        if search is None or search.asked.pop(session.number, None) is None:
            session.tell(feed, receive=True).ask()

    def _ask_besides(self, feed: Feed) -> None:
        """Ask as many others as the search has room for, in the order of the line."""
        search = self.searches.get(feed.id)
        if search is None:
            return
        waiting = [
            (record.place, session.number, session)
            for session, record in self._others(feed, self._turns[feed.id])
            if session.number not in search.asked and not self._rests(feed, session, record)
        ]
        for *_, session in nsmallest(search.room, waiting):
            self._ask(feed, session)
            search.asked[session.number] = session

    def _end_search(self, feed: Feed) -> None:
        for session in self.searches.pop(feed.id).asked.values():
            session.tell(feed, receive=False)

    # Time

    def next_deadline(self) -> float | None:
        due = self._deadlines.next()
        return None if due is None else max(due, self._goes_on_at)

    def _feeds_at_once(self) -> int:
        """The number of feeds for which one call may look at all sessions."""
        return max(1, _LOOKS_MAX // max(1, len(self._sessions)))

    def advance(self, now: float, *, takes: bool) -> None:
        """Change sources whose time is over.

        takes: whether we take messages; if not, no source is to blame for bringing none.
        """
        self._now = now
        if not takes:
            self._full_at = now
        if now < self._goes_on_at:
            return
        for _ in range(self._feeds_at_once()):
            feed_id = self._deadlines.pop_due(now)
            if feed_id is None:
                return
            feed = self._feeds.pop(feed_id)
            if takes:
                self._decide(feed)
            else:
                self._look(feed, now + self._pause_s)
        self._goes_on_at = now + _TICK_S

    def _decide(self, feed: Feed) -> None:
        """Decide after a deadline whether the source is at fault, or another one is better."""
        turn = self._turns.get(feed.id)
        if turn is None:
            self._seek(feed)
        elif turn.waits_for_us:
            self._look(feed, self._now + self._pause_s)
        elif not turn.session.claims(feed):
            self._overtake(feed, turn)
        elif self._patience(feed, turn) > self._now:
            self.wait(feed)
        elif self._quiet_until(feed, turn) <= self._now:
            self._pass_on(feed, turn)
        else:
            self._compare(feed, turn)

    def _pass_on(self, feed: Feed, turn: SourceTurn) -> None:
        """Give the turn of a silent source to the next peer.

        Once every peer that has not failed yet has been asked, the others are asked, too, and
        nothing changes any more before one of them brings something, or another peer promises more.
        """
        search = self.searches.get(feed.id)
        asked = {} if search is None else search.asked
        left = [each for each in self._others(feed, turn) if each[0].number not in asked]
        first = self._first(feed, turn)
        if first is not None and not all(record.has_failed for _, record in left):
            self.take(feed, first[0])
        elif left:
            search = self.searches.setdefault(feed.id, Search())
            for session, _ in left:
                self._ask(feed, session)
                search.asked[session.number] = session

    def _overtake(self, feed: Feed, turn: SourceTurn) -> None:
        """Replace a source that has brought all that it has: others claim more."""
        if self._replace(feed, turn):
            return
        pauses = [record.rests_until for _, record in self._others(feed, turn)]
        if pauses:
            self._look(feed, min(pauses))
        else:
            feed.forget_claims()

    def _compare(self, feed: Feed, turn: SourceTurn) -> None:
        """Look for a faster source: this one brings messages, but its turn is over."""
        pace = turn.pace(self._now)
        faster: list[tuple[float, tuple[int, float], PeerSession]] = []
        for session, record in self._others(feed, turn):
            if self._rests(feed, session, record):
                continue
            if record.hope > pace:
                faster.append((-record.hope, record.place, session))
            else:
                record.pass_over()
        if faster:
            self.take(feed, min(faster, key=lambda each: each[:2])[-1])
        else:
            turn.begin_part(self._now)
            self.wait(feed)

    def wait(self, feed: Feed) -> None:
        """Look again when the source's time is over, if any peer claims to have more."""
        turn = self._turns.get(feed.id)
        if turn is None or feed.received >= feed.claimed:
            return
        due = self._now + self._timing.overtake_s
        if turn.session.claims(feed):
            due = max(self._patience(feed, turn), self._now)
        set_to = self._deadlines.get(feed.id)
        if set_to is None or due < set_to:
            self._look(feed, due)

    def _look(self, feed: Feed, due: float) -> None:
        self._deadlines.set(feed.id, due)
        self._feeds[feed.id] = feed

    def _patience(self, feed: Feed, turn: SourceTurn) -> float:
        """The end of the source's time, given that it has promised more."""
        quiet_until = self._quiet_until(feed, turn)
        if not turn.session.relations[feed.id].brought:
            return quiet_until
        return min(quiet_until, turn.began + max(self._timing.turn_s, _TICK_S))

    def _quiet_until(self, feed: Feed, turn: SourceTurn) -> float:
        """The end of the time for which the source may be silent."""
        brought = turn.session.relations[feed.id].brought
        moved = max(turn.began, feed.moved) if brought else turn.began  # not by others
        last = max(moved, turn.session.heard, self._full_at)
        return min(last + self._timing.stall_s, moved + self._timing.stall_feed_s)

    # Choosing

    def _others(self, feed: Feed, turn: SourceTurn | None) -> Iterator[tuple[PeerSession, Record]]:
        """All others that claim to have more."""
        for session in self._sessions.values():
            if session.claims(feed) and (turn is None or session is not turn.session):
                yield session, self._record_of(feed, session)

    def _first(self, feed: Feed, turn: SourceTurn | None) -> tuple[PeerSession, Record] | None:
        """The one of the others that comes first in the line."""
        others = list(self._others(feed, turn))
        if len(others) > 1:
            return min(others, key=partial(self._rank, feed))
        return others[0] if others else None

    def _rank(
        self, feed: Feed, each: tuple[PeerSession, Record]
    ) -> tuple[float, float, int, int, tuple[int, float]]:
        session, record = each
        rest = record.rests_until if self._rests(feed, session, record) else -inf
        moves = feed.moved + self._timing.stall_s > self._now
        most = session.told(feed.id) if moves else 0
        distance = 0 if feed.id in self._known else self._distance(feed, session)
        return rest, -record.pace, distance, -most, record.place

    def _distance(self, feed: Feed, session: PeerSession) -> int:
        """The author is next to its feed, and strangers are farther away than peers we follow."""
        if session.peer == feed.id:
            return 0
        return 1 if self._follows(session.peer) else _STRANGER

    def _note_known(self, feed: Feed, session: PeerSession) -> None:
        """Note whether this turn is a known peer's: then the next one goes by the line alone."""
        if session.peer == feed.id or self._follows(session.peer):
            self._known[feed.id] = None
        else:
            self._known.pop(feed.id, None)

    def _seek(self, feed: Feed) -> None:
        """Find a source for a feed without one: the first in the line."""
        first = self._first(feed, None)
        if first is not None:
            self.take(feed, first[0])
        else:
            self._forget(feed)

    def _replace(self, feed: Feed, turn: SourceTurn) -> bool:
        """Receive the feed from a peer that does not rest, if there is one."""
        first = self._first(feed, turn)
        if first is None or self._rests(feed, *first):
            return False
        self.take(feed, first[0])
        return True

    def _rests(self, feed: Feed, session: PeerSession, record: Record) -> bool:
        return record.rests_until > self._now and not session.relations[feed.id].brought

    def _record_of(self, feed: Feed, session: PeerSession) -> Record:
        record = self._records.get(session.number, {}).get(feed.id)
        return Record(session.number) if record is None else record

    def _finish(self, feed: Feed, turn: SourceTurn) -> None:
        """Record the end of the turn of the feed's source."""
        number = turn.session.number
        del self._turns[feed.id], self._fed[number][feed.id]
        record = self._record_of(feed, turn.session)
        newest = next(reversed(self._sessions), number)
        record.finish(turn, self._now, (newest, self._now), self._pause_s)
        self._records.setdefault(number, {})[feed.id] = record

    def _release(self, feed: Feed, turn: SourceTurn) -> None:
        self._finish(feed, turn)
        relation = turn.session.relations.get(feed.id)
        if relation is not None:
            relation.release()

    def _forget(self, feed: Feed) -> None:
        feed.forget_claims()
        if feed.id in self.searches:
            self._end_search(feed)
        self._known.pop(feed.id, None)
        if self._feeds.pop(feed.id, None) is not None:
            self._deadlines.cancel(feed.id)

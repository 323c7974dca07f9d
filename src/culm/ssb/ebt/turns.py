"""A peer's turn as a feed's source, and the record of past turns."""

from __future__ import annotations

from math import inf
from typing import Final

from culm.ssb.ebt.feed import Feed, Relation
from culm.ssb.ebt.session import Session

__all__ = ["Record", "Search", "Turn"]

_FAILURES_MAX: Final = 6  # further ones do not make the pause longer


class Turn:
    """The turn of one peer as the source of a feed.

    began: when it became the source, or when a new part of its turn began.
    promised: the highest sequence that it has claimed meanwhile.
    """

    __slots__ = ("_counted", "_feed", "_relation", "began", "promised", "session")

    def __init__(self, feed: Feed, session: Session, relation: Relation, now: float) -> None:
        self.session = session
        self.began = now
        self.promised = 0
        self._feed = feed
        self._relation = relation
        self._counted = 0  # messages that had come before `began`

    def promise(self, sequence: int) -> None:
        """Note that the peer claims the feed up to there."""
        self.promised = max(self.promised, sequence)

    def begin_part(self, now: float) -> None:
        """Begin a new part of the turn: only messages from now on count."""
        self.began = now
        self._counted = self._relation.brought

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

    def finish(self, turn: Turn, now: float, place: tuple[int, float], pause_s: float) -> None:
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
        self.asked: dict[int, Session] = {}
        self._width = 1  # number of peers that may be asked, the source included

    def widen(self) -> None:
        """Another turn was in vain."""
        self._width *= 2

    @property
    def room(self) -> int:
        """The number of further peers that may be asked."""
        return max(0, self._width - 1 - len(self.asked))

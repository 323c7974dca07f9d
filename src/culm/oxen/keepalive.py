"""Keepalives that have been sent and are not answered yet.

Source: manual/dev-oxen.md, "Keepalives".
"""

from __future__ import annotations

from math import inf
from random import Random

from culm.oxen.contacts import NEVER, ContactTable
from culm.oxen.limits import Timing
from culm.oxen.outbox import Occasion

# Age of the last contact, as a part of `Timing.keepalive_s`, at which a parcel that goes out
# anyway carries a question.
_DUE_SHARES = {Occasion.BODY: 1 / 2, Occasion.ANSWER: 3 / 4}

# A peer out of reach is asked again after this part of the time since the last contact.
_SEEK_SHARE = 1 / 8

_ASKED_MAX = 8  # the latest questions to each peer


class Keepalives:
    """Asks peers for signs of life, and puts the answers into the last contact table."""

    def __init__(self, contacts: ContactTable, timing: Timing, rng: Random) -> None:
        self._contacts = contacts
        self._timing = timing
        self._rng = rng
        self._asked: dict[bytes, dict[int, float]] = {}  # peer, ID, time of sending

    def add(self, sid: bytes) -> None:
        self._asked.setdefault(sid, {})

    def remove(self, sid: bytes) -> None:
        self._asked.pop(sid, None)

    def ask(self, sid: bytes, occasion: Occasion, now: float) -> int | None:
        """The ID of a keepalive to be sent to `sid` at `now`, if one is due on that occasion."""
        asked = self._asked.get(sid)
        if asked is None:
            return None
        if occasion is not Occasion.PING:
            age = now - self._contacts.get(self._contacts.me, sid)
            if age < self._timing.keepalive_s * _DUE_SHARES[occasion]:
                return None
            if now - self._last_asked(sid) < self._timing.keepalive_retry_s:
                return None
        if len(asked) >= _ASKED_MAX:  # on a slow line the oldest is answered first
            oldest = next(iter(asked))
            fresh = self._contacts.fresh(asked[oldest], now)
            del asked[next(reversed(asked)) if fresh else oldest]
        id = self._rng.getrandbits(32)
        while id in asked:
            id = self._rng.getrandbits(32)
        asked[id] = now
        return id

    def answer(self, sid: bytes, id: int, now: float) -> bool:
        """Note that `sid` has answered keepalive `id`; false if it counts for nothing.

        The contact counts from the time at which the keepalive was sent.
        """
        sent = self._asked.get(sid, {}).pop(id, None)
        if sent is None or not self._contacts.fresh(sent, now):
            return False
        self._contacts.put(self._contacts.me, sid, sent)
        return True

    def wonder(self, sid: bytes, now: float) -> bool:
        """Whether to ask `sid` at once because a datagram has come from it."""
        asked = self._asked.get(sid)
        return asked is not None and now - self._last_asked(sid) >= self._timing.keepalive_retry_s

    def untried(self, sid: bytes, now: float) -> bool:
        """Whether our own link to `sid` was never used, or too recently to have been answered."""
        asked, contacts = self._asked.get(sid), self._contacts
        if asked is None or contacts.get(contacts.me, sid) != NEVER:
            return False
        first = next(iter(asked.values()), now)
        return now - first < self._timing.keepalive_retry_s

    def due(self, now: float) -> list[bytes]:
        """Peers to be asked at `now` even if nothing else is sent to them.

        While a link is usable but its last contact is old, questions follow each other closely,
        so that loss alone does not make it unusable; once it is, they become ever rarer.
        """
        timing, contacts = self._timing, self._contacts
        found: list[bytes] = []
        for sid in self._asked:
            age = now - contacts.get(contacts.me, sid)
            if age >= timing.keepalive_s:
                if age < timing.usable_s:
                    interval = timing.keepalive_retry_s
                elif age == inf:
                    interval = timing.keepalive_s
                else:
                    interval = max(timing.keepalive_s, min(age * _SEEK_SHARE, timing.seek_max_s))
                # Timers fire a little early or late.
                if now - self._last_asked(sid) >= 0.9 * interval:
                    found.append(sid)
        return found

    def _last_asked(self, sid: bytes) -> float:
        asked = self._asked[sid]
        return asked[next(reversed(asked))] if asked else NEVER

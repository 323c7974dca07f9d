"""The choice of a neighbour for each parcel, and the memory that cuts loops.

Source: manual/dev-oxen.md, "Handling failure".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from culm.oxen.contacts import ContactTable

# Time for which a ranking of neighbours is kept, as a fraction of the time that a link stays
# usable without contact.
_CACHE_SHARE = 1 / 64

# Attempts that go straight over a usable link before other paths are tried in between.
_DIRECT_ATTEMPTS = 2

# One attempt in this many takes a path that the table does not recommend.  That is rare because
# every server on the way does the same.
_BLIND_PERIOD = 4

# Forwarded messages are remembered for this many of the longest intervals.
_MEMORY_INTERVALS = 4
_TIMES_MAX = 64

# Of equal messages without IDs that go on to yet another forwarder, one is dropped after as many.
_EQUAL_MAX = 8


class Routes:
    """Picks the neighbour for a parcel, not always the same one.

    The first choice is the direct link if it may be usable or is `untried`, then the first hop of
    a shortest path over links that may be usable.  Later attempts take other paths, because the
    table may be wrong or forged, and a link may have broken since.
    """

    def __init__(
        self, contacts: ContactTable, usable_s: float, untried: Callable[[bytes, float], bool]
    ) -> None:
        self._contacts = contacts
        self._untried = untried
        self._cache_s = usable_s * _CACHE_SHARE
        self._cache: dict[bytes, tuple[float, list[bytes], list[bytes]]] = {}

    def hop(
        self, to: bytes, now: float, *, attempt: int = 0, avoid: Collection[bytes] = ()
    ) -> bytes | None:
        """The neighbour for attempt number `attempt` (the first is 0) to send to `to`.

        Never one of `avoid`; ``None`` if there is no other.
        """
        direct = to not in avoid
        if direct and self._contacts.usable(self._contacts.me, to, now):
            if attempt < _DIRECT_ATTEMPTS or attempt % 2 == 0:
                return to
            leading, _ = self._ranked(to, now)
            choices = [hop for hop in leading if hop not in avoid] or [to]
            return choices[(attempt // 2 - 1) % len(choices)]
        if direct and not attempt and self._untried(to, now):
            return to
        leading, others = self._ranked(to, now)
        known = [hop for hop in leading if hop not in avoid]
        blind = [hop for hop in ([to, *others] if direct else others) if hop not in avoid]
        if known and blind:
            rounds, at = divmod(attempt, _BLIND_PERIOD)
            if at == _BLIND_PERIOD - 1:
                return blind[rounds % len(blind)]
            attempt -= rounds
        choices = known or blind
        return choices[attempt % len(choices)] if choices else None

    def forget(self, to: bytes) -> None:
        """Forget the paths to `to`, which is no longer known."""
        self._cache.pop(to, None)

    def _ranked(self, to: bytes, now: float) -> tuple[list[bytes], list[bytes]]:
        """Usable neighbours with a known path to `to`, shortest first, and those without one."""
        cached = self._cache.get(to)
        if cached is not None and 0 <= now - cached[0] < self._cache_s:
            return cached[1], cached[2]
        distances = self._contacts.distances(to, now)
        neighbours = [hop for hop in self._contacts.neighbours(now) if hop != to]
        leading = sorted(
            (hop for hop in neighbours if hop in distances), key=lambda hop: distances[hop]
        )
        others = [hop for hop in neighbours if hop not in distances]
        self._cache[to] = now, leading, others
        return leading, others


class ForwardMemory:
    """Remembers forwarded parcels, so that none goes round in circles.

    A parcel in a loop comes back soon, and from another neighbour than at first; a parcel that is
    sent again usually comes from the same one.  So the same parcel is forwarded again only after
    an interval that doubles each time: it begins with `again_s` if the parcel comes from the same
    neighbour, as its sender may already know that it was lost, and with `first_s` otherwise.

    A message without an ID is never sent again, so two equal ones from one neighbour are two
    messages, unless a forged one is going round in circles.  That ends when any server on the way
    drops it once; so of equal ones that do not go straight to their destination, some are dropped,
    and all for which there is no room but that of recent ones.
    """

    def __init__(self, *, again_s: float, first_s: float, last_s: float, size_max: int) -> None:
        self._again_s = again_s
        self._first_s = first_s
        self._last_s = last_s
        self._size_max = size_max
        self._seen: dict[Hashable, tuple[float, int, bytes]] = {}  # time, count, source

    def __len__(self) -> int:
        return len(self._seen)

    def admit(
        self, key: Hashable, source: bytes, now: float, *, once: bool = False, onward: bool = False
    ) -> int | None:
        """How often `key` was forwarded before; ``None`` if it must not be forwarded now.

        once: the message is never sent again.
        onward: it goes to another forwarder.
        """
        self.expire(now)
        seen = self._seen.get(key)
        times = 0
        if seen is not None:
            since, times, neighbour = seen
            if once and source == neighbour:
                if onward and times >= _EQUAL_MAX:
                    self._seen[key] = since, 0, source
                    return None
            else:
                least = self._again_s if source == neighbour else self._first_s
                doublings = 0 if once else times - 1
                if now - since < min(least * 2.0**doublings, self._last_s):
                    return None
                times = 0 if once else times
            del self._seen[key]
        elif len(self._seen) >= self._size_max:
            oldest = next(iter(self._seen))
            if once and onward and now - self._seen[oldest][0] < self._first_s:
                return None  # it might circle, with more than can be remembered for one round
            del self._seen[oldest]
        self._seen[key] = now, min(times + 1, _TIMES_MAX), source
        return 0 if once else times

    def expire(self, now: float) -> None:
        """Forget parcels too old to be sent again."""
        seen, until = self._seen, now - _MEMORY_INTERVALS * self._last_s
        while seen:
            key = next(iter(seen))
            if seen[key][0] > until:
                return
            del seen[key]

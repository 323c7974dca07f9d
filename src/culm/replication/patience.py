"""Patience: signs of life, debts, quiet, and pauses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
D = TypeVar("D")


class Liveness:
    """The silence of a peer, and when to ask for a sign of life.

    Times are monotonic seconds.  Nothing is known before the first `advance`.  A sign of life
    counts from the time told last before it, or from the time that is given with it.  A peer that
    has begun something (`inside`) must go on within `idle_timeout_s`.  If no time at all was told
    from its last sign of life until that was over, it has as long again.  Otherwise it is asked for
    a sign of life after `keepalive_s`, however late the time is told, and then has
    `idle_timeout_s`: counted from when bytes of ours last left, because the question may be queued
    after them on the line, until it is known to have left with them.
    """

    __slots__ = ("_asked_at", "_heard", "_idle_timeout_s", "_keepalive_s", "_left", "_since", "now")

    def __init__(self, *, idle_timeout_s: float, keepalive_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._keepalive_s = keepalive_s
        self.now: float | None = None
        self._since: float | None = None  # when the peer was heard last
        self._heard = False  # since the clock moved last
        self._asked_at: float | None = None  # or when bytes left last since then
        self._left = False  # the question, too

    def heard(self, now: float | None = None) -> None:
        """The peer has given a sign of life, at the time told last, or now."""
        self._tell(now)
        self._since, self._heard, self._asked_at = self.now, True, None

    @property
    def heard_at(self) -> float:
        """The time of the last sign of life, or of the first `advance`."""
        return -inf if self._since is None else self._since

    def asked(self, now: float | None = None) -> None:
        """The peer has been asked for a sign of life.

        One that it gave in that very moment counts as the answer, whichever was told first.
        """
        if self._asked_at is None:
            answered = self._heard and now in (None, self.now)
            self._tell(now)
            if not answered:
                self._asked_at, self._left = self.now, False

    def taken(self, now: float | None = None, *, all_left: bool = False) -> None:
        """Bytes of ours have left, or all of them."""
        if self._asked_at is not None and not self._left:
            self._tell(now)
            self._asked_at, self._left = self.now, all_left

    def _tell(self, now: float | None) -> None:
        self.now = self.now if now is None else now

    def deadline(self, inside: bool = False) -> float | None:
        """When `advance` is due."""
        if self._since is None:
            return None
        if inside:
            return self._since + self._idle_timeout_s
        if self._asked_at is None:
            return self._since + self._keepalive_s
        return self._asked_at + self._idle_timeout_s

    def advance(self, now: float, inside: bool = False) -> bool:
        """Tell the time; returns whether to ask the peer for a sign of life."""
        heard = self._heard and inside
        if self._since is None or (heard and now > self._since + self._idle_timeout_s):
            self._since = now  # a peer is not silent because we are slow
        self._heard = self._heard and now == self.now
        self.now = now
        if inside or self._asked_at is not None or now < self._since + self._keepalive_s:
            return False
        self._asked_at, self._left = now, False
        return True

    def is_over(self, inside: bool = False) -> bool:
        """Whether the peer has been silent for too long."""
        deadline = self.deadline(inside)
        return (
            deadline is not None
            and self.now is not None
            and self.now >= deadline
            and (inside or self._asked_at is not None)
        )


class Debts(Generic[K, D]):
    """Looks at the peer's debts, every `max_s` seconds.

    A debt that stands at two checks in a row is stalled if no other has been paid in between,
    and no data at all has come.  Whatever comes is a reason to wait for the rest, because each
    demand has to wait for its turn.

    is_paid: whether a debt that was owed before is paid, or part of it, if that is owed now.
    """

    __slots__ = ("_is_paid", "_max_s", "_moved", "_now", "_owed", "_since")

    def __init__(self, max_s: float, *, is_paid: Callable[[D, D | None], bool]) -> None:
        self._max_s = max_s
        self._is_paid = is_paid
        self._now: float | None = None
        self._since = 0.0  # when was looked last
        self._moved = False  # since then
        self._owed: Mapping[K, D] = {}  # then

    def moved(self) -> None:
        """Data has come, or could not come because of us."""
        self._moved = True

    def deadline(self) -> float | None:
        """When `advance` is due, if there is something to look at."""
        return None if self._now is None else self._since + self._max_s

    def advance(self, now: float, *, idle: bool) -> None:
        """Tell the time, and whether there is nothing to look at."""
        if self._now is None or idle:
            self._since = now
        self._now = now

    def stalled(self, owed: Callable[[], Mapping[K, D]]) -> list[D]:
        """The debts that the peer has not begun to pay, if it is time to check."""
        if self._now is None or self._now < self._since + self._max_s:
            return []
        before, now = self._owed, owed()
        goes_on = self._moved or any(
            self._is_paid(each, now.get(key)) for key, each in before.items()
        )
        self._owed, self._since, self._moved = now, self._now, False
        return [] if goes_on else [each for key, each in now.items() if each == before.get(key)]


class Quiet:
    """Reports, once after each disturbance, that it has been quiet for `settle_s` (seconds)."""

    __slots__ = ("_due", "_settle_s", "now")

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self.now: float | None = None
        self._due: float | None = None  # when to tell; never again: infinity

    def disturb(self) -> None:
        """Something has happened."""
        self._due = None

    def advance(self, now: float, *, quiet: bool) -> None:
        """Tell the time, and whether it is quiet."""
        self.now = now
        if self._due is None and quiet:
            self._due = now + self._settle_s
        elif self._due != inf and not quiet:
            self._due = None

    def begin_anew(self) -> None:
        """Something has happened because of the time, and so just now."""
        assert self.now is not None
        self._due = self.now + self._settle_s

    def deadline(self, quiet: bool) -> float | None:
        """When `advance` is due; a pure query.

        Since when it has been quiet is known only once the time has been told again.
        """
        if not quiet or self._due == inf:
            return None
        return self.now if self._due is None else self._due

    @property
    def lasts(self) -> bool:
        """Whether it has been quiet for long enough, and that has not been told."""
        return self.now is not None and self._due is not None and self.now >= self._due

    def settle(self) -> None:
        """It is told now."""
        self._due = inf


class Pauses:
    """The pauses between one attempt and the next: each is twice as long as the one before.

    min_s, max_s: the first pause, and the longest one; seconds.
    until: the end of the current pause; ``None`` if there is none.
    """

    __slots__ = ("_max_s", "_min_s", "_next_s", "until")

    def __init__(self, *, min_s: float, max_s: float) -> None:
        self._min_s = self._next_s = min_s
        self._max_s = max_s
        self.until: float | None = None

    def begin(self, now: float) -> None:
        """Begin the next pause, unless there is one already."""
        if self.until is None:
            self.until = now + self._next_s
            self._next_s = min(2 * self._next_s, self._max_s)

    def end(self) -> None:
        """The next attempt is made."""
        self.until = None

    def reset(self) -> None:
        """The attempt has come to something: the next pause is a short one."""
        self.until, self._next_s = None, self._min_s

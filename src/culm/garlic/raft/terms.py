"""Limits on the terms that the words of others may bring."""

from __future__ import annotations

import math

from culm.garlic.raft.limits import Timing
from culm.garlic.raft.shared import Shared

# Election timeouts without a word of a member, after which a server may have missed a change of
# members.
_LONELY = 2


class Terms:
    """Owns the limits to the terms that a server takes over: their sources, and their steps.

    A term is stored for good, so a forged one must not use up the numbers, nor carry a server
    where no other can follow.  Within each longest election timeout the words of others raise the
    term by `Limits.term_step_max` at most: a server that lags far follows in steps, and so
    do all.  Those ahead may go on meanwhile, by one with each election: a step is more than
    that.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._step_max = max(shared.limits.term_step_max, 2 * (1 + _elections(shared.timing)))
        self._base = 0  # the term when the present step began
        self._until = -math.inf  # when the next one may begin
        self._heard_at = shared.now

    def heard_member(self) -> None:
        """Note that a member has spoken."""
        self._heard_at = self._shared.now

    def believes(self, source: int) -> bool:
        """Whether a higher term of that server counts.

        A member believes members.  One that hears none of them for long may have missed a change
        of members, and a server that is no member knows no members: these believe anybody.
        """
        shared = self._shared
        if source in shared.journal.membership.known or not shared.is_member:
            return True
        wait = _LONELY * shared.timing.election_timeout_max_s
        return shared.now - self._heard_at >= wait

    @property
    def highest(self) -> int:
        """The highest term that may be taken over now."""
        shared = self._shared
        term = shared.journal.term
        base = term if shared.now >= self._until else self._base
        return max(term, base + self._step_max)

    def reach(self, term: int) -> int:
        """The term to go to when another server is at `term`: that one, or a step towards it."""
        shared, highest = self._shared, self.highest
        if shared.now >= self._until:
            self._base = shared.journal.term
            self._until = shared.now + shared.timing.election_timeout_max_s
        return min(term, highest)


def _elections(timing: Timing) -> int:
    """The most elections for which a server may stand in the longest election timeout."""
    shortest, longest = timing.election_timeout_min_s, timing.election_timeout_max_s
    return math.ceil(longest / shortest) if 0 < shortest <= longest < math.inf else 1

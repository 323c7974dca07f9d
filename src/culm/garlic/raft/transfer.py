"""A transfer of leadership."""

from __future__ import annotations

import math

from culm.garlic.raft.events import LeadershipTransferred, TransferFailed
from culm.garlic.raft.shared import Shared


class Transfer:
    """Owns the target of a transfer, until the next leader is known.

    This outlives the leadership: a target that stands for election need not win it.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.target: int | None = None
        self._term = 0  # of the leadership
        self._until = math.inf

    def begin(self, target: int) -> None:
        """Wait for `target`, for an election timeout."""
        self.target, self._term = target, self._shared.journal.term
        self.stepped_down()

    def stepped_down(self) -> None:
        """Note that an election is under way: it may take as long again."""
        if self.target is not None:
            self._until = self._shared.now + self._shared.timing.election_timeout_max_s

    def settle(self) -> None:
        """Report the outcome, if a later term has a leader."""
        leader = self._shared.leader
        if leader is None or self._shared.journal.term == self._term:
            return
        if leader == self.target:
            self._shared.work.emit(LeadershipTransferred(target=leader))
            self._forget()
        else:
            self.fail()

    def fail(self) -> None:
        """Wait for the target no more, and report that."""
        if self.target is not None:
            self._shared.work.emit(TransferFailed(target=self.target))
        self._forget()

    def _forget(self) -> None:
        self.target, self._until = None, math.inf

    def next_deadline(self) -> float:
        return self._until

    def advance(self) -> None:
        if self._until <= self._shared.now:
            self.fail()

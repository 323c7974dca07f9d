"""The fate of values that were proposed here."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from math import inf

from culm.garlic.raft.events import Committed, Lost
from culm.garlic.raft.log import RaftLog


class _Proposed:
    """Values of one term that follow each other, and were proposed here one after the other."""

    __slots__ = ("first", "last", "term")

    def __init__(self, first: int, last: int, term: int) -> None:
        self.first, self.last, self.term = first, last, term

    def __lt__(self, other: _Proposed) -> bool:
        return self.first < other.first

    def __bool__(self) -> bool:
        """Whether the fate of some of it is still to be told."""
        return self.first <= self.last

    def takes(self, first: int, last: int, term: int) -> bool:
        """Add these values if they continue the run; returns whether they do."""
        if self.last + 1 != first or self.term != term or self.first > self.last:
            return False
        self.last = last
        return True

    def committed(self, reached: int) -> Committed:
        """The event for all up to `reached`; the rest stays."""
        told = Committed(index=self.first, term=self.term, count=reached + 1 - self.first)
        self.first = reached + 1
        return told

    def lost(self, *, certain: bool) -> Lost:
        """The event for all that is left of it."""
        count = self.last + 1 - self.first
        told = Lost(index=self.first, term=self.term, count=count, certain=certain)
        self.first = self.last + 1
        return told


class Proposals:
    """Proposals that are neither committed nor lost, in runs, by index.

    They outlive leadership: a later leader may commit our proposals, or others in their place.
    """

    def __init__(self) -> None:
        self._lowest: float = inf  # no waiting run has a lower term
        self._waiting: list[_Proposed] = []
        self._newest = _Proposed(0, -1, 0)  # the run that was added last

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, first: int, last: int, term: int) -> None:
        """Add values of ours that have just been appended in `term`."""
        if self._newest.takes(first, last, term):
            return
        self._newest = _Proposed(first, last, term)
        heappush(self._waiting, self._newest)
        self._lowest = min(self._lowest, term)

    def settle(self, log: RaftLog, last: int) -> Iterator[Committed | Lost]:
        """Report all that is known once everything up to `last` is committed."""
        waiting = self._waiting
        while waiting and waiting[0].first <= last:
            run = waiting[0]
            reached = min(last, run.last)
            if log.term_at(reached) != run.term:
                yield from self._outcome(log, heappop(waiting), reached)
                continue
            # An entry of our term stands for all of ours before it; the rest of them is open.
            told = run.committed(reached)
            if run:
                heapreplace(waiting, run)
            else:
                heappop(waiting)
            yield told
        committed = log.term_at(last)
        if committed is not None and committed > self._lowest:
            yield from self._overtaken(committed)

    def _overtaken(self, committed: int) -> Iterator[Lost]:
        """The loss of all runs of a lower term than `committed`, that of an entry before them.

        Terms never fall along a log.  Without this, the end of a log that was cut off would wait
        until the new log is as long, which may be never.
        """
        overtaken = sorted(run for run in self._waiting if run.term < committed)
        self._waiting = sorted(run for run in self._waiting if run.term >= committed)
        self._lowest = min((run.term for run in self._waiting), default=inf)
        for run in overtaken:
            yield run.lost(certain=True)

    def _outcome(self, log: RaftLog, run: _Proposed, reached: int) -> Iterator[Committed | Lost]:
        """The fate of all of a run, if the entry at `reached` is not ours."""
        ours = reached
        while ours >= run.first and (found := log.term_at(ours)) != run.term:
            if found is None:  # a snapshot has replaced it
                yield run.lost(certain=False)
                return
            ours -= 1
        if ours >= run.first:
            yield run.committed(ours)
        if run:
            yield run.lost(certain=True)

    def drop_all(self) -> Iterator[Lost]:
        """Report all proposals as lost without certainty: no more will be known of them."""
        while self._waiting:
            yield heappop(self._waiting).lost(certain=False)

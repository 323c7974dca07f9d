"""The fate of values that were proposed here."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

from culm.garlic.raft.events import Committed, Lost
from culm.garlic.raft.log import Log

__all__ = ["Proposals"]


class Proposals:
    """Proposals that are neither committed nor lost, by index.

    They outlive leadership: a later leader may commit what we have proposed, or something else in
    its place.
    """

    __slots__ = ("_lowest", "_numbers", "_waiting")

    def __init__(self) -> None:
        self._numbers = count()
        self._lowest: float = inf  # none that waits has a lower term
        # First index, a number that no other has, last index, term.
        self._waiting: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, first: int, last: int, term: int) -> None:
        """Entries of ours, in our term, which have just been appended."""
        heappush(self._waiting, (first, next(self._numbers), last, term))
        self._lowest = min(self._lowest, term)

    def settle(self, log: Log, commit_index: int) -> Iterator[Committed | Lost]:
        """Report what is known, now that everything up to `commit_index` is committed."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= commit_index:
            first, _, last, term = waiting[0]
            reached = min(commit_index, last)
            if log.term_at(reached) != term:
                heappop(waiting)
                yield from self._outcome(log, first, reached, last, term)
            elif reached == last:  # an entry of our term stands for all of ours before it
                heappop(waiting)
                yield Committed(index=first, term=term, count=last + 1 - first)
            else:
                break  # ours so far; the rest is open
        committed = log.term_at(commit_index)
        if committed is not None and committed > self._lowest:
            yield from self._overtaken(committed)

    def _overtaken(self, committed: int) -> Iterator[Lost]:
        """The loss of all that have a lower term than what is committed, before them.

        Terms never fall along a log.  Without this, the end of a log that was cut off would wait
        until the new log is as long, which may be never.
        """
        overtaken = sorted(each for each in self._waiting if each[3] < committed)
        self._waiting = sorted(each for each in self._waiting if each[3] >= committed)
        self._lowest = min((term for *_, term in self._waiting), default=inf)
        for first, _, last, term in overtaken:
            yield Lost(index=first, term=term, count=last + 1 - first, certain=True)

    def _outcome(
        self, log: Log, first: int, reached: int, last: int, term: int
    ) -> Iterator[Committed | Lost]:
        """The fate of all of them, if the entry at `reached` is not ours."""
        ours = reached
        while ours >= first and (found := log.term_at(ours)) != term:
            if found is None:  # a snapshot has replaced it
                yield Lost(index=first, term=term, count=last + 1 - first, certain=False)
                return
            ours -= 1
        if ours >= first:
            yield Committed(index=first, term=term, count=ours + 1 - first)
        if ours < last:
            yield Lost(index=ours + 1, term=term, count=last - ours, certain=True)

    def drop_all(self) -> Iterator[Lost]:
        """Forget all proposals: their fate will not be reported."""
        while self._waiting:
            first, _, last, term = heappop(self._waiting)
            yield Lost(index=first, term=term, count=last + 1 - first, certain=False)

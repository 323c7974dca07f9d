"""Linearizable reads without log entries (thesis, section 6.4: ReadIndex)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from culm.garlic.raft.messages import ReadIndexRequest


@dataclass(slots=True)
class _Read:
    asked: int | ReadIndexRequest  # a number of our own, or a follower's question
    sequence: int  # an answer to this request, or a later one, confirms leadership
    index: int  # to be applied before the read


class Reads:
    """Reads that wait until a majority has confirmed the leader, in order."""

    def __init__(self) -> None:
        self._waiting: deque[_Read] = deque()
        self._confirmed: deque[tuple[int, int]] = deque()  # number, index: wait to be applied

    def __len__(self) -> int:
        return len(self._waiting) + len(self._confirmed)

    def add(self, asked: int | ReadIndexRequest, sequence: int, index: int) -> None:
        self._waiting.append(_Read(asked, sequence, index))

    def confirm(self, sequence: int) -> Iterator[tuple[ReadIndexRequest, int]]:
        """A majority has answered requests from `sequence` on.

        Gives the questions of followers, and the index that each must have applied.
        """
        while self._waiting and self._waiting[0].sequence <= sequence:
            read = self._waiting.popleft()
            if isinstance(read.asked, int):
                self._confirmed.append((read.asked, read.index))
            else:
                yield read.asked, read.index

    def take_ready(self, applied_index: int) -> list[tuple[int, int]]:
        """Number and index of the reads whose index has been applied."""
        ready: list[tuple[int, int]] = []
        while self._confirmed and self._confirmed[0][1] <= applied_index:
            ready.append(self._confirmed.popleft())
        return ready

    def drop_all(self) -> list[int | ReadIndexRequest]:
        dropped: list[int | ReadIndexRequest] = [number for number, _ in self._confirmed]
        dropped += [read.asked for read in self._waiting]
        self._confirmed.clear()
        self._waiting.clear()
        return dropped

"""Linearizable reads without log entries (thesis, section 6.4: ReadIndex)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["Reads"]


@dataclass(slots=True)
class _Read:
    number: int
    sequence: int  # an answer to this request, or a later one, confirms leadership
    index: int  # what must be applied; that of the read's time


class Reads:
    """Reads that wait until a majority has confirmed the leader, in order."""

    __slots__ = ("_confirmed", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[_Read] = deque()
        self._confirmed: deque[_Read] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._confirmed)

    def add(self, number: int, sequence: int, index: int) -> None:
        self._waiting.append(_Read(number, sequence, index))

    def confirm(self, sequence: int) -> None:
        """A majority has answered requests from `sequence` on."""
        while self._waiting and self._waiting[0].sequence <= sequence:
            self._confirmed.append(self._waiting.popleft())

    def take_ready(self, applied_index: int) -> list[tuple[int, int]]:
        """Number and index of the reads that the state machine is new enough for."""
        ready: list[tuple[int, int]] = []
        while self._confirmed and self._confirmed[0].index <= applied_index:
            read = self._confirmed.popleft()
            ready.append((read.number, read.index))
        return ready

    def drop_all(self) -> list[int]:
        numbers = [read.number for read in (*self._confirmed, *self._waiting)]
        self._confirmed.clear()
        self._waiting.clear()
        return numbers

"""Received messages on their way to the store."""

from __future__ import annotations

from itertools import islice

from culm.ssb.ebt.limits import Limits
from culm.ssb.ebt.model import Message

__all__ = ["Writer"]

_OVERHEAD = 512  # bytes of a message besides its data


class Writer:
    """Gathers messages while a write is under way, so that the next write has many."""

    __slots__ = ("_limits", "_size", "_waiting", "_writing")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: list[Message] = []
        self._writing: tuple[Message, ...] = ()
        self._size = 0

    @property
    def has_room(self) -> bool:
        return self._size < self._limits.unwritten_size_max

    @property
    def is_idle(self) -> bool:
        """Whether everything is written."""
        return not self._waiting and not self._writing

    def add(self, message: Message) -> None:
        self._waiting.append(message)
        self._size += len(message.data) + _OVERHEAD

    def next_batch(self) -> tuple[Message, ...]:
        """The messages to write now; none while a write is under way."""
        if self._writing or not self._waiting:
            return ()
        self._writing = tuple(islice(self._waiting, self._limits.write_count_max))
        del self._waiting[: len(self._writing)]
        return self._writing

    def written(self) -> dict[str, list[Message]]:
        """Finish the batch that is written; returns its messages by feed."""
        batch, self._writing = self._writing, ()
        self._size -= sum(len(message.data) for message in batch) + _OVERHEAD * len(batch)
        feeds: dict[str, list[Message]] = {}
        for message in batch:
            feeds.setdefault(message.author, []).append(message)
        return feeds

    def clear(self) -> None:
        self._waiting.clear()

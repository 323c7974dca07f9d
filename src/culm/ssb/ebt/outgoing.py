"""The queue for one peer: notes and messages to send, and feeds to read."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

from culm.ssb.ebt.feed import Relation
from culm.ssb.ebt.limits import Limits

__all__ = ["Outgoing"]

_READ_SIZE_MIN = 2048


class Outgoing:
    """Notes are sent first, at most one for each feed: the latest.

    The messages of a feed are sent in order, and feeds take turns.  Messages are read from the
    store when there is room, one read at a time.

    read_size: bytes to read at a time, and the most that may wait.  It is halved each time the
        peer no longer wants messages read for it, and doubled when it has taken all of them, so
        that few bytes are read in vain for a peer that keeps changing its mind.
    """

    __slots__ = (
        "_limits",
        "_notes",
        "_queues",
        "_reading",
        "_size",
        "_wake",
        "_wanting",
        "read_size",
    )

    def __init__(self, limits: Limits, *, wake: Callable[[], None]) -> None:
        self._limits = limits
        self._wake = wake  # called when there may be something to send or to read
        self._notes: dict[str, int] | None = None  # none are due; an empty frame may be due, too
        self._queues: dict[Relation, list[bytes]] = {}  # in turns
        self._size = 0
        self._wanting: OrderedDict[Relation, None] = OrderedDict()  # in turns, perhaps very many
        self._reading = False
        self.read_size = limits.unsent_size_max

    @property
    def has_room(self) -> bool:
        """Whether messages may be queued."""
        return self._size < self.read_size

    # Notes

    def open(self) -> None:
        """Make a frame of notes due, even an empty one."""
        if self._notes is None:
            self._notes = {}
        self._wake()

    def note(self, feed: str, value: int) -> None:
        if self._notes is None:
            self._notes = {}
        self._notes[feed] = value
        self._wake()

    # Messages

    def put(self, relation: Relation, messages: Sequence[bytes], last: int) -> None:
        """Queue messages of a feed, the last of which has the sequence `last`."""
        queue = self._queues.get(relation)
        if queue is None:
            queue = self._queues[relation] = []
        queue += messages
        self._size += sum(map(len, messages))
        relation.send(last)
        self._wake()

    def restart(self, relation: Relation, base: int) -> None:
        """Forget the queued messages of a feed: the peer wants it from `base` on, or not at all."""
        dropped = self._queues.pop(relation, None)
        if dropped is not None:
            self._size -= sum(map(len, dropped))
            self.waste()
        self.want_no_more(relation)
        relation.restart(base)

    # Reading

    def want(self, relation: Relation) -> None:
        """Note that there are messages to read for the peer."""
        self._wanting[relation] = None
        self._wake()

    def want_no_more(self, relation: Relation) -> None:
        """Note that there is nothing to read of that feed now."""
        self._wanting.pop(relation, None)

    @property
    def can_read(self) -> bool:
        """Whether `next_read` has something."""
        return bool(self._wanting) and not self._reading and self.has_room

    def next_read(self) -> Relation:
        """The feed to read next; `read` follows."""
        self._reading = True
        return self._wanting.popitem(last=False)[0]

    def read(self) -> None:
        """Note that the read is done, or that there was nothing to read."""
        self._reading = False
        self._wake()

    def waste(self) -> None:
        """Read less at a time: the peer no longer wants the messages read for it."""
        self.read_size = max(self.read_size // 2, min(self.read_size, _READ_SIZE_MIN))

    # Taking

    def take(self, size_max: int | None) -> list[bytes]:
        """Take frames until they have `size_max` bytes, or more with the last one."""
        frames: list[bytes] = []
        room = float("inf") if size_max is None else size_max
        while room > 0 and self._notes is not None:
            frames.append(self._take_notes())
            room -= len(frames[-1])
        while room > 0 and self._queues:
            relation = next(iter(self._queues))
            messages = self._queues.pop(relation)
            sizes = list(map(len, messages))
            size = sum(sizes)
            if size > room:
                count, size = _fitting(sizes, room)
                if count < len(messages):
                    self._queues[relation] = messages[count:]  # others first, next time
                    del messages[count:]
            frames += messages
            room -= size
            self._size -= size
            if not self._queues and self.read_size < self._limits.unsent_size_max:
                self.read_size = min(2 * self.read_size, self._limits.unsent_size_max)
        if self._wanting:
            self._wake()
        return frames

    def _take_notes(self) -> bytes:
        assert self._notes is not None
        count_max = self._limits.notes_max
        if len(self._notes) <= count_max:
            taken, self._notes = self._notes, None
        else:
            taken = {feed: self._notes.pop(feed) for feed in list(islice(self._notes, count_max))}
        return json.dumps(taken, separators=(",", ":")).encode()


def _fitting(sizes: Sequence[int], room: float) -> tuple[int, int]:
    """The number of sizes that fill `room`, the last one perhaps beyond it, and their sum."""
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total >= room:
            return count, total
    return len(sizes), total

"""A store of feeds that knows whether it is older than the last message published from it.

A message in the place of one that others have forks our feed for ever, so a folder that has come
back from a backup has to be noticed, as a whole or in part.  A `Mark` beside the database has the
last sequence of our own feed that anybody may have, and the database knows which file that is.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from culm.ssb.ebt import Head, Message
from culm.ssb.messages import read_message
from culm_io.stores.mark import Mark
from culm_io.stores.ssb import SsbSqliteStore
from culm_io.stores.wal_tags import set_aside_foreign_wal

__all__ = ["SsbPlacedStore"]

_NOWHERE = "from a backup"  # the place of no folder


class SsbPlacedStore(SsbSqliteStore):
    """A `culm.ssb.store.FeedStore` in the file at `path`, which no other process writes to.

    me: our own feed.
    restored: whether the feeds are known to come from a backup.
    """

    def __init__(self, path: Path, *, me: str, restored: bool = False) -> None:
        set_aside_foreign_wal(path)
        super().__init__(path)
        self._mark, self._me = Mark(path), me
        self._own: deque[bytes] = deque()
        last = self.load().heads.get(me, Head(0, "")).sequence
        is_elsewhere = self.place not in (None, self._mark.identity)
        self.restored = restored or is_elsewhere or last < self._mark.last
        if self.restored:
            self.keep_place(_NOWHERE)
        else:
            self.settle(last)

    def check_own(self) -> None:
        """Raise `sqlite3.DatabaseError` unless our last message is as it was: a wrong id forks."""
        head = self.load().heads.get(self._me, Head(0, ""))
        try:
            if head.sequence:
                (data,) = self.read(self._me, first=head.sequence, count_max=1, size_max=1)
                if read_message(data).id != head.id:
                    raise ValueError("another id")
        except (LookupError, ValueError) as error:
            raise sqlite3.DatabaseError(f"our own feed is damaged: {error}") from error

    def settle(self, last: int) -> None:
        """Note that `last` messages, all of them here, are the whole of our own feed."""
        self._mark.write(last)
        self.keep_place(self._mark.identity)

    def append(self, messages: Sequence[Message]) -> None:
        """Raises `OSError`, too."""
        super().append(messages)
        ours = [message for message in messages if message.author == self._me]
        if ours and ours[-1].sequence > self._mark.last:
            self._mark.write(ours[-1].sequence)
        self._own += [message.data for message in ours]

    def take_own(self) -> list[bytes]:
        """The messages of our own feed that were stored since the last call; for any thread."""
        return [self._own.popleft() for _ in range(len(self._own))]

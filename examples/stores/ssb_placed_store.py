"""A store of feeds that knows whether it is older than what was last published from it.

A message in the place of one that others have forks our feed for ever, so a folder that has come
back from a backup has to be noticed, as a whole or in part.  Two files beside the database say so:

``.mark``
    the last sequence of our own feed that anybody may have.  It is written after the database and
    before anything leaves, so a database that has less has come back from a backup.
``.place``
    nothing but its inode and the time when that was changed, which the database knows, as it knows
    the inode of the mark: no copy has the same, nor what a backup brings back.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

from culm.machine import Effect
from culm.ssb.ebt import AppendMessages, Head
from culm.ssb.ebt.notes import SEQUENCE_MAX
from stores.ssb_sqlite_store import SsbSqliteStore

__all__ = ["SsbPlacedStore"]

_NOWHERE = "from a backup"  # the place of no folder
_DIGITS = 20


class SsbPlacedStore:
    """A `culm.ssb.store.FeedStore` around `store`, whose database is at `path`.

    me: our own feed.
    restored: whether the feeds are known to come from a backup.
    """

    def __init__(self, store: SsbSqliteStore, path: Path, *, me: str, restored: bool) -> None:
        self._store, self._path, self._me = store, path, me
        self._own: deque[bytes] = deque()
        self.load, self.messages = store.load, store.messages
        last = store.load().heads.get(me, Head(0, "")).sequence
        kept = store.place
        knows_place = kept in (None, self._former_place(), self._place())
        self.restored = restored or not knows_place or last < self._mark
        if self.restored:
            store.keep_place(_NOWHERE)
        else:
            self.settle(last)

    def settle(self, last: int) -> None:
        """Note that nobody has more of our own feed than `last` messages, all of them here."""
        self._write_mark(last)
        self._store.keep_place(self._place())

    def perform(self, effect: Effect[Any]) -> object:
        """Raises what `SsbSqliteStore.perform` does, and `OSError`."""
        result = self._store.perform(effect)
        if isinstance(effect, AppendMessages):
            ours = [message for message in effect.messages if message.author == self._me]
            if ours and ours[-1].sequence > self._mark:
                self._write_mark(ours[-1].sequence)
            self._own += [message.data for message in ours]
        return result

    def take_own(self) -> list[bytes]:
        """The messages of our own feed that were stored since the last call; for any thread."""
        return [self._own.popleft() for _ in range(len(self._own))]

    @property
    def _mark(self) -> int:
        try:
            return int(self._file("mark").read_text("ascii") or "0")
        except FileNotFoundError:
            return 0
        except ValueError:  # cut short: any number of messages may be missing
            return SEQUENCE_MAX

    def _write_mark(self, last: int) -> None:
        """In its place: it must stay the same file."""
        descriptor = os.open(self._file("mark"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, b"%0*d\n" % (_DIGITS, last), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _place(self) -> str:
        place, mark = (_stat_of(self._file(name)) for name in ("place", "mark"))
        return f"{place.st_ino} {place.st_ctime_ns} {mark.st_ino}"

    def _former_place(self) -> str:
        """What earlier versions have kept in its stead."""
        found = self._file("key").stat()
        return f"{found.st_ino} {found.st_ctime_ns}"

    def _file(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{name}")


def _stat_of(path: Path) -> os.stat_result:
    """Of a file that is made if it is missing, and otherwise left alone."""
    if not path.exists():
        path.touch(0o600)
    return path.stat()

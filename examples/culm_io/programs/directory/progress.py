"""How far the work on a directory has come, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from culm_io.programs.directory.fetch import Fetched
from culm_io.programs.directory.publish import Published
from culm_io.programs.tables import Bars, Column

__all__ = ["Progress"]

_INTERVAL_S = 0.05  # counting to the next file is quicker than telling of it


class Progress(Bars):
    """A bar for each kind of work, below those before it.

    first: the work that comes first, of a size not known yet.
    """

    def __init__(self, first: str, *, quiet: bool = False) -> None:
        super().__init__(
            "{task.description}",
            Column.BAR,
            Column.COUNT,
            "{task.fields[size]}",
            Column.TIME_LEFT,
            quiet=quiet,
        )
        self._tasks = {first: self.add(first, size="")}
        self._next = 0.0  # when it is worth while to tell of more

    def fetched(self, fetched: Fetched) -> None:
        """So many entries have been fetched."""
        if not self.drawn:
            return
        done = sum(fetched.positions.get(log, 0) for log in fetched.offered)
        self._count("fetching", done, sum(fetched.offered.values()), fetched.payload_bytes)

    def published(self, published: Published) -> None:
        """Show the number of places looked at, and the bytes appended."""
        self._count("publishing", published.seen, published.found, published.payload_bytes)

    def counter(self, work: str) -> Callable[[int, int], None]:
        """A function to call with how much of some work is done, and how much there is of it."""
        return partial(self._count, work)

    def _count(self, work: str, done: int, total: int, size: int | None = None) -> None:
        now = time.monotonic()
        if not self.drawn or (now < self._next and done != total):
            return
        self._next = now + _INTERVAL_S
        if work not in self._tasks:
            self._tasks[work] = self.add(work, size="")
        from rich.filesize import decimal

        said = "" if size is None else decimal(size)
        self.show(self._tasks[work], done, total, size=said)

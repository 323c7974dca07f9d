"""How far the work on a directory has come, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from directory.fetch import Fetched
from directory.publish import Published
from ending import end_without

try:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
except ModuleNotFoundError as error:
    end_without(error)

__all__ = ["Bars"]

_INTERVAL_S = 0.05  # counting to the next file is quicker than telling of it


class Bars:
    """A bar for each kind of work, below those before it; drawn on a terminal only.

    first: the work that comes first, of which nobody knows yet how much it is.
    """

    def __init__(self, first: str, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._drawn = console.is_terminal and not quiet
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[size]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._drawn,
            redirect_stdout=sys.stdout.isatty(),  # else it would end up on stderr
        )
        self._tasks = {first: self._progress.add_task(first, total=None, size="")}
        self._next = 0.0  # when it is worth while to tell of more

    def __enter__(self) -> Self:
        if self._drawn:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._progress.stop()

    def fetched(self, fetched: Fetched) -> None:
        """So many entries have been fetched."""
        if not self._drawn:
            return
        done = sum(fetched.positions.get(log, 0) for log in fetched.offered)
        self._show("fetching", done, sum(fetched.offered.values()), fetched.payload_bytes)

    def published(self, published: Published) -> None:
        """So many places have been looked at, and so much has been appended."""
        self._show("publishing", published.seen, published.found, published.payload_bytes)

    def counter(self, work: str) -> Callable[[int, int], None]:
        """What is to be told how much of some work is done, and how much there is of it."""
        return partial(self._show, work)

    def _show(self, work: str, done: int, total: int, size: int | None = None) -> None:
        now = time.monotonic()
        if not self._drawn or (now < self._next and done != total):
            return
        self._next = now + _INTERVAL_S
        if work not in self._tasks:
            self._tasks[work] = self._progress.add_task(work, size="")
        said = "" if size is None else decimal(size)
        self._progress.update(self._tasks[work], completed=done, total=total, size=said)

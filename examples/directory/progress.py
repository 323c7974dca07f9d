"""The progress of fetching, on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from directory.fetch import Fetched
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

__all__ = ["FetchProgress"]

_STEP = 50  # places between one drawing and the next: drawing takes longer than writing


class FetchProgress:
    """A bar of entries fetched, then one of files written; drawn on a terminal only."""

    def __init__(self, *, quiet: bool = False) -> None:
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
        )
        self._fetching = self._progress.add_task("fetching", total=None, size="")
        self._writing = self._progress.add_task("writing", total=None, size="", visible=False)

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
        """So much has been fetched."""
        if not self._drawn:
            return
        self._progress.update(
            self._fetching,
            completed=sum(fetched.positions.get(log, 0) for log in fetched.offered),
            total=sum(fetched.offered.values()),
            size=decimal(fetched.payload_bytes),
        )

    def written(self, done: int, total: int) -> None:
        """So many places are as they have to be."""
        if not self._drawn or (done % _STEP and done != total):
            return
        self._progress.update(self._writing, completed=done, total=total, visible=True)

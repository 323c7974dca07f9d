"""The directory that follows a log while that grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from culm.bamboo import LogKey, LogStore
from culm_io.programs.directory.fetch import Failure, several_logs
from culm_io.programs.directory.folders import FolderBusyError, lock_folder
from culm_io.programs.directory.materialise import Materialised, materialise
from culm_io.programs.directory.records import RecordError
from culm_io.programs.directory.tree import TreeReader

__all__ = ["Mirror", "inside"]


class Mirror:
    """Makes `into` match the log in `store`, again and again (``None``: does nothing).

    Of several logs in the store it is the `wanted` one.  Payloads of more than
    `payload_size_max` bytes may be missing: files that need them are left as they are.  Nothing
    is written to the files of `private`, nor to paths that are not `chosen`.

    From entering it on, or from when `into` is made, no other process can do that: using it
    locks the directory.  Raises `directory.folders.FolderBusyError`.

    made: everything done so far.
    failed: by path, why a place is not as it should be.  The next update tries it again.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        into: Path | None,
        wanted: LogKey | None,
        payload_size_max: int | None,
        private: Collection[Path],
        chosen: Callable[[bytes], bool] = lambda path: True,
        on_place: Callable[[int, int], object],
    ) -> None:
        self.made = Materialised()
        self.failed: dict[bytes, str] = {}
        self._store = store
        self._into = into
        self._wanted = wanted
        self._payload_size_max = payload_size_max
        self._private = private
        self._chosen = chosen
        self._on_place = on_place
        self._reader: TreeReader | None = None
        self._due: Collection[bytes] = ()  # paths to try again
        self._folder: int | None = None

    def __enter__(self) -> Self:
        if self._into is not None and self._into.is_dir():
            self._folder = lock_folder(self._into)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            os.close(self._folder)

    def unfinished(self) -> Failure | None:
        """The obstacles to single places, if they have not stopped all."""
        if not self.failed:
            return None
        path, reason = next(iter(self.failed.items()))
        count = len(self.failed)
        text = f"{count} not written, the first of them {os.fsdecode(path)!r}: {reason}"
        return Failure("PARTLY_WRITTEN", text)

    @property
    def log(self) -> LogKey | None:
        """The log, if it is clear which one."""
        logs = self._store.logs() if self._wanted is None else [self._wanted]
        return logs[0] if len(logs) == 1 else None

    def update(self) -> tuple[Materialised, Failure | None]:
        """Bring the directory up to date; the work done, and the failure."""
        log, logs = self.log, self._store.logs()
        if self._into is None or (log is None and not logs):
            return Materialised(), None
        if log is None:
            return Materialised(), several_logs(logs)
        made = Materialised()
        failure = None
        try:
            self._materialise(log, self._into, made)
        except RecordError as error:
            failure = Failure("BAD_RECORD", str(error))
        except FolderBusyError as error:
            failure = Failure("BUSY", str(error))
        except OSError as error:
            failure = Failure("CANNOT_WRITE", _told(error))
        self.made.written += made.written
        self.made.unchanged += made.unchanged
        self.made.removed += made.removed
        self.made.failed = self.failed = made.failed
        return made, failure

    def _materialise(self, log: LogKey, into: Path, made: Materialised) -> None:
        if self._reader is None:
            self._reader = TreeReader(self._store, log, payload_size_max=self._payload_size_max)
        tree = self._reader.follow(self._due).of(self._chosen)
        self._due = tree.places.keys()  # if something stops it
        materialise(
            self._store,
            log,
            self._locked(into),
            tree=tree,
            private=inside(into, self._private),
            done=made,
            on_place=self._on_place,
        )
        self._due = made.failed

    def _locked(self, into: Path) -> int:
        if self._folder is None:
            into.mkdir(parents=True, exist_ok=True)
            self._folder = lock_folder(into)
        elif not os.path.samestat(os.stat(into), os.fstat(self._folder)):
            raise FileExistsError(f"{into}: something else has taken the place of the directory")
        return self._folder


def inside(into: Path, private: Collection[Path]) -> list[bytes]:
    """Those of the files that are in the directory, or would be, by their paths there."""
    root = into.resolve()
    places = [path.parent.resolve() / path.name for path in private]
    return [os.fsencode(path.relative_to(root)) for path in places if path.is_relative_to(root)]


def _told(error: OSError) -> str:
    """An error in one line; names that are bytes as text."""
    if isinstance(error.filename, bytes):
        return f"{error.strerror}: {os.fsdecode(error.filename)!r}"
    return str(error)

"""The directory that follows a log while that grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from culm.bamboo import LogKey, LogStore
from directory.fetch import Failure, several_logs
from directory.materialise import Materialised, materialise
from directory.records import RecordError
from directory.tree import Tree, TreeReader

__all__ = ["Mirror"]


class Mirror:
    """Makes `into` what the log in `store` says, again and again (``None``: does nothing).

    Of several logs in the store it is the `wanted` one.  Payloads of more than
    `payload_size_max` bytes may be missing: files that need them are left as they are.

    made: what has been done, all in all.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        into: Path | None,
        wanted: LogKey | None,
        payload_size_max: int | None,
        on_place: Callable[[int, int], object],
    ) -> None:
        self.made = Materialised()
        self._store = store
        self._into = into
        self._wanted = wanted
        self._payload_size_max = payload_size_max
        self._on_place = on_place
        self._reader: TreeReader | None = None
        self._tree: Tree | None = None

    @property
    def log(self) -> LogKey | None:
        """The log, if it is clear which one."""
        logs = self._store.logs() if self._wanted is None else [self._wanted]
        return logs[0] if len(logs) == 1 else None

    def update(self) -> tuple[Materialised, Failure | None]:
        """Bring the directory up to date; what was done, and what has gone wrong."""
        log, logs = self.log, self._store.logs()
        if log is None and logs:
            return Materialised(), several_logs(logs)
        if log is None or self._into is None:
            return Materialised(), None
        try:
            made = self._materialise(log, self._into)
        except RecordError as error:
            return Materialised(), Failure("BAD_RECORD", str(error))
        except OSError as error:
            return Materialised(), Failure("CANNOT_WRITE", str(error))
        self.made.written += made.written
        self.made.unchanged += made.unchanged
        self.made.removed += made.removed
        return made, None

    def _materialise(self, log: LogKey, into: Path) -> Materialised:
        if self._reader is None:
            self._reader = TreeReader(self._store, log, payload_size_max=self._payload_size_max)
        tree = self._reader.read()
        made = materialise(
            self._store, log, into, tree=tree, before=self._tree, on_place=self._on_place
        )
        self._tree = tree
        return made

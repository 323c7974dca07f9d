"""A disk that forgets: unsynced writes may be lost or torn at a crash."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class _UnsyncedChange:
    """One unsynced change of one file.

    data: the bytes at `offset`; if that is ``None``, the whole new content (``None``: no file).
    """

    name: str
    offset: int | None
    data: bytes | None


class Disk:
    """Files by name, in memory.  Reads see every write; a crash sees only the synced ones.

    At a crash every unsynced change is lost with probability `loss`, otherwise torn with
    probability `tearing`, otherwise kept; they need not survive in order.  Each sector of
    `sector_size` bytes of a torn write survives or is lost independently.  `replace` and
    `delete` are never torn: they happen or do not.
    """

    def __init__(
        self, rng: Random, *, loss: float = 0.5, tearing: float = 0.5, sector_size: int = 512
    ) -> None:
        self._rng = rng
        self._loss = loss
        self._tearing = tearing
        self._sector_size = sector_size
        self._seen: dict[str, bytearray] = {}
        self._synced: dict[str, bytearray] = {}
        self._pending: list[_UnsyncedChange] = []

    def names(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted(self._seen)

    def read(self, name: str) -> bytes:
        """The content of the file.  Raises `FileNotFoundError`."""
        if name not in self._seen:
            raise FileNotFoundError(name)
        return bytes(self._seen[name])

    def size(self, name: str) -> int:
        """The length of the file in bytes; 0 if there is none."""
        return len(self._seen.get(name, b""))

    def append(self, name: str, data: bytes) -> None:
        """Write `data` at the end of the file, which is created if there is none."""
        self.write(name, self.size(name), data)

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write `data` at `offset`; a gap before it is filled with zeros."""
        self._change(_UnsyncedChange(name, offset, bytes(data)))

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._change(_UnsyncedChange(name, None, bytes(self._seen.get(name, b"")[:size])))

    def replace(self, name: str, data: bytes) -> None:
        """Set the whole content, as if by writing another file and renaming it."""
        self._change(_UnsyncedChange(name, None, bytes(data)))

    def delete(self, name: str) -> None:
        """Remove the file, if it is there."""
        self._change(_UnsyncedChange(name, None, None))

    def sync(self, name: str | None = None) -> None:
        """Make the changes of the file, or of all files, survive every crash."""
        for change in self._pending:
            if name in {None, change.name}:
                _apply(self._synced, change)
        self._pending = [] if name is None else [c for c in self._pending if c.name != name]

    def crash(self) -> None:
        """Lose, tear or keep each unsynced change; reads see the result from now on."""
        for change in self._pending:
            # Drawn in any case, so that one change's fate does not decide that of the next.
            lost, torn = self._rng.random() < self._loss, self._rng.random() < self._tearing
            if lost:
                continue
            if torn and change.offset is not None and change.data is not None:
                self._tear(change.name, change.offset, change.data)
            else:
                _apply(self._synced, change)
        self._pending = []
        self._seen = {name: bytearray(data) for name, data in self._synced.items()}

    def _change(self, change: _UnsyncedChange) -> None:
        _apply(self._seen, change)
        self._pending.append(change)

    def _tear(self, name: str, offset: int, data: bytes) -> None:
        start = 0
        while start < len(data):
            # Sectors lie on the disk, not in the write: the first piece may be shorter.
            end = start + self._sector_size - (offset + start) % self._sector_size
            if self._rng.random() < 0.5:
                _apply(self._synced, _UnsyncedChange(name, offset + start, data[start:end]))
            start = end


def _apply(files: dict[str, bytearray], change: _UnsyncedChange) -> None:
    if change.offset is not None and change.data is not None:
        content = files.setdefault(change.name, bytearray())
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data
    elif change.data is not None:
        files[change.name] = bytearray(change.data)
    else:
        files.pop(change.name, None)

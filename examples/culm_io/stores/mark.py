"""A file beside a store that says how far the store has come; no copy can take its place.

Its name ends with a number, and it holds the same number.  Whatever puts an older store back, one
of these does not fit any more:

- the number, if the file was left alone: a folder that is put back over another, in place or not,
  brings the older name as another file, and the newer one stays.  A link to it, as in a backup of
  hard links, has the older name and the newer number.
- the file's identity, if it was removed or copied: the number of its inode, and the generation of
  that, since numbers are used again.  Only a file system that is set back as a whole, or a snapshot
  of one, has that again.

When the number changes the file is renamed, and never made anew.  Its owner, mode, times and links
may change.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["Mark"]

_FS_IOC_GETVERSION = 0x80087601  # linux/fs.h: ext4, XFS, Btrfs, F2FS
_DIGITS = 20
_UNKNOWN = sys.maxsize


class Mark:
    """The mark of the store at `path`, for one process at a time.

    last: the number that it has; 0 if there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last = max((_number_of(file) for file in self._files()), default=0)

    @property
    def identity(self) -> str:
        """That of the file, for the store to keep; without a file, of a new one."""
        if not self._files():
            self.write(self.last)
        descriptor = os.open(self._newest(), os.O_RDONLY)
        try:
            found = os.fstat(descriptor)
            return f"{found.st_ino} {_generation_of(descriptor, found)}"
        finally:
            os.close(descriptor)

    def write(self, last: int) -> None:
        """Make it say `last`, durably: after the store, and before anybody hears of that."""
        named = self._path.with_name(f"{self._prefix}{last}")
        file = self._newest() if self._files() else named
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, b"%0*d\n" % (_DIGITS, last), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        file.rename(named)
        for other in self._files():
            if other != named:
                other.unlink()
        _sync(named.parent)
        self.last = last

    @property
    def _prefix(self) -> str:
        return f"{self._path.name}.mark."

    def _files(self) -> list[Path]:
        """More than one if an older one was put back."""
        return [file for file in self._path.parent.iterdir() if file.name.startswith(self._prefix)]

    def _newest(self) -> Path:
        return max(self._files(), key=_number_of)


def _number_of(file: Path) -> int:
    """The greater of the numbers in its name and its content; without bounds if it was damaged."""
    try:
        return max(int(file.suffix[1:]), int(file.read_text("ascii") or "0"))
    except ValueError:
        return _UNKNOWN


def _generation_of(descriptor: int, found: os.stat_result) -> object:
    """By which it differs from others that have had the number of its inode."""
    generation = bytearray(8)
    with suppress(OSError):
        fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, generation)
        return generation.hex()
    return getattr(found, "st_birthtime", "")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

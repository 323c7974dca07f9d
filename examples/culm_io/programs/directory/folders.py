"""Directories inside a directory, reached without following links.

All is done relative to open directories, one name at a time: whatever a path says, and
whatever others put in its way meanwhile, it does not lead outside.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "OPEN_FOLDER",
    "FolderBusyError",
    "Folders",
    "change_mode",
    "is_for_all",
    "lock_folder",
    "mode_of",
    "reason_of",
]

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Errors that concern more than one file: the next one would meet the same.
_FOR_ALL = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS}
)


class FolderBusyError(Exception):
    """Another process is making this directory from its log."""


def is_for_all(error: OSError) -> bool:
    """Whether `error` says that there is no use in going on with other files."""
    return error.errno in _FOR_ALL


def reason_of(error: Exception) -> str:
    """Why something cannot be read or written, in few words."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def lock_folder(path: Path) -> int:
    """Open a directory, and be the only one who has locked it; the descriptor.

    Raises `FolderBusyError` and `OSError`.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # may be a link itself
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise FolderBusyError(f"{path}: another process is fetching into this directory") from None
    except BaseException:
        os.close(folder)
        raise
    return folder


class Folders:
    """Opens files and directories beneath the open directory `root`, which stays open.

    The one that was opened last is kept: mostly, it is asked for again.  Nothing may take the
    place of directories in the meantime, but for `forget` or a new object.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._path = b""
        self._last = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.forget()

    def forget(self) -> None:
        """Close the directories kept open."""
        if self._last >= 0:
            os.close(self._last)
            self._path, self._last = b"", -1

    def open(self, path: bytes) -> int:
        """The directory at `path`, or `root` for the empty one; open until the next call.

        Raises `OSError`, also for a link.
        """
        if not path:
            return self._root
        if path == self._path:
            return self._last
        above = self._path + b"/"
        if self._last >= 0 and path.startswith(above):
            folder, names = self._last, path[len(above) :]
            self._path, self._last = b"", -1
        else:
            self.forget()
            folder, names = os.dup(self._root), path
        try:
            for name in names.split(b"/"):
                inner = os.open(name, OPEN_FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
        self._path, self._last = path, folder
        return folder

    def above(self, path: bytes) -> tuple[int, bytes]:
        """The directory in which `path` is, as `open` gives it, and its name there."""
        parent, _, name = path.rpartition(b"/")
        return self.open(parent), name


def mode_of(name: bytes, folder: int) -> int | None:
    """The mode of `name` itself (not of a link's target); ``None``: there is nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def change_mode(name: bytes, folder: int, mode: int) -> None:
    """Change the mode of the directory `name`, which need not be readable; never of another."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    directory = os.open(name, os.O_PATH | OPEN_FOLDER, dir_fd=folder)  # as on Linux
    try:
        os.chmod(f"/proc/self/fd/{directory}", mode)
    finally:
        os.close(directory)

"""Making a directory from its log, whoever wrote that.

All work is done relative to open directories that are reached without following links,
so that nothing outside is touched.  A file is made aside and then moved to its place:
readers see the old file or the new one, and a crash leaves no halves.  The file in its place is
never changed, for it may have another name elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from culm.bamboo import LogKey, LogStore
from culm_io.programs.directory.contents import Contents, is_content, write_content
from culm_io.programs.directory.folders import (
    OPEN_FOLDER,
    Folders,
    change_mode,
    is_for_all,
    lock_folder,
    mode_of,
    reason_of,
)
from culm_io.programs.directory.records import STAGING, Directory, File, Link, Removed
from culm_io.programs.directory.tree import Place, Tree, read_tree

__all__ = ["Materialised", "materialise"]

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(slots=True)
class Materialised:
    """The work done: numbers of places; by path, why a place is not as it should be."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: dict[bytes, str] = field(default_factory=dict)


def materialise(
    store: LogStore,
    log: LogKey,
    root: Path | int,
    *,
    tree: Tree | None = None,
    private: Collection[bytes] = (),
    done: Materialised | None = None,
    on_place: Callable[[int, int], object] = lambda done, total: None,
) -> Materialised:
    """Make `root` match the log; places outside the log are left alone.

    `root` is a path, at which a directory is made if there is none, or a directory that is
    open and locked (`directory.folders.lock_folder`).

    The log is read as a whole before anything is touched, unless it was already: then only the
    places of `tree` are looked at.  Paths of `private` are not for the author of the log to say
    anything of.  `on_place` is told the numbers of places done, and of all places.

    An obstacle in one place, or one that may not be changed, does not stop the rest.  `done`
    has the work done even if something is raised.  A payload that a disk has damaged in the store
    is one.

    Raises `directory.records.RecordError` for a log that is not one of a directory,
    `directory.folders.FolderBusyError`, and `OSError` for errors that would stop every place.
    """
    tree = read_tree(store, log) if tree is None else tree
    places = tree.in_order()
    with ExitStack() as stack:
        if isinstance(root, Path):
            root.mkdir(parents=True, exist_ok=True)
            root = lock_folder(root)
            stack.callback(os.close, root)
        staging = stack.enter_context(_staging(root))
        maker = _Materialiser(root, staging, Contents(store, log, verified=True), private, done)
        directories = [place for place in places if isinstance(place.record, Directory)]
        with maker.at_work():
            for place in directories:
                maker.attempt(maker.make_directory, place)
        with maker.at_work():
            for place in reversed(places):
                if isinstance(place.record, Removed):
                    maker.attempt(maker.remove, place)
        with maker.at_work():
            for index, place in enumerate(places):
                on_place(index, len(places))
                if isinstance(place.record, File):
                    maker.attempt(maker.make_file, place)
                elif isinstance(place.record, Link):
                    maker.attempt(maker.make_link, place)
        with maker.at_work():
            for place in reversed(directories):
                maker.attempt(maker.set_mode, place)
        on_place(len(places), len(places))
    return maker.done


@contextmanager
def _staging(root: int) -> Iterator[int]:
    """Have a place for files in the making; leftovers of a crash are thrown away."""
    _clear_staging(root)
    os.mkdir(STAGING, 0o700, dir_fd=root)
    staging = os.open(STAGING, OPEN_FOLDER, dir_fd=root)
    try:
        yield staging
    finally:
        os.close(staging)
        _clear_staging(root)


def _clear_staging(root: int) -> None:
    with suppress(FileNotFoundError):
        staging = os.open(STAGING, OPEN_FOLDER, dir_fd=root)
        try:
            for name in os.listdir(staging):
                os.unlink(name, dir_fd=staging)
        finally:
            os.close(staging)
        os.rmdir(STAGING, dir_fd=root)


class _Materialiser:
    def __init__(
        self,
        root: int,
        staging: int,
        contents: Contents,
        private: Collection[bytes],
        done: Materialised | None,
    ) -> None:
        self.done = Materialised() if done is None else done
        # Some file systems take other cases of a name for the same.
        self._private = {path.lower() for path in private}
        self._folders = Folders(root)
        self._staging = staging
        self._contents = contents
        self._fresh: set[bytes] = set()  # directories that we have made: nothing was in them

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Directories stay where they are meanwhile, but for those of which this is told."""
        with self._folders:
            yield

    def attempt(self, make: Callable[[Place], None], place: Place) -> None:
        """Do it, or note why it cannot be done."""
        path = place.record.path
        if self._private and path.lower() in self._private:
            self.done.failed[path] = "part of the store"
            return
        try:
            make(place)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and is_for_all(error):
                raise
            self._folders.forget()
            self.done.failed.setdefault(path, reason_of(error))

    # Directories.

    def make_directory(self, place: Place) -> None:
        """Have a directory that we can write to."""
        path = place.record.path
        parent, name = self._folders.above(path)
        mode = self._mode(path, parent, name)
        if mode is not None and not stat.S_ISDIR(mode):
            os.unlink(name, dir_fd=parent)
            mode = None
        if mode is None:
            os.mkdir(name, 0o700, dir_fd=parent)
            self._fresh.add(path)
            self.done.written += 1
        elif mode & 0o700 != 0o700:
            change_mode(name, parent, stat.S_IMODE(mode) | 0o700)

    def set_mode(self, place: Place) -> None:
        """Give a directory its mode, now that all is in it."""
        assert isinstance(place.record, Directory)
        folder = self._folders.open(place.record.path)
        if stat.S_IMODE(os.fstat(folder).st_mode) != place.record.mode:
            os.fchmod(folder, place.record.mode)

    def remove(self, place: Place) -> None:
        """Remove the place; a directory that is not empty stays."""
        with suppress(FileNotFoundError, NotADirectoryError):
            parent, name = self._folders.above(place.record.path)
            mode = mode_of(name, parent)
            if mode is None:
                return
            parent_mode = stat.S_IMODE(os.fstat(parent).st_mode)
            if parent_mode & 0o300 != 0o300:
                os.fchmod(parent, parent_mode | 0o300)  # it may have to go, too
            if stat.S_ISDIR(mode):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
                    self.done.removed += 1
            else:
                os.unlink(name, dir_fd=parent)
                self.done.removed += 1

    def _mode(self, path: bytes, parent: int, name: bytes) -> int | None:
        is_fresh = path[: -len(name) - 1] in self._fresh
        return None if is_fresh else mode_of(name, parent)

    # Files.

    def make_file(self, place: Place) -> None:
        """Have a file of that content, mode and time."""
        record = place.record
        assert isinstance(record, File)
        parent, name = self._folders.above(record.path)
        mode = self._mode(record.path, parent, name)
        if mode is not None and stat.S_ISREG(mode) and self._is_same(place, record, parent, name):
            self.done.unchanged += 1
            return
        file = os.open(b"file", _MAKE_FILE, 0o600, dir_fd=self._staging)
        try:
            try:
                write_content(file, self._contents.pieces(place))
                os.fchmod(file, record.mode)
                os.utime(file, ns=(record.mtime, record.mtime))
            finally:
                os.close(file)
            self._move(b"file", parent, name, mode)
        except OSError:
            self._clear(b"file")
            raise

    def _is_same(self, place: Place, record: File, parent: int, name: bytes) -> bool:
        """Whether the file is there already, of that mode and time."""
        try:
            file = os.open(name, _OPEN_FILE, dir_fd=parent)
        except OSError:  # not ours to read
            return False
        try:
            found = os.fstat(file)
            return (
                stat.S_IMODE(found.st_mode) == record.mode
                and found.st_mtime_ns == record.mtime
                and is_content(file, place.size, self._contents.pieces(place))
            )
        finally:
            os.close(file)

    def make_link(self, place: Place) -> None:
        """Have a symbolic link."""
        record = place.record
        assert isinstance(record, Link)
        parent, name = self._folders.above(record.path)
        with suppress(OSError):
            if os.readlink(name, dir_fd=parent) == record.target:
                self.done.unchanged += 1
                return
        os.symlink(record.target, b"link", dir_fd=self._staging)
        try:
            self._move(b"link", parent, name, self._mode(record.path, parent, name))
        except OSError:
            self._clear(b"link")
            raise

    def _move(self, staged: bytes, parent: int, name: bytes, mode: int | None) -> None:
        """Put the made file in its place, in one step unless a directory is there."""
        if mode is not None and stat.S_ISDIR(mode):
            os.rmdir(name, dir_fd=parent)
        os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=parent)
        self.done.written += 1

    def _clear(self, staged: bytes) -> None:
        """Make room for the next file; one that was moved is no longer there."""
        with suppress(FileNotFoundError):
            os.unlink(staged, dir_fd=self._staging)

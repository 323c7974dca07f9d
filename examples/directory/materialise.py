"""Making a directory what its log says, whoever wrote the log.

All work is done relative to open directories that are reached without following links,
so that nothing outside is touched.  A file is made aside and then moved to its place:
whoever looks sees the old file or the new one, and a crash leaves no halves behind.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from culm.bamboo import LogKey, LogStore
from directory.records import STAGING, Directory, File, Link, RecordError, Removed
from directory.tree import Place, Tree, read_record, read_tree

__all__ = ["Materialised", "materialise"]

_READ_SIZE = 1 << 18
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(slots=True)
class Materialised:
    """What there was to do: numbers of places."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0


def materialise(
    store: LogStore,
    log: LogKey,
    root: Path,
    *,
    tree: Tree | None = None,
    before: Tree | None = None,
    on_place: Callable[[int, int], object] = lambda done, total: None,
) -> Materialised:
    """Make `root` what the log says; what the log does not speak of is left alone.

    The log is read as a whole before anything is touched, unless it was already (`tree`).
    If `root` has been made what `before` says, what is the same there is not looked at.
    `on_place` is told how many places are done, and how many there are.

    Raises `directory.records.RecordError` for a log that is not one of a directory, and
    `OSError`.
    """
    tree = read_tree(store, log) if tree is None else tree
    places = tree.in_order()
    done = {} if before is None else before.places
    changed = [place for place in places if done.get(place.record.path) != place]
    root.mkdir(parents=True, exist_ok=True)
    with _Materialiser(store, log, root).staging() as materialiser:
        # All of them, for a while: something in one that is the same may have changed.
        directories = [place for place in places if isinstance(place.record, Directory)]
        for place in directories:
            materialiser.make_directory(place.record.path)
        for place in reversed(changed):
            if isinstance(place.record, Removed):
                materialiser.remove(place.record.path)
        for index, place in enumerate(changed):
            on_place(index, len(changed))
            if isinstance(place.record, File):
                materialiser.make_file(place, place.record)
            elif isinstance(place.record, Link):
                materialiser.make_link(place.record)
        for place in reversed(directories):
            assert isinstance(place.record, Directory)
            materialiser.set_mode(place.record)
        on_place(len(changed), len(changed))
    return materialiser.done


class _Materialiser:
    def __init__(self, store: LogStore, log: LogKey, root: Path) -> None:
        self.done = Materialised()
        self._store = store
        self._log = log
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)  # may well be a link itself
        self._staging = -1

    @contextmanager
    def staging(self) -> Iterator[_Materialiser]:
        """Have a place for files in the making; what a crash left there is thrown away."""
        try:
            self._clear_staging()
            os.mkdir(STAGING, 0o700, dir_fd=self._root)
            self._staging = os.open(STAGING, _OPEN_DIRECTORY, dir_fd=self._root)
            try:
                yield self
            finally:
                os.close(self._staging)
                self._clear_staging()
        finally:
            os.close(self._root)

    def _clear_staging(self) -> None:
        with suppress(FileNotFoundError), _opened(STAGING, self._root) as staging:
            for name in os.listdir(staging):
                os.unlink(name, dir_fd=staging)
            os.rmdir(STAGING, dir_fd=self._root)

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """The open directory in which `path` is, and its name there."""
        *parents, name = path.split(b"/")
        directory = os.dup(self._root)
        try:
            for parent in parents:
                inner = os.open(parent, _OPEN_DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = inner
            yield directory, name
        finally:
            os.close(directory)

    # Directories.

    def make_directory(self, path: bytes) -> None:
        """Have a directory that we can write to."""
        with self._parent(path) as (parent, name):
            mode = _mode(name, parent)
            if mode is not None and not stat.S_ISDIR(mode):
                os.unlink(name, dir_fd=parent)
                mode = None
            if mode is None:
                os.mkdir(name, 0o700, dir_fd=parent)
                self.done.written += 1
            elif mode & 0o700 != 0o700:
                os.chmod(name, stat.S_IMODE(mode) | 0o700, dir_fd=parent)

    def set_mode(self, record: Directory) -> None:
        """Give a directory its mode, now that all is in it."""
        with self._parent(record.path) as (parent, name), _opened(name, parent) as directory:
            os.fchmod(directory, record.mode)

    def remove(self, path: bytes) -> None:
        """Remove what is at `path`; a directory in which something is left stays."""
        with suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (parent, name):
            mode = _mode(name, parent)
            if mode is None:
                return
            parent_mode = stat.S_IMODE(os.fstat(parent).st_mode)
            os.fchmod(parent, parent_mode | 0o300)  # it may have to go, too
            if stat.S_ISDIR(mode):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
                    self.done.removed += 1
            else:
                os.unlink(name, dir_fd=parent)
                self.done.removed += 1

    # Files.

    def make_file(self, place: Place, record: File) -> None:
        """Have a file of that content, mode and time."""
        with self._parent(record.path) as (parent, name):
            if self._is_same(place, record, parent, name):
                self.done.unchanged += 1
                return
            descriptor = os.open(
                b"file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._staging
            )
            with open(descriptor, "wb") as file:
                for data in self._content(place, record):
                    file.write(data)
                file.flush()
                os.fchmod(file.fileno(), record.mode)
                os.utime(file.fileno(), ns=(record.mtime, record.mtime))
            self._move(b"file", parent, name)

    def _is_same(self, place: Place, record: File, parent: int, name: bytes) -> bool:
        """Whether the file is there already; its mode and time are set if they differ."""
        mode = _mode(name, parent)
        if mode is None or not stat.S_ISREG(mode):
            return False
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError:  # not ours to read
            return False
        with open(descriptor, "rb", buffering=_READ_SIZE) as file:
            found = os.fstat(descriptor)
            if any(file.read(len(data)) != data for data in self._content(place, record)):
                return False
            if file.read(1):
                return False
            if stat.S_IMODE(found.st_mode) != record.mode:
                os.fchmod(descriptor, record.mode)
            if found.st_mtime_ns != record.mtime:
                os.utime(descriptor, ns=(record.mtime, record.mtime))
        return True

    def _content(self, place: Place, record: File) -> Iterator[bytes]:
        """The content of all chunks, in pieces."""
        for seqnum in range(place.seqnum, place.seqnum + record.chunks):
            entry = self._store.entry(self._log, seqnum)
            assert entry is not None
            _, offset = read_record(self._store, self._log, entry)
            while offset < entry.payload_size:
                data = self._store.read_payload(self._log, seqnum, offset, _READ_SIZE)
                if not data:
                    raise RecordError(f"entry {seqnum}: the payload is no longer there")
                yield data
                offset += len(data)

    def make_link(self, record: Link) -> None:
        """Have a symbolic link."""
        with self._parent(record.path) as (parent, name):
            with suppress(OSError):
                if os.readlink(name, dir_fd=parent) == record.target:
                    self.done.unchanged += 1
                    return
            os.symlink(record.target, b"link", dir_fd=self._staging)
            self._move(b"link", parent, name)

    def _move(self, staged: bytes, parent: int, name: bytes) -> None:
        """Put what has been made in its place, in one step unless a directory is there."""
        mode = _mode(name, parent)
        if mode is not None and stat.S_ISDIR(mode):
            os.rmdir(name, dir_fd=parent)
        os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=parent)
        self.done.written += 1


@contextmanager
def _opened(name: bytes, parent: int) -> Iterator[int]:
    descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _mode(name: bytes, parent: int) -> int | None:
    """What `name` itself is (not what it links to); ``None``: there is nothing."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None

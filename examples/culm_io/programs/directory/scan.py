"""Finding the files of a directory; contents are read later."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from culm_io.programs.directory.folders import Folders, is_for_all, reason_of
from culm_io.programs.directory.records import (
    STAGING,
    Directory,
    Link,
    RecordError,
    check_path,
    is_inside,
)

__all__ = ["Findings", "FoundFile", "Scanner"]


class FoundFile(NamedTuple):
    """A file: its permission bits, size (bytes) and time (nanoseconds)."""

    path: bytes
    mode: int
    size: int
    mtime: int

    @classmethod
    def of(cls, path: bytes, found: os.stat_result) -> FoundFile:
        return cls(path, found.st_mode & 0o777, found.st_size, found.st_mtime_ns)


@dataclass(slots=True)
class Findings:
    """By path: places that do not travel, further names of files, unreadable places."""

    skipped: dict[bytes, str] = field(default_factory=dict)
    hard_links: dict[bytes, str] = field(default_factory=dict)
    failed: dict[bytes, str] = field(default_factory=dict)

    def is_known(self, path: bytes) -> bool:
        """Whether we could look at `path`: neither it nor a directory above has failed."""
        failed = self.failed
        while failed and path:
            if path in failed:
                return False
            path = path.rpartition(b"/")[0]
        return True


class Scanner:
    """Finds all places in the open directory `root`, in the order of names.

    Names and relative paths that match a pattern of `excludes` are not looked at.  Files of
    `private` are left out, whatever their names.
    """

    def __init__(self, root: int, excludes: Collection[str], private: Collection[Path]) -> None:
        self.findings = Findings()
        self._folders = Folders(root)
        self._excludes = excludes
        there = (os.stat(path) for path in private if path.exists())
        self._private = {(found.st_dev, found.st_ino) for found in there}
        self._names: dict[tuple[int, int], bytes] = {}  # of files that have several

    def scan(self) -> Iterator[Directory | Link | FoundFile]:
        """All that can travel.  Raises `OSError` if `root` itself cannot be read."""
        with self._folders:
            waiting = [self._list(b"")]
            while waiting:
                inner = next(waiting[-1], None)
                if inner is None:
                    waiting.pop()
                    continue
                found = self._attempt(inner)
                if found is not None:
                    yield found
                if isinstance(found, Directory):
                    try:
                        waiting.append(self._list(inner))
                    except OSError as error:
                        self._fail(inner, error)

    def _list(self, path: bytes) -> Iterator[bytes]:
        names = sorted(map(os.fsencode, os.listdir(self._folders.open(path))))
        above = path + b"/" if path else b""
        return (above + name for name in names if not self._is_excluded(above + name, name))

    def _is_excluded(self, path: bytes, name: bytes) -> bool:
        if path == STAGING:
            return True
        if not self._excludes:
            return False
        texts = os.fsdecode(path), os.fsdecode(name)
        return any(fnmatchcase(text, pattern) for pattern in self._excludes for text in texts)

    def _attempt(self, path: bytes) -> Directory | Link | FoundFile | None:
        try:
            return self._look_at(path)
        except FileNotFoundError:
            return None  # gone before we came
        except (OSError, RecordError) as error:
            self._fail(path, error)
            return None

    def _fail(self, path: bytes, error: OSError | RecordError) -> None:
        if isinstance(error, OSError) and is_for_all(error):
            raise error
        self.findings.failed[path] = reason_of(error)

    def _look_at(self, path: bytes) -> Directory | Link | FoundFile | None:
        check_path(path)
        folder, name = self._folders.above(path)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return Directory(path, found.st_mode & 0o777)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=folder)
            if is_inside(path, target):
                return Link(path, target)
            reason = f"a link that may lead out of the directory, to {os.fsdecode(target)!r}"
        elif not stat.S_ISREG(found.st_mode):
            reason = "neither a file nor a directory nor a link"
        elif (found.st_dev, found.st_ino) in self._private:
            reason = "part of the store"
        else:
            if found.st_nlink > 1:
                self._note_name(path, found)
            return FoundFile.of(path, found)
        self.findings.skipped[path] = reason
        return None

    def _note_name(self, path: bytes, found: os.stat_result) -> None:
        first = self._names.setdefault((found.st_dev, found.st_ino), path)
        if first != path:
            reason = f"the same file as {os.fsdecode(first)!r}, travels as one of its own"
            self.findings.hard_links[path] = reason

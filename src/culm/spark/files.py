"""Files on any file system that pyarrow knows: this machine's, ``s3://``, ``gs://``, ``hdfs://``."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "escaped",
    "is_hidden",
    "is_inside",
    "list_files",
    "open_file",
    "open_system",
    "read_table",
    "remove",
    "written_whole",
]

# What stands for other signs where Spark reads from.
_PATTERN = re.compile(r"([][{}*?\\])")


def open_system(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path within it."""
    from pyarrow import fs

    if "://" in path:
        system, inside = fs.FileSystem.from_uri(path)
        return system, inside
    return fs.LocalFileSystem(), os.path.abspath(path)


def open_file(path: str) -> Any:
    """Open a file for reading, with seeks.

    Raises `OSError` if it cannot be opened or is not a file, so that nothing waits for a pipe.
    """
    from pyarrow import fs

    system, inside = open_system(path)
    if system.get_file_info(inside).type != fs.FileType.File:
        raise FileNotFoundError(f"there is no file at {path}")
    return system.open_input_file(inside)


def list_files(path: str) -> list[tuple[str, int]]:
    """The files at a path, with their sizes: the path itself, or all below it except hidden ones.

    What cannot be read as a file (a dangling link, a pipe, a directory without permission, a name
    that is not text) is included, with a size of 1, so that whoever opens it reports the error.
    Each local directory is visited once, whatever links lead to it.

    Raises `FileNotFoundError` if there is nothing.
    """
    from pyarrow import fs

    system, inside = open_system(path)
    info = system.get_file_info(inside)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {path}")
    if info.type != fs.FileType.Directory:
        return [(path, _size(info))]
    prefix = path.rstrip("/")
    if isinstance(system, fs.LocalFileSystem):
        return sorted((f"{prefix}/{name}", size) for name, size in _walk(inside))
    found = system.get_file_info(fs.FileSelector(inside, recursive=True))
    return sorted(
        (prefix + each.path.removeprefix(inside.rstrip("/")), _size(each))
        for each in found
        if each.type != fs.FileType.Directory and not is_hidden(each.path.removeprefix(inside))
    )


def is_inside(path: str, other: str) -> bool:
    """Whether `path` is `other`, or lies below it."""
    names = []
    for each in (path, other):
        system, inside = open_system(each)
        names.append(f"{system.type_name}:{os.path.realpath(inside).rstrip('/')}/")
    return names[0].startswith(names[1])


def remove(path: str) -> None:
    """Remove a file, or a directory with everything in it, if it exists."""
    from pyarrow import fs

    system, inside = open_system(path)
    found = system.get_file_info(inside).type
    if found == fs.FileType.Directory:
        system.delete_dir(inside)
    elif found != fs.FileType.NotFound:
        system.delete_file(inside)


@contextmanager
def written_whole(path: str) -> Iterator[IO[bytes]]:
    """A file to be written; it has a hidden name until it is complete.

    Nothing of it stays if the writer fails; a writer that is killed leaves the hidden file.
    """
    system, inside = open_system(path)
    folder, name = os.path.split(inside)
    hidden = f"{folder}/.{name}.{secrets.token_hex(8)}"
    try:
        with system.open_output_stream(hidden) as file:
            yield file
        system.move(hidden, inside)
    except BaseException:
        if system.get_file_info(hidden).is_file:
            system.delete_file(hidden)
        raise


def escaped(path: str) -> str:
    """The path escaped, so that Spark does not take it for a pattern that matches others."""
    return _PATTERN.sub(r"\\\1", path)


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The Parquet table at `path`."""
    return spark.read.parquet(escaped(path))


def _size(info: Any) -> int:
    return 1 if info.size is None else int(info.size)


def is_hidden(path: str) -> bool:
    """Whether a name, or one of its parents, begins like those that are skipped."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _walk(root: str) -> list[tuple[str, int]]:
    """The names below `root`, and the sizes, of all that are not directories.

    Links to directories are followed last, so that a directory keeps its own name where it has
    one, and a link to a parent leads to nothing new.
    """
    found: list[tuple[str, int]] = []
    seen: set[str] = set()
    waiting, linked = [root], deque[str]()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.popleft()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        try:
            inside = sorted(os.scandir(folder), key=lambda each: each.name)
        except OSError:
            found.append((_below(root, folder), 1))
            continue
        for each in inside:
            if is_hidden(each.name):
                continue
            if os.path.isdir(each.path):
                (linked if each.is_symlink() else waiting).append(each.path)
            else:
                found.append((_below(root, each.path), _file_size(each.path)))
    return found


def _file_size(path: str) -> int:
    try:
        found = os.stat(path)
    except OSError:
        return 1
    return found.st_size if stat.S_ISREG(found.st_mode) else 1


def _below(root: str, path: str) -> str:
    """The rest of a path in a form that Spark can write: bytes that are not UTF-8 are escaped."""
    return os.fsencode(os.path.relpath(path, root)).decode("utf-8", "backslashreplace")

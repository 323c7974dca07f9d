"""Files on any file system that pyarrow knows: this machine's, ``s3://``, ``gs://``, ``hdfs://``.

Three answers are kept apart: a file of a known size, a name that leads to nothing readable (a pipe,
a broken link), and an error of the file system, which is no answer at all: it is an `OSError`, and
callers decide whether it ends a job.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The signs that have a meaning in patterns of paths.
PATTERN_SIGN = re.compile(r"[*?\[\]{}\\]")
# A path of this machine as Spark writes it, which has no escapes.
_LOCAL = re.compile(r"file:(//(localhost)?)?/+")
# Names of schemes that Hadoop has, and pyarrow has not.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
# Errors for a name that leads to nothing, a broken link included.
_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Found(NamedTuple):
    """A name that was found: its path, its size in bytes, and the time of its last change.

    A `size` of ``None`` means that nothing can be read; `modified` is in seconds of Unix time.  If
    `is_unknown`, the file system has failed, and all else is a guess.
    """

    path: str
    size: int | None
    modified: float = 0.0
    is_unknown: bool = False


class WatchedFile(io.RawIOBase):
    """A file for reading, which remembers the error that ended a read of it.

    Decoders raise `OSError` for damage, too: `check` distinguishes the two.  The `system` that has
    opened the file is kept as long: at its end HDFS closes its files.
    """

    def __init__(self, file: Any, system: object = None) -> None:
        super().__init__()
        self._file = file
        self._system = system
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the `OSError` of the file system, if there was one."""
        if self._error is not None:
            raise self._error

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, as many as asked for unless the file ends."""
        with self._watched():
            return bytes(self._file.read(None if size is None or size < 0 else size))

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the bytes go."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Continue at another position."""
        with self._watched():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The position of the next byte."""
        return int(self._file.tell())

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except InterruptedError as error:
            # Python's own buffers would repeat such a call for ever.
            self._error = OSError(errno.EIO, error.strerror)
            raise self._error from error
        except OSError as error:
            self._error = error
            raise


def canonical(path: str) -> str:
    """A path of this machine in its one form, absolute and no URL; others unchanged."""
    if (local := _LOCAL.match(path)) is not None:
        return os.path.abspath(f"/{path[local.end() :]}")
    return path if "://" in path else os.path.abspath(path)


def absolute(path: str) -> str:
    """A path or pattern of this machine made absolute; others unchanged.

    So it means the same in all processes: executors work in directories of their own.
    """
    if "://" in path or _LOCAL.match(path) is not None or os.path.isabs(path):
        return path
    folder = os.getcwd().rstrip("/")
    whole = f"{folder}/{path.removeprefix('./')}"
    is_pattern = PATTERN_SIGN.search(path) and not os.path.lexists(whole)
    return f"{escaped(folder)}/{path}" if is_pattern else whole


def open_system(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path within it."""
    from pyarrow import fs

    path = canonical(path)
    if "://" in path:
        scheme, rest = path.split("://", 1)
        place, mark, query = rest.partition("?")
        if "=" not in query:  # a pattern, or a name with that sign
            place, mark, query = rest, "", ""
        uri = f"{_SCHEMES.get(scheme, scheme)}://{quote(place, safe='/@:%')}{mark}{query}"
        system, inside = fs.FileSystem.from_uri(uri)
        return system, inside
    return fs.LocalFileSystem(), path


def open_file(path: str) -> WatchedFile:
    """Open a file for reading, with seeks.

    Raises `FileNotFoundError` if there is none, or no regular file, so that a pipe never blocks;
    other `OSError` if the file system fails.
    """
    from pyarrow import fs

    system, inside = open_system(path)
    if system.get_file_info(inside).type != fs.FileType.File:
        raise FileNotFoundError(f"there is no file at {path}")
    return WatchedFile(system.open_input_file(inside), system)


def exists(path: str) -> bool:
    """Whether there is something at a path; a broken link does not count."""
    from pyarrow import fs

    system, inside = open_system(path)
    return bool(system.get_file_info(inside).type != fs.FileType.NotFound)


def list_folder(path: str) -> list[str]:
    """The names in a directory, sorted; none for anything else."""
    from pyarrow import fs

    system, inside = open_system(path)
    if system.get_file_info(inside).type != fs.FileType.Directory:
        return []
    return sorted(each.base_name for each in system.get_file_info(fs.FileSelector(inside)))


def list_files(path: str, *, is_deep: bool = True, errors_kept: bool = False) -> list[Found]:
    """The files at a path: the path itself, or all in it except hidden ones.

    With `is_deep` that includes the files of all directories below it.

    Names that are no readable file (a broken link, a pipe, a name that is not text) are included,
    without a size.  Each local directory is visited once, whatever links lead to it.

    Raises `FileNotFoundError` if there is nothing, other `OSError` if the file system fails; with
    `errors_kept` a name or directory with such an error is included as unknown.
    """
    from pyarrow import fs

    system, inside = open_system(path)
    if system.type_name == "local":
        return _list_local(path, inside, is_deep=is_deep, errors_kept=errors_kept)
    info = system.get_file_info(inside)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {path}")
    if info.type != fs.FileType.Directory:
        return [_found(path, info)]
    prefix = path.rstrip("/")
    found = system.get_file_info(fs.FileSelector(inside, recursive=is_deep))
    return sorted(
        _found(prefix + each.path.removeprefix(inside.rstrip("/")), each)
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
    """A file to be written, with a hidden name until it is complete.

    If writing fails nothing stays; a process that is killed leaves the hidden file.
    """
    system, inside = open_system(path)
    folder, name = os.path.split(inside)
    hidden = f"{folder}/.{name}.{secrets.token_hex(8)}"
    try:
        with system.open_output_stream(hidden) as file:
            yield file
        system.move(hidden, inside)
    except BaseException:
        with suppress(OSError):  # a failure to remove it would hide the error of the writer
            if system.get_file_info(hidden).is_file:
                system.delete_file(hidden)
        raise


def escaped(path: str) -> str:
    """The path escaped, so that Spark does not take it for a pattern."""
    return PATTERN_SIGN.sub(r"\\\g<0>", path)


def read_table(spark: SparkSession, path: str, schema: StructType | None = None) -> DataFrame:
    """The Parquet table at `path`; with its `schema`, no file is opened for it."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    return reader.parquet(escaped(path))


def _found(path: str, info: Any) -> Found:
    """A name of a file system that is not local; without a size if it is no file."""
    from pyarrow import fs

    size, modified = info.size, info.mtime_ns
    is_file = info.type == fs.FileType.File and size is not None
    return Found(path, size if is_file else None, (modified or 0) / 1e9)


def is_hidden(path: str) -> bool:
    """Whether a name, or one of its parents, is hidden and so skipped."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in path.split("/")
    )


def _list_local(path: str, root: str, *, is_deep: bool, errors_kept: bool) -> list[Found]:
    """The files at a path of this machine, whose absolute form is `root`."""
    try:
        found = os.stat(root)
    except OSError as error:
        if error.errno in _NOWHERE:
            raise FileNotFoundError(f"there is nothing at {path}") from None
        if not errors_kept:
            raise
        return [Found(path, None, is_unknown=True)]
    if not stat.S_ISDIR(found.st_mode):
        return [_looked_at(path, found)]
    prefix = path.rstrip("/")
    below = _walk(root, is_deep=is_deep, errors_kept=errors_kept)
    return sorted(each._replace(path=prefix + each.path.removeprefix(root)) for each in below)


def _walk(root: str, *, is_deep: bool, errors_kept: bool) -> Iterator[Found]:
    """Everything in `root`, or below it, except directories.

    Links to directories are followed last, so that a directory within `root` keeps its own name,
    and a link to a parent leads to nothing new.
    """
    seen: set[str] = set()
    waiting, linked = [root], deque[str]()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.popleft()
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue  # removed in the meantime
        except OSError:
            if not errors_kept:
                raise
            yield Found(_text(folder), None, is_unknown=True)
            continue
        for path in (f"{folder}/{name}" for name in names if not is_hidden(name)):
            try:
                found = _stat(path)
            except OSError:
                if not errors_kept:
                    raise
                yield Found(_text(path), None, is_unknown=True)
                continue
            if found is None:
                continue  # removed in the meantime
            if stat.S_ISDIR(found.st_mode):
                if is_deep:
                    (linked if os.path.islink(path) else waiting).append(path)
            else:
                yield _looked_at(path, found)


def _stat(path: str) -> os.stat_result | None:
    """The state of a file, or of a broken link; ``None`` if there is no such name."""
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _looked_at(path: str, found: os.stat_result) -> Found:
    text = _text(path)
    is_file = stat.S_ISREG(found.st_mode) and text == path
    return Found(text, found.st_size if is_file else None, found.st_mtime)


def _text(path: str) -> str:
    """A path in a form that Spark can write: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")

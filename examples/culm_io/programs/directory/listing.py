"""The content of a store, for people and machines: paths, entries, differences of a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from culm.bamboo import LogKey, LogStore
from culm_io.programs.directory.contents import Contents, is_content
from culm_io.programs.directory.folders import Folders, reason_of
from culm_io.programs.directory.records import (
    PACK_SIZE_MAX,
    Directory,
    File,
    Link,
    Piece,
    RecordError,
    Removed,
)
from culm_io.programs.directory.tree import Place, TreeReader, read_records, read_tree

__all__ = ["differences", "list_entries", "list_paths"]

_READ_SIZE_MAX = 1 << 20
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def list_paths(
    store: LogStore, log: LogKey, chosen: Callable[[bytes], bool]
) -> Iterator[dict[str, Any]]:
    """The newest of each path; of files that are not all here, that they are not.

    Raises `RecordError` for a log that is not one of a directory.
    """
    reader = TreeReader(store, log, payload_size_max=PACK_SIZE_MAX)
    tree = reader.read()
    lacking = {place.record.path: place for place in reader.lacking()}
    for path in sorted(tree.places.keys() | lacking.keys()):
        place = lacking.get(path) or tree.places[path]
        if chosen(path) and not isinstance(place.record, Removed):
            yield _of_place(place, here=path not in lacking)


def _of_place(place: Place, *, here: bool) -> dict[str, Any]:
    record = place.record
    found: dict[str, Any] = {"path": _text(record.path), "kind": record.kind}
    if isinstance(record, File | Directory):
        found["mode"] = record.mode
    if isinstance(record, File):
        found |= {"size": place.size if here else None, "mtime": record.mtime}
    if isinstance(record, Link):
        found["target"] = _text(record.target)
    return found | {"entry": place.seqnum, "here": here}


def list_entries(store: LogStore, log: LogKey) -> Iterator[dict[str, Any]]:
    """Each entry with its content: its records, or the obstacle to reading them.

    Raises `RecordError` where one of the unbroken log is gone.
    """
    head = store.head(log)
    unbroken = 0 if head is None else head.seqnum
    seqnum = 1
    while entries := store.entries(
        log, seqnum, size_max=_READ_SIZE_MAX, payload_size_max=PACK_SIZE_MAX
    ):
        for entry in entries:
            if seqnum != entry.seqnum and seqnum <= unbroken:
                raise RecordError(f"the store is damaged: entry {seqnum} is gone")
            seqnum = entry.seqnum + 1
            try:
                says = [_of_piece(piece) for piece in read_records(store, log, entry)]
                fault = None
            except RecordError as error:
                says, fault = [], str(error)
            yield {
                "entry": entry.seqnum,
                "hash": entry.hash.hex(),
                "payload_size": entry.payload_size,
                "here": entry.payload_complete,
                "records": says,
                "fault": fault,
            }


def _of_piece(piece: Piece) -> dict[str, Any]:
    record = piece.record
    found: dict[str, Any] = {"kind": record.kind, "path": _text(record.path)}
    if isinstance(record, File):
        found |= {"chunk": record.chunk, "chunks": record.chunks, "size": piece.size}
        found["kept"] = None if record.kept is None else list(record.kept)
    return found


def differences(
    store: LogStore,
    log: LogKey,
    root: Path,
    on_place: Callable[[int, int], object] = lambda done, total: None,
) -> Iterator[dict[str, str]]:
    """The places in `root` that differ from the log; places outside the log are not looked at.

    `on_place` is told the numbers of places compared, and of all places.
    Raises `RecordError`, also if a payload is missing, and `OSError` if there is no `root`.
    """
    contents = Contents(store, log)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Folders(folder) as folders:
            places = read_tree(store, log).in_order()
            for count, place in enumerate(places, 1):
                fault = _fault(place, folders, contents)
                on_place(count, len(places))
                if fault is not None:
                    yield {"path": _text(place.record.path), "fault": fault}
    finally:
        os.close(folder)


def _fault(place: Place, folders: Folders, contents: Contents) -> str | None:
    record = place.record
    is_gone = isinstance(record, Removed)
    try:
        folder, name = folders.above(record.path)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if is_gone:
            return "should be gone"
        kinds = {"file": stat.S_ISREG, "directory": stat.S_ISDIR, "link": stat.S_ISLNK}
        if not kinds[record.kind](found.st_mode):
            return f"not a {record.kind}"
        match record:
            case Link(target=target):
                return None if os.readlink(name, dir_fd=folder) == target else "leads elsewhere"
            case Directory(mode=mode):
                return None if stat.S_IMODE(found.st_mode) == mode else "another mode"
            case File():
                return _fault_of_file(place, record, found, folder, name, contents)
    except (FileNotFoundError, NotADirectoryError):
        return None if is_gone else "missing"
    except OSError as error:
        return reason_of(error)
    return None


def _fault_of_file(
    place: Place,
    record: File,
    found: os.stat_result,
    folder: int,
    name: bytes,
    contents: Contents,
) -> str | None:
    file = os.open(name, _OPEN_FILE, dir_fd=folder)
    try:
        if not is_content(file, place.size, contents.pieces(place)):
            return "another content"
    finally:
        os.close(file)
    if stat.S_IMODE(found.st_mode) != record.mode:
        return "another mode"
    return None if found.st_mtime_ns == record.mtime else "another time"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")

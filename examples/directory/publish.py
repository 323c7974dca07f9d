"""Publishing a directory: whatever has changed since the log's last entry is appended."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, LogKey, LogStore, NewEntry
from culm.bamboo.entry import decode
from directory.records import (
    CHUNK_SIZE,
    STAGING,
    Directory,
    File,
    Link,
    Record,
    Removed,
    encode,
    is_inside,
)
from directory.tree import Place, read_tree

__all__ = ["Published", "publish_directory"]

_BATCH_SIZE_MAX = 1 << 22
_BATCH_COUNT_MAX = 256


@dataclass(slots=True)
class Published:
    """What publishing came to: numbers of entries and bytes appended; paths left out."""

    log: LogKey
    entries: int = 0
    payload_bytes: int = 0
    unchanged: int = 0
    skipped: list[str] = field(default_factory=list)


def publish_directory(
    root: Path,
    store: LogStore,
    key: SigningKey,
    *,
    excludes: Collection[str] = (),
    private: Collection[Path] = (),
) -> Published:
    """Append to the log of `key` what has changed in `root`.

    Names and relative paths that match a pattern of `excludes` (see `fnmatch`) do not
    belong to the directory.  Files of `private` are never published.

    First what is gone, innermost first, then what is there, in the order of names: in the
    log up to any entry, everything is in a directory.

    Raises `OSError`, `culm.bamboo.VerificationError` for a log that has forked or ended,
    and `directory.records.RecordError` for one that is not of a directory.
    """
    author = LogAuthor.resume(key, store)
    done = Published(author.log)
    tree = read_tree(store, author.log)
    scanner = _Scanner(root, excludes, {os.path.realpath(each) for each in private})
    found = list(scanner.scan())
    done.skipped = scanner.skipped
    batch = _Batch(author, store, done)
    there = {record.path for record in found}
    for place in reversed(tree.in_order()):
        path = place.record.path
        if path not in there and not isinstance(place.record, Removed):
            batch.add(Removed(path))
    for record in found:
        known = tree.places.get(record.path)
        if isinstance(record, File):
            _publish_file(root, record, known, store, batch)
        elif known is not None and known.record == record:
            done.unchanged += 1
        else:
            batch.add(record)
    batch.flush()
    return done


def _publish_file(
    root: Path, record: File, known: Place | None, store: LogStore, batch: _Batch
) -> None:
    """Publish all chunks of a file, unless they are what the log has."""
    if known is not None and known.record == record:
        hashes = _payload_hashes(store, batch.done.log, known, record.chunks)
        payloads = (encode(chunk, content) for chunk, content in _chunks(root, record))
        if all(store.family.hash(payload) == next(hashes) for payload in payloads):
            batch.done.unchanged += 1
            return
    for chunk, content in _chunks(root, record):
        batch.add(chunk, content)


def _payload_hashes(store: LogStore, log: LogKey, place: Place, count: int) -> Iterator[bytes]:
    for seqnum in range(place.seqnum, place.seqnum + count):
        entry = store.entry(log, seqnum)
        assert entry is not None
        yield decode(entry.encoded, family=store.family).payload_hash


def _chunks(root: Path, record: File) -> Iterator[tuple[File, bytes]]:
    """Read a file chunk by chunk.

    As many chunks as it had when it was found: what happens to it meanwhile changes its
    time, so that it is published again the next time.
    """
    path = os.path.join(os.fsencode(root), record.path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        for number in range(record.chunks):
            content = bytearray()
            while len(content) < CHUNK_SIZE and (data := file.read(CHUNK_SIZE - len(content))):
                content += data
            chunk = File(record.path, record.mode, record.mtime, number, record.chunks)
            yield chunk, bytes(content)


class _Batch:
    """Entries to be appended together, in one transaction."""

    def __init__(self, author: LogAuthor, store: LogStore, done: Published) -> None:
        self.done = done
        self._author = author
        self._store = store
        self._entries: list[NewEntry] = []
        self._size = 0

    def add(self, record: Record, content: bytes = b"") -> None:
        payload = encode(record, content)
        self._entries.append(self._author.publish(payload))
        self._size += len(payload)
        if self._size >= _BATCH_SIZE_MAX or len(self._entries) >= _BATCH_COUNT_MAX:
            self.flush()

    def flush(self) -> None:
        self._store.append(self._author.log, self._entries)
        self.done.entries += len(self._entries)
        self.done.payload_bytes += self._size
        self._entries, self._size = [], 0


class _Scanner:
    """Finds what is in a directory, in the order of names; contents are read later."""

    def __init__(self, root: Path, excludes: Collection[str], private: Collection[str]) -> None:
        self.skipped: list[str] = []
        self._root = os.fsencode(root)
        self._excludes = excludes
        self._private = {os.fsencode(path) for path in private}
        self._real_root = os.path.realpath(self._root)

    def scan(self, path: bytes = b"") -> Iterator[Record]:
        with os.scandir(os.path.join(self._root, path) if path else self._root) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            inner = path + b"/" + entry.name if path else entry.name
            if self._is_excluded(inner, entry.name):
                continue
            record = self._record(inner, entry)
            if record is not None:
                yield record
            if isinstance(record, Directory):
                yield from self.scan(inner)

    def _is_excluded(self, path: bytes, name: bytes) -> bool:
        texts = os.fsdecode(path), os.fsdecode(name)
        return path == STAGING or any(
            fnmatchcase(text, pattern) for pattern in self._excludes for text in texts
        )

    def _record(self, path: bytes, entry: os.DirEntry[bytes]) -> Record | None:
        found = entry.stat(follow_symlinks=False)
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if stat.S_ISDIR(found.st_mode):
            return Directory(path, mode)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(entry.path)
            if is_inside(path, target):
                return Link(path, target)
            reason = f"a link that may lead out of the directory, to {os.fsdecode(target)!r}"
        elif not stat.S_ISREG(found.st_mode):
            reason = "neither a file nor a directory nor a link"
        elif os.path.join(self._real_root, path) in self._private:
            reason = "part of the store"
        else:
            chunks = max(1, -(-found.st_size // CHUNK_SIZE))
            return File(path, mode, found.st_mtime_ns, 0, chunks)
        self.skipped.append(f"{os.fsdecode(path)!r}: {reason}")
        return None

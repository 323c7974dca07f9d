"""Publishing a directory: whatever has changed since the log's last entry is appended."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, LogKey, LogStore, NewEntry
from culm_io.programs.directory.contents import (
    WHOLE_SIZE_MAX,
    Chunk,
    Contents,
    Extent,
    cut,
    extents,
    is_content,
    read_at,
)
from culm_io.programs.directory.folders import Folders, is_for_all, reason_of
from culm_io.programs.directory.records import (
    PACK_SIZE_MAX,
    Directory,
    File,
    Link,
    Range,
    Record,
    RecordError,
    Removed,
    encode,
    encode_pack,
)
from culm_io.programs.directory.scan import Findings, FoundFile, Scanner
from culm_io.programs.directory.tree import RANGES_MAX, Place, Tree, read_tree

__all__ = ["Published", "publish_directory"]

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BATCH_SIZE_MAX = 1 << 22
_BATCH_COUNT_MAX = 256
# Larger files have entries of their own, so that changes in one do not move the rest.
_PACKED_SIZE_MAX = 1 << 14
# The most that the header of a pack says of a record besides its path or target.
_PACKED_HEAD_SIZE = 128
# Between two kept ranges there may be a new one.
_KEPT_MAX = RANGES_MAX // 2 - 1


@dataclass(slots=True)
class Published:
    """The result of publishing.

    entries, payload_bytes: appended; changed: the places in them; unchanged: those as in the log.
    found: how many places need a second look; seen: how many of them have had it.
    paths: kinds and paths of new and removed places, where nothing is appended.
    findings: places that do not travel, and unreadable ones: the log has those as before.
    unsettled: the earliest time of unreadable places that may have changed unseen.
    """

    log: LogKey
    entries: int = 0
    payload_bytes: int = 0
    changed: int = 0
    unchanged: int = 0
    found: int = 0
    seen: int = 0
    paths: list[tuple[str, bytes]] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    unsettled: int | None = None


def publish_directory(
    root: Path,
    store: LogStore,
    key: SigningKey,
    *,
    excludes: Collection[str] = (),
    private: Collection[Path] = (),
    settled_before: int | None = None,
    pack: bool = True,
    dry: bool = False,
    done: Published | None = None,
    on_progress: Callable[[Published], object] = lambda done: None,
) -> Published:
    """Append the changes in `root` to the log of `key`.

    Names and relative paths that match a pattern of `excludes` (see `fnmatch`) do not
    belong to the directory.  Files of `private` are never published.

    A file with the size and time of the log counts as unchanged if its time is before
    `settled_before` (nanoseconds since 1970); the content of all others is compared (``None``:
    of all).

    Small files come together in packs, unless `pack` is false: then every place has an entry of
    its own.

    Removed places come first, innermost first, then existing ones, in the order of names: in
    the log up to any entry, everything is in a directory.  Unreadable places stay in the log as
    they were, and do not stop the rest.

    If it is `dry`, nothing is appended: `done` has the would-be result.  `on_progress` is told
    of it place by place, and within large files.

    `done` has the result so far even if something is raised: `OSError` for errors that would
    stop every file, errors of the store, `culm.bamboo.VerificationError` for a log that has
    forked or ended, and `directory.records.RecordError` for one that is not of a directory.
    """
    author = LogAuthor.resume(key, store)
    done = Published(author.log) if done is None else done
    tree = read_tree(store, author.log)
    batch = _Batch(author, store, done, pack=pack, dry=dry, on_progress=on_progress)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        scanner = Scanner(folder, excludes, private)
        done.findings = scanner.findings
        there: set[bytes] = set()
        news: list[Directory | Link | FoundFile] = []
        for each in scanner.scan():
            known = tree.places.get(each.path)
            if known is not None:
                there.add(known.record.path)
            if _is_settled(each, known, settled_before):
                done.unchanged += 1
            else:
                news.append(each)
        done.found = len(news)
        on_progress(done)
        _publish_removed(tree, there, batch)
        with Folders(folder) as folders:
            reader = _Reader(folders, Contents(store, author.log))
            for new in news:
                _publish_one(new, tree.places.get(new.path), reader, batch)
                done.seen += 1
                on_progress(done)
    finally:
        os.close(folder)
    batch.flush()
    done.unsettled = min(_unseen(tree, done.findings, settled_before), default=None)
    return done


def _unseen(tree: Tree, findings: Findings, settled_before: int | None) -> Iterator[int]:
    """The times of files in the log that may have changed unseen."""
    for path, place in tree.places.items() if findings.failed else ():
        record = place.record
        if not isinstance(record, File) or findings.is_known(path):
            continue
        if settled_before is None or record.mtime >= settled_before:
            yield record.mtime


def _is_settled(
    each: Directory | Link | FoundFile, known: Place | None, settled_before: int | None
) -> bool:
    """Whether it counts as unchanged without a second look."""
    if known is None:
        return False
    if not isinstance(each, FoundFile):
        return known.record == each
    settled = settled_before is not None and each.mtime < settled_before
    return settled and _is_as_known(each, known)


def _publish_removed(tree: Tree, there: set[bytes], batch: _Batch) -> None:
    for place in reversed(tree.in_order()):
        path = place.record.path
        is_gone = path not in there and not isinstance(place.record, Removed)
        if is_gone and batch.done.findings.is_known(path):
            batch.add(Removed(path))


def _publish_one(
    each: Directory | Link | FoundFile, known: Place | None, reader: _Reader, batch: _Batch
) -> None:
    if not isinstance(each, FoundFile):
        batch.add(each)
        return
    try:
        if reader.is_as_known(each, known, batch):
            batch.done.unchanged += 1
    except (OSError, RecordError) as error:
        if isinstance(error, OSError) and is_for_all(error):
            raise
        batch.done.findings.failed[each.path] = reason_of(error)


class _Reader:
    """Reads the files that may differ from the log."""

    def __init__(self, folders: Folders, contents: Contents) -> None:
        self._folders = folders
        self._contents = contents

    def is_as_known(self, found: FoundFile, known: Place | None, batch: _Batch) -> bool:
        """Whether a file is as in the log; if not, all of its chunks are published.

        Raises `OSError` and `RecordError` if it cannot be read as a whole.
        """
        folder, name = self._folders.above(found.path)
        file = os.open(name, _OPEN_FILE, dir_fd=folder)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise RecordError("no longer a file")
            found = FoundFile.of(found.path, status)
            if _is_as_known(found, known) and self._is_content(file, known):
                return True
            there = extents(file, status)
            if len(there) == 1 and there[0][1] <= WHOLE_SIZE_MAX:
                batch.add(_file(found, 0, 1, zeros=there[0][2]), read_at(file, 0, there[0][1]))
            else:
                self._publish_parts(file, found, there, known, batch)
        finally:
            os.close(file)
        return False

    def _is_content(self, file: int, known: Place | None) -> bool:
        assert known is not None
        return is_content(file, known.size, self._contents.pieces(known))

    def _publish_parts(
        self,
        file: int,
        found: FoundFile,
        there: Sequence[Extent],
        known: Place | None,
        batch: _Batch,
    ) -> None:
        """The new parts of a file, and the parts kept of its last version.

        As it was when it was opened: later changes also change its time, so that it is
        published again the next time.
        """
        before = () if known is None else self._contents.digests(known)
        parts = _parts(cut(file, there), before)
        for number, part in enumerate(parts):
            if isinstance(part, Range):
                batch.add(_file(found, number, len(parts), kept=part))
            else:
                offset, size, zeros = part
                record = _file(found, number, len(parts), zeros=zeros)
                batch.add(record, read_at(file, offset, size))


def _parts(chunks: Iterable[Chunk], before: Iterable[tuple[int, bytes]]) -> list[Extent | Range]:
    """A file as its new parts, and ranges of entries that have the rest."""
    seqnums: list[int] = []
    positions: dict[bytes, list[int]] = {}
    for position, (seqnum, digest) in enumerate(before):
        seqnums.append(seqnum)
        positions.setdefault(digest, []).append(position)
    for each in positions.values():
        each.reverse()  # the first is the first to be kept; and each only once
    runs: list[tuple[list[Extent], Range | None]] = []
    last = -2
    for offset, size, zeros, digest in chunks:
        there = positions.get(digest)
        position = there.pop() if there else -2
        if position < 0:
            runs.append(([(offset, size, zeros)], None))
        elif position == last + 1 and seqnums[position] == seqnums[last] + 1:
            extents, kept = runs[-1]
            assert kept is not None
            extents.append((offset, size, zeros))
            runs[-1] = extents, Range(kept.first, seqnums[position])
        else:
            runs.append(([(offset, size, zeros)], Range(seqnums[position], seqnums[position])))
        last = position
    lengths = sorted((len(extents) for extents, kept in runs if kept is not None), reverse=True)
    # A file in too many ranges is one that no log may have: the shortest travel again.
    least = lengths[_KEPT_MAX] + 1 if len(lengths) > _KEPT_MAX else 1
    parts: list[Extent | Range] = []
    for extents, kept in runs:
        if kept is not None and len(extents) >= least:
            parts.append(kept)
        else:
            parts += extents
    return parts


def _file(
    found: FoundFile, chunk: int, chunks: int, *, zeros: int = 0, kept: Range | None = None
) -> File:
    return File(found.path, found.mode, found.mtime, chunk, chunks, zeros, kept)


def _is_as_known(found: FoundFile, known: Place | None) -> bool:
    if known is None or not isinstance(known.record, File):
        return False
    record = known.record
    return (found.mode, found.size, found.mtime) == (record.mode, known.size, record.mtime)


class _Batch:
    """Entries to be appended together, in one transaction; small records share one."""

    def __init__(
        self,
        author: LogAuthor,
        store: LogStore,
        done: Published,
        *,
        pack: bool,
        dry: bool,
        on_progress: Callable[[Published], object],
    ) -> None:
        self.done = done
        self._on_progress = on_progress
        self._dry = dry
        self._author = author
        self._store = store
        self._packed_size_max = _PACKED_SIZE_MAX if pack else -1
        self._entries: list[NewEntry] = []
        self._size = 0
        self._changed = 0  # how many places are complete with them
        self._records: list[Record] = []  # of the pack in the making
        self._contents: list[bytes] = []
        self._pack_size = 0

    def add(self, record: Record, content: bytes = b"") -> None:
        """Add a record, after earlier ones."""
        if self._dry and (not isinstance(record, File) or record.chunk == 0):
            self.done.paths.append((record.kind, record.path))
        size = len(record.path) + len(content) + _PACKED_HEAD_SIZE
        size += len(record.target) if isinstance(record, Link) else 0
        is_whole = not isinstance(record, File) or record.chunks == 1
        fits = is_whole and size <= self._packed_size_max
        if not fits or self._pack_size + size > PACK_SIZE_MAX:
            self._close_pack()
        if fits:
            self._records.append(record)
            self._contents.append(content)
            self._pack_size += size
        else:
            is_last = not isinstance(record, File) or record.chunk + 1 == record.chunks
            self._append(encode(record, content), int(is_last))

    def flush(self) -> None:
        """Append all that was added."""
        self._close_pack()
        self._store_entries()

    def _close_pack(self) -> None:
        records, contents = self._records, self._contents
        self._records, self._contents, self._pack_size = [], [], 0
        if len(records) == 1:
            self._append(encode(records[0], contents[0]), 1)
        elif records:
            self._append(encode_pack(records, contents), len(records))

    def _append(self, payload: bytes, changed: int) -> None:
        self._entries.append(self._author.publish(payload))
        self._size += len(payload)
        self._changed += changed
        if self._size >= _BATCH_SIZE_MAX or len(self._entries) >= _BATCH_COUNT_MAX:
            self._store_entries()

    def _store_entries(self) -> None:
        if not self._dry:
            self._store.append(self._author.log, self._entries)
        self.done.entries += len(self._entries)
        self.done.payload_bytes += self._size
        self.done.changed += self._changed
        self._entries, self._size, self._changed = [], 0, 0
        self._on_progress(self.done)

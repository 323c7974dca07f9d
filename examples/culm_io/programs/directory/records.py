"""The payloads of a directory's log.

A payload is a CBOR array of two: a map, the header, and a byte string, the content::

    [{"kind": "file", "path": h'..', "mode": 420, "mtime": 1700000000000000000,
      "chunk": 0, "chunks": 2}, h'..']
    [{"kind": "directory", "path": h'..', "mode": 493}, h'']
    [{"kind": "link", "path": h'..', "target": h'..'}, h'']
    [{"kind": "removed", "path": h'..'}, h'']
    [{"kind": "pack", "records": [{"kind": "file", ..}, ..], "sizes": [5, ..]}, h'..']

Paths are relative to the directory, in bytes as POSIX has them, with ``/`` between names.
``mtime`` is in nanoseconds since 1970.  Content is there for files only, `CHUNK_SIZE`
bytes of it at most; an empty file has one empty chunk.  After its content, a chunk may have a
hole, that is ``"zeros": n`` bytes that are zero, however many: a field that is left out where
there are none.

A chunk with ``"kept": [first, last]`` has no content of its own: in its place stands that of
the entries from ``first`` to ``last``, all of them chunks of the last version of this file.  So
a changed file costs its new parts, and a directory never takes more room than its log.

A pack is many records in one payload, for an entry costs a signature: the headers as they
are by themselves, and the contents one after the other, of these sizes.  Its files are small
enough to have one chunk.

A log may come from anyone: records decoded here name nothing outside the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, ClassVar, Final, NamedTuple

import cbor2

__all__ = [
    "CHUNK_SIZE",
    "PACK_SIZE_MAX",
    "PAYLOAD_SIZE_MAX",
    "PREFIX_SIZE",
    "STAGING",
    "Directory",
    "File",
    "Link",
    "Piece",
    "Range",
    "Record",
    "RecordError",
    "Removed",
    "check_path",
    "decode",
    "encode",
    "encode_pack",
    "is_inside",
]

CHUNK_SIZE = 1 << 20
"""The size of a chunk of a file, in bytes; the last one may be shorter."""

PREFIX_SIZE = 1 << 14
"""The header is within that many bytes from the start of the payload, unless it is a pack's."""

PACK_SIZE_MAX = 1 << 16
"""Payloads that are packs have no more bytes."""

PAYLOAD_SIZE_MAX = PREFIX_SIZE + CHUNK_SIZE

STAGING = b".replicate-staging"
"""A name at the top of the directory that is ours: files are made there and then moved."""

_PATH_SIZE_MAX = 4095
# Names of 1 to 255 bytes, none of them "." or "..", with slashes between them.
_NAME = rb"(?!\.{1,2}(?:/|\Z))[^/\0]{1,255}"
_PATH: Final = re.compile(rb"(?!%b(?:/|\Z))%b(?:/%b)*" % (re.escape(STAGING), _NAME, _NAME))
_CHUNKS_MAX = 1 << 32
_INT64_MAX = (1 << 63) - 1


class RecordError(Exception):
    """The payload is not a record, or one that names something outside the directory."""


class Range(NamedTuple):
    """Entries that follow each other, by their numbers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class File:
    """Chunk number `chunk` of the `chunks` of a file; permission bits; nanoseconds.

    zeros: the size of the hole after the content of this chunk (bytes).
    kept: the first and last of the entries whose chunks stand here, from the version before.
    """

    kind: ClassVar[str] = "file"
    path: bytes
    mode: int
    mtime: int
    chunk: int
    chunks: int
    zeros: int = 0
    kept: Range | None = None

    def __post_init__(self) -> None:
        _check_mode(self.mode)
        _check_number("mtime", self.mtime, -_INT64_MAX - 1, _INT64_MAX)
        _check_number("chunks", self.chunks, 1, _CHUNKS_MAX)
        _check_number("chunk", self.chunk, 0, self.chunks - 1)
        _check_number("zeros", self.zeros, 0, _INT64_MAX)
        if self.kept is not None:
            _check_number("the last entry that is kept", self.kept.last, 1, _INT64_MAX)
            _check_number("the first kept entry", self.kept.first, 1, self.kept.last)
            _check_number("zeros of a kept range", self.zeros, 0, 0)


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory inside the directory."""

    kind: ClassVar[str] = "directory"
    path: bytes
    mode: int

    def __post_init__(self) -> None:
        _check_mode(self.mode)


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to something inside the directory."""

    kind: ClassVar[str] = "link"
    path: bytes
    target: bytes

    def __post_init__(self) -> None:
        if type(self.target) is not bytes or not is_inside(self.path, self.target):
            raise RecordError(f"link {self.path!r} leads out of the directory")


@dataclass(frozen=True, slots=True)
class Removed:
    """The place at this path is gone."""

    kind: ClassVar[str] = "removed"
    path: bytes


Record = File | Directory | Link | Removed

_KINDS: Final[dict[str, type[Record]]] = {
    each.kind: each for each in (File, Directory, Link, Removed)
}
_FIELDS: Final = {cls: frozenset(field.name for field in fields(cls)) for cls in _KINDS.values()}
_OPTIONAL: Final = frozenset({"zeros", "kept"})


class Piece(NamedTuple):
    """A record of a payload; where in it the content begins, and how many bytes that has."""

    record: Record
    offset: int
    size: int


def is_inside(path: bytes, target: bytes) -> bool:
    """Whether a link at `path` to `target` surely leads to somewhere inside the directory.

    That is so if its ``..``, which all have to come first, do not climb above the top:
    the rest goes down, through further links of which the same is true.
    """
    names = target.split(b"/")
    climbed = next((n for n, name in enumerate(names) if name != b".."), len(names))
    return (
        0 < len(target) <= _PATH_SIZE_MAX
        and not target.startswith(b"/")
        and b"\0" not in target
        and b".." not in names[climbed:]
        and climbed <= path.count(b"/")
    )


def encode(record: Record, content: bytes = b"") -> bytes:
    """The payload for `record`.  Raises `RecordError` for a path that no record can have."""
    return cbor2.dumps([_header(record), content])


def encode_pack(records: Sequence[Record], contents: Sequence[bytes]) -> bytes:
    """The payload for small records together, in their order, with the content of each.

    Raises `RecordError` as `encode`, and for records that do not go into a pack.
    """
    header = {
        "kind": "pack",
        "records": [_header(record) for record in records],
        "sizes": [len(content) for content in contents],
    }
    for record, content in zip(records, contents, strict=True):
        _check_packed(record, len(content))
    payload = cbor2.dumps([header, b"".join(contents)])
    if len(payload) > PACK_SIZE_MAX:
        raise RecordError(f"a pack of {len(payload)} bytes")
    return payload


def _header(record: Record) -> dict[str, Any]:
    path = record.path
    check_path(path)
    match record:
        case File():
            header: dict[str, Any] = {
                "kind": "file",
                "path": path,
                "mode": record.mode,
                "mtime": record.mtime,
                "chunk": record.chunk,
                "chunks": record.chunks,
            }
            if record.zeros:
                header["zeros"] = record.zeros
            if record.kept is not None:
                header["kept"] = list(record.kept)
            return header
        case Directory():
            return {"kind": "directory", "path": path, "mode": record.mode}
        case Link():
            return {"kind": "link", "path": path, "target": record.target}
        case Removed():
            return {"kind": "removed", "path": path}


def decode(prefix: bytes, size: int) -> list[Piece]:
    """The records of a payload of `size` bytes, and where their content is.

    `prefix` is the whole payload, or at least the first `PREFIX_SIZE` bytes of it, or the
    first `PACK_SIZE_MAX` if there are that many.  The content ends where the payload does.
    Raises `RecordError`.
    """
    if size > PAYLOAD_SIZE_MAX:
        raise RecordError(f"a payload of {size} bytes")
    if prefix[:1] != b"\x82":
        raise RecordError("the payload is not an array of two")
    file = BytesIO(prefix[1 : PACK_SIZE_MAX if size <= PACK_SIZE_MAX else PREFIX_SIZE])
    try:
        header = cbor2.CBORDecoder(file).decode()
    except Exception as error:  # CBOR can say much that Python refuses in many ways
        raise RecordError(f"the header is not CBOR: {type(error).__name__}") from None
    content, content_size = _byte_string(prefix, 1 + file.tell())
    if content + content_size != size:
        raise RecordError("the content is not all of the rest")
    if type(header) is dict and header.get("kind") == "pack" and size <= PACK_SIZE_MAX:
        return list(_unpack(header, content, content_size))
    return [_piece(header, content, content_size)]


def _unpack(header: dict[Any, Any], offset: int, size: int) -> Iterator[Piece]:
    records, sizes = header.get("records"), header.get("sizes")
    if (
        header.keys() != {"kind", "records", "sizes"}
        or type(records) is not list
        or type(sizes) is not list
        or len(records) != len(sizes)
        or any(type(each) is not int or each < 0 for each in sizes)
        or sum(sizes) != size
    ):
        raise RecordError("a pack that is not records and the sizes of their contents")
    for each, each_size in zip(records, sizes, strict=True):
        piece = _piece(each, offset, each_size)
        _check_packed(piece.record, each_size)
        yield piece
        offset += each_size


def _piece(header: Any, offset: int, size: int) -> Piece:
    record = _record(header)
    if size and not (isinstance(record, File) and record.kept is None):
        raise RecordError(f"a {record.kind} with content that it does not have")
    return Piece(record, offset, size)


def _check_packed(record: Record, size: int) -> None:
    if record.chunks != 1 if isinstance(record, File) else size:
        raise RecordError(f"a {record.kind} that does not go into a pack")


def _record(header: Any) -> Record:
    kind = header.pop("kind", None) if type(header) is dict else None
    cls = _KINDS.get(kind) if type(kind) is str else None
    if cls is None:
        raise RecordError("the header is not of a known kind")
    given, known = header.keys(), _FIELDS[cls]
    if given != known and not known - _OPTIONAL <= given <= known:
        raise RecordError(f"a {kind} with other fields than it has")
    check_path(header["path"])
    if "kept" in header:
        header["kept"] = _range(header["kept"])
    return cls(**header)


def _range(value: object) -> Range:
    if type(value) is not list or len(value) != 2:
        raise RecordError("kept is not a range of entries")
    return Range(*value)


def _byte_string(data: bytes, offset: int) -> tuple[int, int]:
    """Where the byte string with its head at `offset` begins, and its size."""
    head = data[offset] if offset < len(data) else 0
    size, extra = head & 0x1F, 0
    if 24 <= size <= 27:
        extra = 1 << (size - 24)
        size = int.from_bytes(data[offset + 1 : offset + 1 + extra])
    if head >> 5 != 2 or head & 0x1F > 27:
        raise RecordError("the content is not a byte string")
    return offset + 1 + extra, size


def check_path(path: object) -> None:
    """Raise `RecordError` if no record can have this path."""
    if type(path) is not bytes:
        raise RecordError("a path that is not a byte string")
    if len(path) > _PATH_SIZE_MAX or _PATH.fullmatch(path) is None:
        raise RecordError(f"the path {path[:100]!r} names nothing inside the directory")


def _check_mode(mode: object) -> None:
    _check_number("mode", mode, 0, 0o777)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise RecordError(f"{name} is not a number from {least} to {most}")

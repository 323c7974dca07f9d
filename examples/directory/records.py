"""What the payloads of a directory's log say.

A payload is a CBOR array of two: a map, the header, and a byte string, the content::

    [{"kind": "file", "path": h'..', "mode": 420, "mtime": 1700000000000000000,
      "chunk": 0, "chunks": 2}, h'..']
    [{"kind": "directory", "path": h'..', "mode": 493}, h'']
    [{"kind": "link", "path": h'..', "target": h'..'}, h'']
    [{"kind": "removed", "path": h'..'}, h'']

Paths are relative to the directory, in bytes as POSIX has them, with ``/`` between names.
``mtime`` is in nanoseconds since 1970.  Content is there for files only, `CHUNK_SIZE`
bytes of it at most; an empty file has one empty chunk.

Nobody knows who wrote a log: what is decoded here names nothing outside the directory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, ClassVar

import cbor2

__all__ = [
    "CHUNK_SIZE",
    "PAYLOAD_SIZE_MAX",
    "PREFIX_SIZE",
    "STAGING",
    "Directory",
    "File",
    "Link",
    "Record",
    "RecordError",
    "Removed",
    "decode_prefix",
    "encode",
    "is_inside",
]

CHUNK_SIZE = 1 << 20
"""Files are split into chunks of so many bytes; the last one may be shorter."""

PREFIX_SIZE = 1 << 14
"""The header is within so many bytes at the beginning of the payload."""

PAYLOAD_SIZE_MAX = PREFIX_SIZE + CHUNK_SIZE

STAGING = b".replicate-staging"
"""A name at the top of the directory that is ours: files are made there and then moved."""

_PATH_SIZE_MAX = 4095
_NAME_SIZE_MAX = 255
_CHUNKS_MAX = 1 << 32


class RecordError(Exception):
    """The payload is not a record, or one that names something outside the directory."""


@dataclass(frozen=True, slots=True)
class File:
    """Chunk number `chunk` of the `chunks` of a file; permission bits; nanoseconds."""

    kind: ClassVar[str] = "file"
    path: bytes
    mode: int
    mtime: int
    chunk: int
    chunks: int

    def __post_init__(self) -> None:
        _check_mode(self.mode)
        _check_number("mtime", self.mtime, -(1 << 63), (1 << 63) - 1)
        _check_number("chunks", self.chunks, 1, _CHUNKS_MAX)
        _check_number("chunk", self.chunk, 0, self.chunks - 1)


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
    """What was here is no longer."""

    kind: ClassVar[str] = "removed"
    path: bytes


Record = File | Directory | Link | Removed

_KINDS: dict[str, type[Record]] = {each.kind: each for each in (File, Directory, Link, Removed)}


def is_inside(path: bytes, target: bytes) -> bool:
    """Whether a link at `path` to `target` surely leads to somewhere inside the directory.

    That is so if its ``..``, which all have to come first, do not climb above the top:
    what follows them goes down, through further links of which the same is true.
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
    _check_path(record.path)
    header = {"kind": record.kind}
    header |= {field.name: getattr(record, field.name) for field in fields(record)}
    return cbor2.dumps([header, content])


def decode_prefix(prefix: bytes, size: int) -> tuple[Record, int]:
    """The record of a payload of `size` bytes, and the offset at which its content begins.

    `prefix` is the whole payload, or the first `PREFIX_SIZE` bytes of it.  The content ends
    where the payload does.  Raises `RecordError`.
    """
    if size > PAYLOAD_SIZE_MAX:
        raise RecordError(f"a payload of {size} bytes")
    if prefix[:1] != b"\x82":
        raise RecordError("the payload is not an array of two")
    file = BytesIO(prefix[1:PREFIX_SIZE])
    try:
        header = cbor2.CBORDecoder(file).decode()
    except Exception as error:  # CBOR can say much that Python refuses in many ways
        raise RecordError(f"the header is not CBOR: {type(error).__name__}") from None
    start = 1 + file.tell()
    content, content_size = _byte_string(prefix, start)
    if content + content_size != size:
        raise RecordError("the content is not all of the rest")
    record = _record(header)
    if content_size and not isinstance(record, File):
        raise RecordError(f"a {record.kind} with content")
    return record, content


def _record(header: Any) -> Record:
    kind = header.pop("kind", None) if type(header) is dict else None
    cls = _KINDS.get(kind) if type(kind) is str else None
    if cls is None:
        raise RecordError("the header is not of a known kind")
    if header.keys() != {field.name for field in fields(cls)}:
        raise RecordError(f"a {kind} with other fields than it has")
    _check_path(header["path"])
    return cls(**header)


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


def _check_path(path: object) -> None:
    if type(path) is not bytes:
        raise RecordError("a path that is not a byte string")
    names = path.split(b"/")
    if (
        len(path) > _PATH_SIZE_MAX
        or b"\0" in path
        or names[0] == STAGING
        or any(name in (b"", b".", b"..") or len(name) > _NAME_SIZE_MAX for name in names)
    ):
        raise RecordError(f"the path {path[:100]!r} names nothing inside the directory")


def _check_mode(mode: object) -> None:
    _check_number("mode", mode, 0, 0o777)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise RecordError(f"{name} is not a number from {least} to {most}")

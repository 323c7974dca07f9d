"""Log entries on the wire, and the five types of value that they hold.

Seed: "Log Entries", "Log Contents".  The seed's "message type" before a snapshot sync
request is the entry's own value type: no such byte is inside the value that JRaft writes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

from culm.garlic.errors import ErrorCode
from culm.garlic.limits import Limits
from culm.garlic.raft.model import Configuration, Entry, Server, Snapshot, new_entry
from culm.machine import RemoteProtocolError

ENTRY_HEADER = struct.Struct(">QBI")
_PACKED = struct.Struct(">QB")
_LONGS = struct.Struct(">QQ")
_LONG = struct.Struct(">Q")
_INT = struct.Struct(">I")
_INTS = struct.Struct(">II")

_ONE = frozenset((1,))  # the number of `ValueType.APPLICATION`
_term = itemgetter(0)  # of an entry

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")  # no name, no time, unknown system
_GZIP_LEVEL = 6

_LEARNER = b"#learner"


class ValueType(IntEnum):
    """Seed, "Log Contents"."""

    APPLICATION = 1
    CONFIGURATION = 2
    CLUSTER_SERVER = 3
    LOG_PACK = 4
    SNAPSHOT_SYNC_REQUEST = 5


_TYPES: dict[int, ValueType] = {kind.value: kind for kind in ValueType}


class LogEntry(NamedTuple):
    """A log entry as the wire has it: a value of a type, not yet read."""

    term: int
    type: ValueType
    value: bytes


def _bad(code: ErrorCode, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(code, message)


def _value_type(number: int) -> ValueType:
    kind = _TYPES.get(number)
    if kind is None:
        raise _bad(ErrorCode.UNKNOWN_VALUE_TYPE, f"value type {number}")
    return kind


def encode_entries(entries: Iterable[LogEntry]) -> bytes:
    """The term, value type, size and value of each entry."""
    pieces: list[bytes] = []
    for term, kind, value in entries:
        pieces.append(ENTRY_HEADER.pack(term, kind, len(value)))
        pieces.append(value)
    return b"".join(pieces)


def decode_entries(log: bytes, limits: Limits) -> list[LogEntry]:
    """Read entries that fill `log` exactly; raises `RemoteProtocolError`."""
    entries: list[LogEntry] = []
    offset, size = 0, len(log)
    unpack_from, header_size = ENTRY_HEADER.unpack_from, ENTRY_HEADER.size
    term_max = limits.term_max
    while offset < size:
        if size - offset < header_size:
            raise _bad(ErrorCode.BAD_LOG_ENTRY, "an entry's header is cut short")
        term, number, value_size = unpack_from(log, offset)
        offset += header_size + value_size
        if offset > size:
            raise _bad(ErrorCode.BAD_LOG_ENTRY, "an entry exceeds the log size")
        if term > term_max:
            raise _bad(ErrorCode.NUMBER_TOO_LARGE, f"term {term}")
        entries.append(LogEntry(term, _value_type(number), log[offset - value_size : offset]))
        if len(entries) > limits.entries_max:
            raise _bad(ErrorCode.TOO_MANY_ENTRIES, f"more than {limits.entries_max} entries")
    return entries


def encode_log(entries: Iterable[Entry]) -> bytes:
    """Encode replicated entries (Application and Configuration)."""
    pieces: list[bytes] = []
    header, packed_term, packed_size = b"", -1, -1
    for term, data in entries:
        if type(data) is bytes:
            if len(data) != packed_size or term != packed_term:
                packed_term, packed_size = term, len(data)
                header = ENTRY_HEADER.pack(term, 1, packed_size)
            pieces.append(header)
            pieces.append(data)
        else:
            assert isinstance(data, Configuration)
            value = encode_configuration(data)
            pieces.append(ENTRY_HEADER.pack(term, ValueType.CONFIGURATION, len(value)))
            pieces.append(value)
    return b"".join(pieces)


def _decode_alike(log: bytes, count_max: int) -> list[Entry] | None:
    """Values that are all as long as the first of them; ``None`` if they are not, or too many."""
    size, header_size = len(log), ENTRY_HEADER.size
    if size < 2 * header_size:
        return None
    value_size = ENTRY_HEADER.unpack_from(log)[2]
    count, rest = divmod(size, header_size + value_size)
    if rest or not 1 < count <= count_max:
        return None
    rows = struct.iter_unpack(f">QBI{value_size}s", log)
    terms, numbers, sizes, values = zip(*rows, strict=True)
    if not (_ONE.issuperset(numbers) and sizes.count(value_size) == count):
        return None
    return [*map(new_entry, repeat(Entry), zip(terms, values, strict=True))]


def decode_log(log: bytes, limits: Limits) -> list[Entry]:
    """Read replicated entries that fill `log` exactly; raises `RemoteProtocolError`.

    The same as `decode_entries` followed by `replicated`, in one pass over the entries:
    this is the path of every entry that a follower receives.
    """
    alike = _decode_alike(log, limits.entries_max)
    if alike is not None and max(map(_term, alike)) <= limits.term_max:
        return alike
    entries: list[Entry] = []
    offset, size = 0, len(log)
    unpack_from, header_size = ENTRY_HEADER.unpack_from, ENTRY_HEADER.size
    add, new = entries.append, new_entry
    for _ in range(limits.entries_max):
        start = offset + header_size
        if start > size:
            break
        term, number, value_size = unpack_from(log, offset)
        end = start + value_size
        if number != 1 or end > size:
            break
        add(new(Entry, (term, log[start:end])))
        offset = end
    if offset != size:  # too many, malformed, or with configurations
        return [replicated(entry, limits) for entry in decode_entries(log, limits)]
    if entries and max(entry[0] for entry in entries) > limits.term_max:
        raise _bad(ErrorCode.NUMBER_TOO_LARGE, "an entry's term")
    return entries


def packed(entry: Entry) -> LogEntry:
    """The wire's form of a replicated entry."""
    if isinstance(entry.data, Configuration):
        value = encode_configuration(entry.data)
        return LogEntry(entry.term, ValueType.CONFIGURATION, value)
    return LogEntry(entry.term, ValueType.APPLICATION, entry.data)


def replicated(entry: LogEntry, limits: Limits) -> Entry:
    """The replicated entry; raises `RemoteProtocolError` for the types of other messages."""
    if entry.type is ValueType.APPLICATION:
        return Entry(entry.term, entry.value)
    if entry.type is ValueType.CONFIGURATION:
        return Entry(entry.term, decode_configuration(entry.value, limits))
    raise _bad(ErrorCode.WRONG_ENTRIES, f"{entry.type.name} in a replicated log")


def encode_server(server: Server) -> bytes:
    """ClusterServer as AddServerRequest has it; a learner's endpoint has a fragment that says so.

    Raises `ValueError` for an endpoint that is not ASCII.
    """
    if not server.endpoint.isascii():
        raise ValueError(f"an endpoint must be ASCII, not {server.endpoint!r:.100}")
    endpoint = server.endpoint.encode("ascii") + (b"" if server.voter else _LEARNER)
    return _INTS.pack(server.server_id, len(endpoint)) + endpoint


def _read_server(data: bytes, offset: int, limits: Limits) -> tuple[Server, int]:
    if len(data) - offset < _INTS.size:
        raise _bad(ErrorCode.BAD_VALUE, "a server is cut short")
    server_id, size = _INTS.unpack_from(data, offset)
    start = offset + _INTS.size
    if size > limits.endpoint_size_max or size > len(data) - start:
        raise _bad(ErrorCode.BAD_VALUE, f"endpoint of {size} bytes")
    try:
        endpoint = data[start : start + size].decode("ascii")
    except UnicodeDecodeError:
        raise _bad(ErrorCode.BAD_VALUE, "endpoint is not ASCII") from None
    voter = not endpoint.endswith(_LEARNER.decode())
    return Server(server_id, endpoint.removesuffix(_LEARNER.decode()), voter), start + size


def decode_server(value: bytes, limits: Limits) -> Server:
    """ClusterServer as AddServerRequest has it; raises `RemoteProtocolError`."""
    server, end = _read_server(value, 0, limits)
    if end != len(value):
        raise _bad(ErrorCode.BAD_VALUE, "bytes after a server")
    return server


def encode_server_id(server_id: int) -> bytes:
    """ClusterServer as RemoveServerRequest has it."""
    return _INT.pack(server_id)


def decode_server_id(value: bytes) -> int:
    """ClusterServer as RemoveServerRequest has it; raises `RemoteProtocolError`."""
    if len(value) != _INT.size:
        raise _bad(ErrorCode.BAD_VALUE, f"server id of {len(value)} bytes")
    server_id: int = _INT.unpack(value)[0]
    return server_id


def encode_configuration(configuration: Configuration) -> bytes:
    """Log index, last log index, and each server."""
    return _LONGS.pack(configuration.log_index, configuration.last_log_index) + b"".join(
        map(encode_server, configuration.servers)
    )


def decode_configuration(value: bytes, limits: Limits) -> Configuration:
    """Read a configuration of distinct servers; raises `RemoteProtocolError`."""
    if len(value) < _LONGS.size:
        raise _bad(ErrorCode.BAD_VALUE, "a configuration is cut short")
    log_index, last_log_index = _LONGS.unpack_from(value)
    if max(log_index, last_log_index) >= 2**63:
        raise _bad(ErrorCode.NUMBER_TOO_LARGE, "log index of a configuration")
    servers: dict[int, Server] = {}
    offset = _LONGS.size
    while offset < len(value):
        server, offset = _read_server(value, offset, limits)
        if server.server_id in servers:
            raise _bad(ErrorCode.BAD_VALUE, f"server {server.server_id} twice")
        servers[server.server_id] = server
        if len(servers) > limits.servers_max:
            raise _bad(ErrorCode.BAD_VALUE, f"more than {limits.servers_max} servers")
    return Configuration(log_index, last_log_index, tuple(servers.values()))


@dataclass(frozen=True, slots=True)
class LogPack:
    """Consecutive entries of a log store, compressed.

    `start` is the offset of the first entry: offsets on the wire are absolute in the
    sender's store, and JRaft takes them over into the receiver's.
    """

    entries: Sequence[LogEntry]
    start: int = 0

    @property
    def size(self) -> int:
        """Bytes of the entries' records."""
        return sum(_PACKED.size + len(entry.value) for entry in self.entries)

    def encode(self) -> bytes:
        offsets: list[int] = []
        records: list[bytes] = []
        offset = self.start
        for term, kind, value in self.entries:
            offsets.append(offset)
            records.append(_PACKED.pack(term, kind) + value)
            offset += len(records[-1])
        log = b"".join(records)
        index = struct.pack(f">{len(offsets)}Q", *offsets)
        return _deflate(_INTS.pack(len(index), len(log)) + index + log)

    @staticmethod
    def decode(value: bytes, limits: Limits) -> LogPack:
        """Inflate and read a pack; raises `RemoteProtocolError`."""
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        head = _inflate(inflater.decompress, value, _INTS.size)
        if len(head) < _INTS.size:
            raise _bad(ErrorCode.BAD_VALUE, "a log pack is cut short")
        index_size, log_size = _INTS.unpack(head)
        if index_size % _LONG.size:
            raise _bad(ErrorCode.BAD_VALUE, "the index size of a log pack")
        size = index_size + log_size
        if len(head) + size > limits.inflated_size_max:
            raise _bad(ErrorCode.INFLATED_TOO_LARGE, f"a log pack of {size} bytes")
        count = index_size // _LONG.size
        if count > limits.entries_max:
            raise _bad(ErrorCode.TOO_MANY_ENTRIES, f"{count} entries in a log pack")
        # At most one byte more than was declared is inflated, to see whether there is more.
        data = _inflate(inflater.decompress, inflater.unconsumed_tail, size + 1)
        if len(data) > size:
            raise _bad(ErrorCode.INFLATED_TOO_LARGE, "a log pack goes on after its end")
        if len(data) < size or not inflater.eof or inflater.unused_data:
            raise _bad(ErrorCode.BAD_VALUE, "a log pack is not one whole gzip member")
        offsets = struct.unpack_from(f">{count}Q", data)
        log = memoryview(data)[index_size:]
        return LogPack(_unpack_records(offsets, log, limits), offsets[0] if offsets else 0)


def _unpack_records(
    offsets: Sequence[int], log: memoryview, limits: Limits
) -> tuple[LogEntry, ...]:
    if not offsets and len(log):
        raise _bad(ErrorCode.BAD_VALUE, "a log pack without index")
    entries: list[LogEntry] = []
    for position, offset in enumerate(offsets):
        start = offset - offsets[0]
        last = position + 1 == len(offsets)
        end = len(log) if last else offsets[position + 1] - offsets[0]
        if not 0 <= start <= end - _PACKED.size or end > len(log):
            raise _bad(ErrorCode.BAD_VALUE, "offsets in a log pack")
        term, number = _PACKED.unpack_from(log, start)
        if term > limits.term_max:
            raise _bad(ErrorCode.NUMBER_TOO_LARGE, f"term {term}")
        value = bytes(log[start + _PACKED.size : end])
        entries.append(LogEntry(term, _value_type(number), value))
    return tuple(entries)


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = compressor.compress(data) + compressor.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data))


def _inflate(decompress: Callable[[bytes, int], bytes], data: bytes, size_max: int) -> bytes:
    try:
        return decompress(data, size_max)
    except zlib.error:
        raise _bad(ErrorCode.BAD_VALUE, "a log pack is not gzip") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSyncRequest:
    """A chunk of a snapshot: `data` stands at byte `offset`; `done` marks the last one."""

    snapshot: Snapshot
    offset: int
    data: bytes
    done: bool

    def encode(self) -> bytes:
        configuration = encode_configuration(self.snapshot.configuration)
        return b"".join(
            (
                _LONGS.pack(self.snapshot.index, self.snapshot.term),
                _INT.pack(len(configuration)),
                configuration,
                _LONG.pack(self.offset),
                _INT.pack(len(self.data)),
                self.data,
                b"\x01" if self.done else b"\x00",
            )
        )

    @staticmethod
    def decode(value: bytes, limits: Limits) -> SnapshotSyncRequest:
        """Read a chunk that fills `value`; raises `RemoteProtocolError`."""
        try:
            index, term = _LONGS.unpack_from(value)
            (size,) = _INT.unpack_from(value, 16)
            end = 20 + size
            configuration = value[20:end]
            (offset,) = _LONG.unpack_from(value, end)
            (data_size,) = _INT.unpack_from(value, end + 8)
        except struct.error:
            raise _bad(ErrorCode.BAD_VALUE, "a snapshot chunk is cut short") from None
        start = end + 12
        if start + data_size + 1 != len(value):
            raise _bad(ErrorCode.BAD_VALUE, "sizes in a snapshot chunk")
        if max(index, offset) >= 2**63 or term > limits.term_max:
            raise _bad(ErrorCode.NUMBER_TOO_LARGE, "a snapshot chunk")
        return SnapshotSyncRequest(
            snapshot=Snapshot(index, term, decode_configuration(configuration, limits)),
            offset=offset,
            data=value[start : start + data_size],
            done=value[-1] == 1,
        )

"""Hostile peers of Garlic Farm: frames that are cheap to send, and could be costly to read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from culm.garlic.messages import MessageType, RequestFrame, ResponseFrame
from culm.garlic.values import LogEntry, ValueType, encode_entries

__all__ = ["FRAME_BOMBS", "NODE_BOMBS"]

_SIZE_MAX = 2**31 - 1  # of a signed field of 4 bytes
_NUMBER_MAX = 2**63 - 1  # of one of 8
_MIB = 1 << 20
_ME, _PEER = 1, 2

_SIZES = struct.Struct(">II")
_ENTRY = struct.Struct(">QBI")
_RECORD = struct.pack(">QB", 0, ValueType.APPLICATION)


def _frame(kind: MessageType, log: bytes = b"", number: int = 0) -> bytes:
    return RequestFrame(
        type=kind,
        source=_PEER,
        destination=_ME,
        term=number,
        last_log_term=number,
        last_log_index=number,
        commit_index=number,
        log=log,
    ).encode()


def _pack(index_size: int, log_size: int, data: bytes, zeros: int) -> bytes:
    """A log pack of those sizes, with `data` and then `zeros` MiB of zeros."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    pieces = [deflater.compress(_SIZES.pack(index_size, log_size) + data)]
    pieces += [deflater.compress(bytes(_MIB)) for _ in range(zeros)]
    value = b"".join([*pieces, deflater.flush()])
    entries = encode_entries([LogEntry(0, ValueType.LOG_PACK, value)])
    return _frame(MessageType.SYNC_LOG_REQUEST, entries)


#: Requests and responses that declare the largest numbers there are.
FRAME_BOMBS: Sequence[bytes] = (
    _frame(MessageType.APPEND_ENTRIES_REQUEST)[:-4] + _SIZE_MAX.to_bytes(4, "big"),
    _frame(MessageType.APPEND_ENTRIES_REQUEST, number=_NUMBER_MAX),
    ResponseFrame(
        type=MessageType.APPEND_ENTRIES_RESPONSE,
        source=_PEER,
        destination=_ME,
        term=_NUMBER_MAX,
        next_index=_NUMBER_MAX,
        accepted=True,
    ).encode(),
)

#: The same inside frames; log packs that do not end, or inflate as far as compression allows.
NODE_BOMBS: Sequence[bytes] = (
    _frame(MessageType.REQUEST_VOTE_REQUEST, number=_NUMBER_MAX),
    _frame(MessageType.APPEND_ENTRIES_REQUEST, _ENTRY.pack(0, 1, _SIZE_MAX)),
    _pack(0, 0, b"", 80),
    _pack(_SIZE_MAX & ~7, _SIZE_MAX, b"", 80),
    _pack(8, len(_RECORD) + _MIB, bytes(8) + _RECORD, 1),
)

"""The two frames of the wire: requests (45 bytes and log entries) and responses (26 bytes).

Seed: "Message Types", "Requests", "Responses".  All numbers are unsigned big-endian as
the seed has them; JRaft holds them in Java's signed int and long, so terms and indexes
beyond 63 bits are refused.  Types that culm adds begin at 64, so that
a mistake is refused and not misread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from culm.garlic.errors import ErrorCode
from culm.garlic.limits import Limits
from culm.garlic.raft.messages import Extension
from culm.machine import RemoteProtocolError

__all__ = [
    "EXTENSION_OF",
    "REQUEST_HEADER",
    "REQUEST_HEADER_SIZE",
    "RESPONSE_FRAME",
    "RESPONSE_OF",
    "RESPONSE_SIZE",
    "Extension",
    "MessageType",
    "RequestFrame",
    "ResponseFrame",
    "is_request",
]

REQUEST_HEADER = struct.Struct(">BIIQQQQI")
RESPONSE_FRAME = struct.Struct(">BIIQQB")

REQUEST_HEADER_SIZE = REQUEST_HEADER.size
RESPONSE_SIZE = RESPONSE_FRAME.size

_LONG_MAX = 2**63 - 1
_NO_LOG = 0xFFFF_FFFF  # JRaft writes and takes -1 for "no entries"


class MessageType(IntEnum):
    """Seed, "Message Types".  `RESPONSE_OF` pairs requests with their responses."""

    REQUEST_VOTE_REQUEST = 1
    REQUEST_VOTE_RESPONSE = 2
    APPEND_ENTRIES_REQUEST = 3
    APPEND_ENTRIES_RESPONSE = 4
    CLIENT_REQUEST = 5
    ADD_SERVER_REQUEST = 6
    ADD_SERVER_RESPONSE = 7
    REMOVE_SERVER_REQUEST = 8
    REMOVE_SERVER_RESPONSE = 9
    SYNC_LOG_REQUEST = 10
    SYNC_LOG_RESPONSE = 11
    JOIN_CLUSTER_REQUEST = 12
    JOIN_CLUSTER_RESPONSE = 13
    LEAVE_CLUSTER_REQUEST = 14
    LEAVE_CLUSTER_RESPONSE = 15
    INSTALL_SNAPSHOT_REQUEST = 16
    INSTALL_SNAPSHOT_RESPONSE = 17

    PRE_VOTE_REQUEST = 64  # `Extension.PRE_VOTE`
    PRE_VOTE_RESPONSE = 65
    READ_INDEX_REQUEST = 66  # `Extension.READ_INDEX`
    READ_INDEX_RESPONSE = 67
    FORWARD_REQUEST = 68  # `Extension.FORWARD`
    FORWARD_RESPONSE = 69


# Every request, and the type of its response.
RESPONSE_OF: dict[MessageType, MessageType] = {
    MessageType.REQUEST_VOTE_REQUEST: MessageType.REQUEST_VOTE_RESPONSE,
    MessageType.APPEND_ENTRIES_REQUEST: MessageType.APPEND_ENTRIES_RESPONSE,
    MessageType.CLIENT_REQUEST: MessageType.APPEND_ENTRIES_RESPONSE,
    MessageType.ADD_SERVER_REQUEST: MessageType.ADD_SERVER_RESPONSE,
    MessageType.REMOVE_SERVER_REQUEST: MessageType.REMOVE_SERVER_RESPONSE,
    MessageType.SYNC_LOG_REQUEST: MessageType.SYNC_LOG_RESPONSE,
    MessageType.JOIN_CLUSTER_REQUEST: MessageType.JOIN_CLUSTER_RESPONSE,
    MessageType.LEAVE_CLUSTER_REQUEST: MessageType.LEAVE_CLUSTER_RESPONSE,
    MessageType.INSTALL_SNAPSHOT_REQUEST: MessageType.INSTALL_SNAPSHOT_RESPONSE,
    MessageType.PRE_VOTE_REQUEST: MessageType.PRE_VOTE_RESPONSE,
    MessageType.READ_INDEX_REQUEST: MessageType.READ_INDEX_RESPONSE,
    MessageType.FORWARD_REQUEST: MessageType.FORWARD_RESPONSE,
}

# Requests that JRaft does not know, each with the extension that must have been agreed on in the
# handshake (``Culm-Extensions``) before one is sent.
EXTENSION_OF: dict[MessageType, Extension] = {
    MessageType.PRE_VOTE_REQUEST: Extension.PRE_VOTE,
    MessageType.READ_INDEX_REQUEST: Extension.READ_INDEX,
    MessageType.FORWARD_REQUEST: Extension.FORWARD,
}

_TYPES: dict[int, MessageType] = {kind.value: kind for kind in MessageType}


def is_request(kind: MessageType) -> bool:
    """Whether messages of this type are requests."""
    return kind in RESPONSE_OF


def message_type(number: int) -> MessageType:
    """The type of that number; raises `RemoteProtocolError` if there is none."""
    kind = _TYPES.get(number)
    if kind is None:
        raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE_TYPE, f"message type {number}")
    return kind


def _check_long(name: str, number: int) -> None:
    if number > _LONG_MAX:
        raise RemoteProtocolError(ErrorCode.NUMBER_TOO_LARGE, f"{name} {number}")


def _check_term(term: int, limits: Limits) -> None:
    if term > limits.term_max:
        raise RemoteProtocolError(ErrorCode.NUMBER_TOO_LARGE, f"term {term}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFrame:
    """A request: the header's fields and the encoded log entries (`culm.garlic.values`).

    `source` and `destination` are 0 in requests from clients.
    """

    type: MessageType
    source: int = 0
    destination: int = 0
    term: int = 0
    last_log_term: int = 0
    last_log_index: int = 0
    commit_index: int = 0
    log: bytes = b""

    def encode(self) -> bytes:
        """The frame; raises `ValueError` if a field does not fit in."""
        try:
            header = REQUEST_HEADER.pack(
                self.type,
                self.source,
                self.destination,
                self.term,
                self.last_log_term,
                self.last_log_index,
                self.commit_index,
                len(self.log),
            )
        except struct.error as error:
            raise ValueError(str(error)) from None
        return header + self.log

    @staticmethod
    def log_size(header: bytes, limits: Limits) -> int:
        """Bytes of log that follow this header; raises `RemoteProtocolError` if too many."""
        size: int = REQUEST_HEADER.unpack(header)[-1]
        if size == _NO_LOG:
            return 0
        if size > limits.log_size_max:
            raise RemoteProtocolError(ErrorCode.LOG_TOO_LARGE, f"log size {size}")
        return size

    @staticmethod
    def decode(header: bytes, log: bytes, limits: Limits) -> RequestFrame:
        """Read a whole request; raises `RemoteProtocolError`."""
        fields: Any = REQUEST_HEADER.unpack(header)
        number, source, destination, term, last_log_term, last_log_index, commit_index, _ = fields
        _check_term(max(term, last_log_term), limits)
        _check_long("last_log_index", last_log_index)
        _check_long("commit_index", commit_index)
        return RequestFrame(
            type=message_type(number),
            source=source,
            destination=destination,
            term=term,
            last_log_term=last_log_term,
            last_log_index=last_log_index,
            commit_index=commit_index,
            log=log,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFrame:
    """A response.  `next_index` is the entry that is wanted next; a byte offset for snapshots.

    `destination` is the source of a peer's request, the believed leader for a client's
    (``0xffffffff``, JRaft's -1, if there is none).
    """

    type: MessageType
    source: int
    destination: int
    term: int
    next_index: int
    accepted: bool

    def encode(self) -> bytes:
        """The frame; raises `ValueError` if a field does not fit in."""
        try:
            return RESPONSE_FRAME.pack(
                self.type, self.source, self.destination, self.term, self.next_index, self.accepted
            )
        except struct.error as error:
            raise ValueError(str(error)) from None

    @staticmethod
    def decode(data: bytes, limits: Limits) -> ResponseFrame:
        """Read 26 bytes; raises `RemoteProtocolError`.  Accepted is 1; all else is refusal."""
        number, source, destination, term, next_index, accepted = RESPONSE_FRAME.unpack(data)
        _check_term(term, limits)
        _check_long("next_index", next_index)
        return ResponseFrame(
            type=message_type(number),
            source=source,
            destination=destination,
            term=term,
            next_index=next_index,
            accepted=accepted == 1,
        )

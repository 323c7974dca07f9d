"""The encoding of packets: a header of nine bytes and a body.

``flags u8 | body size u32 | request number i32``, big-endian.  Of the flags, from the least
significant bit on: two bits of body type, one for an end or error, one for a stream; the others
mean nothing.  Nine zero bytes say goodbye.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from culm.buffer import ReceiveBuffer
from culm.machine import RemoteProtocolError
from culm.ssb.muxrpc.errors import ErrorCode

__all__ = [
    "BODY_SIZE_MAX",
    "GOODBYE",
    "HEADER_SIZE",
    "NUMBER_MAX",
    "BodyType",
    "Header",
    "encode_header",
    "peek_header",
    "take_value",
]

HEADER_SIZE: Final = 9
GOODBYE: Final = bytes(HEADER_SIZE)
NUMBER_MAX: Final = 2**31 - 1
"""The last number that a request can have."""
BODY_SIZE_MAX: Final = 2**32 - 1

_LAYOUT: Final = Struct(">BIi")
_STREAM_FLAG: Final = 8
_END_FLAG: Final = 4
_TYPE_BITS: Final = 3


class BodyType(IntEnum):
    """The type of a body."""

    BINARY = 0
    TEXT = 1  # UTF-8
    JSON = 2


class Header(NamedTuple):
    """The header of a packet.

    number: the number of the request: positive if the sender has made it, negative in answers.
    type: the type of the body; 3 is invalid.
    """

    stream: bool
    end: bool
    type: int
    size: int
    number: int


_FLAGS: Final[tuple[tuple[bool, bool, int], ...]] = tuple(
    (bool(flags & _STREAM_FLAG), bool(flags & _END_FLAG), flags & _TYPE_BITS)
    for flags in range(256)
)
#: The body's type in packets with these flags that carry a value in a stream; ``None``: others.
_VALUE_TYPES: Final[tuple[BodyType | None, ...]] = tuple(
    BodyType(body_type) if stream and not end and body_type != _TYPE_BITS else None
    for stream, end, body_type in _FLAGS
)


def peek_header(inbox: ReceiveBuffer) -> Header | None:
    """The header at the beginning of `inbox`, ``None`` if it is incomplete.

    Raises `RemoteProtocolError` (``BAD_BODY_TYPE``).
    """
    if inbox.size < HEADER_SIZE:
        return None
    flags: int
    flags, size, number = _LAYOUT.unpack(inbox.peek(HEADER_SIZE))
    stream, end, body_type = _FLAGS[flags]
    if body_type == _TYPE_BITS:
        raise RemoteProtocolError(ErrorCode.BAD_BODY_TYPE, f"flags {flags:#04x}")
    return Header(stream, end, body_type, size, number)


def take_value(inbox: ReceiveBuffer, number: int, size_max: int) -> tuple[bytes, BodyType] | None:
    """Take the packet at the beginning of `inbox` if it is a complete value in that stream.

    number: the request's number in the packet.
    size_max: the greatest size of the body.
    """
    if inbox.size < HEADER_SIZE:
        return None
    flags: int
    flags, size, packet_number = _LAYOUT.unpack(inbox.peek(HEADER_SIZE))
    body_type = _VALUE_TYPES[flags]
    if body_type is None or packet_number != number or size > size_max:
        return None
    if inbox.size < HEADER_SIZE + size:
        return None
    body = inbox.peek(size, HEADER_SIZE)
    inbox.consume(HEADER_SIZE + size)
    return body, body_type


def encode_header(
    number: int, size: int, body_type: BodyType, *, stream: bool, end: bool = False
) -> bytes:
    """The header of a packet whose body has `size` bytes."""
    flags = body_type | (_STREAM_FLAG if stream else 0) | (_END_FLAG if end else 0)
    return _LAYOUT.pack(flags, size, number)

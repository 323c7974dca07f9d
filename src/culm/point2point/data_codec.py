"""Packets of the data channel (seed, "Encoding on the data channel")."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from culm.bamboo.entry import SIGNATURE_SIZE
from culm.point2point.errors import ErrorCode, decoding
from culm.wire import varu64
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily

__all__ = ["NUMBERS", "Metadata", "PacketType", "decode_metadata", "metadata_size_max"]

_LONG_VARU64 = 248  # the first byte of a VarU64 that has more


class PacketType(IntEnum):
    """The first byte of a packet."""

    SWITCH = 0
    NOTIFY_ONE = 2
    NOTIFY = 3
    SKIP_TOO_SMALL = 4
    SKIP_TOO_LARGE = 5
    SKIP_UNAVAILABLE = 6
    JUMP = 7
    RAW = 8
    COMPRESSED = 9
    APOLOGY = 16
    CANCELLED = 32
    METADATA = 128
    METADATA_END_OF_LOG = 129


# How many VarU64s follow the first byte.
NUMBERS: dict[int, int] = {
    PacketType.SWITCH: 1,
    PacketType.NOTIFY_ONE: 0,
    PacketType.NOTIFY: 1,
    PacketType.SKIP_TOO_SMALL: 0,
    PacketType.SKIP_TOO_LARGE: 0,
    PacketType.SKIP_UNAVAILABLE: 0,
    PacketType.JUMP: 1,
    PacketType.RAW: 1,
    PacketType.COMPRESSED: 2,
    PacketType.APOLOGY: 0,
    PacketType.CANCELLED: 1,
}


def metadata_size_max(family: HashFamily) -> int:
    """The size in bytes that no metadata packet exceeds."""
    return 1 + 2 * family.encoded_size + 9 + SIGNATURE_SIZE


class Metadata(NamedTuple):
    """What a metadata packet holds.

    `tail`: payload size, payload hash and signature as they end the encoded entry.
    """

    end_of_log: bool
    backlink: bytes | None
    tail: bytes


def decode_metadata(data: bytes, *, family: HashFamily) -> tuple[Metadata, int]:
    """Take apart the metadata packet at the start of `data`; also returns its size.

    Raises `Truncated` if more bytes could complete it, `Violation` if none can.
    """
    at, backlink = 1, None
    # A backlink starts with the bytes of a hash.  Without it a payload size comes first:
    # one that starts with 0 is 0, and then the zero byte of a hash follows, not its
    # length.  So two bytes tell whether the sender omitted the backlink.
    if data[1:3] == family.prefix:
        at = 1 + family.encoded_size
        backlink = data[1:at]
    hash_at = at + 1
    if at >= len(data) or data[at] >= _LONG_VARU64:
        with decoding(ErrorCode.NON_CANONICAL):
            _, hash_at = varu64.decode(data, at, canonical=True)
    with decoding(ErrorCode.BAD_HASH):
        _, end = family.decode(data, hash_at)
    end += SIGNATURE_SIZE
    if end > len(data):
        raise Truncated(len(data))
    end_of_log = data[0] == PacketType.METADATA_END_OF_LOG
    return Metadata(end_of_log, backlink, data[at:end]), end

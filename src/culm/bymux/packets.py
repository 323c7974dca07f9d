"""The packets' encoding: a header byte, a stream id, an amount (spec, "Spec").

The header byte holds, from the most significant bit: three bits of type, the global
flag, two bits of id width, two bits of amount width.  A width of ``w`` stands for an int
of ``2**w`` bytes, big-endian.  Any width is accepted; the smallest is emitted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from culm.buffer import ReceiveBuffer
from culm.bymux.errors import ErrorCode
from culm.machine import RemoteProtocolError

UINT64_MAX: Final = 2**64 - 1
"""The greatest id, amount and sum of credit."""

INFINITE: Final = UINT64_MAX
"""The credit of a stream that needs no more credit."""

HEADER_SIZE_MAX: Final = 17
"""Bytes of the longest packet without the data of a Write."""


class PacketType(IntEnum):
    """The first three bits of a packet."""

    CREDIT = 0
    WRITE = 1
    PING = 2
    PONG = 3
    CLOSE = 4
    STOP_READ = 5


class Packet(NamedTuple):
    """A packet without the data of a Write.

    `stream_id` is ``None`` for a global packet.  `amount` is the credit that a Credit gives,
    the number of data bytes that follow a Write, and, for a global Write, the id of the stream
    that it creates; ``None`` for the other types.
    """

    type: PacketType
    stream_id: int | None = None
    amount: int | None = None


class Layout(NamedTuple):
    """The fields that a header byte announces; a width of 0 means that the field is absent."""

    type: PacketType
    id_width: int
    amount_width: int
    size: int


_GLOBAL_FLAG: Final = 0x10
_WITH_AMOUNT: Final = frozenset({PacketType.CREDIT, PacketType.WRITE})


def _layout(header: int) -> Layout | None:
    if header >> 5 > max(PacketType):
        return None
    packet_type = PacketType(header >> 5)
    id_width = 0 if header & _GLOBAL_FLAG else 1 << (header >> 2 & 3)
    amount_width = 1 << (header & 3) if packet_type in _WITH_AMOUNT else 0
    return Layout(packet_type, id_width, amount_width, 1 + id_width + amount_width)


#: The fields after each header byte; ``None`` for one that begins no packet.
LAYOUTS: Final = tuple(map(_layout, range(256)))


def _width_bits(value: int) -> int:
    """The two header bits for the smallest width that holds `value`."""
    if value < 1 << 8:
        return 0
    if value < 1 << 16:
        return 1
    return 2 if value < 1 << 32 else 3


def encode(packet_type: PacketType, stream_id: int | None, amount: int | None = None) -> bytes:
    """Encode a packet (of a Write: all but its data) with ints of the smallest width.

    The arguments are those of `Packet`; ints must be in ``[0, 2**64)``.
    """
    header = packet_type << 5
    fields = b""
    if stream_id is None:
        header |= _GLOBAL_FLAG
    else:
        bits = _width_bits(stream_id)
        header |= bits << 2
        fields = stream_id.to_bytes(1 << bits, "big")
    if amount is not None:
        bits = _width_bits(amount)
        header |= bits
        fields += amount.to_bytes(1 << bits, "big")
    return header.to_bytes(1, "big") + fields


def take_packet(inbox: ReceiveBuffer) -> Packet | None:
    """Take the next packet (of a Write: all but its data), ``None`` if it is not whole.

    Raises `RemoteProtocolError` (``UNKNOWN_PACKET_TYPE``).
    """
    available = inbox.size
    if not available:
        return None
    layout = LAYOUTS[inbox[0]]
    if layout is None:
        raise RemoteProtocolError(ErrorCode.UNKNOWN_PACKET_TYPE, f"header {inbox[0]:#04x}")
    packet_type, id_width, amount_width, size = layout
    if available < size:
        return None
    fields = inbox.take(size)
    amount_start = 1 + id_width
    return Packet(
        packet_type,
        int.from_bytes(fields[1:amount_start], "big") if id_width else None,
        int.from_bytes(fields[amount_start:], "big") if amount_width else None,
    )

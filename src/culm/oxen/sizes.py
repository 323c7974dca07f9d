"""Sizes of parcels, and room for a message in a datagram."""

from __future__ import annotations

from culm.oxen.events import Delivery
from culm.oxen.limits import Limits
from culm.oxen.messages import (
    ID_MAX,
    SEQUENCE_MAX,
    Broadcast,
    Datagram,
    Dialect,
    Message,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    encode_parcel,
    write_message,
)


def payload_sizes(limits: Limits, dialect: Dialect, overhead: int = 0) -> dict[Delivery, int]:
    """Bytes of the largest message of each kind, with all other fields of its parcel at their
    longest, so that sending never depends on the numbers that a message happens to get.

    overhead
        Bytes of a datagram that are not part of its parcel.
    """
    empty: dict[Delivery, Message] = {
        Delivery.DATAGRAM: Datagram(b""),
        Delivery.IN_ORDER: OneToOne(SEQUENCE_MAX, b""),
        Delivery.IN_ORDER_BROADCAST: Broadcast(SEQUENCE_MAX, b""),
    }
    parcel_size_max = limits.datagram_size_max - overhead
    length = len(str(parcel_size_max))  # digits of a size, of which an empty message has one
    left = parcel_size_max - length + 1
    return {
        delivery: left - _parcel_size(message, limits, dialect)
        for delivery, message in empty.items()
    }


def introduction_size(me: bytes, limits: Limits, dialect: Dialect) -> int:
    """Bytes of the largest parcel of `me` with a synchronize message, beside the receiver's ID."""
    pieces, tags = limits.message_size_max, limits.tags_size_max
    message = Synchronize(SEQUENCE_MAX, SEQUENCE_MAX, pieces, tags, SEQUENCE_MAX)
    return _parcel_size(message, limits, dialect) + len(me) - 2 * limits.sid_size_max


def _parcel_size(message: Message, limits: Limits, dialect: Dialect) -> int:
    """Bytes of a parcel with `message` and all other fields at their longest."""
    sid = bytes(limits.sid_size_max)
    data = MessageData(sid, sid, ID_MAX, write_message(message))
    return len(encode_parcel(Parcel(ID_MAX, ID_MAX, data), dialect))

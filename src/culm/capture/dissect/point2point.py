"""Point-2-Point: the setup, the packets of bymux, and in them the two channels."""

from __future__ import annotations

from functools import partial

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE
from culm.capture.dissect.bamboo import take_entry
from culm.capture.dissect.bymux import DATA, take_packet
from culm.capture.dissect.fields import Field, FieldReader
from culm.capture.dissect.layers import Carried, Items, Layer
from culm.point2point.codec import (
    ADJUST_NUMBERS,
    EAGERNESS,
    EAGERNESS_UP_TO,
    NUMBERS,
    REQUEST_FINITE,
    REQUEST_OFFSET,
    PacketType,
    decode_control,
    decode_metadata,
    decode_setup,
)
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import CancelReason
from culm.wire.multihash import HashFamily

_CONTROL, _DATA = f"{DATA}0", f"{DATA}1"


def connection(family: HashFamily) -> Layer:
    """One direction of a connection."""
    steps = {_CONTROL: take_control, _DATA: take_data}

    def upper(channel: str) -> Layer:
        return Items(partial(steps[channel], family=family))

    def channel_of(field: Field) -> str | None:
        return field.name if field.name in steps else None

    return Carried(Items(take_packet, take_setup), channel_of=channel_of, upper=upper)


def take_setup(reader: FieldReader) -> None:
    """Take the setup."""
    with reader.group("setup"), reader.judged(lambda data, _: decode_setup(data)):
        reader.uint("flags", 1, bin)
        reader.varu64("send_window_max")
        reader.varu64("receive_window_max")


def take_control(reader: FieldReader, family: HashFamily) -> None:
    """Take a message of the control channel."""
    first = reader.data[reader.at]
    decode = partial(decode_control, family=family)
    with reader.group("control") as message, reader.judged(decode):
        if first == 0:
            message.call("GRANT_CREDIT")
            reader.uint("type", 1)
            reader.varu64("amount")
            return
        if first >> 7 == 0:
            message.call("ADJUST")
            reader.uint("flags", 1, bin)
            message.tell(reader.varu64("request_id"))
            _take_eagerness(reader, first)
            for flag, name in ADJUST_NUMBERS:
                if first & flag:
                    reader.varu64(name)
            return
        if first & EAGERNESS:
            message.call("PROPOSE")
            message.tell(_take_proposal(reader, family))
            return
        message.call("CANCEL")
        reason = CancelReason(first)
        reader.uint("reason", 1, CancelReason)
        message.tell(reader.varu64("request_id"))
        _take_grounds(reader, reason, family)


def _take_eagerness(reader: FieldReader, flags: int) -> None:
    if flags & EAGERNESS == EAGERNESS_UP_TO:
        reader.varu64("payload_size_max")


def _take_proposal(reader: FieldReader, family: HashFamily) -> int:
    flags = reader.uint("flags", 1, bin)
    request_id = reader.varu64("request_id")
    reader.raw("author", AUTHOR_SIZE)
    reader.varu64("log_id")
    reader.varu64("start")
    lower = None if flags & REQUEST_OFFSET else reader.varu64("lower_certpool")
    reader.varu64("size_min")
    reader.varu64("size_max")
    if lower != 1:
        reader.hash("expected_hash", family)
    _take_eagerness(reader, flags)
    if flags & REQUEST_FINITE:
        reader.varu64("end")
        reader.varu64("upper_certpool")
    if flags & REQUEST_OFFSET:
        reader.varu64("start_offset")
    return request_id


def _take_grounds(reader: FieldReader, reason: CancelReason, family: HashFamily) -> None:
    match reason:
        case CancelReason.HASH_MISMATCH:
            take_entry(reader, family)
        case CancelReason.END_OF_LOG:
            reader.varu64("seqnum")
        case CancelReason.FORK:
            take_entry(reader, family, "first")
            take_entry(reader, family, "second")
        case _:
            pass


NAMES: dict[PacketType, tuple[str, ...]] = {
    PacketType.SWITCH: ("request_id",),
    PacketType.NOTIFY: ("count",),
    PacketType.JUMP: ("size",),
    PacketType.RAW: ("size",),
    PacketType.COMPRESSED: ("size", "packed_size"),
    PacketType.CANCELLED: ("request_id",),
}


PAYLOADS = {PacketType.RAW: "payload", PacketType.COMPRESSED: "packed payload"}
"""The field after the numbers of a packet, the last of which is its size."""


def take_data(reader: FieldReader, family: HashFamily) -> None:
    """Take a packet of the data channel."""
    first = reader.data[reader.at]
    if first not in NUMBERS and first not in (PacketType.METADATA, PacketType.METADATA_END_OF_LOG):
        raise Violation(ErrorCode.UNUSED_DATA_BYTE, f"{first}")
    kind = PacketType(first)
    with reader.group(kind.name) as packet:
        if first not in NUMBERS:
            _take_metadata(reader, family)
            return
        reader.uint("type", 1, PacketType)
        numbers = [reader.varu64(name) for name in NAMES.get(kind, ())]
        if numbers:
            packet.tell(numbers[0])
        if kind in PAYLOADS:
            reader.raw(PAYLOADS[kind], numbers[-1])


def _take_metadata(reader: FieldReader, family: HashFamily) -> None:
    def decode(data: bytes, at: int) -> object:
        return decode_metadata(data[at:], family=family)

    with reader.judged(decode):
        reader.uint("type", 1, PacketType)
        if reader.peek(len(family.prefix)) == family.prefix:
            reader.hash("backlink", family)
        reader.varu64("payload_size", canonical=True)
        reader.hash("payload_hash", family)
        reader.raw("signature", SIGNATURE_SIZE)

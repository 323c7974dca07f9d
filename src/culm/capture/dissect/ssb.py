"""Scuttlebutt after the handshake: boxes, packets of muxrpc, and the messages and notes of EBT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culm.buffer import ReceiveBuffer
from culm.capture.dissect.fields import (
    UNREAD,
    Dissection,
    DissectionFault,
    Field,
    FieldReader,
    dissected,
)
from culm.capture.dissect.layers import carried
from culm.capture.dissect.syntax import take_json
from culm.machine import Closed, DataReceived, RemoteProtocolError
from culm.ssb import BoxStream, Keys, SessionKeys
from culm.ssb.ebt.notes import decode_note
from culm.ssb.feed_id import is_feed_id
from culm.ssb.muxrpc import BodyType
from culm.ssb.muxrpc.calls import GOODBYE, HEADER_SIZE, peek_header

__all__ = ["HANDSHAKE", "dissect_boxes", "take_packet"]

_TAG_SIZE = 16
_BODY = "body"


def take_packet(reader: FieldReader) -> None:
    """Take a packet of muxrpc with its body."""
    if reader.peek(HEADER_SIZE) == GOODBYE:
        reader.raw("GOODBYE", HEADER_SIZE)
        return
    inbox = ReceiveBuffer()
    inbox.append(reader.peek(HEADER_SIZE))
    header = peek_header(inbox)
    with reader.group("packet") as packet:
        if header is None:
            reader.add("header", HEADER_SIZE)
            return
        packet.tell(header.number)
        flags = [name for name in ("stream", "end") if getattr(header, name)]
        kind = BodyType(header.type)
        reader.add("flags", 1, " ".join([*flags, kind.name]))
        reader.add("body_size", 4, header.size)
        reader.add("request", 4, header.number)
        if kind is BodyType.JSON and header.size:
            with reader.within(header.size, alone=True):
                packet.call(_take_json_body(reader, header.size))
        elif kind is BodyType.TEXT:
            reader.add(_BODY, header.size, reader.peek(header.size).decode(errors="replace"))
        else:
            reader.raw(_BODY, header.size)


def _take_json_body(reader: FieldReader, size: int) -> str:
    """Take a body of JSON; what it is."""
    if reader.left < size:
        reader.add(_BODY, size)
    start = reader.at
    take_json(reader, _BODY, _shown)
    text = reader.data[start : reader.at]
    if b'"author"' in text and b'"signature"' in text:
        return "message"
    return "notes" if text.startswith(b'{"@') else "packet"


def _shown(name: str, value: Any) -> object:
    """Notes by what they say."""
    if is_feed_id(name) and type(value) is int:
        try:
            return decode_note(value)
        except ValueError:
            return value
    return value


# What each side sends in the handshake: the names and sizes of its parts.
HANDSHAKE = {
    "client": (
        ("hello", (("network_tag", 32), ("ephemeral_key", 32))),
        ("proof", (("tag", 16), ("signature_and_key", 96))),
    ),
    "server": (
        ("hello", (("network_tag", 32), ("ephemeral_key", 32))),
        ("acceptance", (("tag", 16), ("signature", 64))),
    ),
}


def dissect_session(data: bytes, role: str, keys: Keys | None) -> Dissection:
    """One side's part of the handshake, then its boxes."""
    parts = HANDSHAKE[role]
    size = sum(part_size for _, inside in parts for _, part_size in inside)

    def take(reader: FieldReader) -> None:
        for name, inside in parts:
            with reader.group(name):
                for part, part_size in inside:
                    reader.raw(part, part_size)

    handshake = dissected(data[:size], take)
    return dissect_boxes(data, keys, handshake.fields, size) if len(data) > size else handshake


def dissect_boxes(
    data: bytes, keys: Keys | None, before: Sequence[Field] = (), start: int = 0
) -> Dissection:
    """One direction of a box stream, sealed with `keys`; without them, its bytes.

    before: of the bytes up to `start`.
    """
    rest = len(data) - start
    if keys is None:
        return Dissection((*before, *((Field("boxes", start, rest),) if rest else ())))
    stream = BoxStream(keys=SessionKeys(send=keys, receive=keys))
    stream.receive_data(data[start:])
    reader, plain, fault = FieldReader(data, start), bytearray(data), None
    while (event := stream.next_event()) is not None:
        match event:
            case DataReceived(data=body):
                with reader.group("box") as box:
                    box.tell(len(body))
                    _take_header(reader, len(body))
                    plain[reader.at : reader.at + len(body)] = body
                    reader.raw(_BODY, len(body))
            case Closed(error=None):
                with reader.group("GOODBYE"):
                    _take_header(reader, 0)
            case Closed(error=RemoteProtocolError() as error):
                fault = DissectionFault(reader.at, error.code.name, error.message)
    if reader.left:
        reader.add("box" if fault is None else UNREAD, reader.left)
    boxes = Dissection((*before, *reader.fields), fault)

    def split(_channel: bool, joined: bytes) -> Dissection:
        return dissected(joined, take_packet)

    def channel_of(field: Field) -> bool | None:
        return field.name == _BODY or None

    return carried(boxes, bytes(plain), channel_of=channel_of, split=split)


def _take_header(reader: FieldReader, size: int) -> None:
    reader.raw("header_tag", _TAG_SIZE)
    reader.add("body_size", 2, size)
    reader.raw("body_tag", _TAG_SIZE)

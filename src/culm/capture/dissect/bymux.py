"""Packets of bymux."""

from __future__ import annotations

from culm.bymux.errors import ErrorCode
from culm.bymux.packets import LAYOUTS, PacketType
from culm.capture.dissect.fields import FieldReader
from culm.machine import RemoteProtocolError

DATA = "data of stream "
"""The name of the data of a Write, before the number of its stream."""


def take_packet(reader: FieldReader) -> None:
    """Take a packet, with the data of a Write."""
    header = reader.data[reader.at]
    layout = LAYOUTS[header]
    if layout is None:
        raise RemoteProtocolError(ErrorCode.UNKNOWN_PACKET_TYPE, f"header {header:#04x}")
    kind, id_width, amount_width, _ = layout
    with reader.group(kind.name) as packet:
        reader.uint("header", 1, lambda _: kind)
        stream_id = None
        if id_width:
            stream_id = reader.uint("stream_id", id_width)
            packet.tell(stream_id)
        if not amount_width:
            return
        creates = kind is PacketType.WRITE and stream_id is None
        amount = reader.uint("stream_id" if creates else "amount", amount_width)
        if kind is PacketType.WRITE and not creates:
            reader.raw(f"{DATA}{stream_id}", amount)

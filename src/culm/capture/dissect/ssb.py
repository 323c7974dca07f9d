"""Scuttlebutt after the handshake: boxes, packets of muxrpc, and the messages and notes of EBT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from culm.buffer import ReceiveBuffer
from culm.capture.dissect.fields import UNREAD, DissectionFault, Field, FieldReader
from culm.capture.dissect.json_syntax import take_json
from culm.capture.dissect.layers import Carried, Item, Items, Layer, Opaque, cut
from culm.machine import Closed, DataReceived, RemoteProtocolError
from culm.ssb import Keys, SessionKeys
from culm.ssb.ebt.notes import decode_note
from culm.ssb.feed_id import is_feed_id
from culm.ssb.muxrpc import BodyType, Limits
from culm.ssb.muxrpc.calls import GOODBYE, HEADER_SIZE, peek_header

__all__ = ["HANDSHAKE", "Boxes", "Handshaken", "take_packet"]

_TAG_SIZE = 16
_JSON_SIZE_MAX = Limits().body_size_max  # a larger body is shown as it is
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
        if kind is BodyType.JSON and 0 < header.size <= _JSON_SIZE_MAX:
            with reader.within(header.size, alone=True):
                packet.call(_take_json_body(reader, header.size))
        elif kind is BodyType.TEXT:
            reader.add(_BODY, header.size, reader.peek(header.size).decode(errors="replace"))
        else:
            reader.raw(_BODY, header.size)


def _take_json_body(reader: FieldReader, size: int) -> str:
    """Take a body of JSON; its name."""
    if reader.left < size:
        reader.add(_BODY, size)
    start = reader.at
    take_json(reader, _BODY, _shown)
    text = reader.data[start : reader.at]
    if b'"author"' in text and b'"signature"' in text:
        return "message"
    return "notes" if text.startswith(b'{"@') else "packet"


def _shown(name: str, value: Any) -> object:
    """Notes by their meaning."""
    if is_feed_id(name) and type(value) is int:
        try:
            return decode_note(value)
        except ValueError:
            return value
    return value


# The messages of the handshake: the names and sizes of their parts.
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


KeysOf = Callable[[], Keys | None]
"""Asked for the keys of a direction when its first box has come: ``None`` while they are unknown.

Raises `LookupError` if they cannot be known.
"""


class Handshaken(Layer):
    """One side's part of the handshake, then its boxes."""

    def __init__(self, role: str, keys_of: KeysOf) -> None:
        super().__init__()
        parts = HANDSHAKE[role]
        self._left = self._size = sum(size for _, inside in parts for _, size in inside)

        def take(reader: FieldReader) -> None:
            for name, inside in parts:
                with reader.group(name):
                    for part, part_size in inside:
                        reader.raw(part, part_size)

        self._handshake = Items(take)
        self._boxes = Boxes(keys_of)

    @property
    def is_amid(self) -> bool:
        return self._handshake.is_amid or self._boxes.is_amid

    @property
    def waits(self) -> bool:
        return self._boxes.waits

    def feed(self, data: bytes) -> None:
        first, rest = data[: self._left], data[self._left :]
        self._left -= len(first)
        if first:
            self._handshake.feed(first)
        if rest:
            self._boxes.feed(rest)

    def force(self) -> None:
        self._handshake.force()
        self._boxes.force()

    def next_item(self) -> Item | None:
        if (item := self._handshake.next_item()) is not None:
            return item
        item = self._boxes.next_item()
        self._adopt(self._boxes, self._size)
        return None if item is None else replace(item, base=item.base + self._size)


class Boxes(Layer):
    """One direction of a box stream; without keys, its bytes."""

    def __init__(self, keys_of: KeysOf) -> None:
        super().__init__()
        self._keys_of = keys_of
        self._waiting = bytearray()
        self._layer: Layer | None = None

    @property
    def is_amid(self) -> bool:
        return bool(self._waiting) or (self._layer is not None and self._layer.is_amid)

    @property
    def waits(self) -> bool:
        return self._layer is None

    def feed(self, data: bytes) -> None:
        try:
            if self._layer is None and (keys := self._keys_of()) is not None:
                self._layer = Carried(
                    _Opened(keys),
                    channel_of=lambda field: field.name == _BODY or None,
                    upper=lambda _: Items(take_packet),
                )
        except LookupError:
            self._layer = Opaque("boxes")
        self._waiting += data
        if self._layer is not None:
            taken = bytes(self._waiting)
            self._waiting.clear()
            self._layer.feed(taken)

    def force(self) -> None:
        if self._layer is None:
            self._layer = Opaque("boxes")
            self.feed(b"")
        else:
            self._layer.force()

    def next_item(self) -> Item | None:
        if self._layer is None:
            return None
        item = self._layer.next_item()
        self._adopt(self._layer)
        return item


class _Opened(Layer):
    """Boxes, sealed with `keys`; their payload is the opened content."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        from culm.ssb import BoxStream  # muxrpc does without PyNaCl

        self._stream = BoxStream(keys=SessionKeys(send=keys, receive=keys))
        self._reader = FieldReader(b"")
        self._start = 0  # of the reader, in the stream
        self._broken = False
        self._forced = False

    @property
    def is_amid(self) -> bool:
        return bool(self._reader.left)

    def feed(self, data: bytes) -> None:
        if not self._broken:
            self._stream.receive_data(data)
        at = self._reader.at
        self._reader = FieldReader(self._reader.data[at:] + data)
        self._start += at

    def force(self) -> None:
        self._forced = True

    def next_item(self) -> Item | None:
        reader, start = self._reader, self._reader.at
        while (event := self._stream.next_event()) is not None:
            match event:
                case DataReceived(data=plain):
                    with reader.group("box") as box:
                        box.tell(len(plain))
                        _take_header(reader, len(plain))
                        reader.add(_BODY, len(plain))
                    return self._item(reader, start, plain)
                case Closed(error=None):
                    with reader.group("GOODBYE"):
                        _take_header(reader, 0)
                    return self._item(reader, start, b"")
                case Closed(error=RemoteProtocolError() as error):
                    fault = DissectionFault(self._start + start, error.code.name, error.message)
                    self.faults.append(fault)
                    self._broken = True
                case _:
                    pass
        if self._broken and reader.left:
            reader.add(UNREAD, reader.left)
            return self._item(reader, start, b"")
        forced, self._forced = self._forced, False
        if not (forced and reader.left):
            return None
        return Item(self._start + start, (Field("box", 0, reader.left, continues=True),))

    def _item(self, reader: FieldReader, start: int, plain: bytes) -> Item:
        fields = tuple(cut(reader.taken(), start, reader.at, 0))
        size = reader.at - start
        return Item(self._start + start, fields, bytes(size - len(plain)) + plain)


def _take_header(reader: FieldReader, size: int) -> None:
    reader.raw("header_tag", _TAG_SIZE)
    reader.add("body_size", 2, size)
    reader.raw("body_tag", _TAG_SIZE)

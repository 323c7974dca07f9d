"""Scuttlebutt after the handshake: boxes, packets of muxrpc, and the messages and notes of EBT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from culm.ssb.muxrpc import BodyType
from culm.ssb.muxrpc.calls import GOODBYE, HEADER_SIZE, peek_header

__all__ = ["HANDSHAKE", "Boxes", "Handshaken", "take_packet"]

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

    def feed(self, data: bytes) -> list[Item]:
        first, rest = data[: self._left], data[self._left :]
        self._left -= len(first)
        found = self._handshake.feed(first) if first else []
        return [*found, *self._after(self._boxes.feed(rest))] if rest else found

    def force(self) -> list[Item]:
        return [*self._handshake.force(), *self._after(self._boxes.force())]

    def _after(self, items: Sequence[Item]) -> list[Item]:
        size = self._size
        self.faults += [replace(each, offset=each.offset + size) for each in self._boxes.faults]
        self._boxes.faults.clear()
        return [replace(each, base=each.base + size) for each in items]


class Boxes(Layer):
    """One direction of a box stream; without keys, its bytes."""

    def __init__(self, keys_of: KeysOf) -> None:
        super().__init__()
        self._keys_of = keys_of
        self._waiting = b""
        self._layer: Layer | None = None

    @property
    def is_amid(self) -> bool:
        return bool(self._waiting) or (self._layer is not None and self._layer.is_amid)

    def feed(self, data: bytes) -> list[Item]:
        self._waiting += data
        try:
            if self._layer is None and (keys := self._keys_of()) is not None:
                self._layer = Carried(
                    _Opened(keys),
                    channel_of=lambda field: field.name == _BODY or None,
                    upper=lambda _: Items(take_packet),
                )
        except LookupError:
            self._layer = Opaque("boxes")
        if self._layer is None:
            return []
        taken, self._waiting = self._waiting, b""
        return self._told(self._layer, self._layer.feed(taken))

    def force(self) -> list[Item]:
        if self._layer is not None:
            return self._told(self._layer, self._layer.force())
        self._layer = Opaque("boxes")
        return self.feed(b"")

    def _told(self, layer: Layer, items: list[Item]) -> list[Item]:
        self.faults += layer.faults
        layer.faults.clear()
        return items


class _Opened(Layer):
    """Boxes, sealed with `keys`; their payload is the opened content."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        from culm.ssb import BoxStream  # muxrpc does without PyNaCl

        self._stream = BoxStream(keys=SessionKeys(send=keys, receive=keys))
        self._buffer = b""
        self._start = 0
        self._broken = False

    @property
    def is_amid(self) -> bool:
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[Item]:
        self._buffer += data
        if not self._broken:
            self._stream.receive_data(data)
        found = []
        reader = FieldReader(self._buffer)
        while (event := self._stream.next_event()) is not None:
            start, plain = reader.at, b""
            match event:
                case DataReceived(data=plain):
                    with reader.group("box") as box:
                        box.tell(len(plain))
                        _take_header(reader, len(plain))
                        reader.add(_BODY, len(plain))
                case Closed(error=None):
                    with reader.group("GOODBYE"):
                        _take_header(reader, 0)
                case Closed(error=RemoteProtocolError() as error):
                    fault = DissectionFault(self._start + reader.at, error.code.name, error.message)
                    self.faults.append(fault)
                    self._broken = True
                    continue
                case _:
                    continue
            found.append(self._item(reader, start, plain))
        if self._broken and reader.left:
            start = reader.at
            reader.add(UNREAD, reader.left)
            found.append(self._item(reader, start, b""))
        self._buffer = self._buffer[reader.at :]
        self._start += reader.at
        return found

    def force(self) -> list[Item]:
        if not self._buffer:
            return []
        return [Item(self._start, (Field("box", 0, len(self._buffer), continues=True),))]

    def _item(self, reader: FieldReader, start: int, plain: bytes) -> Item:
        fields = tuple(cut(reader.taken(), start, reader.at, 0))
        size = reader.at - start
        return Item(self._start + start, fields, bytes(size - len(plain)) + plain)


def _take_header(reader: FieldReader, size: int) -> None:
    reader.raw("header_tag", _TAG_SIZE)
    reader.add("body_size", 2, size)
    reader.raw("body_tag", _TAG_SIZE)

"""Garlic Farm: the heads of the handshake, then requests and responses with their log entries."""

from __future__ import annotations

from struct import Struct

from culm.capture.dissect.fields import FieldReader
from culm.garlic.limits import Limits
from culm.garlic.messages import (
    REQUEST_HEADER,
    REQUEST_HEADER_SIZE,
    RESPONSE_FRAME,
    RESPONSE_SIZE,
    MessageType,
    RequestFrame,
    ResponseFrame,
    is_request,
    message_type,
)
from culm.garlic.values import (
    ENTRY_HEADER,
    LogPack,
    SnapshotSyncRequest,
    ValueType,
    decode_configuration,
    decode_server,
)

_LIMITS = Limits()
_LINE_END = b"\r\n"
_HEADS = (b"GET ", b"HTTP/")
REQUEST = (
    *("type", "source", "destination", "term", "last_log_term"),
    *("last_log_index", "commit_index", "log_size"),
)
RESPONSE = ("type", "source", "destination", "term", "next_index", "accepted")
ENTRY = ("term", "type", "size")
# The numbers in values of entries.
VALUES: dict[str, tuple[Struct, tuple[str, ...]]] = {
    "removed": (Struct(">I"), ("server_id",)),
    "server": (Struct(">II"), ("server_id", "endpoint_size")),
    "configuration": (Struct(">QQ"), ("log_index", "last_log_index")),
    "snapshot": (Struct(">QQI"), ("last_log_index", "last_log_term", "configuration_size")),
    "chunk": (Struct(">QI"), ("offset", "data_size")),
}


def take_frame(reader: FieldReader) -> None:
    """Take a head of the handshake, a request or a response."""
    if any(reader.peek(len(head)) == head[: reader.left] for head in _HEADS):
        _take_head(reader)
        return
    kind = message_type(reader.data[reader.at])
    if is_request(kind):
        _take_request(reader, kind)
        return
    with reader.group(kind.name), reader.judged(_decode_response):
        reader.struct(RESPONSE_FRAME, RESPONSE)


def _decode_response(data: bytes, at: int) -> object:
    found = data[at : at + RESPONSE_SIZE]
    return ResponseFrame.decode(found, _LIMITS) if len(found) == RESPONSE_SIZE else None


def _take_head(reader: FieldReader) -> None:
    with reader.group("head") as head:
        name = "first line"
        while True:
            end = reader.data.find(_LINE_END, reader.at, reader.end)
            size = (end - reader.at if end >= 0 else reader.left) + len(_LINE_END)
            line = reader.peek(size).removesuffix(_LINE_END).decode("latin-1")
            field, colon, value = line.partition(":")
            if name:
                head.tell(line)
                reader.add(name, size, line)
            elif line:
                reader.add(field if colon else "line", size, value.strip() if colon else line)
            else:
                reader.add("end of the head", size)
                return
            name = ""


def _take_request(reader: FieldReader, kind: MessageType) -> None:
    def decode(data: bytes, at: int) -> object:
        header = data[at : at + REQUEST_HEADER_SIZE]
        if len(header) < REQUEST_HEADER_SIZE:
            return None
        size = RequestFrame.log_size(header, _LIMITS)
        return RequestFrame.decode(header, data[at + len(header) :][:size], _LIMITS)

    with reader.group(kind.name) as request, reader.judged(decode):
        header = reader.peek(REQUEST_HEADER_SIZE)
        request.tell(reader.struct(REQUEST_HEADER, REQUEST)[3])
        with reader.within(RequestFrame.log_size(header, _LIMITS)):
            while reader.left:
                _take_entry(reader, kind)


def _take_entry(reader: FieldReader, kind: MessageType) -> None:
    with reader.group("entry") as entry:
        term, number, size = reader.struct(ENTRY_HEADER, ENTRY)
        entry.tell(f"term {term}")
        try:
            entry.call(ValueType(number).name)
        except ValueError:
            reader.raw("value", size)
            return
        with reader.within(size, alone=True):
            _take_value(reader, ValueType(number), kind)


def _take_value(reader: FieldReader, kind: ValueType, message: MessageType) -> None:
    match kind:
        case ValueType.CONFIGURATION:
            _take_configuration(reader)
        case ValueType.CLUSTER_SERVER if message is MessageType.REMOVE_SERVER_REQUEST:
            reader.struct(*VALUES["removed"])
        case ValueType.CLUSTER_SERVER:
            with reader.judged(lambda data, at: decode_server(data[at : reader.end], _LIMITS)):
                _take_server(reader)
        case ValueType.LOG_PACK:
            pack = LogPack.decode(reader.peek(reader.left), _LIMITS)
            reader.add("packed entries", reader.left, f"{len(pack.entries)} entries")
        case ValueType.SNAPSHOT_SYNC_REQUEST:
            _take_chunk(reader)
        case ValueType.APPLICATION:
            reader.raw("value", reader.left)


def _take_server(reader: FieldReader) -> None:
    with reader.group("server") as server:
        server_id, size = reader.struct(*VALUES["server"])
        server.tell(server_id)
        endpoint = reader.peek(size).decode("ascii", "replace")
        reader.add("endpoint", size, endpoint)


def _take_configuration(reader: FieldReader) -> None:
    with reader.judged(lambda data, at: decode_configuration(data[at : reader.end], _LIMITS)):
        reader.struct(*VALUES["configuration"])
        while reader.left:
            _take_server(reader)


def _take_chunk(reader: FieldReader) -> None:
    def decode(data: bytes, at: int) -> object:
        return SnapshotSyncRequest.decode(data[at : reader.end], _LIMITS)

    with reader.judged(decode):
        *_, size = reader.struct(*VALUES["snapshot"])
        with reader.group("configuration"), reader.within(size):
            _take_configuration(reader)
        _, data_size = reader.struct(*VALUES["chunk"])
        reader.raw("data", data_size)
        reader.uint("done", 1, bool)

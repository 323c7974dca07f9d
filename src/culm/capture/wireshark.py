"""Dissectors for Wireshark, in Lua: its readers, and in front of them the codecs' own tables.

The readers follow `culm.capture.dissect`; numbers, names, flags and layouts are in neither, but
in the tables of the codecs, which are written out as Lua here.
"""

from __future__ import annotations

from importlib.resources import files
from struct import Struct
from typing import Any

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE
from culm.bymux.packets import LAYOUTS, PacketType
from culm.capture.dissect import garlic, p2panda, point2point, ssb
from culm.capture.dissect.fields import CODES
from culm.garlic.messages import REQUEST_HEADER, RESPONSE_FRAME, MessageType, is_request
from culm.garlic.values import ENTRY_HEADER, ValueType
from culm.oxen.seal import NONCE
from culm.p2panda.operation import Action
from culm.point2point import codec
from culm.point2point.messages import CancelReason
from culm.ssb.muxrpc import BodyType
from culm.ssb.muxrpc.calls import GOODBYE, flags_of
from culm.wire.multihash import FAMILIES
from culm.wire.varu64 import FIRST_LONG

_PARTS = ("reader.lua", "protocols.lua", "driver.lua")


def dissectors() -> str:
    """One file for Wireshark's folder of plugins: a protocol for each of culm's."""
    folder = files("culm.capture").joinpath("lua")
    parts = (folder.joinpath(name).read_text(encoding="utf-8") for name in _PARTS)
    return "\n".join([f"local TABLES = {_lua(_tables())}", *parts])


def _tables() -> dict[str, Any]:
    return {
        "author_size": AUTHOR_SIZE,
        "signature_size": SIGNATURE_SIZE,
        "varu64_first": FIRST_LONG,
        "families": {
            name: {"prefix": family.prefix, "size": family.encoded_size}
            for name, family in FAMILIES.items()
        },
        "bymux": _bymux(),
        "point2point": _point2point(),
        "garlic": _garlic(),
        "oxen": {"nonce": [{"name": name, "size": size} for name, size in NONCE]},
        "p2panda": {
            "messages": {
                kind.value: {"name": kind.name, "items": ["type", *names]}
                for kind, names in p2panda.NAMES.items()
            },
            "actions": {
                each.value: {"name": each.name, "items": p2panda.items_of(each)} for each in Action
            },
        },
        "muxrpc": {
            "goodbye": GOODBYE,
            "flags": {flags: " ".join(words) for flags, words in _flags().items()},
            "handshake": {
                role: [
                    {"name": name, "parts": [{"name": part, "size": size} for part, size in parts]}
                    for name, parts in steps
                ]
                for role, steps in ssb.HANDSHAKE.items()
            },
        },
        "fields": {
            name: [{"name": each, "kind": _kind(name, each)} for each in fields]
            for name, fields in _FIELDS.items()
        },
    }


def _bymux() -> dict[str, Any]:
    known = {header: layout for header, layout in enumerate(LAYOUTS) if layout is not None}
    return {
        "layouts": {
            header: {
                "kind": layout.type.name,
                "id": layout.id_width,
                "amount": layout.amount_width,
                "writes": layout.type is PacketType.WRITE,
            }
            for header, layout in known.items()
        }
    }


def _point2point() -> dict[str, Any]:
    return {
        "eagerness": codec.EAGERNESS,
        "eagerness_up_to": codec.EAGERNESS_UP_TO,
        "request_finite": codec.REQUEST_FINITE,
        "request_offset": codec.REQUEST_OFFSET,
        "adjust_numbers": [{"flag": flag, "name": name} for flag, name in codec.ADJUST_NUMBERS],
        "reasons": _names(CancelReason),
        "packets": _names(codec.PacketType),
        "numbers": {kind.name: list(names) for kind, names in point2point.NAMES.items()},
        "payloads": {kind.name: name for kind, name in point2point.PAYLOADS.items()},
        "metadata": {
            kind.name: True for kind in codec.PacketType if kind.value not in codec.NUMBERS
        },
    }


def _garlic() -> dict[str, Any]:
    return {
        "types": _names(MessageType),
        "requests": {kind.value: True for kind in MessageType if is_request(kind)},
        "values": _names(ValueType),
        "request": _layout(REQUEST_HEADER, garlic.REQUEST),
        "response": _layout(RESPONSE_FRAME, garlic.RESPONSE),
        "entry": _layout(ENTRY_HEADER, garlic.ENTRY),
        **{name: _layout(*layout) for name, layout in garlic.VALUES.items()},
    }


def _names(kinds: Any) -> dict[int, str]:
    return {kind.value: kind.name for kind in kinds}


def _layout(layout: Struct, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"name": name, "size": CODES[code], "signed": code.islower()}
        for code, name in zip(layout.format[1:], names, strict=True)
    ]


def _flags() -> dict[int, list[str]]:
    """The meanings of each byte of flags; those of an unknown type have none."""
    found: dict[int, list[str]] = {}
    for flags in range(256):
        stream, end, kind = flags_of(flags)
        names = [name for name, given in (("stream", stream), ("end", end)) if given]
        if kind in set(BodyType):
            found[flags] = [*names, BodyType(kind).name]
    return found


# Names of fields by which Wireshark may be told to filter; those of a user's own keys are others.
_ENTRY = [
    *("tag", "author", "log_id", "seqnum", "lipmaalink", "backlink"),
    *("payload_size", "payload_hash", "signature"),
]
_BYMUX = ["header", "stream_id", "amount"]
_FIELDS = {
    "bymux": _BYMUX,
    "point2point": [
        *_BYMUX,
        *("flags", "type", "reason", "send_window_max", "receive_window_max"),
        *("request_id", "start", "end", "lower_certpool", "upper_certpool", "start_offset"),
        *("size_min", "size_max", "expected_hash", "payload_size_max"),
        *("count", "size", "packed_size", *point2point.PAYLOADS.values()),
        *_ENTRY,
    ],
    "garlic": list(
        dict.fromkeys(
            [
                *("first line", "endpoint", "value", "packed entries", "data", "done"),
                *(name for names in garlic.VALUES.values() for name in names[1]),
                *(*garlic.REQUEST, *garlic.RESPONSE, *garlic.ENTRY),
            ]
        )
    ),
    "oxen": [*(name for name, _ in NONCE), "box"],
    "p2panda": list(
        dict.fromkeys(
            [
                "type",
                *(name for names in p2panda.NAMES.values() for name in names),
                *(name for action in Action for name in p2panda.items_of(action)),
                *_ENTRY,
            ]
        )
    ),
    "muxrpc": ["flags", "body_size", "request", "body"],
    "ssb_handshake": sorted(
        {
            *(part for steps in ssb.HANDSHAKE.values() for _, parts in steps for part, _ in parts),
            "boxes",
        }
    ),
}


# Those that are no numbers, though they have a name; of p2panda's only those of entries are sure.
_OTHERS = frozenset(
    {
        *("author", "lipmaalink", "backlink", "payload_hash", "signature", "expected_hash"),
        *("first line", "endpoint", "value", "packed entries", "data", "box", "body", "salt"),
        *point2point.PAYLOADS.values(),
    }
)


def _kind(protocol: str, name: str) -> str:
    if protocol == "ssb_handshake" or name in _OTHERS:
        return "string"
    if protocol == "p2panda" and name not in _ENTRY:
        return "string"
    return "int32" if (protocol, name) == ("muxrpc", "request") else "uint64"


def _lua(value: Any, depth: int = 1) -> str:
    """A value as Lua."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _lua(value.encode())
        case bytes():
            return '"' + "".join(map(_character, value)) + '"'
        case list():
            return _table([_lua(each, depth + 1) for each in value], depth)
        case dict():
            parts = (f"[{_lua(key)}] = {_lua(each, depth + 1)}" for key, each in value.items())
            return _table(list(parts), depth)
    raise TypeError(type(value).__name__)


def _character(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03}"


def _table(parts: list[str], depth: int) -> str:
    if depth > _LINES_DEPTH:
        return "{ " + ", ".join(parts) + " }"
    indent = "  " * depth
    return "{\n" + "".join(f"{indent}{each},\n" for each in parts) + indent[2:] + "}"


_LINES_DEPTH = 3

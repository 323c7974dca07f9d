"""The free contents of the frames of Garlic Farm, and of the head of a handshake."""

from __future__ import annotations

from collections.abc import Mapping

from culm.garlic.messages import MessageType, RequestFrame
from culm.garlic.raft import Configuration
from culm.garlic.values import LogEntry, ValueType, encode_configuration, encode_entries
from culm.machines.garlic_node import server
from culm.testing.contents import Content
from culm.testing.spec import Frame

__all__ = ["HEADS", "entries_frame"]


def _repeated(unit: bytes, before: bytes = b"", after: bytes = b"") -> Content:
    return lambda size: before + unit * (size // len(unit)) + after


def _numbered(unit: bytes) -> Content:
    return lambda size: b"".join(unit % number for number in range(size // len(unit % 1000)))


_PARAMETERS: Mapping[str, Content] = {
    "flat text": _repeated(b"x", b"username="),
    "quoted text": _repeated(b"x", b'username="', b'"'),
    "escaped quotes": _repeated(b'\\"', b'username="', b'"'),
    "a quote that stays open": _repeated(b"x", b'username="'),
    "quotes": _repeated(b'""'),
    "empty texts": _repeated(b'a="",'),
    "parameters": _repeated(b"a=b,"),
    "numbered parameters": _numbered(b"a%04d=b,"),
    "commas": _repeated(b","),
    "spaces": _repeated(b" ", b"a", b"b"),
    "words": _repeated(b"a "),
    "challenges": _repeated(b"Digest a=b, "),
    "no ASCII": _repeated(b"\xff", b'username="', b'"'),
}

_HEADERS: Mapping[str, Content] = {
    "flat text": _repeated(b"x", b"A: ", b"\r\n"),
    "short headers": _repeated(b"a: b\r\n"),
    "numbered headers": _numbered(b"a%04d: b\r\n"),
    "empty headers": _repeated(b"a:\r\n"),
    "spaces": _repeated(b" ", b"A: b", b"c\r\n"),
    "extensions": _repeated(b"a,", b"Culm-Extensions: ", b"\r\n"),
    "connections": _repeated(b"a,", b"Connection: ", b"\r\n"),
}


def _head_frames(
    first_line: bytes, parameters: bytes, config: dict[str, object]
) -> tuple[Frame, ...]:
    """Heads that begin with `first_line`; `parameters` is the header that takes parameters."""
    begin = first_line + b"\r\nHost: a\r\n"
    return (
        Frame(
            name=f"parameters in {parameters.decode()}",
            wrap=lambda content: begin + parameters + b": Digest " + content + b"\r\n\r\n",
            contents=_PARAMETERS,
            size=12_000,
            config=config,
        ),
        Frame(
            name=f"headers after {first_line.decode()}",
            wrap=lambda content: begin + content + b"\r\n",
            contents=_HEADERS,
            size=12_000,
            config=config,
        ),
    )


HEADS = (
    *_head_frames(b"GET /GarlicFarm/farm/1/websocket HTTP/1.1", b"Authorization", {}),
    *_head_frames(b"HTTP/1.1 401 Unauthorized", b"WWW-Authenticate", {"role": "client"}),
)


def _entries(kind: ValueType, value: bytes) -> Content:
    entry = encode_entries((LogEntry(1, kind, value),))
    return lambda size: entry * (size // len(entry))


def _configuration(servers: int) -> Content:
    members = tuple(server(number) for number in range(1, servers + 1))
    value = encode_configuration(Configuration(1, 0, members))
    return _entries(ValueType.CONFIGURATION, value)


_ENTRIES: Mapping[str, Content] = {
    "flat value": lambda size: encode_entries((LogEntry(1, ValueType.APPLICATION, b"x" * size),)),
    "empty values": _entries(ValueType.APPLICATION, b""),
    "short values": _entries(ValueType.APPLICATION, b"x"),
    "empty configurations": _configuration(0),
    "configurations": _configuration(1),
    "a large configuration": _configuration(500),
}


def entries_frame(after: str, link: int) -> Frame:
    """Entries from a leader, on a link that `after` has opened."""
    return Frame(
        name="entries",
        wrap=lambda content: RequestFrame(
            type=MessageType.APPEND_ENTRIES_REQUEST, source=2, destination=1, term=1, log=content
        ).encode(),
        contents=_ENTRIES,
        after=after,
        link=link,
    )

"""The server's end of a WebSocket as the line driver and the property suite know it.

There is no machine of the client's end, so its conversations are made of bytes, most of them those
of RFC 6455 (1.3, 5.7).
"""

from __future__ import annotations

from culm.machines import Config, MachineType, Receive, call, keys_of
from culm.machines.encodings import BIG_ENDIAN
from culm.machines.machine_type import Codec
from culm.machines.messages import measured
from culm.testing.spec import (
    Attacks,
    Bounds,
    Conversation,
    Flood,
    Frame,
    MachineSpec,
    Usage,
    Work,
)
from foreign.websockets.connection import Connection, Limits

__all__ = ["HANDSHAKE", "SPEC", "WEBSOCKET"]

HANDSHAKE = (
    b"GET /chat HTTP/1.1\r\n"
    b"Host: server.example.com\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)
_HELLO = bytes.fromhex("818537fa213d7f9f4d5158")
_HEL, _LO = bytes.fromhex("018337fa213d7f9f4d"), bytes.fromhex("808237fa213d5b95")
_PING = bytes.fromhex("898537fa213d7f9f4d5158")
_BYE = bytes.fromhex("88820000000003e8")


def _build(config: Config) -> Connection:
    return Connection(limits=Limits(**config))


def _size(data: bytes) -> int | None:
    if data.startswith(b"GET "):
        return data.find(b"\r\n\r\n") + 4 or None
    if len(data) < 4:
        return None
    return 6 + (data[1] & 0x7F) if data[1] & 0x7F < 126 else 8 + int.from_bytes(data[2:4], "big")


def _text(content: bytes) -> bytes:
    return b"\x81\xfe" + len(content).to_bytes(2, "big") + bytes(4) + content


WEBSOCKET = MachineType(
    name="websocket-server",
    build=_build,
    keys=keys_of(Limits),
    codec=Codec(messages=measured(_size), encodings=BIG_ENDIAN),
)

SPEC = MachineSpec(
    machine=WEBSOCKET,
    usage=Usage(
        conversations=lambda spec: [
            Conversation(
                name="the client says goodbye",
                operations=[
                    Receive(HANDSHAKE + _HELLO),
                    call("send", data="Hello"),
                    Receive(_HEL + _PING + _LO),
                    call("send", data=b"\x00\xff"),
                    Receive(_text(b"x" * 300)),
                    Receive(_BYE + b"what follows"),
                ],
            ),
            Conversation(
                name="we say goodbye",
                operations=[Receive(HANDSHAKE), call("close"), Receive(_HELLO + _BYE)],
            ),
        ],
        bad_calls=[call("send", data="too early, too late")],
    ),
    attacks=Attacks(
        floods=[
            Flood(unit=b"X-More: yes\r\n", opening=HANDSHAKE[:-2]),
            Flood(unit=_PING, opening=HANDSHAKE),
            Flood(unit=bytes.fromhex("008100000000") + b"x", opening=HANDSHAKE + _HEL),
            Flood(unit=bytes.fromhex("008000000000"), opening=HANDSHAKE + _HEL),
        ],
        frames=[
            Frame(
                name="a text",
                wrap=lambda content: HANDSHAKE + _text(content),
                contents={
                    "flat": lambda size: b"x" * size,
                    "umlauts": lambda size: "ü".encode() * (size // 2),
                },
            )
        ],
    ),
    bounds=Bounds(
        retained_max=32_000,
        tight={"head_max": 256, "message_max": 512, "pongs_max": 128},
        work=Work(base=3000, per_byte=100),
    ),
)

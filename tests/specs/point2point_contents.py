"""The free contents of bymux and Point-2-Point: packets, messages, payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count, takewhile

from culm.bymux.packets import PacketType, encode
from culm.machines.point2point import LOG_KEY, written
from culm.point2point import Proposal
from culm.point2point.codec import encode_control
from culm.point2point.messages import Adjust, Cancel, CancelReason, GrantCredit, Propose
from culm.testing.contents import Content
from culm.testing.spec import Frame
from culm.wire import varu64

__all__ = ["PACKETS", "WRITES"]


def _repeated(unit: bytes) -> Content:
    return lambda size: unit * (size // len(unit))


def _numbered(unit: Callable[[int], bytes]) -> Content:
    def content(size: int) -> bytes:
        units = map(unit, takewhile(lambda number: number * len(unit(0)) < size, count()))
        return b"".join(units)

    return content


def _write(data: bytes) -> bytes:
    return encode(PacketType.WRITE, 0, len(data)) + data


_ALL_WIDE = b"\x0f"  # a credit whose two numbers each take eight bytes

_PACKETS: Mapping[str, Content] = {
    "Writes of a byte": _repeated(_write(b"x")),
    "one Write": lambda size: _write(bytes(size)),
    "empty Writes": _repeated(_write(b"")),
    "Pings": _repeated(encode(PacketType.PING, None)),
    "Pongs": _repeated(encode(PacketType.PONG, None)),
    "Pings of a stream": _repeated(encode(PacketType.PING, 0)),
    "credit": _repeated(encode(PacketType.CREDIT, 2, 1)),
    "no credit": _repeated(encode(PacketType.CREDIT, 2, 0)),
    "credit in wide numbers": _repeated(_ALL_WIDE + bytes(7) + b"\x02" + bytes(7) + b"\x01"),
    "credit for creations": _repeated(encode(PacketType.CREDIT, None, 1)),
    "created streams": _numbered(lambda n: encode(PacketType.WRITE, None, 2 * n + 1)),
    "an unknown type": _repeated(b"\xe0"),
}

PACKETS = Frame(
    name="packets of bymux",
    wrap=bytes,
    contents=_PACKETS,
    size=4096,
    config={
        "streams": {"0": ["infinite", "infinite"], "2": [40, 40]},
        "remote_creation_credit": 1 << 32,
        "remote_creator_credit": "infinite",
    },
)


def _proposal(number: int) -> bytes:
    proposal = Proposal(log=LOG_KEY, start=1, lower_certpool=1, expected_hash=None)
    return encode_control(Propose(request_id=2 * number + 1, proposal=proposal))


def _ended(number: int) -> bytes:
    reason = CancelReason.DO_NOT_RETRY
    return _proposal(number) + encode_control(Cancel(request_id=2 * number + 1, reason=reason))


_FAR = 1 << 40


def _shortened(number: int) -> bytes:
    end = _FAR - number
    return encode_control(
        Adjust(request_id=0, end=end, upper_certpool=end, size_max=end, allow_skipping=True)
    )


_MESSAGES: Mapping[str, Content] = {
    "credit": _repeated(encode_control(GrantCredit(amount=1))),
    "no credit": _repeated(encode_control(GrantCredit(amount=0))),
    "credit in wide numbers": _repeated(encode_control(GrantCredit(amount=_FAR))),
    "adjustments": _repeated(encode_control(Adjust(request_id=0, allow_skipping=True))),
    "earlier and earlier ends": _numbered(_shortened),
    "proposals": _numbered(_proposal),
    "proposals that are given up": _numbered(_ended),
}


def _payload(element: bytes, makes: int) -> Content:
    """A compressed packet of these elements, each decoded to `makes` bytes, between two bytes.

    The first is there for copies, the last since a packet must end with the source of its last
    byte.
    """

    def content(size: int) -> bytes:
        elements_count = size // len(element)
        elements = b"\x01x" + element * elements_count + b"\x01y"
        sizes = varu64.encode_many((2 + makes * elements_count, len(elements)))
        return b"\x09" + sizes + elements

    return content


_LITERAL = b"\x7a"  # with a length of three bytes

_DATA: Mapping[str, Content] = {
    "a raw payload": lambda size: b"\x08" + varu64.encode(size) + bytes(size),
    "a literal": lambda size: _payload(_LITERAL + size.to_bytes(3, "big") + bytes(size), size)(
        size + 4
    ),
    "literals of a byte": _payload(b"\x01x", 1),
    "literals of none": _payload(b"\x00", 0),
    "copies of a byte": _payload(b"\x81\x01", 1),
    "copies of none": _payload(b"\x80\x01", 0),
    "copies in wide numbers": _payload(b"\xff" + (1).to_bytes(8, "big") + b"\x01", 1),
    "copies that overlap": _payload(b"\x88\x01", 8),
}


def _on(stream_id: int, name: str, contents: Mapping[str, Content]) -> Frame:
    return Frame(
        name=name,
        wrap=lambda content: written(stream_id, content),
        contents=contents,
        size=4096,
        after="an endless payload/left",
    )


WRITES = (_on(0, "messages", _MESSAGES), _on(1, "a payload", _DATA))

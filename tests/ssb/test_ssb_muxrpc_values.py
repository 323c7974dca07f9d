"""Values taken one by one are the same as in events."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from culm.ssb.muxrpc import BodyType, CallType, Connection, Limits, Manifest, ValueReceived
from culm.ssb.muxrpc.calls import GOODBYE, encode_header

OFFERS = Manifest({"put": CallType.SINK, "talk": CallType.DUPLEX})
REQUESTS = (
    b'{"name":["put"],"args":[],"type":"sink"}',
    b'{"name":["talk"],"args":[],"type":"duplex"}',
)
LIMITS = Limits(body_size_max=60, control_size_max=60)


def packet(number: int, body: bytes, flags: int) -> bytes:
    header = encode_header(number, len(body), BodyType.BINARY, stream=False)
    return bytes([flags]) + header[1:] + body


VALUE = packet(1, b"[1]", 10)
PACKETS = [
    VALUE,
    packet(1, b"bytes", 8),
    packet(1, b"", 9),
    packet(2, b"of another stream", 10),
    packet(1, b"true", 14),
    packet(2, b"true", 14),
    packet(1, bytes(61), 8),  # too large
    packet(1, b"of no type", 11),
    packet(1, b"no stream", 2),
    packet(1, b"an unused flag", 26),
    packet(0, b"to nobody", 10),
    packet(-1, b"of no call of ours", 10),
    packet(3, REQUESTS[0], 10),
    VALUE[:11],
    GOODBYE,
]


def server() -> Connection:
    """A machine on which the peer has opened two streams; it may send in both."""
    machine = Connection(manifest=OFFERS, limits=LIMITS)
    for number, request in enumerate(REQUESTS, 1):
        machine.receive_data(packet(number, request, 10))
        assert machine.next_event() is not None
    return machine


def told(data: bytes, cut: int, *, takes: bool, ends: int) -> tuple[list[Any], bytes]:
    """The events and the answers if we end stream 1 after `ends` values."""
    machine, happened, values = server(), [], 0
    for piece in (data[:cut], data[cut:]):
        machine.receive_data(piece)
        while (event := machine.next_event()) is not None:
            happened.append(event)
            while isinstance(event, ValueReceived):
                values += 1
                if values == ends and -1 in machine.calls:
                    machine.call(-1).end()
                taken = machine.take_value(event.number) if takes else None
                if taken is None:
                    break
                event = ValueReceived(number=event.number, body=taken[0], type=taken[1])
                happened.append(event)
    assert machine.take_value(-1) is None
    return happened, machine.data_to_send()


@pytest.mark.parametrize("ends", [1, 2, 9])
def test_what_is_taken_is_what_events_tell(ends: int) -> None:
    rng = Random(ends)
    for second, third in product(PACKETS, repeat=2):
        data = VALUE + second + third
        cut = rng.randint(0, len(data))
        taken, answered = told(data, cut, takes=True, ends=ends)
        assert (taken, answered) == told(data, cut, takes=False, ends=ends)


def test_values_are_taken_until_something_else_comes() -> None:
    machine = server()
    machine.receive_data(packet(1, b"one", 10) + packet(1, b"two", 9) + packet(2, b"three", 10))
    assert machine.next_event() == ValueReceived(number=-1, body=b"one")
    assert machine.take_value(-2) is None
    assert machine.take_value(-1) == (b"two", BodyType.TEXT)
    assert machine.take_value(-1) is None
    assert machine.next_event() == ValueReceived(number=-2, body=b"three")


def test_nothing_is_taken_once_we_have_said_goodbye() -> None:
    machine = server()
    machine.receive_data(packet(1, b"one", 10))
    machine.close()
    assert machine.take_value(-1) is None

"""Shared by the tests of bymux: packets written by hand, and driving a machine.

`packet` is an encoder of its own, straight from the table of the spec, so that the tests do not
rely on the code under test for the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from culm.bymux import (
    INFINITE,
    Closed,
    Connection,
    ErrorCode,
    InitialState,
    InitialStream,
    Limits,
    Role,
)
from culm.machine import Event, LocalProtocolError

CREDIT, WRITE, PING, PONG, CLOSE, STOP_READ = range(6)
NAMES = ("CREDIT", "WRITE", "PING", "PONG", "CLOSE", "STOP_READ")


def _field(value: int, width: int | None) -> tuple[int, bytes]:
    for bits in range(4):
        size = 2**bits
        if (width is None and value < 256**size) or width == size:
            return bits, value.to_bytes(size, "big")
    raise ValueError(width)


def packet(
    kind: int,
    stream_id: int | None = None,
    amount: int | None = None,
    data: bytes = b"",
    *,
    id_width: int | None = None,
    amount_width: int | None = None,
) -> bytes:
    """A packet with ints of the given widths (bytes), otherwise of the smallest."""
    header, body = kind << 5, b""
    if stream_id is None:
        header |= 0b10000
    else:
        bits, body = _field(stream_id, id_width)
        header |= bits << 2
    if amount is not None:
        bits, encoded = _field(amount, amount_width)
        header |= bits
        body += encoded
    return bytes([header]) + body + data


def credit(stream_id: int | None, amount: int) -> bytes:
    return packet(CREDIT, stream_id, amount)


def write(stream_id: int, data: bytes) -> bytes:
    return packet(WRITE, stream_id, len(data), data)


def create(stream_id: int) -> bytes:
    return packet(WRITE, None, stream_id)


def ping(stream_id: int | None = None) -> bytes:
    return packet(PING, stream_id)


def pong(stream_id: int | None = None) -> bytes:
    return packet(PONG, stream_id)


def close(stream_id: int | None = None) -> bytes:
    return packet(CLOSE, stream_id)


def stop_read(stream_id: int | None = None) -> bytes:
    return packet(STOP_READ, stream_id)


def split(data: bytes) -> list[bytes]:
    """Cut a valid run of whole packets into single packets (a Write with its data)."""
    packets = []
    while data:
        header = data[0]
        kind, is_global = header >> 5, header >> 4 & 1
        size = 1 if is_global else 1 + (1 << (header >> 2 & 3))
        if kind in {CREDIT, WRITE}:
            start, size = size, size + (1 << (header & 3))
            if kind == WRITE and not is_global:
                size += int.from_bytes(data[start:size], "big")
        assert len(data) >= size, "cut short"
        packets.append(data[:size])
        data = data[size:]
    return packets


def connect(
    streams: dict[int, tuple[int, int]] | None = None,
    *,
    role: Role = Role.PROACTIVE,
    limits: Limits | None = None,
    as_it_comes: bool = False,
    **initial: Any,
) -> Connection:
    """A connection with streams of (send credit, receive credit)."""
    state = InitialState(
        streams={
            stream_id: InitialStream(send_credit=send, receive_credit=receive)
            for stream_id, (send, receive) in (streams or {}).items()
        },
        **initial,
    )
    return Connection(role=role, initial=state, limits=limits or Limits(), as_it_comes=as_it_comes)


FREE = (INFINITE, INFINITE)
"""Credit of a stream without backpressure."""


def events(connection: Connection) -> list[Event]:
    found = []
    while (event := connection.next_event()) is not None:
        found.append(event)
    return found


def feed(connection: Connection, *packets: bytes) -> list[Event]:
    if packets:
        connection.receive_data(b"".join(packets))
    return events(connection)


def failure(connection: Connection, *packets: bytes) -> ErrorCode | None:
    """Feed packets; the error code of the last event, if it has one."""
    found = feed(connection, *packets)
    last = found[-1] if found else None
    if isinstance(last, Closed) and last.error is not None:
        assert isinstance(last.error.code, ErrorCode)
        return last.error.code
    return None


def refusal(call: Callable[..., object], *args: object) -> ErrorCode:
    """The code of the `LocalProtocolError` that the call raises."""
    with pytest.raises(LocalProtocolError) as caught:
        call(*args)
    assert isinstance(caught.value.code, ErrorCode)
    return caught.value.code

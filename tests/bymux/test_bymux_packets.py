"""The encoding of packets."""

from __future__ import annotations

import pytest
from bymux_support import packet
from hypothesis import given
from hypothesis import strategies as st

from culm.buffer import ReceiveBuffer
from culm.bymux import ErrorCode
from culm.bymux.packets import HEADER_SIZE_MAX, Packet, PacketType, encode, take_packet
from culm.machine import RemoteProtocolError

WIDTHS = (1, 2, 4, 8)
WITH_AMOUNT = {PacketType.CREDIT, PacketType.WRITE}

uint64s = st.one_of(
    st.integers(0, 300), st.integers(0, 2**64 - 1), st.sampled_from([2**16, 2**32, 2**64 - 1])
)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    packet_type = draw(st.sampled_from(PacketType))
    stream_id = draw(st.none() | uint64s)
    return Packet(packet_type, stream_id, draw(uint64s) if packet_type in WITH_AMOUNT else None)


def inbox_of(data: bytes) -> ReceiveBuffer:
    inbox = ReceiveBuffer()
    inbox.append(data)
    return inbox


@given(packets())
def test_round_trip(original: Packet) -> None:
    inbox = inbox_of(encode(*original) + b"rest")
    assert take_packet(inbox) == original
    assert inbox.take(100) == b"rest"


@given(packets())
def test_every_prefix_is_incomplete_and_nothing_is_taken_of_it(original: Packet) -> None:
    data = encode(*original)
    for size in range(len(data)):
        inbox = inbox_of(data[:size])
        assert take_packet(inbox) is None
        assert len(inbox) == size


@given(packets())
def test_ints_are_emitted_in_the_smallest_width(original: Packet) -> None:
    assert encode(*original) == packet(*original)


@given(packets(), st.sampled_from(WIDTHS), st.sampled_from(WIDTHS))
def test_ints_of_any_width_are_accepted(original: Packet, id_width: int, amount_width: int) -> None:
    _, stream_id, amount = original
    if stream_id is not None and stream_id >= 256**id_width:
        id_width = 8
    if amount is not None and amount >= 256**amount_width:
        amount_width = 8
    data = packet(*original, id_width=id_width, amount_width=amount_width)
    assert take_packet(inbox_of(data)) == original


@pytest.mark.parametrize("ignored", range(16))
@pytest.mark.parametrize("packet_type", [t for t in PacketType if t not in WITH_AMOUNT])
def test_low_bits_of_a_global_packet_without_amount_are_ignored(
    packet_type: PacketType, ignored: int
) -> None:
    header = packet_type << 5 | 0b10000 | ignored
    assert take_packet(inbox_of(bytes([header]))) == Packet(packet_type)


@pytest.mark.parametrize("id_width_bits", range(4))
@pytest.mark.parametrize("packet_type", sorted(WITH_AMOUNT))
def test_id_width_of_a_global_packet_is_ignored(
    packet_type: PacketType, id_width_bits: int
) -> None:
    header = packet_type << 5 | 0b10000 | id_width_bits << 2 | 0b01
    assert take_packet(inbox_of(bytes([header, 1, 2]))) == Packet(packet_type, None, 258)


@pytest.mark.parametrize("header", range(0b110_00000, 256))
def test_types_six_and_seven_are_unknown(header: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        take_packet(inbox_of(bytes([header])))
    assert caught.value.code is ErrorCode.UNKNOWN_PACKET_TYPE


@pytest.mark.parametrize("header", range(0b110_00000))
def test_every_other_header_byte_begins_a_packet_of_at_most_the_stated_size(header: int) -> None:
    inbox = inbox_of(bytes([header]) + bytes(HEADER_SIZE_MAX - 1))
    assert take_packet(inbox) is not None
    longest = 0b001_0_11_11
    assert (len(inbox) == 0) == (header in {longest, 0b000_0_11_11})


def test_worked_examples() -> None:
    # Read off the table of the spec by hand.
    assert encode(PacketType.CREDIT, 5, 0) == bytes([0b000_0_00_00, 5, 0])
    assert encode(PacketType.CREDIT, None, 256) == bytes([0b000_1_00_01, 1, 0])
    assert encode(PacketType.WRITE, 300, 7) == bytes([0b001_0_01_00, 1, 44, 7])
    assert encode(PacketType.WRITE, None, 65536) == bytes([0b001_1_00_10, 0, 1, 0, 0])
    assert encode(PacketType.PING, None) == bytes([0b010_1_00_00])
    assert encode(PacketType.PONG, 2**32) == bytes([0b011_0_11_00, 0, 0, 0, 1, 0, 0, 0, 0])
    assert encode(PacketType.CLOSE, 0) == bytes([0b100_0_00_00, 0])
    assert encode(PacketType.STOP_READ, None) == bytes([0b101_1_00_00])

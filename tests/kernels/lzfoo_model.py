"""LZFoo, written naively from the format's page alone, and data to try it on."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from types import ModuleType
from typing import Any

from hypothesis import strategies as st


def varu64(value: int, octets: int = 0) -> bytes:
    """A VarU64 in `octets` bytes after the first one, or in more if these are too few."""
    return number(0, 248, value, octets)


def literal(data: bytes, octets: int = 0) -> bytes:
    return number(0, 120, len(data), octets) + data


def copy(length: int, offset: int, octets: int = 0, offset_octets: int = 0) -> bytes:
    return number(128, 120, length, octets) + varu64(offset, offset_octets)


def number(kind: int, wide: int, value: int, octets: int) -> bytes:
    if octets == 0 and value < wide:
        return bytes([kind + value])
    octets = max(octets, 1, (value.bit_length() + 7) // 8)
    return bytes([kind + wide - 1 + octets]) + value.to_bytes(octets, "big")


def take_number(data: bytes, at: int, first: int, wide: int) -> tuple[int, int]:
    end = at + max(0, first - wide + 1)
    return (int.from_bytes(data[at:end], "big") if end > at else first), end


def elements(data: bytes) -> list[bytes | tuple[int, int]]:
    """Literals as their bytes, copies as their length and offset."""
    found: list[bytes | tuple[int, int]] = []
    at = 0
    while at < len(data):
        length, end = take_number(data, at + 1, data[at] % 128, 120)
        if data[at] < 128:
            found.append(data[end : end + length])
            at = end + length
        else:
            offset, at = take_number(data, end + 1, data[end], 248)
            found.append((length, offset))
    return found


def decode(packets: list[bytes], window: int) -> list[bytes]:
    """Every packet decoded byte by byte, with every rule checked."""
    history = bytearray()
    ends = [0]
    for packet in packets:
        for element in elements(packet):
            if isinstance(element, bytes):
                history += element
                continue
            length, offset = element
            assert 1 <= offset <= min(window, len(history))
            for _ in range(length):
                history.append(history[-offset])
        ends.append(len(history))
    return [bytes(history[start:end]) for start, end in pairwise(ends)]


def primed(lzfoo: ModuleType, window: int, history: bytes) -> Any:
    """A decompressor that has been through `history`."""
    decompressor = lzfoo.Decompressor(window)
    decompressor.begin(len(history))
    if history:
        decompressor.decode(literal(history), 0, len(history))
    return decompressor


def chance_packet(chance: Random, history: bytes, window: int) -> tuple[bytes, bytes]:
    """A packet of elements that no compressor would choose, and its decoded bytes."""
    packet, made = bytearray(), bytearray()
    for _ in range(chance.randint(1, 60)):
        past = history + made
        if past and window and chance.random() < 0.7:
            offset = chance.randint(1, min(window, len(past)))
            length = chance.choice([chance.randint(0, 150), chance.randint(0, 2 * window)])
            packet += copy(length, offset)
            made += (past[-offset:] * (length // offset + 1))[:length]
        else:
            text = chance.randbytes(chance.randint(0, 130))
            packet += literal(text)
            made += text
    # The last element has output, so that the packet is read to its end.
    return bytes(packet + literal(b".")), bytes(made + b".")


windows = st.sampled_from([0, 1, 2, 7, 16, 100, 300, 65536])

# Texts with much repetition: near and far, short and long.
_words = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.tuples(st.binary(min_size=1, max_size=3), st.integers(1, 400)).map(lambda d: d[0] * d[1]),
    st.sampled_from([b"entry", b"author", b"seqnum ", b"lipmaalink", bytes(range(256))]),
)
texts = st.lists(_words, max_size=6).flatmap(
    lambda words: st.lists(st.sampled_from(words or [b""]), max_size=12).map(b"".join)
)

# Elements that fit nothing in particular, and whole packets of them.
_lengths = st.integers(0, 130) | st.sampled_from([255, 256, 70000, 2**32, 2**63, 2**64 - 1])
_offsets = st.integers(0, 20) | st.sampled_from([247, 248, 300, 2**16, 2**32, 2**64 - 1])
_widths = st.integers(0, 8)
_element = st.one_of(
    st.builds(literal, st.binary(max_size=130), _widths),
    st.builds(copy, _lengths, _offsets, _widths, _widths),
    st.binary(max_size=4),
)
packets = st.lists(_element, max_size=8).map(b"".join)
sizes = st.integers(0, 400) | st.sampled_from([70000, 2**32, 2**64 - 1])

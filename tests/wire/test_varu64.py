"""The VarU64 codec: typed errors, with the byte at fault, on both kernels."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from kernels.kernel_twins import IMPLEMENTATIONS, codec

MAX = 2**64 - 1


@pytest.fixture(params=IMPLEMENTATIONS, scope="module")
def varu64(request: pytest.FixtureRequest) -> ModuleType:
    return codec("varu64", request.param)


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (0, "00"),
        (247, "f7"),
        (248, "f8f8"),
        (255, "f8ff"),
        (256, "f90100"),
        (65535, "f9ffff"),
        (65536, "fa010000"),
        (MAX, "ffffffffffffffffff"),
    ],
)
def test_worked_values(varu64, value, encoding):
    data = bytes.fromhex(encoding)
    assert varu64.MAX == MAX
    assert varu64.encode(value) == data
    assert varu64.size(value) == len(data)
    assert varu64.decode(data) == (value, len(data))
    assert varu64.decode(b"?" + data, 1, canonical=True) == (value, 1 + len(data))


@pytest.mark.parametrize("encoding", ["f800", "f8f7", "f900ff", "fa00ffff", "ff0000000000000001"])
def test_longer_than_needed_is_refused_only_where_asked(varu64, encoding):
    data = b"?" + bytes.fromhex(encoding)
    value = int(encoding[2:], 16)
    assert varu64.decode(data, 1) == (value, len(data))
    assert varu64.decode_many(data, 1) == ([value], len(data))
    for decode in (varu64.decode, varu64.decode_many, varu64.decode_array):
        with pytest.raises(DecodeError, match="longer than needed") as caught:
            decode(data, 1, canonical=True)
        assert not isinstance(caught.value, Truncated)
        assert (caught.value.code, caught.value.offset) == (WireErrorCode.NON_CANONICAL, 1)


@given(st.integers(0, MAX), st.binary(max_size=3), st.booleans())
def test_every_proper_prefix_is_truncated_where_the_data_ends(varu64, value, before, canonical):
    data = before + varu64.encode(value)
    for size in range(len(before), len(data)):
        with pytest.raises(Truncated) as caught:
            varu64.decode(data[:size], len(before), canonical=canonical)
        assert (caught.value.code, caught.value.offset) == (WireErrorCode.TRUNCATED, size)
    for many in (varu64.decode_many, varu64.decode_array):
        with pytest.raises(Truncated) as caught:
            many(data, len(before), 2, canonical=canonical)
        assert caught.value.offset == len(data)


def test_the_byte_at_fault_is_counted_in_bytes(varu64):
    words = memoryview(b"\1\2\3\xff").cast("H")
    with pytest.raises(Truncated) as caught:
        varu64.decode(words, 3)
    assert caught.value.offset == 4


@given(st.lists(st.integers(0, MAX) | st.integers(0, 250)))
def test_many_round_trip(varu64, values):
    data = varu64.encode_many(values)
    assert data == b"".join(map(varu64.encode, values))
    assert varu64.decode_many(data, canonical=True) == (values, len(data))
    assert varu64.decode_array(data, canonical=True) == (array("Q", values), len(data))
    half = len(values) // 2
    first, end = varu64.decode_many(data, 0, half)
    assert first + varu64.decode_many(data, end, len(values) - half)[0] == values


def test_a_fault_among_many_is_where_its_number_starts(varu64):
    data = b"\1\2\xf8\3\4"
    for many in (varu64.decode_many, varu64.decode_array):
        with pytest.raises(DecodeError) as caught:
            many(data, canonical=True)
        assert (caught.value.code, caught.value.offset) == (WireErrorCode.NON_CANONICAL, 2)


def test_wrong_calls_are_refused(varu64):
    for value in (-1, MAX + 1):
        with pytest.raises(OverflowError):
            varu64.encode(value)
    with pytest.raises(ValueError, match="negative") as caught:
        varu64.decode(b"\1", -1)
    assert not isinstance(caught.value, DecodeError)
    with pytest.raises(BufferError):
        varu64.decode(memoryview(b"\1\2\3")[::2])
    with pytest.raises(TypeError):
        varu64.decode("1")

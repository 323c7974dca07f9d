from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.wire import stlv
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

types = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))


def refusal(data: bytes, offset: int = 0, **options: object) -> tuple[WireErrorCode, int]:
    with pytest.raises(DecodeError) as caught:
        stlv.decode(data, offset, **options)
    return caught.value.code, caught.value.offset


def test_type_and_length_are_varu64s() -> None:
    assert stlv.encode(0, b"") == b"\0\0"
    assert stlv.encode(7, b"abc") == b"\7\3abc"
    assert stlv.encode(248, bytes(256)) == b"\xf8\xf8\xf9\1\0" + bytes(256)
    assert stlv.encode(2**64 - 1, memoryview(b"x")) == b"\xff" * 9 + b"\1x"


@given(types, st.binary(max_size=600), st.binary(max_size=9), st.binary(max_size=9))
def test_values_survive_encoding_and_decoding(
    type: int, value: bytes, before: bytes, after: bytes
) -> None:
    encoded = before + stlv.encode(type, value)
    for buffer in (bytes, bytearray, memoryview):
        for canonical in (True, False):
            decoded = stlv.decode(buffer(encoded + after), len(before), canonical=canonical)
            assert decoded == (type, value, len(encoded))


@given(types, st.binary(max_size=300), st.binary(max_size=9))
def test_every_proper_prefix_is_truncated(type: int, value: bytes, before: bytes) -> None:
    encoded = before + stlv.encode(type, value)
    for size in range(len(before), len(encoded)):
        with pytest.raises(Truncated):
            stlv.decode(encoded[:size], len(before))


def test_a_canonic_stlv_uses_canonic_varu64s() -> None:
    for data, at in ((b".\xf8\7\3abc", 1), (b".\7\xf8\3abc", 2), (b".\7\xf9\0\3abc", 2)):
        assert refusal(data, 1) == (WireErrorCode.NON_CANONICAL, at)
        assert stlv.decode(data, 1, canonical=False) == (7, b"abc", len(data))


def test_the_size_limit_is_on_the_declared_length() -> None:
    """Whether or not the value has come, so that no time or memory is spent on it."""
    assert stlv.decode(b".\7\3abc", 1, size_max=3) == (7, b"abc", 6)
    for size in range(3, 7):
        data = b".\7\3abc"[:size]
        assert refusal(data, 1, size_max=2) == (WireErrorCode.LIMIT_EXCEEDED, 2)
    with pytest.raises(Truncated):
        stlv.decode(b"\7" + b"\xff" * 9)
    assert refusal(b"\7" + b"\xff" * 9, size_max=2**64 - 2) == (WireErrorCode.LIMIT_EXCEEDED, 1)

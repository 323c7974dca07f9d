"""Canonical CBOR: the examples of RFC 8949, refusals, and the ends of items."""

from __future__ import annotations

import struct
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.buffer import ReceiveBuffer
from culm.wire.cbor import Scanner, decode, encode, encode_head
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

# RFC 8949, appendix A: the kinds that are accepted, in canonical form.
EXAMPLES: list[tuple[Any, str]] = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (2**64 - 1, "1bffffffffffffffff"),
    (-(2**64), "3bffffffffffffffff"),
    (-1000, "3903e7"),
    (0.0, "f90000"),
    (-0.0, "f98000"),
    (1.1, "fb3ff199999999999a"),
    (65504.0, "f97bff"),
    (100000.0, "fa47c35000"),
    (3.4028234663852886e38, "fa7f7fffff"),
    (1.0e300, "fb7e37e43c8800759c"),
    (5.960464477539063e-8, "f90001"),
    (float("-inf"), "f9fc00"),
    (False, "f4"),
    (None, "f6"),
    (b"\1\2\3\4", "4401020304"),
    ("IETF", "6449455446"),
    ("水", "63e6b0b4"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
]

REFUSED = [
    ("1817", WireErrorCode.NON_CANONICAL),  # 23 in a byte of its own
    ("1900ff", WireErrorCode.NON_CANONICAL),
    ("1a0000ffff", WireErrorCode.NON_CANONICAL),
    ("1b00000000ffffffff", WireErrorCode.NON_CANONICAL),
    ("580100", WireErrorCode.NON_CANONICAL),
    ("fa3fc00000", WireErrorCode.NON_CANONICAL),  # 1.5, which is f93e00
    ("fb3ff8000000000000", WireErrorCode.NON_CANONICAL),
    ("fa7fc00000", WireErrorCode.NON_CANONICAL),
    ("f97e01", WireErrorCode.NON_CANONICAL),  # a NaN with something in it
    ("9f01ff", WireErrorCode.NON_CANONICAL),
    ("7f6161ff", WireErrorCode.NON_CANONICAL),
    ("5f4101ff", WireErrorCode.NON_CANONICAL),
    ("bf616101ff", WireErrorCode.NON_CANONICAL),
    ("ff", WireErrorCode.NON_CANONICAL),
    ("1c", WireErrorCode.NON_CANONICAL),
    ("f818", WireErrorCode.NON_CANONICAL),
    ("f7", WireErrorCode.BAD_TYPE),  # undefined
    ("e0", WireErrorCode.BAD_TYPE),
    ("c11a514b67b0", WireErrorCode.BAD_TYPE),
    ("c249010000000000000000", WireErrorCode.BAD_TYPE),
    ("a10102", WireErrorCode.BAD_TYPE),
    ("a2616201616102", WireErrorCode.NON_CANONICAL),
    ("a2616101616102", WireErrorCode.NON_CANONICAL),
    ("81a2616101616102", WireErrorCode.NON_CANONICAL),
    ("61ff", WireErrorCode.BAD_VALUE),
    ("0000", WireErrorCode.TRAILING_DATA),
]


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES, ids=repr)
def test_examples_of_the_rfc_go_both_ways(value: Any, encoded: str):
    data = bytes.fromhex(encoded)
    assert encode(value) == data
    decoded = decode(data)
    assert (decoded, type(decoded)) == (value, type(value))


def test_not_a_number_has_one_encoding():
    assert encode(float("nan")).hex() == "f97e00"
    assert decode(bytes.fromhex("f97e00")) != decode(bytes.fromhex("f97e00"))


@pytest.mark.parametrize(("encoded", "code"), REFUSED)
def test_what_is_not_canonical_is_refused(encoded: str, code: WireErrorCode):
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex(encoded))
    assert caught.value.code is code


@pytest.mark.parametrize("encoded", ["", "18", "8201", "63e6b0", "1a0000", "9bffffffffffffffff"])
def test_what_more_bytes_could_complete_is_truncated(encoded: str):
    with pytest.raises(Truncated):
        decode(bytes.fromhex(encoded))


def test_keys_ascend_as_text_does():
    """Unlike in RFC 8949, where the shorter key comes first: p2panda's operations need it."""
    assert decode(bytes.fromhex("a2626161016162 02".replace(" ", ""))) == {"aa": 1, "b": 2}
    with pytest.raises(DecodeError):
        decode(encode({"b": 2, "aa": 1}))


def test_depth_is_bounded():
    deep = b"\x81" * 5 + b"\x00"
    assert decode(deep, depth_max=5) == [[[[[0]]]]]
    for hostile in (deep, b"\x81" * 4 + b"\x80", b"\x81" * 4 + b"\xa0", b"\x81" * 100_000):
        with pytest.raises(DecodeError) as caught:
            decode(hostile, depth_max=4)
        assert caught.value.code is WireErrorCode.LIMIT_EXCEEDED


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats()
    | st.binary()
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def ascending(value: Any) -> bytes:
    """The encoding with keys in the order of text, put together by hand."""
    if isinstance(value, list):
        return encode_head(4, len(value)) + b"".join(map(ascending, value))
    if isinstance(value, dict):
        pairs = (encode(key) + ascending(value[key]) for key in sorted(value))
        return encode_head(5, len(value)) + b"".join(pairs)
    return encode(value)


@given(values)
def test_every_value_goes_both_ways(value: Any):
    encoded = ascending(value)
    assert ascending(decode(encoded)) == encoded


@given(values, st.binary(max_size=3), st.data())
def test_bytes_that_decode_are_the_encoding(value: Any, patch: bytes, data: st.DataObject):
    encoded = bytearray(ascending(value))
    at = data.draw(st.integers(0, len(encoded)))
    encoded[at : at + len(patch)] = patch
    try:
        decoded = decode(encoded)
    except DecodeError:
        return
    assert ascending(decoded) == encoded


@given(st.lists(values, min_size=1, max_size=4), st.data())
def test_every_chunking_finds_the_same_ends(items: list[Any], data: st.DataObject):
    encoded = b"".join(map(ascending, items))
    buffer, sizes, scanner = ReceiveBuffer(), [], Scanner(size_max=1 << 20)
    at = 0
    while at < len(encoded):
        piece = data.draw(st.integers(1, 12))
        buffer.append(encoded[at : at + piece])
        at += piece
        while buffer.size:
            with buffer.view() as view:
                size = scanner.scan(view, len(view))
            if size is None:
                break
            sizes.append(size)
            buffer.consume(size)
            scanner = Scanner(size_max=1 << 20)
    assert sizes == [len(ascending(item)) for item in items]


@pytest.mark.parametrize(
    ("encoded", "seen"),
    [
        ("5864", 2),  # 100 bytes are declared, and two are there
        ("9b7fffffffffffffff", 9),
        ("bb7fffffffffffffff", 9),
        ("7bffffffffffffffff", 9),
        ("8363616263", 2),
    ],
)
def test_what_is_declared_counts_at_once(encoded: str, seen: int):
    data = bytes.fromhex(encoded)
    scanner = Scanner(size_max=4)
    assert not any(scanner.scan(data, end) for end in range(1, seen))
    with pytest.raises(DecodeError) as caught:
        scanner.scan(data, seen)
    assert caught.value.code is WireErrorCode.LIMIT_EXCEEDED


def test_an_item_of_just_the_size_is_taken():
    assert Scanner(size_max=4).scan(b"\x43abc", 4) == 4
    with pytest.raises(DecodeError):
        Scanner(size_max=4).scan(b"\x44abcd", 5)


@pytest.mark.parametrize("step", [1, 7, 100])
def test_items_have_a_limit_that_grows_with_the_bytes(step: int):
    """Three, and one more for every 10 bytes."""

    def scan(data: bytes) -> int | None:
        scanner = Scanner(size_max=1000, items_max=3, item_size=10)
        sizes = [scanner.scan(data, end) for end in (*range(0, len(data), step), len(data))]
        return sizes[-1]

    pair = b"\x82\x80\x50" + bytes(16)  # three items in 19 bytes
    for data in (b"\x82\x80\x80", b"\x81" + pair, b"\x82\x50" + bytes(16) + b"\x81\x80"):
        assert scan(data) == len(data)
    for data in (b"\x83\x80\x80\x80", b"\x82" + pair + pair):
        with pytest.raises(DecodeError, match="over 3 items") as caught:
            scan(data)
        assert caught.value.code is WireErrorCode.LIMIT_EXCEEDED


@given(st.integers(0, 2**64 - 1))
def test_heads_are_those_of_cbor2(number: int):
    assert encode_head(0, number) == cbor2.dumps(number)
    assert encode_head(1, number) == cbor2.dumps(-1 - number)


@given(st.one_of(*(st.floats(width=width, allow_nan=False) for width in (16, 32, 64))))
def test_a_float_is_taken_in_one_width_only(number: float):
    taken = []
    for head, form in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d")):
        try:
            encoded = bytes([head]) + struct.pack(form, number)
            if repr(decode(encoded)) == repr(number):
                taken.append(encoded)
        except (OverflowError, DecodeError):
            continue
    assert taken == [encode(number)]

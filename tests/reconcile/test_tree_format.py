"""The bytes of a tree: valid and refused ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.reconcile import Frozen, Tree
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

#: Offsets in the header, with forbidden values.
FORGED = [
    (0, b"C", WireErrorCode.BAD_TYPE),
    (7, b"\0", WireErrorCode.BAD_TYPE),
    (8, b"\0", WireErrorCode.BAD_TYPE),
    (8, b"\2", WireErrorCode.BAD_TYPE),
    (9, b"\1", WireErrorCode.BAD_TYPE),
    (10, b"\3", WireErrorCode.BAD_VALUE),
    (10, b"\xff", WireErrorCode.BAD_VALUE),
    (11, b"\2", WireErrorCode.BAD_VALUE),
    (12, b"\0\0", WireErrorCode.BAD_VALUE),
    (12, b"\1\4", WireErrorCode.BAD_VALUE),
    (14, b"\1", WireErrorCode.NON_CANONICAL),
    (24, b"\1", WireErrorCode.NON_CANONICAL),
    (63, b"\1", WireErrorCode.NON_CANONICAL),
]


def bytes_of(items: list[bytes], **options) -> bytes:
    tree = Tree(item_size=3, **options)
    tree.load_items(items)
    return b"".join(tree.serialise())


ITEMS = [number.to_bytes(3, "big") for number in range(0, 900, 9)]
DATA = bytes_of(ITEMS)


def test_the_bytes_are_laid_out_as_the_page_says():
    data = bytes_of([b"abc", b"abd"])
    first, second = (Tree(item_size=3).monoid.lift(item).state for item in (b"abc", b"abd"))
    total = (int.from_bytes(first) + int.from_bytes(second)) % 2**128
    header = b"culmtree" + bytes([1, 0, 0, 0, 3, 0, 0, 0]) + (2).to_bytes(8, "little")
    sections = [
        header,
        b"abc" + bytes(5) + b"abd" + bytes(5),
        first[:7:-1] + second[:7:-1],
        b"abc" + bytes(5),
        bytes(16) + total.to_bytes(16),
    ]
    assert data == b"".join(section.ljust(64, b"\0") for section in sections)


def test_sizes_that_vary_stand_behind_the_items():
    data = bytes_of([b"", b"ab"], varying=True)
    assert data[11] == 1
    assert data[64:80] == bytes(8) + b"ab\0" + b"\0\2" + bytes(3)


def test_the_empty_set_has_bytes_too():
    data = bytes_of([])
    assert len(data) == 128
    assert len(Frozen(data)) == 0
    assert Frozen(data).is_sound()


@pytest.mark.parametrize(("at", "forged", "code"), FORGED)
def test_a_header_that_says_something_else_is_refused(at, forged, code):
    with pytest.raises(DecodeError) as raised:
        Frozen(DATA[:at] + forged + DATA[at + len(forged) :])
    assert raised.value.code is code


@pytest.mark.parametrize("count", [0, 1, 64, 99, 129, 2**32, 2**53, 2**63, 2**64 - 1])
def test_a_count_that_is_not_the_one_is_refused(count):
    with pytest.raises(DecodeError):
        Frozen(DATA[:16] + count.to_bytes(8, "little") + DATA[24:])


def test_a_count_for_which_there_is_room_is_told_by_the_items():
    frozen = Frozen(DATA[:16] + (101).to_bytes(8, "little") + DATA[24:])
    assert not frozen.is_sound()
    assert frozen.read(99, 2) == [ITEMS[99], bytes(3)]


def test_what_is_cut_is_refused_at_every_byte():
    for size in range(len(DATA)):
        with pytest.raises(Truncated):
            Frozen(DATA[:size])


def test_what_stands_behind_is_refused():
    for more in (b"\0", bytes(64), DATA):
        with pytest.raises(DecodeError) as raised:
            Frozen(DATA + more)
        assert raised.value.code is WireErrorCode.TRAILING_DATA
        assert raised.value.offset == len(DATA)


def test_what_stands_between_the_sections_is_zeros():
    ends = [64 + 100 * 8, 896 + 100 * 8, 1728 + 2 * 8, 1792 + 3 * 16]
    for end in ends:
        assert DATA[end] == 0
        forged = DATA[:end] + b"\1" + DATA[end + 1 :]
        with pytest.raises(DecodeError) as raised:
            Frozen(forged)
        assert (raised.value.code, raised.value.offset) == (WireErrorCode.NON_CANONICAL, end)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255), st.binary(max_size=4))
def test_every_byte_counts(at, change, bound):
    forged = bytearray(DATA)
    forged[at] ^= change
    try:
        frozen = Frozen(forged)
    except DecodeError:
        return
    assert not frozen.is_sound()
    assert len(frozen.read(0, len(frozen))) == len(frozen)
    frozen.fingerprint(bound, b"\1")
    assert 0 <= frozen.rank(bound) <= len(frozen)
    b"".join(frozen.serialise())


@given(st.binary(max_size=300))
def test_noise_is_refused(noise):
    with pytest.raises(DecodeError):
        Frozen(noise)
    with pytest.raises(DecodeError):
        Frozen(DATA[:64] + noise)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(wrap):
    assert Frozen(wrap(DATA)).read(0, 2) == ITEMS[:2]

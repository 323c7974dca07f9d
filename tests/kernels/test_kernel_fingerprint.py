"""Fingerprints: one suite for the compiled kernel and its pure twin, and both side by side."""

from __future__ import annotations

from array import array
from itertools import accumulate
from random import Random

import pytest
import xxhash
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from culm.kernels import pure_fingerprint

SUM, XOR, LTHASH = KINDS = range(3)

# Noise of any size takes one draw.
seeded = st.integers(0, 2**64 - 1).map(Random)
kinds = st.sampled_from(KINDS)
items = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [0, 1, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 240, 241, 1023, 1024]
    ).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
)
# Every carry and borrow: all lanes at their ends, and next to them.
lanes = st.sampled_from([b"\0\0", b"\xff\xff", b"\x80\0", b"\0\x80", b"\x7f\xff", b"\x01\0"])


@st.composite
def states(draw: st.DrawFn, kind: int) -> bytes:
    size = len(pure_fingerprint.neutral(kind))
    if draw(st.booleans()):
        return draw(seeded).randbytes(size)
    part = b"".join(draw(st.lists(lanes, min_size=8, max_size=8)))
    return part * (size // 16)


def cut(parts: list[bytes]) -> tuple[bytes, array[int]]:
    return b"".join(parts), array("Q", accumulate(map(len, parts), initial=0))


@pytest.mark.parametrize("fill", [None, 0, 0xFF])
def test_xxh3_is_that_of_xxhash_for_all_lengths(fingerprint, fill):
    noise = Random(1).randbytes(2048) if fill is None else bytes([fill]) * 2048
    for size in range(2049):
        data = noise[:size]
        assert fingerprint.xxh3_128(data) == xxhash.xxh3_128_intdigest(data), size


@given(st.integers(2049, 100_000), st.integers(0, 63), seeded)
def test_xxh3_is_that_of_xxhash_for_long_data_wherever_it_lies(fingerprint, size, at, chance):
    data = memoryview(chance.randbytes(size + at))[at:]
    assert fingerprint.xxh3_128(data) == xxhash.xxh3_128_intdigest(data)


@pytest.mark.parametrize("sizes", [range(300), [511, 512, 513, 960, 961, 1023, 1024]])
def test_an_item_is_lifted_by_its_hash(fingerprint, sizes):
    for size in sizes:
        item = Random(size).randbytes(size)
        for kind in (SUM, XOR):
            assert fingerprint.lift(kind, item) == xxhash.xxh3_128_digest(item)
        assert fingerprint.lift(LTHASH, item) == blake3(item).digest(length=2048)


@given(kinds, st.lists(items, max_size=8))
def test_many_items_are_lifted_as_one_by_one(fingerprint, kind, parts):
    total = fingerprint.neutral(kind)
    for part in parts:
        total = fingerprint.combine(kind, total, fingerprint.lift(kind, part))
    assert fingerprint.lift_cut(kind, *cut(parts)) == total


@given(kinds, st.integers(1, 70), st.integers(0, 20), seeded)
def test_many_items_of_one_size_are_lifted_as_between_offsets(
    fingerprint, kind, size, count, chance
):
    parts = [chance.randbytes(size) for _ in range(count)]
    data, offsets = cut(parts)
    assert fingerprint.lift_many(kind, data, size) == fingerprint.lift_cut(kind, data, offsets)
    assert fingerprint.lift_many(kind, memoryview(bytearray(data)), size) == (
        fingerprint.lift_many(kind, data, size)
    )


@given(kinds.flatmap(lambda kind: st.tuples(st.just(kind), *[states(kind)] * 3)))
def test_the_monoids_are_commutative_groups(fingerprint, drawn):
    kind, a, b, c = drawn
    add, take = fingerprint.combine, fingerprint.subtract
    assert add(kind, a, b) == add(kind, b, a)
    assert add(kind, add(kind, a, b), c) == add(kind, a, add(kind, b, c))
    assert add(kind, a, fingerprint.neutral(kind)) == a
    assert take(kind, add(kind, a, b), b) == a
    assert take(kind, a, a) == fingerprint.neutral(kind)


@given(kinds.flatmap(lambda kind: st.tuples(st.just(kind), *[states(kind)] * 2)))
def test_twins_combine_alike(fingerprint_twins, drawn):
    compiled, pure = fingerprint_twins
    for name in ("combine", "subtract"):
        assert getattr(compiled, name)(*drawn) == getattr(pure, name)(*drawn)


def test_sums_carry_from_the_low_half_to_the_high_one(fingerprint):
    one, low = (1).to_bytes(16, "big"), (2**64 - 1).to_bytes(16, "big")
    assert fingerprint.combine(SUM, low, one) == (2**64).to_bytes(16, "big")
    assert fingerprint.subtract(SUM, fingerprint.combine(SUM, low, one), one) == low
    assert fingerprint.combine(SUM, b"\xff" * 16, one) == bytes(16)
    assert fingerprint.subtract(SUM, bytes(16), one) == b"\xff" * 16


@pytest.mark.parametrize("kind", [-1, 3, 255])
def test_there_are_three_monoids(fingerprint, kind):
    for call in (
        lambda: fingerprint.neutral(kind),
        lambda: fingerprint.lift(kind, b""),
        lambda: fingerprint.lift_many(kind, b"", 1),
        lambda: fingerprint.lift_cut(kind, b"", array("Q")),
        lambda: fingerprint.combine(kind, b"", b""),
        lambda: fingerprint.subtract(kind, b"", b""),
    ):
        with pytest.raises(ValueError, match="no monoid has the number"):
            call()


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused(fingerprint, kind):
    neutral = fingerprint.neutral(kind)
    with pytest.raises(ValueError, match="at most 1024"):
        fingerprint.lift(kind, bytes(1025))
    for size in (0, -1, 1025):
        with pytest.raises(ValueError, match="1 to 1024"):
            fingerprint.lift_many(kind, b"", size)
    with pytest.raises(ValueError, match="fill"):
        fingerprint.lift_many(kind, bytes(7), 3)
    for offsets in ([0, 11], [3, 2], [2**64 - 1], [11, 12], [0, 2**63]):
        with pytest.raises(ValueError, match="offsets"):
            fingerprint.lift_cut(kind, bytes(10), array("Q", offsets))
    with pytest.raises(ValueError, match="at most 1024"):
        fingerprint.lift_cut(kind, bytes(2000), array("Q", [0, 1025]))
    for wrong in (b"", neutral[1:], neutral + b"\0"):
        for call in (fingerprint.combine, fingerprint.subtract):
            with pytest.raises(ValueError, match="a state of this monoid"):
                call(kind, wrong, neutral)
            with pytest.raises(ValueError, match="a state of this monoid"):
                call(kind, neutral, wrong)


@pytest.mark.parametrize("wrong", [None, 7, "text", [b"one"]])
def test_what_is_no_bytes_is_refused(fingerprint, wrong):
    for call in (
        lambda: fingerprint.xxh3_128(wrong),
        lambda: fingerprint.lift(SUM, wrong),
        lambda: fingerprint.lift_many(SUM, wrong, 1),
    ):
        with pytest.raises(TypeError):
            call()


def test_no_offset_is_no_item(fingerprint):
    for kind in KINDS:
        for offsets in ([], [0], [5]):
            made = fingerprint.lift_cut(kind, bytes(9), array("Q", offsets))
            assert made == fingerprint.neutral(kind)

"""Monoids: fingerprints by name, their form on the wire, and the meaning of their differences."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
import xxhash
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from culm.reconcile import DEFAULT, MONOIDS, Fingerprint, named
from culm.reconcile.monoids import ITEM_SIZE_MAX
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

every_monoid = pytest.mark.parametrize("monoid", MONOIDS.values(), ids=list(MONOIDS))
item_sets = st.sets(st.binary(max_size=20), max_size=20)


def lift_all(monoid, items) -> Fingerprint:
    total = monoid.neutral
    for item in items:
        total = monoid.combine(total, monoid.lift(item))
    return total


def test_monoids_have_names():
    assert list(MONOIDS) == ["xxh3-sum", "xxh3-xor", "blake3-lthash"]
    assert DEFAULT == "xxh3-sum"
    for name, monoid in MONOIDS.items():
        assert named(name) is monoid
        assert monoid.name == name
    with pytest.raises(ValueError, match="no monoid is named 'sha1-sum': xxh3-sum, xxh3-xor"):
        named("sha1-sum")


def test_the_default_sums_xxh3_modulo_2_to_the_128():
    monoid = named("xxh3-sum")
    items = [b"one", b"two", b"three"]
    total = sum(map(xxhash.xxh3_128_intdigest, items)) % 2**128
    assert lift_all(monoid, items) == (3, total.to_bytes(16))
    assert monoid.encode(lift_all(monoid, items)) == total.to_bytes(16) + (3).to_bytes(8)


def test_the_xor_variant_takes_the_exclusive_or():
    first, second = map(xxhash.xxh3_128_intdigest, (b"one", b"two"))
    assert lift_all(named("xxh3-xor"), [b"one", b"two"]).state == (first ^ second).to_bytes(16)


def test_lthash_sums_1024_lanes_of_16_bits_and_sends_their_blake3():
    monoid = named("blake3-lthash")
    first, second = (blake3(item).digest(length=2048) for item in (b"one", b"two"))
    both = lift_all(monoid, [b"one", b"two"])
    for lane in range(0, 2048, 2):
        values = [int.from_bytes(state[lane : lane + 2], "little") for state in (first, second)]
        assert int.from_bytes(both.state[lane : lane + 2], "little") == sum(values) % 2**16
    assert monoid.encode(both) == blake3(both.state).digest() + (2).to_bytes(8)


@every_monoid
@given(first=item_sets, second=item_sets)
def test_disjoint_sets_combine_to_their_union(monoid, first, second):
    second = second - first
    both = monoid.combine(lift_all(monoid, first), lift_all(monoid, second))
    assert both == lift_all(monoid, sorted(first | second))
    assert monoid.subtract(both, lift_all(monoid, second)) == lift_all(monoid, first)


@every_monoid
@given(items=st.lists(st.binary(min_size=5, max_size=5), max_size=20))
def test_items_in_a_row_are_lifted_at_once(monoid, items):
    data = b"".join(items)
    offsets = array("Q", accumulate(map(len, items), initial=0))
    assert monoid.lift_many(data, 5) == lift_all(monoid, items)
    assert monoid.lift_many(memoryview(data), 5) == lift_all(monoid, items)
    assert monoid.lift_cut(data, offsets) == lift_all(monoid, items)
    assert monoid.lift_cut(b"", array("Q")) == monoid.neutral


@every_monoid
def test_the_empty_set_differs_from_any_other_by_its_count(monoid):
    assert monoid.neutral.count == 0
    assert monoid.decode(monoid.encode(monoid.neutral)).count == 0
    assert not any(monoid.neutral.state)


@every_monoid
@given(items=item_sets)
def test_what_is_encoded_is_decoded(monoid, items):
    fingerprint = lift_all(monoid, items)
    encoded = monoid.encode(fingerprint)
    assert len(encoded) == monoid.digest_size + 8
    assert monoid.decode(encoded) == (len(items), monoid.digest(fingerprint))
    if monoid.is_additive:
        assert monoid.decode(memoryview(encoded)) == fingerprint


@every_monoid
def test_a_fingerprint_has_one_size_on_the_wire(monoid):
    encoded = monoid.encode(monoid.lift(b"one"))
    for size in range(len(encoded)):
        with pytest.raises(Truncated):
            monoid.decode(encoded[:size])
    with pytest.raises(DecodeError) as raised:
        monoid.decode(encoded + b"\0")
    assert raised.value.code is WireErrorCode.TRAILING_DATA


@every_monoid
@given(items=item_sets, more=st.binary(min_size=21, max_size=30), data=st.data())
def test_cut_digests_of_additive_monoids_name_the_item_that_makes_the_difference(
    monoid, items, more, data
):
    size = data.draw(st.integers(1, monoid.digest_size))
    less, whole = lift_all(monoid, items), lift_all(monoid, [*items, more])
    first, second = monoid.digest(whole, size), monoid.digest(less, size)
    assert len(first) == size
    assert monoid.digest(whole).endswith(first) or not monoid.is_additive
    if monoid.name == "xxh3-sum":
        difference = int.from_bytes(first) - int.from_bytes(second)
        wanted = (difference % 256**size).to_bytes(size)
        assert wanted == monoid.digest(monoid.lift(more), size)


@every_monoid
def test_a_digest_has_no_other_size(monoid):
    for size in (0, -1, monoid.digest_size + 1):
        with pytest.raises(ValueError, match="a digest"):
            monoid.digest(monoid.neutral, size)


@every_monoid
def test_items_have_a_largest_size(monoid):
    monoid.lift(bytes(ITEM_SIZE_MAX))
    with pytest.raises(ValueError, match="1024"):
        monoid.lift(bytes(ITEM_SIZE_MAX + 1))


@every_monoid
def test_counts_that_are_no_64_bits_are_not_encoded(monoid):
    for count in (-1, 2**64):
        with pytest.raises(Exception, match=r"format|int too large|argument out of range"):
            monoid.encode(Fingerprint(count, monoid.neutral.state))

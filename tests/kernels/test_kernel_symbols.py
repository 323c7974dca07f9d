"""Coded symbols: the differences are found, and the twins agree on every input."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SALT = 0x0123_4567_89AB_CDEF
CUT, NUMBER = 1, 3
seeds = st.integers(0, 2**32)


def shorts(chance: Random, count: int) -> bytes:
    return chance.randbytes(8 * count)


def filled(symbols: ModuleType, size: int, *held: bytes, salt: int = SALT) -> Any:
    row = symbols.Symbols(salt, size)
    for each in held:
        row.add(each)
    return row


def told_apart(
    symbols: ModuleType, seed: int, both: int, ours: int, theirs: int, cuts: list[int]
) -> list[object]:
    """All results while one side's symbols arrive in pieces that end at `cuts`."""
    chance = Random(seed)
    salt = chance.getrandbits(64)
    common, left, right = (shorts(chance, count) for count in (both, ours, theirs))
    here = filled(symbols, cuts[-1], common, left, salt=salt)
    there = filled(symbols, cuts[-1], common, right, salt=salt)
    difference = symbols.Difference(salt)
    said: list[object] = []
    for start, stop in zip([0, *cuts], cuts, strict=False):
        encoded = there.encode(start, stop)
        assert difference.hear(encoded) == 0
        whole = difference.peel(here)
        said += [encoded, whole, difference.found, difference.counts(stop), difference.total]
        said += [difference.ours, difference.theirs, difference.size]
    mine = symbols.Ids(salt, difference.ours).places(common + left)
    wanted = symbols.Ids(salt, difference.theirs).places(common + right)
    return [*said, mine, wanted]


@given(seeds, *[st.sampled_from([0, 1, 5, 40, 200])] * 3, st.sets(st.integers(1, 600), min_size=1))
def test_the_twins_say_the_same(symbols_twins, seed, both, ours, theirs, cuts):
    first, second = (
        told_apart(each, seed, both, ours, theirs, sorted(cuts)) for each in symbols_twins
    )
    assert first == second


@pytest.mark.parametrize("counts", [(0, 0, 0), (0, 1, 0), (50, 0, 0), (300, 20, 30), (9, 0, 60)])
def test_what_differs_is_found_and_nothing_else(symbols, counts):
    both, ours, theirs = counts
    said = told_apart(symbols, 1, *counts, [20 + 2 * (ours + theirs)])
    assert said[1] is True
    assert said[-2:] == [[*range(both, both + ours)], [*range(both, both + theirs)]]


def test_some_1_4_symbols_for_each_difference_are_enough(symbols):
    enough = [told_apart(symbols, seed, 100, 200, 200, [round(1.55 * 400)])[1] for seed in range(6)]
    assert sum(enough) >= 5
    assert not told_apart(symbols, 7, 100, 200, 200, [400])[1]


def test_a_symbol_has_the_share_of_ids_that_it_should(symbols):
    row = filled(symbols, 100, shorts(Random(1), 3000))
    assert row.cell(0)[0] == 3000
    for at in (1, 2, 5, 20, 99):
        assert row.cell(at)[0] == pytest.approx(2 * 3000 / (at + 2), rel=0.2, abs=25)


def test_a_symbol_takes_nine_bytes_or_ten(symbols):
    row = filled(symbols, 1000, shorts(Random(1), 1000))
    assert 9000 <= len(row.encode(0, 1000)) < 9300


GOOD = bytes([6]) + bytes(8)  # 3 items


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x06", CUT),
        (GOOD[:-1], CUT),
        (b"\x83", CUT),
        (GOOD + b"\x00" + bytes(7), CUT),
        (b"\x83\x00" + bytes(8), NUMBER),
        (b"\xff" * 9 + bytes(8), NUMBER),
        (GOOD + b"\x03" + bytes(8), 0),  # 2 - 2
        (GOOD + b"\x05" + bytes(8), NUMBER),  # below zero
        (GOOD + b"\x02" + bytes(8), 0),  # 2 + 1
        (GOOD + b"\x04" + bytes(8), NUMBER),  # more than exist
        (b"\x01" + bytes(8), NUMBER),
        (b"\xfe" + b"\xff" * 7 + b"\x7f" + bytes(8), 0),
        (b"\xff" * 8 + b"\x7f" + bytes(8), NUMBER),
        ((b"\xfe" + b"\xff" * 7 + b"\x7f" + bytes(8)) * 2, NUMBER),
        (b"", 0),
    ],
)
def test_what_symbols_cannot_be(symbols, data, fault):
    difference = symbols.Difference(SALT)
    assert difference.hear(data) == fault
    assert bool(difference.size) == bool(data and not fault)


@given(seeds, st.binary(max_size=90))
def test_the_twins_find_the_same_faults(symbols_twins, seed, data):
    chance = Random(seed)
    encoded = bytearray(filled(symbols_twins[0], 20, shorts(chance, 6)).encode(0, 20))
    encoded[chance.randrange(len(encoded))] = chance.randrange(256)
    for each in (data, bytes(encoded), bytes(encoded[: chance.randrange(len(encoded))])):
        told = []
        for twin in symbols_twins:
            difference = twin.Difference(SALT)
            fault = difference.hear(each)
            whole = difference.peel(filled(twin, 20, shorts(Random(seed), 5)))
            told.append((fault, whole, difference.ours, difference.theirs, difference.counts(99)))
        assert told[0] == told[1]


def test_an_id_that_comes_and_goes_is_not_followed_forever(symbols):
    """A forged row: the same id alone in two symbols that would both need it once."""
    one = shorts(Random(3), 1)
    row = bytearray(filled(symbols, 40, one).encode(0, 40))
    places = [at for at in range(40) if filled(symbols, 40, one).cell(at)[0]]
    for at in places[::2][1:]:
        row[9 * at + 1 : 9 * at + 9] = bytes(8)
    difference = symbols.Difference(SALT)
    assert difference.hear(bytes(row)) == 0
    assert not difference.peel(symbols.Symbols(SALT, 40))
    assert difference.found <= 40


def test_arguments(symbols):
    for size in (0, symbols.SYMBOLS_MAX + 1):
        with pytest.raises(ValueError, match="symbols"):
            symbols.Symbols(SALT, size)
    row = symbols.Symbols(SALT, 5)
    with pytest.raises(ValueError, match="8 bytes"):
        row.add(bytes(9))
    for start, stop in ((0, 6), (3, 2)):
        with pytest.raises(ValueError, match="no such"):
            row.encode(start, stop)
    with pytest.raises(IndexError):
        row.cell(5)
    difference = symbols.Difference(SALT)
    assert difference.hear(filled(symbols, 9).encode(0, 9)) == 0
    with pytest.raises(ValueError, match="fewer"):
        difference.peel(row)
    with pytest.raises(OverflowError):
        symbols.Ids(SALT, [1 << 44])
    with pytest.raises(OverflowError):
        symbols.Symbols(1 << 64, 5)

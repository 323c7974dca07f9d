"""LZFoo: the compiled kernel and its pure twin, side by side."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lzfoo_model import chance_packet, packets, primed, sizes, texts, windows


def state(decompressor) -> tuple[object, ...]:
    return (
        decompressor.remaining,
        decompressor.position,
        decompressor.fault,
        decompressor.fault_position,
        decompressor.pending,
        decompressor.between_elements,
    )


def assert_decode_alike(twins, packet: bytes, chance: random.Random) -> None:
    """Decode a packet in pieces; every step and every state between is the same."""
    at, made, end = 0, 0, len(packet)
    while True:
        cut = chance.choice([end, chance.randint(at, end), min(at + 1, end)])
        out_max = chance.choice([1, chance.randint(0, 600), 10_000])
        results = [twin.decode(packet[:cut], at, out_max) for twin in twins]
        assert results[0] == results[1]
        assert state(twins[0]) == state(twins[1])
        output, read = results[0]
        at += read
        made += len(output)
        if twins[0].fault or made > 50_000 or (at == end and not twins[0].pending):
            return


@pytest.mark.parametrize("level", [1, 2])
@given(
    window=windows,
    data=st.lists(texts, max_size=5),
    size_max=st.none() | st.integers(0, 400),
)
def test_twins_compress_alike(lzfoo_twins, window, data, size_max, level):
    compiled, pure = (twin.Compressor(window, level) for twin in lzfoo_twins)
    for text in data:
        assert compiled.compress(text, size_max) == pure.compress(text, size_max)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("window", "level"),
    [(window, 1) for window in (1, 100, 1000, 20_000, 65536, 70_000)] + [(1000, 2), (20_000, 2)],
)
def test_twins_compress_packets_of_all_sizes_alike(lzfoo_twins, window, level):
    """Through every size of the table, with cut and refused packets in between."""
    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    chance = random.Random(window)
    twins = [twin.Compressor(window, level) for twin in lzfoo_twins]
    decompressor = lzfoo_twins[0].Decompressor(window)
    for size in (0, 7, 8, 90, 700, 40_000, 300, 5000, 2 * window + 1, 9, 600):
        data = b"".join(text[at : at + 300] for at in chance.choices(range(90_000), k=size // 300))
        data = (data + text)[:size]
        noise = chance.randbytes(size)
        for packet, size_max in ((noise, size - 1), (data, None), (noise[:50], None)):
            if size_max is not None and size_max < 0:
                continue
            first, second = (twin.compress(packet, size_max) for twin in twins)
            assert first == second
            if first:
                decompressor.begin(len(packet))
                assert decompressor.decode(first, 0, len(packet)) == (packet, len(first))


@given(windows, texts, packets, sizes, st.randoms(use_true_random=False))
def test_twins_decode_arbitrary_elements_alike(lzfoo_twins, window, history, packet, size, chance):
    twins = [primed(twin, window, history) for twin in lzfoo_twins]
    for twin in twins:
        twin.begin(size)
    assert_decode_alike(twins, packet, chance)


@given(
    windows,
    st.lists(texts, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    st.randoms(use_true_random=False),
)
def test_twins_decode_mutated_packets_alike(lzfoo_twins, window, data, changes, chance):
    compressor = lzfoo_twins[0].Compressor(window)
    twins = [twin.Decompressor(window) for twin in lzfoo_twins]
    for text in data:
        packet = bytearray(compressor.compress(text))
        for place, value in changes:
            if packet:
                packet[place % len(packet)] = value
        for twin in twins:
            twin.begin(len(text))
        assert_decode_alike(twins, bytes(packet), chance)
        if twins[0].fault or twins[0].remaining:
            return


@pytest.mark.parametrize("seed", range(150))
def test_twins_decode_long_packets_with_a_fault_alike(lzfoo_twins, seed):
    chance = random.Random(seed)
    window = chance.choice([0, 1, 16, 100, 1000, 65536])
    history = chance.randbytes(chance.choice([0, 5, 100, 3000]))
    packet, made = chance_packet(chance, history[-window:] if window else b"", window)
    mutated = bytearray(packet)
    for _ in range(chance.randint(1, 2)):
        mutated[chance.randrange(len(packet))] = chance.choice([0, 128, 249, chance.randrange(256)])
    twins = [primed(twin, window, history) for twin in lzfoo_twins]
    for twin in twins:
        twin.begin(len(made))
    assert_decode_alike(twins, bytes(mutated), chance)


@pytest.mark.parametrize("window", [0, 1000, 65536])
def test_twins_agree_on_a_real_text(lzfoo_twins, window):
    """Large enough for the other paths of the compiled one: unlocked, and with a copied table."""
    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()[:90_000]
    chance = random.Random(window)
    compressors = [twin.Compressor(window) for twin in lzfoo_twins]
    twins = [twin.Decompressor(window) for twin in lzfoo_twins]
    for data in (text[:70_000], text[60_000:], chance.randbytes(40_000), text[:500]):
        first, second = (compressor.compress(data, len(data)) for compressor in compressors)
        assert first == second
        if first is not None:
            for twin in twins:
                twin.begin(len(data))
            at = 0
            while twins[0].remaining:
                results = [twin.decode(first, at, 33_333) for twin in twins]
                assert results[0] == results[1]
                at += results[0][1]
            assert at == len(first)
            assert state(twins[0]) == state(twins[1])

"""LZFoo, compressing: one suite for the compiled kernel and its pure twin."""

from __future__ import annotations

import random
import sys
import sysconfig
import threading
import tracemalloc
from pathlib import Path
from types import FrameType

import lzfoo_model as model
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lzfoo_model import texts, windows

LEVELS = [1, 2]


def size_bound(size: int) -> int:
    return size + size // 256 + 2


@pytest.mark.parametrize("level", LEVELS)
@given(window=windows, data=st.lists(texts, max_size=6))
def test_packets_decode_and_no_copy_points_beyond_the_window(lzfoo, window, data, level):
    compressor = lzfoo.Compressor(window, level)
    assert model.decode([compressor.compress(text) for text in data], window) == data


@pytest.mark.parametrize("level", LEVELS)
@given(data=st.lists(texts, max_size=3))
def test_without_a_window_there_are_literals_only(lzfoo, data, level):
    compressor = lzfoo.Compressor(0, level)
    for text in data:
        assert model.elements(compressor.compress(text)) == ([text] if text else [])


def test_history_is_shared_by_packets(lzfoo):
    text = random.Random(1).randbytes(200)
    compressor = lzfoo.Compressor(1000)
    assert len(compressor.compress(text)) > 200
    assert model.elements(compressor.compress(text)) == [(200, 200)]


@pytest.mark.parametrize(("gap", "expected"), [(800, (200, 1000)), (801, None)])
def test_history_ends_where_the_window_does(lzfoo, gap, expected):
    chance = random.Random(2)
    text = chance.randbytes(200)
    compressor = lzfoo.Compressor(1000)
    compressor.compress(text + chance.randbytes(gap))
    assert model.elements(compressor.compress(text)) == [expected or text]


def test_a_fixed_text_always_gives_the_same_bytes(lzfoo):
    compressor = lzfoo.Compressor(65536)
    assert compressor.compress(b"a bamboo log of a bamboo log").hex() == (
        "1061 2062616d626f6f206c6f67206f6620 8c10".replace(" ", "")
    )
    assert compressor.compress(b" of a bamboo log" * 9).hex() == "f89010"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("unit", [1, 2, 3, 5, 15, 16, 17, 100])
def test_repetition_takes_a_handful_of_bytes(lzfoo, unit, level):
    text = random.Random(unit).randbytes(unit) * (20000 // unit)
    assert len(lzfoo.Compressor(65536, level).compress(text)) < unit + 20


def test_the_second_level_makes_fewer_bytes(lzfoo_twins):
    lzfoo, _ = lzfoo_twins
    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    quick, thorough = (lzfoo.Compressor(65536, level).compress(text) for level in LEVELS)
    assert len(thorough) < 0.92 * len(quick)


# Texts in which a search may take longer and longer.
_HOSTILE = {
    "one letter": lambda size: bytes(size),
    "two letters": lambda size: bytes(random.Random(8).choices(b"ab", k=size)),
    "nearly a period": lambda size: (bytes(63) + b"a" + bytes(62) + b"b") * (size // 126),
    "ever longer": lambda size: b"".join(bytes(run) + b"a" for run in range(size))[:size],
    "one ending": lambda size: b"".join(
        b"abcd" + bytes([number % 251]) for number in range(size // 5)
    ),
}


@pytest.mark.parametrize("text", _HOSTILE)
@pytest.mark.parametrize("level", LEVELS)
def test_the_work_grows_with_the_size_and_nothing_else(lzfoo_twins, text, level):
    """Counted in the pure twin, which makes the same comparisons of bytes as the compiled one."""
    _, pure = lzfoo_twins
    work = [compared_bytes(pure, _HOSTILE[text](size), level) for size in (3000, 6000, 12_000)]
    assert work[2] <= (80, 1200)[level - 1] * 12_000
    assert work[2] <= 2.3 * work[1] + 1000


def compared_bytes(pure, text: bytes, level: int) -> int:
    compared = 0

    def returned(frame: FrameType, event: str, result: object) -> None:
        nonlocal compared
        if event == "return" and frame.f_code.co_name == "_common" and isinstance(result, int):
            compared += 1 + result

    sys.setprofile(returned)
    try:
        pure.Compressor(65536, level).compress(text)
    finally:
        sys.setprofile(None)
    assert compared
    return compared


def test_there_are_two_levels(lzfoo):
    assert [lzfoo.Compressor(9).level, lzfoo.Compressor(9, level=2).level] == LEVELS
    for level in (0, 3, -1):
        with pytest.raises(ValueError, match=f"a level is 1 or 2, not {level}"):
            lzfoo.Compressor(9, level)


@pytest.mark.parametrize("level", LEVELS)
@given(window=windows, before=texts, text=texts, after=texts, size_max=st.integers(0, 300))
def test_what_would_be_too_large_is_refused_and_leaves_no_trace(
    lzfoo, window, before, text, after, size_max, level
):
    compressor, other = (lzfoo.Compressor(window, level) for _ in range(2))
    compressor.compress(before)
    other.compress(before)
    packet = compressor.compress(text, size_max)
    if packet is None:
        assert len(lzfoo_after(lzfoo, window, before, text, level)) > size_max
    else:
        assert packet == other.compress(text)
        assert len(packet) <= size_max
    assert compressor.compress(after) == other.compress(after)


@given(texts, texts)
def test_the_size_limit_is_met_to_the_byte(lzfoo, before, text):
    size = len(lzfoo_after(lzfoo, 300, before, text))
    compressor = lzfoo.Compressor(300)
    compressor.compress(before)
    if size:
        assert compressor.compress(text, size - 1) is None
    assert len(compressor.compress(text, size)) == size


def lzfoo_after(lzfoo, window: int, before: bytes, text: bytes, level: int = 1) -> bytes:
    compressor = lzfoo.Compressor(window, level)
    compressor.compress(before)
    return compressor.compress(text)


def test_a_large_packet_is_refused_without_a_trace(lzfoo):
    chance = random.Random(3)
    words = [chance.randbytes(chance.randint(1, 30)) for _ in range(200)]
    text = b"".join(chance.choices(words, k=4000))
    compressor, other = lzfoo.Compressor(65536), lzfoo.Compressor(65536)
    assert compressor.compress(text) == other.compress(text)
    assert compressor.compress(text[::-1], 1000) is None
    assert compressor.compress(text[:5000]) == other.compress(text[:5000])


@pytest.mark.parametrize("level", LEVELS)
@given(window=windows, text=texts)
def test_nothing_grows_by_more_than_is_promised(lzfoo, window, text, level):
    assert len(lzfoo.Compressor(window, level).compress(text)) <= size_bound(len(text))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("run", [113, 120, 250, 257, 263, 300, 1000])
def test_nothing_grows_by_more_than_is_promised_at_the_worst(lzfoo, run, level):
    """Matches that save as little as possible, between runs with the costliest lengths."""
    chance = random.Random(run)
    seeds = [chance.randbytes(8) for _ in range(40)]
    text = b"".join(seeds) + b"".join(seed + chance.randbytes(run) for seed in seeds * 2)
    assert len(lzfoo.Compressor(65536, level).compress(text)) <= size_bound(len(text))


def test_chance_costs_next_to_nothing(lzfoo):
    text = random.Random(4).randbytes(100_000)
    assert len(lzfoo.Compressor(65536).compress(text)) == len(text) + 4


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_every_contiguous_buffer_will_do(lzfoo, wrap):
    text = b"abcdefgh" * 20
    packet = lzfoo.Compressor(100).compress(wrap(text))
    assert packet == lzfoo.Compressor(100).compress(text)
    words = memoryview(bytes(text)).cast("Q")
    assert lzfoo.Compressor(100).compress(words) == packet


def test_what_is_not_contiguous_or_no_buffer_is_refused(lzfoo):
    compressor = lzfoo.Compressor(100)
    with pytest.raises(BufferError, match="contiguous"):
        compressor.compress(memoryview(b"abcd")[::2])
    for data in ("text", None, [1]):
        with pytest.raises(TypeError):
            compressor.compress(data)


@pytest.mark.parametrize("window", [-1, 2**30 + 1, 2**64])
def test_windows_out_of_range_are_refused(lzfoo, window):
    for make in (lzfoo.Compressor, lzfoo.Decompressor):
        with pytest.raises(ValueError, match=f"a window is .* not {window}"):
            make(window)
    with pytest.raises(TypeError):
        lzfoo.Compressor("65536")


def test_the_window_can_be_read(lzfoo):
    assert lzfoo.Compressor(77).window == lzfoo.Decompressor(77).window == 77


def test_a_negative_limit_is_refused(lzfoo):
    with pytest.raises(ValueError, match="size_max is negative"):
        lzfoo.Compressor(100).compress(b"", -1)


def test_a_large_window_takes_no_memory_before_there_is_data(lzfoo):
    tracemalloc.start()
    try:
        compressor = lzfoo.Compressor(lzfoo.WINDOW_MAX)
        for _ in range(3):
            compressor.compress(bytes(1000))
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The table of the match finder, as bytes or as a list, doubled while it is copied.
    assert peak < 3_000_000
    assert size < 2_000_000


def test_the_table_is_as_large_as_what_was_sent(lzfoo_twins):
    """A compressor that has sent nothing, or nothing worth compressing, keeps no table at all."""
    lzfoo, _ = lzfoo_twins
    chance = random.Random(7)

    def memory(*packets: bytes) -> int:
        tracemalloc.start()
        try:
            compressor = lzfoo.Compressor(lzfoo.WINDOW_MAX)
            for packet in packets:
                compressor.compress(packet, len(packet) - 1)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert memory() < 300
    assert memory(chance.randbytes(50)) < 1000
    assert memory(bytes(300)) < 4000
    assert memory(*[bytes(300)] * 10) < 30_000


@pytest.mark.parametrize("level", LEVELS)
def test_one_that_rests_keeps_its_history_alone(lzfoo_twins, level):
    lzfoo, _ = lzfoo_twins
    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    tracemalloc.start()
    try:
        compressor = lzfoo.Compressor(65536, level)
        compressor.compress(text[:70_000])
        compressor.rest()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 65536 + 1000
    assert len(compressor.compress(text[30_000:60_000])) < 30


@pytest.mark.parametrize("level", LEVELS)
@given(window=windows, data=st.lists(st.tuples(texts, st.booleans()), max_size=6))
def test_twins_that_rest_between_packets_go_on_alike(lzfoo_twins, window, data, level):
    twins = [twin.Compressor(window, level) for twin in lzfoo_twins]
    packets = []
    for text, rests in data:
        first, second = (twin.compress(text, len(text) if rests else None) for twin in twins)
        assert first == second
        packets += [(text, first)] if first is not None else []
        if rests:
            for twin in twins:
                twin.rest()
    texts_sent = [text for text, _ in packets]
    assert model.decode([packet for _, packet in packets], window) == texts_sent


def test_memory_is_given_back_after_a_large_packet(lzfoo):
    tracemalloc.start()
    try:
        compressor = lzfoo.Compressor(10_000)
        compressor.compress(bytes(2_000_000))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 100_000


def test_long_streams_stay_within_two_windows(lzfoo):
    text = random.Random(5).randbytes(1000)
    compressor = lzfoo.Compressor(20_000)
    for _ in range(40):
        compressor.compress(text)
    tracemalloc.start()
    try:
        for _ in range(100):
            compressor.compress(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Two windows of history; on top of it a packet, and a copy of it in the pure twin.
    assert peak < 70_000


def test_two_threads_at_once_do_no_harm(lzfoo_twins):
    """One of them may be told that the other is at work; the history stays whole."""
    lzfoo, _ = lzfoo_twins
    text = random.Random(6).randbytes(300) * 1000
    compressor = lzfoo.Compressor(65536)
    packets, refused = [], []

    def work():
        for _ in range(100):
            try:
                packets.append(compressor.compress(text))
            except RuntimeError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(packets) + len(refused) == 300
    decompressor = lzfoo.Decompressor(65536)
    # All but the first are alike.
    for packet in sorted(packets, key=len, reverse=True):
        decompressor.begin(len(text))
        assert decompressor.decode(packet, 0, len(text)) == (text, len(packet))

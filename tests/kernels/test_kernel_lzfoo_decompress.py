"""LZFoo, decompressing: one suite for the compiled kernel and its pure twin."""

from __future__ import annotations

import random
import threading
import tracemalloc

import lzfoo_model as model
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lzfoo_model import chance_packet, copy, literal, packets, primed, sizes, texts, windows

HUGE = 2**64 - 1


def decode(lzfoo, data: bytes, size: int, window: int = 1000, history: bytes = b""):
    """Decode one packet in one call, after others that formed the history."""
    decompressor = primed(lzfoo, window, history)
    decompressor.begin(size)
    output, read = decompressor.decode(data, 0, 100_000)
    return output, read, decompressor


def assert_fault(lzfoo, name: str, position: int, *arguments) -> None:
    _, _, decompressor = decode(lzfoo, *arguments)
    assert decompressor.fault == getattr(lzfoo, name)
    assert decompressor.fault_position == position
    assert decompressor.pending


def test_a_copy_repeats_what_it_makes(lzfoo):
    """The example of the format's page: 5 bytes from 2 bytes back."""
    data = literal(b"abc") + copy(5, 2)
    assert decode(lzfoo, data, 8)[:2] == (b"abcbcbcb", len(data))


@pytest.mark.parametrize("octets", range(9))
@pytest.mark.parametrize("length", [0, 1, 119, 120, 255, 256, 1000])
def test_lengths_come_in_every_width(lzfoo, octets, length):
    text = random.Random(7).randbytes(length)
    data = literal(text, octets) + copy(length, max(1, length), octets)
    history = b"x" * (length == 0)
    output, read, decompressor = decode(lzfoo, data, 2 * length, 1000, history)
    if length:
        assert (output, read, decompressor.fault) == (2 * text, len(data), 0)
    else:
        # Nothing is missing, so any byte is one too many.
        assert decompressor.fault == lzfoo.TRAILING


@pytest.mark.parametrize("octets", range(9))
@pytest.mark.parametrize("offset", [1, 2, 15, 16, 17, 247, 248, 255, 256, 999])
def test_offsets_come_in_every_width(lzfoo, octets, offset):
    history = random.Random(8).randbytes(1000)
    data = copy(40, offset, 0, octets)
    expected = (history[-offset:] * 40)[:40]
    assert decode(lzfoo, data, 40, 1000, history)[:2] == (expected, len(data))


@given(windows, st.lists(texts, max_size=6), st.data())
def test_packets_come_back_whatever_the_pieces(lzfoo, window, data, draw):
    compressor, decompressor = lzfoo.Compressor(window), lzfoo.Decompressor(window)
    for text in data:
        packet = compressor.compress(text)
        decompressor.begin(len(text))
        output = b"".join(pieces(decompressor, packet, draw))
        assert (output, decompressor.remaining, decompressor.fault) == (text, 0, 0)
        assert decompressor.position == len(packet)
        assert decompressor.between_elements
        assert not decompressor.pending


def pieces(decompressor, packet: bytes, draw):
    """Decode with input and output cut at random."""
    cuts = draw.draw(st.lists(st.integers(0, len(packet)), max_size=6).map(sorted))
    out_max = draw.draw(st.integers(1, 50) | st.just(10**6))
    at = 0
    for cut in [*cuts, len(packet)]:
        while not decompressor.fault and (at < cut or decompressor.pending):
            output, read = decompressor.decode(packet[:cut], at, out_max)
            assert len(output) <= out_max
            assert output or read or decompressor.fault
            at += read
            yield output


@given(windows, texts, packets, sizes, st.data())
def test_every_cut_gives_the_same_bytes_and_the_same_fault(
    lzfoo, window, history, packet, size, draw
):
    found = []
    for cut in (False, True):
        decompressor = primed(lzfoo, window, history)
        decompressor.begin(size)
        made = bytearray()
        # The test does not wait for 2**64 bytes.
        stream = pieces(decompressor, packet, draw) if cut else whole(decompressor, packet)
        for output in stream:
            made += output
            if len(made) > 700:
                break
        assert len(made) <= size
        after = (decompressor.position, decompressor.fault, decompressor.fault_position)
        found.append((bytes(made[:700]), None if len(made) > 700 else after))
    assert found[0] == found[1]


def whole(decompressor, packet: bytes):
    at = 0
    while not decompressor.fault and (at < len(packet) or decompressor.pending):
        output, read = decompressor.decode(packet, at, 3000)
        at += read
        yield output


@given(windows, st.binary(max_size=300), st.integers(0, 500))
def test_no_more_is_made_than_was_declared(lzfoo, window, data, size):
    decompressor = lzfoo.Decompressor(window)
    decompressor.begin(size)
    made = b"".join(whole(decompressor, data))
    assert len(made) + decompressor.remaining == size
    assert decompressor.position <= len(data)


def test_zero_is_no_offset(lzfoo):
    assert_fault(lzfoo, "ZERO_OFFSET", 4, literal(b"ab") + copy(3, 0), 9)
    assert_fault(lzfoo, "ZERO_OFFSET", 6, literal(b"ab") + copy(3, 0, 2, 8), 9)


def test_no_offset_points_before_the_history(lzfoo):
    assert_fault(lzfoo, "FAR_OFFSET", 4, literal(b"ab") + copy(3, 3), 9)
    assert_fault(lzfoo, "FAR_OFFSET", 1, copy(1, 1), 9)
    assert_fault(lzfoo, "FAR_OFFSET", 1, copy(3, 11), 9, 1000, b"x" * 10)
    for offset in (2**31, 2**32 + 1, 2**63, HUGE):
        assert_fault(lzfoo, "FAR_OFFSET", 4, literal(b"ab") + copy(3, offset), 9)


@pytest.mark.parametrize("history", [b"x" * 11, b"x" * 500, b""])
def test_no_offset_points_before_the_window(lzfoo, history):
    data = literal(b"y" * 30) + copy(3, 11)
    assert_fault(lzfoo, "FAR_OFFSET", 32, data, 33, 10, history)
    data = literal(b"y" * 30) + copy(3, 10)
    assert decode(lzfoo, data, 33, 10, history)[0] == b"y" * 33


def test_an_offset_is_wrong_even_if_nothing_is_copied(lzfoo):
    assert_fault(lzfoo, "ZERO_OFFSET", 1, copy(0, 0), 9)
    assert_fault(lzfoo, "FAR_OFFSET", 1, copy(0, 1), 9)


def test_no_element_is_longer_than_what_remains(lzfoo):
    for size in (6, 120, 300, 2**32, HUGE):
        assert_fault(lzfoo, "BAD_LENGTH", 3, literal(b"ab") + copy(size, 1), 7)
        head = literal(bytes(120), 8)[:9] if size == 120 else model.number(0, 120, size, 0)
        assert_fault(lzfoo, "BAD_LENGTH", 3, literal(b"ab") + head, 7)


def test_a_length_is_wrong_before_an_offset_is_there(lzfoo):
    assert_fault(lzfoo, "BAD_LENGTH", 0, copy(9, 1)[:1], 8)
    assert_fault(lzfoo, "BAD_LENGTH", 0, copy(300, 1)[:3], 8)


def test_nothing_follows_when_all_is_made(lzfoo):
    for rest in (literal(b""), literal(b"c"), copy(0, 1), copy(1, 1), b"\xff"):
        output, read, decompressor = decode(lzfoo, literal(b"ab") + rest, 2)
        assert (output, read, decompressor.fault) == (b"ab", 3, 0)
        assert decompressor.decode(literal(b"ab") + rest, 3, 10) == (b"", 0)
        assert (decompressor.fault, decompressor.fault_position) == (lzfoo.TRAILING, 3)


def test_an_empty_packet_is_complete_at_once(lzfoo):
    assert decode(lzfoo, b"", 0)[2].remaining == 0
    assert_fault(lzfoo, "TRAILING", 0, literal(b""), 0)


def test_what_came_before_a_fault_is_handed_out(lzfoo):
    output, read, decompressor = decode(lzfoo, literal(b"ab") + copy(3, 9) + b"more", 9)
    assert (output, read) == (b"ab", 5)
    assert decompressor.position == 5
    assert decompressor.decode(b"more", 0, 10) == (b"", 0)


def test_empty_literals_and_copies_are_elements(lzfoo):
    data = literal(b"") + literal(b"a") + copy(0, 1) + literal(b"", 8) + literal(b"b")
    assert decode(lzfoo, data, 2)[:2] == (b"ab", len(data))


@pytest.mark.parametrize("data", [literal(b"abc")[:-1], copy(2, 1)[:-1], b"\x7f" + bytes(5), b""])
def test_a_cut_element_waits_for_more(lzfoo, data):
    output, read, decompressor = decode(lzfoo, literal(b"x") + data, 100)
    assert (output, read) == (b"x" + data[1:] * (data[:1] == b"\3"), len(data) + 2)
    assert not decompressor.fault
    assert not decompressor.pending
    assert decompressor.between_elements == (not data)


def test_lengths_reach_up_to_the_largest_number(lzfoo):
    """The test does not wait for the end, but nothing overflows or is allocated on the way."""
    tracemalloc.start()
    try:
        decompressor = lzfoo.Decompressor(lzfoo.WINDOW_MAX)
        decompressor.begin(HUGE)
        data = literal(b"abc") + copy(HUGE - 3, 3)
        output, read = decompressor.decode(data, 0, 10_000)
        assert (output, read) == (b"abc" * 3333 + b"a", len(data))
        for _ in range(5):
            assert decompressor.pending
            output = decompressor.decode(b"", 0, 9999)[0]
            assert output == b"bca" * 3333
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decompressor.remaining == HUGE - 10_000 - 5 * 9999
    assert peak < 400_000


def test_a_claimed_size_takes_no_memory(lzfoo):
    tracemalloc.start()
    try:
        for size in (2**32, HUGE):
            decompressor = lzfoo.Decompressor(lzfoo.WINDOW_MAX)
            decompressor.begin(size)
            decompressor.decode(model.number(0, 120, size, 0) + b"abc", 0, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_history_takes_no_more_than_its_window(lzfoo):
    decompressor = lzfoo.Decompressor(10_000)
    decompressor.begin(10**6)
    tracemalloc.start()
    try:
        for _ in range(1000):
            decompressor.decode(literal(bytes(1000)), 0, 1000)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decompressor.remaining == 0
    assert size <= 40_000
    assert peak <= 50_000


@pytest.mark.parametrize("window", [1, 100, 1000, 4096, 65536])
def test_history_wraps_wherever_it_may(lzfoo, window):
    """Pieces of all sizes; copies that start, end and are cut at every place of the ring."""
    chance = random.Random(window)
    decompressor = lzfoo.Decompressor(window)
    history = b""
    for _ in range(60):
        packet, made = chance_packet(chance, history, window)
        decompressor.begin(len(made))
        at, output = 0, bytearray()
        while decompressor.remaining:
            piece, read = decompressor.decode(packet, at, chance.choice([7, 300, 2000, 10**6]))
            output += piece
            at += read
        assert (output, at) == (made, len(packet))
        history = (history + made)[-window:]


@pytest.mark.parametrize("history", [0, 10, 20, 99, 100, 250])
@pytest.mark.parametrize("before", [0, 1, 10, 20, 119, 300])
def test_offsets_are_checked_to_the_byte_amid_other_elements(lzfoo, history, before):
    """With so much input and output around them that no boundary is near."""
    window, chance = 100, random.Random(9)
    past = chance.randbytes(history)
    head = b"".join(literal(chance.randbytes(1)) for _ in range(before))
    reach = min(window, history + before)
    rest = literal(b"rest of it") * 100
    for offset in {0, max(0, reach - 1), reach, reach + 1, 2 * window, HUGE}:
        for length in (0, 1, 5, 40, 119):
            packet = head + copy(length, offset) + rest
            output, read, decompressor = decode(lzfoo, packet, before + length + 1000, window, past)
            if 1 <= offset <= reach:
                assert model.decode([literal(past), packet], window)[1] == output
                assert (read, decompressor.fault) == (len(packet), 0)
            else:
                name = "FAR_OFFSET" if offset > 0 else "ZERO_OFFSET"
                assert decompressor.fault == getattr(lzfoo, name)
                assert decompressor.fault_position == len(head) + 1
                assert len(output) == before


def test_two_threads_at_once_do_no_harm(lzfoo_twins):
    """One of them may be told that the other is at work; every byte is produced once."""
    lzfoo, _ = lzfoo_twins
    size = 30_000_000
    decompressor = lzfoo.Decompressor(65536)
    decompressor.begin(size)
    decompressor.decode(literal(b"abc"), 0, 3)
    decompressor.decode(copy(size - 3, 3), 0, 3)
    made, refused = [], []

    def work():
        while decompressor.remaining:
            try:
                made.append(decompressor.decode(b"", 0, 60_000)[0])
            except RuntimeError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, made)) == size - 6
    # A thread that comes after the last byte gets nothing.
    assert {piece[:3] for piece in made} <= {b"abc", b""}


def test_packets_follow_one_another(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(3)
    with pytest.raises(ValueError, match="not complete"):
        decompressor.begin(3)
    assert decompressor.decode(literal(b"abc"), 0, 9) == (b"abc", 4)
    decompressor.begin(3)
    assert decompressor.position == 0
    assert decompressor.decode(copy(3, 3), 0, 9) == (b"abc", 2)
    decompressor.begin(1)
    decompressor.decode(copy(1, 0), 0, 9)
    with pytest.raises(ValueError, match="at fault"):
        decompressor.begin(1)


@pytest.mark.parametrize("size", [-1, 2**64])
def test_sizes_out_of_range_are_refused(lzfoo, size):
    decompressor = lzfoo.Decompressor(10)
    with pytest.raises(ValueError, match=f"size is .* not {size}"):
        decompressor.begin(size)
    decompressor.begin(HUGE)


def test_wrong_calls_change_nothing(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(3)
    for arguments in ((b"abc", -1, 5), (b"abc", 4, 5)):
        with pytest.raises(ValueError, match="offset is outside"):
            decompressor.decode(*arguments)
    with pytest.raises(ValueError, match="out_max is negative"):
        decompressor.decode(b"abc", 0, -1)
    with pytest.raises(BufferError, match="contiguous"):
        decompressor.decode(memoryview(b"abcd")[::2], 0, 5)
    for data in ("text", None):
        with pytest.raises(TypeError):
            decompressor.decode(data, 0, 5)
    assert decompressor.decode(b"", 0, 5) == (b"", 0)
    assert decompressor.decode(literal(b"abc"), 0, 0) == (b"", 0)
    assert decompressor.decode(bytearray(literal(b"abc")), 0, 5) == (b"abc", 4)


def test_offsets_count_bytes_whatever_the_items_are(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(2)
    data = memoryview(b"\0" + literal(b"ab")).cast("H")
    assert decompressor.decode(data, 1, 5) == (b"ab", 3)

"""The LZFoo codec: typed errors, with the byte at fault, on both kernels."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import culm.wire.lzfoo
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from kernels.kernel_twins import IMPLEMENTATIONS, codec
from kernels.lzfoo_model import copy, literal, packets, texts, windows

BAD_LENGTH, BAD_OFFSET = WireErrorCode.BAD_LENGTH, WireErrorCode.BAD_OFFSET
TRAILING_DATA, TRUNCATED = WireErrorCode.TRAILING_DATA, WireErrorCode.TRUNCATED
LIMIT_EXCEEDED = WireErrorCode.LIMIT_EXCEEDED


@pytest.fixture(params=IMPLEMENTATIONS, scope="module")
def lzfoo(request: pytest.FixtureRequest) -> ModuleType:
    return codec("lzfoo", request.param)


def receive(decompressor, packet: bytes, size: int, out_max: int) -> tuple[bytes, object]:
    """The view of a reader of whole packets: the bytes, and the error if there is one."""
    output, at = bytearray(), 0
    try:
        decompressor.begin(size)
        while at < len(packet) or decompressor.pending:
            piece, read = decompressor.decode(packet, at, out_max)
            assert piece or read or decompressor.pending
            output += piece
            at += read
        decompressor.finish()
    except DecodeError as error:
        return bytes(output), (error.code, error.offset, str(error))
    return bytes(output), None


def test_the_example_of_the_documentation():
    assert doctest.testmod(culm.wire.lzfoo).failed == 0


@given(windows, st.lists(texts, max_size=6), st.integers(1, 300))
def test_packets_round_trip_with_a_shared_history(lzfoo, window, data, out_max):
    compressor, decompressor = lzfoo.Compressor(window), lzfoo.Decompressor(window)
    assert decompressor.window == window
    for text in data:
        packet = compressor.compress(text)
        assert receive(decompressor, packet, len(text), out_max) == (text, None)
        assert (decompressor.remaining, decompressor.position) == (0, len(packet))


@given(windows, texts, st.integers(0, 200))
def test_what_is_sent_raw_is_in_no_history(lzfoo, window, text, size_max):
    compressor, decompressor = lzfoo.Compressor(window), lzfoo.Decompressor(window)
    for data in (text, text + text, text):
        packet = compressor.compress(data, size_max)
        if packet is not None:
            assert len(packet) <= size_max
            assert receive(decompressor, packet, len(data), 10**6) == (data, None)


@pytest.mark.parametrize(
    ("packet", "size", "expected"),
    [
        (literal(b"ab") + copy(3, 0), 9, (b"ab", BAD_OFFSET, 4)),
        (literal(b"ab") + copy(3, 3), 9, (b"ab", BAD_OFFSET, 4)),
        (literal(b"ab" * 8) + copy(3, 11), 99, (b"ab" * 8, BAD_OFFSET, 18)),
        (literal(b"ab") + copy(0, 3), 9, (b"ab", BAD_OFFSET, 4)),
        (literal(b"ab") + copy(8, 1), 9, (b"ab", BAD_LENGTH, 3)),
        (literal(b"ab") + copy(2**64 - 1, 1), 9, (b"ab", BAD_LENGTH, 3)),
        (literal(b"abc"), 2, (b"", BAD_LENGTH, 0)),
        (literal(b"ab") + literal(b""), 2, (b"ab", TRAILING_DATA, 3)),
        (literal(b"ab") + b"\xff", 2, (b"ab", TRAILING_DATA, 3)),
        (literal(b""), 0, (b"", TRAILING_DATA, 0)),
        (literal(b"ab"), 3, (b"ab", TRUNCATED, 3)),
        (literal(b"abc")[:-1], 3, (b"ab", TRUNCATED, 3)),
        (literal(b"ab") + copy(1, 1)[:-1], 3, (b"ab", TRUNCATED, 4)),
        (b"", 1, (b"", TRUNCATED, 0)),
    ],
)
@pytest.mark.parametrize("out_max", [1, 2, 1000])
def test_faults_are_told_from_each_other(lzfoo, packet, size, expected, out_max):
    output, (code, offset, _) = receive(lzfoo.Decompressor(10), packet, size, out_max)
    assert (output, code, offset) == expected
    with pytest.raises(DecodeError) as caught:
        lzfoo.Decompressor(10).packet(packet, size)
    assert (caught.value.code, caught.value.offset) == (code, offset)


def test_a_truncated_packet_could_have_been_completed(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(3)
    decompressor.decode(b"\3ab", 0, 10)
    with pytest.raises(Truncated):
        decompressor.finish()
    assert decompressor.decode(b"c", 0, 10) == (b"c", 1)
    decompressor.finish()


@given(windows, packets, st.integers(0, 300), st.lists(st.integers(0, 400)), st.integers(1, 99))
def test_the_cut_of_the_input_changes_neither_bytes_nor_errors(
    lzfoo, window, packet, size, cuts, out_max
):
    expected = receive(lzfoo.Decompressor(window), packet, size, 10**6)
    decompressor, output, error = lzfoo.Decompressor(window), bytearray(), None
    decompressor.begin(size)
    try:
        at = 0
        for cut in [*sorted(cut for cut in cuts if cut < len(packet)), len(packet)]:
            while at < cut or decompressor.pending:
                piece, read = decompressor.decode(packet[:cut], at, out_max)
                output += piece
                at += read
        decompressor.finish()
    except DecodeError as caught:
        error = (caught.code, caught.offset, str(caught))
    assert (bytes(output), error) == expected


@given(windows, st.lists(st.tuples(packets, st.integers(0, 300)), max_size=4))
def test_a_packet_that_has_come_whole_says_the_same(lzfoo, window, arriving):
    piecewise, whole = lzfoo.Decompressor(window), lzfoo.Decompressor(window)
    for packet, size in arriving:
        output, error = receive(piecewise, packet, size, 7)
        if error is None:
            assert whole.packet(packet, size) == output
            continue
        with pytest.raises(DecodeError) as caught:
            whole.packet(packet, size)
        assert (caught.value.code, caught.value.offset, str(caught.value)) == error
        return


def test_a_fault_stays(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(9)
    assert decompressor.decode(literal(b"ab") + copy(3, 0), 0, 100) == (b"ab", 5)
    for call in (lambda: decompressor.decode(b"x", 0, 9), decompressor.finish) * 2:
        assert decompressor.pending
        with pytest.raises(DecodeError, match="offset zero"):
            call()
    with pytest.raises(ValueError, match="at fault"):
        decompressor.begin(1)


def test_a_packet_is_not_finished_while_bytes_are_pending(lzfoo):
    decompressor = lzfoo.Decompressor(10)
    decompressor.begin(9)
    assert decompressor.decode(literal(b"a") + copy(8, 1), 0, 5) == (b"aaaaa", 4)
    with pytest.raises(ValueError, match="pending") as caught:
        decompressor.finish()
    assert not isinstance(caught.value, DecodeError)
    assert decompressor.decode(b"", 0, 5) == (b"aaaa", 0)
    decompressor.finish()


@given(windows, texts)
def test_one_shot(lzfoo, window, text):
    data = lzfoo.compress(text, window)
    assert data == lzfoo.Compressor(window).compress(text)
    assert lzfoo.decompress(data, len(text), window) == text
    assert lzfoo.decompress(data, 10**9, window) == text
    if text:
        with pytest.raises(DecodeError) as caught:
            lzfoo.decompress(data, len(text) - 1, window)
        assert caught.value.code == LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (literal(b"abc") + literal(b"d"), (LIMIT_EXCEEDED, 4)),
        (literal(b"abc") + copy(1, 1), (LIMIT_EXCEEDED, 4)),
        (literal(b"ab") + copy(2, 1), (LIMIT_EXCEEDED, 3)),
        (literal(b"ab") + copy(2**63, 1), (LIMIT_EXCEEDED, 3)),
        (literal(b"ab") + copy(1, 3), (BAD_OFFSET, 4)),
        (literal(b"abc")[:-1], (TRUNCATED, 3)),
        (literal(b"ab") + copy(1, 1)[:-1], (TRUNCATED, 4)),
        (b"\x78", (TRUNCATED, 1)),
    ],
)
def test_one_shot_faults(lzfoo, data, expected):
    with pytest.raises(DecodeError) as caught:
        lzfoo.decompress(data, 3, 100)
    assert (caught.value.code, caught.value.offset) == expected
    assert isinstance(caught.value, Truncated) == (expected[0] == TRUNCATED)


def test_one_shot_of_several_pieces(lzfoo):
    text = bytes(range(256)) * 10_000
    data = lzfoo.compress(text, 65536)
    assert len(data) < 300
    assert lzfoo.decompress(data, len(text), 65536) == text

"""VarU64: one suite for the compiled kernel and its pure twin, then the two side by side."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

MAX = 2**64 - 1
WORKED = [
    (0, "00"),
    (247, "f7"),
    (248, "f8f8"),
    (255, "f8ff"),
    (256, "f90100"),
    (65535, "f9ffff"),
    (65536, "fa010000"),
    (MAX, "ffffffffffffffffff"),
]
# Where encodings grow.
EDGES = [0, 247, 248, *(2 ** (8 * k) + d for k in range(1, 8) for d in (-1, 0)), MAX]

numbers = st.sampled_from(EDGES) | st.integers(0, MAX) | st.integers(0, 300)
# Valid encodings, padded ones, and cut or arbitrary bytes.
streams = st.lists(
    st.one_of(
        st.binary(max_size=10),
        st.tuples(numbers, st.integers(0, 8)).map(lambda drawn: padded(*drawn)),
    ),
    max_size=12,
).map(b"".join)


def padded(value: int, octets: int) -> bytes:
    """`value` in `octets` bytes after the first one, or in more if these are too few."""
    if octets == 0 and value < 248:
        return bytes([value])
    octets = max(octets, 1, (value.bit_length() + 7) // 8)
    return bytes([247 + octets]) + value.to_bytes(octets, "big")


def shortest(value: int) -> bytes:
    return padded(value, 0)


@pytest.mark.parametrize(("value", "encoding"), WORKED)
def test_worked_values(varu64, value, encoding):
    data = bytes.fromhex(encoding)
    assert varu64.encode(value) == data
    assert varu64.size(value) == len(data)
    assert varu64.decode(data, 0, True) == (value, len(data))


@given(numbers)
def test_emitted_is_the_shortest_encoding(varu64, value):
    assert varu64.encode(value) == shortest(value)
    assert varu64.size(value) == len(shortest(value))


@given(st.lists(numbers))
def test_encodings_sort_like_numbers(varu64, values):
    assert sorted(map(varu64.encode, values)) == list(map(varu64.encode, sorted(values)))


@given(numbers, st.integers(0, 8), st.binary(max_size=9), st.binary(max_size=9))
def test_longer_encodings_decode_unless_only_canonical_ones_will_do(
    varu64, value, octets, before, after
):
    encoding = padded(value, octets)
    data, start, end = before + encoding + after, len(before), len(before) + len(encoding)
    assert varu64.decode(data, start, False) == (value, end)
    canonical = encoding == shortest(value)
    assert varu64.decode(data, start, True) == (
        (value, end) if canonical else (0, varu64.NON_CANONICAL)
    )


@given(numbers, st.integers(0, 8), st.booleans())
def test_every_proper_prefix_is_truncated(varu64, value, octets, canonical):
    encoding = padded(value, octets)
    for size in range(len(encoding)):
        # The bytes after the end of a view must not matter.
        cut = memoryview(encoding)[:size]
        for data in (cut, bytes(cut)):
            assert varu64.decode(data, 0, canonical) == (0, varu64.TRUNCATED)


def test_beyond_the_end_there_is_too_little(varu64):
    assert varu64.decode(b"\1\2", 2, False) == (0, varu64.TRUNCATED)
    assert varu64.decode(b"\1\2", 9, False) == (0, varu64.TRUNCATED)


@given(st.lists(numbers, max_size=40), st.binary(max_size=5))
def test_many_are_one_after_another(varu64, values, before):
    data = b"".join(map(shortest, values))
    assert varu64.encode_many(values) == data
    assert varu64.encode_many(iter(values)) == data
    assert varu64.encode_many(array("Q", values)) == data
    end = len(before + data)
    for count in (None, len(values)):
        assert varu64.decode_many(before + data, len(before), count, True) == (values, end, 0)
        found = varu64.decode_array(before + data, len(before), count, True)
        assert found == (array("Q", values), end, 0)
        assert found[0].typecode == "Q"


@given(streams, st.integers(0, 3), st.none() | st.integers(0, 9), st.booleans())
def test_many_stop_where_one_does(varu64, data, offset, count, canonical):
    values, end, fault = [], offset, 0
    while end != len(data) if count is None else len(values) < count:
        value, after = varu64.decode(data, end, canonical)
        if after < 0:
            fault = after
            break
        values.append(value)
        end = after
    assert varu64.decode_many(data, offset, count, canonical) == (values, end, fault)
    found, *rest = varu64.decode_array(data, offset, count, canonical)
    assert (found.tolist(), *rest) == (values, end, fault)


@pytest.mark.parametrize("value", [246, 247, 248, 255, 256, MAX])
def test_rows_of_small_numbers_end_where_they_do(varu64, value):
    for before in range(18):
        for after in range(18):
            values = [*range(before), value, *range(240, 240 + min(after, 8)), *range(after)]
            data = b"".join(map(shortest, values))
            assert varu64.decode_many(data, 0, None, True) == (values, len(data), 0)
            cut = varu64.decode_many(data, 0, before, True)
            assert cut == (values[:before], before, 0)
            padded_data = data[:before] + padded(value, 8) + data[before + len(shortest(value)) :]
            assert varu64.decode_many(padded_data, 0, None, False)[0] == values
            if value < MAX:
                found = varu64.decode_many(padded_data, 0, None, True)
                assert found == (values[:before], before, varu64.NON_CANONICAL)


def test_many_more_than_fit_a_cache(varu64):
    values = [(k * 0x9E3779B97F4A7C15) % 2 ** (8 * (k % 8) + 8) for k in range(100_000)]
    data = varu64.encode_many(array("Q", values))
    assert data == b"".join(map(shortest, values))
    assert varu64.decode_many(data, 0, None, True) == (values, len(data), 0)
    assert varu64.decode_array(data, 0, len(values), True)[0].tolist() == values


@pytest.mark.parametrize("decode", ["decode_many", "decode_array"])
def test_a_claimed_count_takes_no_memory(varu64, decode):
    data = b"\1" * 1000
    tracemalloc.start()
    try:
        values, end, fault = getattr(varu64, decode)(data, 0, 2**80, False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (list(values), end, fault) == ([1] * 1000, 1000, varu64.TRUNCATED)
    assert peak < 100_000


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: array("B", data)])
def test_every_contiguous_buffer_will_do(varu64, wrap):
    data = wrap(b"\xf8\xff\x07")
    assert varu64.decode(data, 0, True) == (255, 2)
    assert varu64.decode_many(data, 0, None, True) == ([255, 7], 3, 0)


def test_offsets_count_bytes_whatever_the_items_are(varu64):
    words = memoryview(bytes(range(8))).cast("H")
    assert varu64.decode(words, 5, True) == (5, 6)
    assert varu64.decode_many(words, 4, None, True) == ([4, 5, 6, 7], 8, 0)


@pytest.mark.parametrize("view", [memoryview(b"\1\2\3")[::2], memoryview(b"\1\2\3")[::-1]])
def test_a_buffer_with_gaps_is_refused(varu64, view):
    with pytest.raises(BufferError, match="contiguous"):
        varu64.decode(view, 0, False)
    with pytest.raises(BufferError, match="contiguous"):
        varu64.decode_many(view, 0, None, False)


@pytest.mark.parametrize("data", ["text", [1], None, 7])
def test_what_is_no_buffer_is_refused(varu64, data):
    with pytest.raises(TypeError):
        varu64.decode(data, 0, False)
    with pytest.raises(TypeError):
        varu64.decode_array(data, 0, None, False)


@pytest.mark.parametrize("value", [-1, 2**64, -(2**64), 2**200])
def test_numbers_out_of_range_are_refused(varu64, value):
    for call in (varu64.encode, varu64.size, lambda value: varu64.encode_many([1, value])):
        with pytest.raises(OverflowError, match=rf"0\.\.2\*\*64-1, not {value}"):
            call(value)


@pytest.mark.parametrize("value", [1.0, "1", None, b"\1"])
def test_what_is_no_integer_is_refused(varu64, value):
    for call in (varu64.encode, varu64.size, lambda value: varu64.encode_many([value])):
        with pytest.raises(TypeError):
            call(value)


class Two:
    def __init__(self, on_use=lambda: None):
        self.on_use = on_use

    def __index__(self):
        self.on_use()
        return 2


def test_what_can_be_an_index_is_a_number(varu64):
    assert varu64.encode(Two()) == b"\2"
    assert varu64.encode_many([True, Two()]) == b"\1\2"


def test_a_list_that_is_emptied_meanwhile_does_no_harm(varu64):
    values = []
    values += [Two(values.clear), *range(100)]
    assert varu64.encode_many(values)[:1] == b"\2"


@pytest.mark.parametrize("call", ["decode", "decode_many", "decode_array"])
def test_negative_offsets_and_counts_are_refused(varu64, call):
    last = (True,) if call == "decode" else (None, True)
    with pytest.raises(ValueError, match="offset is negative"):
        getattr(varu64, call)(b"\1", -1, *last)
    if call != "decode":
        with pytest.raises(ValueError, match="count is negative"):
            getattr(varu64, call)(b"\1", 0, -1, True)


@given(streams, st.integers(0, 5), st.booleans())
def test_a_decoder_hands_faults_over(varu64, data, offset, canonical):
    class Found(Exception):
        pass

    def fail(*fault):
        raise Found(*fault)

    decode = varu64.decoder(fail)
    value, end = varu64.decode(data, offset, canonical)
    if end >= 0:
        assert decode(data, offset, canonical=canonical) == (value, end)
    else:
        with pytest.raises(Found) as found:
            decode(data, offset, canonical=canonical)
        assert found.value.args == (data, offset, end)


def test_a_decoder_starts_at_the_beginning_and_takes_longer_encodings(varu64):
    assert varu64.decoder(None)(b"\xf8\1\2") == (1, 2)


@given(streams, st.booleans())
@example(b"\xff" + bytes(8), True)
def test_twins_decode_alike(varu64_twins, data, canonical):
    compiled, pure = varu64_twins
    for offset in range(len(data) + 2):
        expected = pure.decode(data, offset, canonical)
        assert compiled.decode(data, offset, canonical) == expected
        assert compiled.decode(memoryview(data), offset, canonical) == expected
        for count in (None, 2):
            expected = pure.decode_many(data, offset, count, canonical)
            assert compiled.decode_many(data, offset, count, canonical) == expected
            found = compiled.decode_array(data, offset, count, canonical)
            assert found == pure.decode_array(data, offset, count, canonical)


@given(st.lists(numbers))
def test_twins_encode_alike(varu64_twins, values):
    compiled, pure = varu64_twins
    assert compiled.encode_many(values) == pure.encode_many(values)
    assert list(map(compiled.encode, values)) == list(map(pure.encode, values))

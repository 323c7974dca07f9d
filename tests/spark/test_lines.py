"""Lines of files: each of them once, wherever the file is cut."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.spark import lines
from culm.spark.lines import Line, read_lines


@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=9),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.integers(1, 30),
)
def test_each_line_is_read_once_however_the_file_is_cut(texts, end, ends, step):
    data = end.join(texts) + (end if ends else b"")
    found = [
        line
        for start in range(0, max(len(data), 1), step)
        for line in read_lines(io.BytesIO(data), start=start, stop=start + step)
    ]
    assert found == list(read_lines(io.BytesIO(data)))
    wanted = (text.removesuffix(b"\r") for text in data.split(b"\n"))
    assert [line.data for line in found] == [text for text in wanted if text]
    for offset, text, stop in found:
        assert data[offset:stop].removesuffix(b"\n").removesuffix(b"\r") == text
        assert offset == 0 or data[offset - 1 : offset] == b"\n"


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_line_that_is_too_long_is_told_and_not_held(monkeypatch, step):
    monkeypatch.setattr(lines, "LINE_SIZE_MAX", 5)
    data = b"12345\n123456\n1234567890\n12345\r\n123456"
    found = [
        line
        for start in range(0, len(data), step)
        for line in read_lines(io.BytesIO(data), start=start, stop=start + step)
    ]
    long = [Line(6, None, 13), Line(13, None, 24)]
    assert found == [Line(0, b"12345", 6), *long, Line(24, b"12345", 31), Line(31, None, 37)]

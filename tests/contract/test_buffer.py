"""ReceiveBuffer and Outbox against bytes."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from random import Random
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from culm.buffer import LARGE_SIZE_MIN, Buffer, Outbox, ReceiveBuffer, check_size_max
from culm.machines.memory import retained_size

pieces = st.binary(max_size=64)
sizes = st.integers(0, 100)


def held(buffer: ReceiveBuffer) -> int:
    """The bytes of memory that the content keeps alive."""
    contents = [each for each in gc.get_referents(buffer) if isinstance(each, Buffer)]
    return sum(getsizeof(each.obj if isinstance(each, memoryview) else each) for each in contents)


# Ways in which a caller may hold the bytes that it appends.
FORMS: dict[str, Callable[[bytes], Buffer]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "view": memoryview,
    "view of a bytearray": lambda data: memoryview(bytearray(data)),
    "view of a part": lambda data: memoryview(b"ab" + data + b"c")[2:-1],
    "view of a small part": lambda data: memoryview(bytes(1000) + data)[1000:],
    "view of a part of a bytearray": lambda data: memoryview(bytearray(b"ab" + data))[2:],
    "view of a view": lambda data: memoryview(memoryview(b"a" + data)[1:]),
    "signed bytes": lambda data: memoryview(data).cast("b"),
    "characters": lambda data: memoryview(data).cast("c"),
    "words": lambda data: memoryview(data).cast("H") if len(data) % 2 == 0 else data,
    "an array of words": lambda data: array("H", data) if len(data) % 2 == 0 else data,  # type: ignore[dict-item]
    "rows": lambda data: (
        memoryview(data).cast("B", [2, len(data) // 2]) if data and len(data) % 2 == 0 else data
    ),
}


class ReceiveBufferTwin(RuleBasedStateMachine):
    """`twin` is the expected content of the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = ReceiveBuffer()
        self.twin = bytearray()

    @rule(data=pieces | st.binary(min_size=100, max_size=400), form=st.sampled_from(list(FORMS)))
    def append(self, data: bytes, form: str) -> None:
        held = FORMS[form](data)
        self.buffer.append(held)
        self.twin += data
        changing = held.obj if isinstance(held, memoryview) else held
        if isinstance(changing, bytearray):
            changing[:] = bytes(reversed(changing)) + b"changed" * isinstance(held, bytearray)

    @rule(size=sizes, offset=sizes)
    def peek(self, size: int, offset: int) -> None:
        peeked = self.buffer.peek(size, offset)
        assert peeked == self.twin[offset : offset + size]
        assert type(peeked) is bytes

    @rule(needle=st.binary(min_size=1, max_size=2), offset=sizes, size_max=st.none() | sizes)
    def find(self, needle: bytes, offset: int, size_max: int | None) -> None:
        assert self.buffer.find(needle, offset, size_max) == self.twin.find(
            needle, offset, size_max
        )

    @rule(at=sizes, size=st.integers(1, 3), offset=sizes, size_max=st.none() | sizes)
    def find_what_is_there(self, at: int, size: int, offset: int, size_max: int | None) -> None:
        needle = bytes(self.twin[at : at + size])
        if needle:
            found = self.buffer.find(needle, offset, size_max)
            assert found == self.twin.find(needle, offset, size_max)

    @rule(size=sizes)
    def take(self, size: int) -> None:
        taken = self.buffer.take(size)
        assert taken == self.twin[:size]
        assert type(taken) is bytes
        del self.twin[:size]

    @rule(size=sizes, data=pieces)
    def take_view(self, size: int, data: bytes) -> None:
        taken = self.buffer.take_view(size)
        assert memoryview(taken).readonly
        self.buffer.append(data)
        assert taken == self.twin[:size]
        del self.twin[:size]
        self.twin += data

    @rule(size=sizes | st.integers(0, 1000))
    def consume(self, size: int) -> None:
        self.buffer.consume(size)
        del self.twin[:size]

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.twin.clear()

    @invariant()
    def stands_for_the_twin(self) -> None:
        assert len(self.buffer) == len(self.twin)
        assert self.buffer.peek(len(self.buffer)) == self.twin
        assert [self.buffer[index] for index in range(len(self.twin))] == list(self.twin)

    @invariant()
    def has_no_other_indices(self) -> None:
        for index in (-1, len(self.twin)):
            with pytest.raises(IndexError):
                self.buffer[index]

    @invariant()
    def keeps_little_else(self) -> None:
        assert held(self.buffer) <= 4 * len(self.twin) + 150


class OutboxTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.twin = b""

    @rule(data=pieces, kind=st.sampled_from([bytes, bytearray, memoryview]))
    def append(self, data: bytes, kind: type) -> None:
        self.outbox.append(kind(data))
        self.twin += data

    @rule(size_max=st.none() | st.integers(-1, 100))
    def take(self, size_max: int | None) -> None:
        size = len(self.twin) if size_max is None else max(0, size_max)
        taken = self.outbox.take(size_max)
        assert taken == self.twin[:size]
        assert type(taken) is bytes
        self.twin = self.twin[size:]

    @rule(size_max=st.none() | sizes)
    def take_part(self, size_max: int | None) -> None:
        size = len(self.twin) if size_max is None else size_max
        assert self.outbox.take_part(size_max) == self.twin[:size]
        self.twin = self.twin[size:]

    @rule(size_max=sizes)
    def take_pieces(self, size_max: int) -> None:
        assert b"".join(self.outbox.take_pieces(size_max)) == self.twin[:size_max]
        self.twin = self.twin[size_max:]

    @rule()
    def clear(self) -> None:
        self.outbox.clear()
        self.twin = b""

    @invariant()
    def counts_bytes(self) -> None:
        assert len(self.outbox) == len(self.twin)


TestReceiveBuffer = ReceiveBufferTwin.TestCase
TestOutbox = OutboxTwin.TestCase


def test_receive_buffer_copies_what_is_appended() -> None:
    data = bytearray(b"abc")
    buffer = ReceiveBuffer()
    buffer.append(data)
    data[:] = b"xyz"
    assert buffer.take(3) == b"abc"


@pytest.mark.parametrize("before", [b"", b"abc"])
@pytest.mark.parametrize("data", [5, 0, None, "text", [1, 2], {}, memoryview(b"abcd")[::2]])
def test_receive_buffer_takes_buffers_without_gaps_only(before: bytes, data: Any) -> None:
    buffer = ReceiveBuffer()
    buffer.append(before)
    with pytest.raises(TypeError):
        buffer.append(data)
    assert buffer.take(10) == before


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 1, 1 << 18])
def test_receive_buffer_takes_no_more_than_four_times_its_size(size: int) -> None:
    """Even views of a part, which keep the whole alive."""
    buffer = ReceiveBuffer()
    whole = bytes(1 << 20)
    buffer.append(memoryview(whole)[:size])
    while len(buffer) > 100:
        assert held(buffer) <= 4 * len(buffer) + 150
        buffer.consume(len(buffer) // 10)


def test_receive_buffer_copies_nothing_that_comes_when_it_is_empty() -> None:
    buffer = ReceiveBuffer()
    data = bytes(range(200))
    buffer.append(data)
    assert buffer.take(200) is data
    buffer.append(data)
    assert buffer.take_view(200) is data
    buffer.append(data)
    buffer.consume(50)
    view = buffer.take_view(100)
    assert isinstance(view, memoryview)
    assert view.obj is data
    assert view == data[50:150]


def test_receive_buffer_holds_little_more_than_what_is_in_it() -> None:
    buffer = ReceiveBuffer()
    buffer.append(bytes(1 << 20))
    buffer.consume((1 << 20) - 10)
    assert held(buffer) < 1024
    buffer.clear()
    assert held(buffer) < 100


def test_receive_buffer_stays_small_under_a_steady_flow() -> None:
    buffer = ReceiveBuffer()
    buffer.append(b"ten bytes!")
    for _ in range(20_000):
        buffer.append(b"ten bytes!")
        assert buffer.take(10) == b"ten bytes!"
    assert held(buffer) < 1024


def test_outbox_keeps_pieces_without_copying() -> None:
    outbox = Outbox()
    piece = bytes(1000)
    outbox.append(piece)
    assert outbox.take_pieces() == [piece]
    outbox.append(piece)
    assert outbox.take() is piece


def test_a_large_piece_leaves_the_outbox_by_itself_as_it_came() -> None:
    outbox, large = Outbox(), bytes(LARGE_SIZE_MIN)
    for piece in (b"before", large, b"between", large, b"after"):
        outbox.append(piece)
    room = 2 * len(large)
    taken = list(iter(lambda: outbox.take_part(room), b""))
    assert taken == [b"before", large, b"between", large, b"after"]
    assert taken[1] is large
    assert taken[3] is large


@pytest.mark.parametrize("taken", [None, LARGE_SIZE_MIN - 1, LARGE_SIZE_MIN // 3])
def test_a_large_piece_is_joined_or_cut_as_others_are(taken: int | None) -> None:
    """Where everything is asked for, and where there is less room."""
    outbox, large = Outbox(), Random(1).randbytes(LARGE_SIZE_MIN)
    for piece in (b"before", large, b"after"):
        outbox.append(piece)
    pieces = list(iter(lambda: outbox.take_part(taken), b""))
    assert b"".join(pieces) == b"before" + large + b"after"
    assert all(len(piece) == taken for piece in pieces[:-1])


def test_outbox_cuts_views_by_bytes_whatever_their_items() -> None:
    outbox = Outbox()
    outbox.append(memoryview(array("I", [1, 2])))
    assert len(outbox) == 8
    assert outbox.take(5) + outbox.take(5) == array("I", [1, 2]).tobytes()


@given(st.lists(pieces, max_size=20), st.integers(1, 7))
def test_outbox_in_pieces_is_outbox_at_once(data: list[bytes], size: int) -> None:
    outbox = Outbox()
    for piece in data:
        outbox.append(piece)
    taken = list(iter(lambda: outbox.take(size), b""))
    assert b"".join(taken) == b"".join(data)
    assert all(len(piece) == size for piece in taken[:-1])


def test_outbox_that_was_cleared_in_the_middle_of_a_piece_starts_anew() -> None:
    outbox = Outbox()
    outbox.append(b"abc")
    outbox.take(1)
    outbox.clear()
    outbox.append(b"xyz")
    assert outbox.take() == b"xyz"


def test_many_small_pieces_take_little_more_than_their_bytes() -> None:
    outbox = Outbox()
    for number in range(1000):
        outbox.append(b"%03d" % number)
    assert retained_size(outbox) < 2 * outbox.size
    assert outbox.take(7) == b"0000010"
    outbox.append(b"end")
    assert outbox.take() == b"".join(b"%03d" % number for number in range(1000))[7:] + b"end"


@pytest.mark.parametrize("size", [-1, 0.5, 3.5, "1", float("nan"), b"1"])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="size_max"):
        check_size_max(size)


@pytest.mark.parametrize("size", [None, 0, 1, 1 << 64, 1 << 400])
def test_any_number_of_bytes_can_be_asked_for(size: int | None) -> None:
    check_size_max(size)

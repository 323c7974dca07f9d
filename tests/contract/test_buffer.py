"""ReceiveBuffer and Outbox against bytes."""

from __future__ import annotations

from array import array
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from culm.buffer import Outbox, ReceiveBuffer

pieces = st.binary(max_size=64)
sizes = st.integers(0, 100)


class ReceiveBufferTwin(RuleBasedStateMachine):
    """`twin` is what the buffer stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = ReceiveBuffer()
        self.twin = b""

    @rule(data=pieces, kind=st.sampled_from([bytes, bytearray, memoryview]))
    def append(self, data: bytes, kind: type) -> None:
        self.buffer.append(kind(data))
        self.twin += data

    @rule(size=sizes, offset=sizes)
    def peek(self, size: int, offset: int) -> None:
        assert self.buffer.peek(size, offset) == self.twin[offset : offset + size]

    @rule(needle=st.binary(min_size=1, max_size=2), offset=sizes, size_max=st.none() | sizes)
    def find(self, needle: bytes, offset: int, size_max: int | None) -> None:
        assert self.buffer.find(needle, offset, size_max) == self.twin.find(
            needle, offset, size_max
        )

    @rule(size=sizes)
    def take(self, size: int) -> None:
        taken = self.buffer.take(size)
        assert taken == self.twin[:size]
        assert type(taken) is bytes
        self.twin = self.twin[size:]

    @rule(size=sizes)
    def consume(self, size: int) -> None:
        self.buffer.consume(min(size, len(self.twin)))
        self.twin = self.twin[size:]

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.twin = b""

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


def test_receive_buffer_holds_little_more_than_what_is_in_it() -> None:
    buffer = ReceiveBuffer()
    buffer.append(bytes(1 << 20))
    buffer.consume((1 << 20) - 10)
    assert getsizeof(buffer._data) < 1024
    buffer.clear()
    assert getsizeof(buffer._data) < 100


def test_receive_buffer_stays_small_under_a_steady_flow() -> None:
    buffer = ReceiveBuffer()
    buffer.append(b"ten bytes!")
    for _ in range(20_000):
        buffer.append(b"ten bytes!")
        assert buffer.take(10) == b"ten bytes!"
    assert getsizeof(buffer._data) < 1024


def test_outbox_keeps_pieces_without_copying() -> None:
    outbox = Outbox()
    piece = bytes(1000)
    outbox.append(piece)
    assert outbox.take_pieces() == [piece]
    outbox.append(piece)
    assert outbox.take() is piece


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

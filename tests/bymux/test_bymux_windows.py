"""Restoring credit (spec, appendix B), and pieces of data."""

from __future__ import annotations

import pytest
from bymux_support import (
    FREE,
    PING,
    PONG,
    close,
    connect,
    credit,
    events,
    feed,
    packet,
    refusal,
    stop_read,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from culm.bymux import (
    Connection,
    ErrorCode,
    InitialState,
    InitialStream,
    Limits,
    Role,
    StreamData,
)


def test_a_new_window_is_granted_at_once() -> None:
    connection = connect({0: (0, 0)})
    connection.stream(0).set_window(1000)
    assert connection.data_to_send() == credit(0, 1000)
    assert connection.stream(0).receive_credit == 1000


def test_credit_is_restored_when_the_refill_is_at_least_what_the_peer_has_left() -> None:
    """Only send credit if the amount is greater or equal to the amount of credit the
    other endpoint currently has available (and at least one)."""
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(100)
    connection.data_to_send()
    feed(connection, write(0, bytes(60)))
    stream.consumed(39)
    assert connection.data_to_send() == b""  # 39 to give, 40 left
    stream.consumed(1)
    assert connection.data_to_send() == credit(0, 40)
    assert stream.receive_credit == 80
    stream.consumed(0)
    assert connection.data_to_send() == b""


def test_at_least_one() -> None:
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(2)
    connection.data_to_send()
    feed(connection, write(0, b"ab"))
    stream.consumed(0)
    assert connection.data_to_send() == b""
    stream.consumed(1)
    assert connection.data_to_send() == credit(0, 1)


def test_what_is_not_consumed_is_part_of_the_window() -> None:
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(10)
    connection.data_to_send()
    feed(connection, write(0, bytes(10)))
    stream.set_window(12)
    assert connection.data_to_send() == credit(0, 2)
    stream.set_window(4)
    stream.consumed(8)
    assert connection.data_to_send() == b""  # 2 unconsumed, 2 left
    stream.consumed(1)
    assert connection.data_to_send() == b""  # 1 to give, 2 left
    stream.consumed(1)
    assert connection.data_to_send() == credit(0, 2)


def test_earlier_grants_count() -> None:
    connection = connect({0: (0, 5)})
    stream = connection.stream(0)
    stream.set_window(9)
    assert connection.data_to_send() == b""  # 4 to give, 5 left
    stream.set_window(10)
    assert connection.data_to_send() == credit(0, 5)


def test_data_that_came_up_before_counts_as_consumed() -> None:
    connection = connect({0: (0, 10)})
    stream = connection.stream(0)
    feed(connection, write(0, bytes(10)))
    stream.set_window(7)
    assert connection.data_to_send() == credit(0, 7)
    assert refusal(stream.consumed, 1) is ErrorCode.CONSUMED_TOO_MUCH


def test_more_than_came_up_cannot_be_consumed() -> None:
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(10)
    feed(connection, write(0, bytes(4)))
    assert refusal(stream.consumed, 5) is ErrorCode.CONSUMED_TOO_MUCH
    stream.consumed(4)


def test_consuming_after_the_end_grants_nothing() -> None:
    connection = connect({0: (0, 0), 1: FREE})
    stream = connection.stream(0)
    stream.set_window(4)
    feed(connection, write(0, bytes(4)), close(0))
    connection.data_to_send()
    stream.consumed(2)
    assert connection.data_to_send() == b""
    feed(connection, stop_read(0))
    stream.consumed(1)
    feed(connection, b"\xff")
    stream.consumed(1)
    assert connection.data_to_send() == close(0)


def test_consuming_after_a_failure_grants_nothing() -> None:
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(4)
    connection.data_to_send()
    feed(connection, write(0, bytes(4)), b"\xff")
    stream.consumed(4)
    assert connection.data_to_send() == b""


@pytest.mark.parametrize("size", [-1, 2**64 - 1])
def test_window_that_cannot_be_meant(size: int) -> None:
    stream = connect({0: (0, 0)}).stream(0)
    with pytest.raises(ValueError, match="window"):
        stream.set_window(size)
    with pytest.raises(ValueError, match="size"):
        stream.consumed(-1)


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), max_size=40),
)
def test_peer_can_never_send_more_than_the_window_allows(
    window: int, turns: list[tuple[int, int]]
) -> None:
    """Credit and unconsumed data together never exceed the window, and a consumer that
    keeps up never leaves the peer without credit."""
    connection = connect({0: (0, 0)})
    stream = connection.stream(0)
    stream.set_window(window)
    unconsumed = 0
    for sent, consumed in turns:
        sent = min(sent, stream.receive_credit)
        feed(connection, write(0, bytes(sent)))
        unconsumed += sent
        consumed = min(consumed, unconsumed)
        stream.consumed(consumed)
        unconsumed -= consumed
        assert stream.receive_credit + unconsumed <= window
        assert unconsumed or stream.receive_credit
        # The credit held back was not urgent.
        assert window - stream.receive_credit - unconsumed < max(stream.receive_credit, 1)


class TestPieces:
    LIMITS = Limits(piece_size_max=4, receive_buffer_max=100)

    def test_pieces_are_aligned_to_the_start_of_the_write(self) -> None:
        connection = connect({0: (0, 100)}, limits=self.LIMITS)
        assert feed(connection, write(0, b"abcdefghij"), write(0, b"kl")) == [
            StreamData(stream_id=0, data=b"abcd"),
            StreamData(stream_id=0, data=b"efgh"),
            StreamData(stream_id=0, data=b"ij"),
            StreamData(stream_id=0, data=b"kl"),
        ]

    def test_a_piece_comes_up_as_soon_as_it_is_whole(self) -> None:
        connection = connect({0: (0, 100)}, limits=self.LIMITS)
        assert feed(connection, packet(1, 0, 7), b"abc") == []
        assert feed(connection, b"d") == [StreamData(stream_id=0, data=b"abcd")]
        assert connection.stream(0).receive_credit == 96
        assert feed(connection, b"ef") == []
        assert feed(connection, b"g") == [StreamData(stream_id=0, data=b"efg")]

    def test_an_empty_write_is_no_event(self) -> None:
        connection = connect({0: (0, 0)})
        assert feed(connection, write(0, b"")) == []

    def test_credit_is_checked_before_any_data_comes(self) -> None:
        connection = connect({0: (0, 9)})
        connection.receive_data(packet(1, 0, 10))
        [closed] = events(connection)
        assert closed.error.code is ErrorCode.WRITE_PAST_CREDIT  # type: ignore[attr-defined]

    def test_credit_granted_during_a_write(self) -> None:
        connection = connect({0: (0, 5)}, limits=self.LIMITS)
        feed(connection, packet(1, 0, 5), b"abcd")
        connection.stream(0).grant(2)
        assert connection.stream(0).receive_credit == 3
        assert feed(connection, b"e", write(0, b"fg")) == [
            StreamData(stream_id=0, data=b"e"),
            StreamData(stream_id=0, data=b"fg"),
        ]


class TestAsItComes:
    """For an owner that puts data together itself."""

    LIMITS = Limits(piece_size_max=4, receive_buffer_max=100)

    def connect(self, *, as_it_comes: bool = True) -> Connection:
        initial = InitialState(streams={0: InitialStream()})
        connection = Connection(
            role=Role.PROACTIVE, initial=initial, limits=self.LIMITS, as_it_comes=as_it_comes
        )
        connection.stream(0).set_window(20)
        connection.data_to_send()
        return connection

    def test_all_pieces_that_have_come_are_one(self) -> None:
        connection = self.connect()
        assert feed(connection, packet(1, 0, 15), b"abcdefghij") == [
            StreamData(stream_id=0, data=b"abcdefgh")
        ]
        assert feed(connection, b"kl") == [StreamData(stream_id=0, data=b"ijkl")]
        assert feed(connection, b"mn") == []
        assert feed(connection, b"o", write(0, b"p")) == [
            StreamData(stream_id=0, data=b"mno"),
            StreamData(stream_id=0, data=b"p"),
        ]

    def test_they_count_as_consumed(self) -> None:
        connection = self.connect()
        feed(connection, write(0, bytes(10)))
        assert connection.data_to_send() == credit(0, 10)
        assert refusal(connection.stream(0).consumed, 1) is ErrorCode.CONSUMED_TOO_MUCH

    @given(
        st.lists(st.integers(1, 20), min_size=1, max_size=9),
        st.lists(st.integers(1, 30), max_size=40),
    )
    def test_what_is_granted_does_not_depend_on_how_it_came(
        self, sizes: list[int], cuts: list[int]
    ) -> None:
        whole, cut = self.connect(), self.connect()
        piecewise = self.connect(as_it_comes=False)
        for size in sizes:
            rest = write(0, bytes(min(size, whole.stream(0).receive_credit)))
            feed(whole, rest)
            piecewise.receive_data(rest)
            while (event := piecewise.next_event()) is not None:
                assert isinstance(event, StreamData)
                piecewise.stream(0).consumed(len(event.data))
            while rest:
                chunk = cuts.pop() if cuts else len(rest)
                feed(cut, rest[:chunk])
                rest = rest[chunk:]
            assert whole.data_to_send() == cut.data_to_send() == piecewise.data_to_send()

    def test_credit_that_was_not_sent_can_be_withdrawn(self) -> None:
        connection = self.connect()
        feed(connection, write(0, bytes(10)), packet(PING, 0))
        connection.stream(0).withdraw_credit()
        assert connection.data_to_send() == packet(PONG, 0)
        connection.stream(0).withdraw_credit()

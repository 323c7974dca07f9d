"""The order in which packets leave."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Sequence
from random import Random

import pytest
from bymux_support import (
    FREE,
    close,
    connect,
    create,
    credit,
    feed,
    packet,
    ping,
    pong,
    split,
    stop_read,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from culm.bymux import (
    INFINITE,
    Connection,
    InitialState,
    InitialStream,
    Limits,
    Role,
    State,
)

MEBIBYTE = 1 << 20


def ids(packets: list[bytes]) -> list[int]:
    """The stream ids (below 256) of Writes."""
    assert all(p[0] >> 4 == 0b0010 for p in packets)
    return [p[1] for p in packets]


def test_writes_are_small() -> None:
    """Endpoints should be careful to only send `Write` packets whose length is small
    enough that the transmission time does not block data from other streams too long."""
    connection = connect({0: FREE}, limits=Limits(write_size_max=1000))
    connection.stream(0).send_data(bytes(2500))
    assert split(connection.data_to_send()) == [
        write(0, bytes(1000)),
        write(0, bytes(1000)),
        write(0, bytes(500)),
    ]


def test_small_pieces_share_a_write() -> None:
    connection = connect({0: FREE}, limits=Limits(write_size_max=5))
    for piece in (b"ab", b"", b"cd", b"ef"):
        connection.stream(0).send_data(piece)
    assert connection.stream(0).unsent_size == 6
    assert connection.data_to_send() == write(0, b"abcde") + write(0, b"f")


def test_streams_take_turns() -> None:
    """A bymux implementation is thus also required to fairly interleave packets that
    pertain to different streams, the simplest solution being round-robin."""
    connection = connect({0: FREE, 1: FREE, 2: FREE}, limits=Limits(write_size_max=10))
    connection.stream(1).send_data(bytes(40))
    connection.stream(0).send_data(bytes(20))
    connection.stream(2).send_data(bytes(30))
    assert ids(split(connection.data_to_send())) == [1, 0, 2, 1, 0, 2, 1, 2, 1]


def urgently(*stream_ids: int) -> Connection:
    """A connection with five streams, these of them urgent."""
    streams = {
        n: InitialStream(send_credit=INFINITE, receive_credit=INFINITE, urgent=n in stream_ids)
        for n in range(5)
    }
    limits = Limits(write_size_max=10)
    return Connection(role=Role.PROACTIVE, initial=InitialState(streams=streams), limits=limits)


def test_urgent_streams_take_turns_with_each_other() -> None:
    connection = urgently(1, 2, 4)
    for stream_id in (0, 1, 2, 3, 4):
        connection.stream(stream_id).send_data(bytes(20))
    connection.stream(4).send_data(b"more")  # this brings its turn no sooner
    assert ids(split(connection.data_to_send())) == [1, 2, 4, 1, 2, 4, 4, 0, 3, 0, 3]


def test_a_mebibyte_delays_another_stream_by_one_write_a_turn() -> None:
    connection = connect({0: FREE, 1: FREE})
    connection.stream(0).send_data(bytes(MEBIBYTE))
    taken = connection.data_to_send(1)
    queued_at = []
    for _ in range(20):
        connection.stream(1).send_data(b"quick")
        queued_at.append(len(taken))
        taken += connection.data_to_send(40_000)
    start = 0
    starts: dict[int, list[int]] = {0: [], 1: []}
    for sent in split(taken + connection.data_to_send()):
        starts[sent[1]].append(start)
        start += len(sent)
    assert len(starts[0]) == MEBIBYTE // 16384
    assert len(starts[1]) == 20
    for queued, sent_at in zip(queued_at, starts[1], strict=True):
        assert sum(queued <= other < sent_at for other in starts[0]) <= 1


def test_a_stream_that_returns_waits_for_its_turn() -> None:
    connection = connect({0: FREE, 1: FREE, 2: FREE}, limits=Limits(write_size_max=2))
    for stream_id in (0, 1, 2):
        connection.stream(stream_id).send_data(bytes(2))
    assert connection.data_to_send(5) == write(0, bytes(2))
    connection.stream(0).send_data(bytes(2))
    assert ids(split(connection.data_to_send())) == [1, 2, 0]


def test_an_urgent_stream_comes_before_all_others() -> None:
    streams = {n: InitialStream(send_credit=INFINITE, urgent=n == 2) for n in range(3)}
    initial = InitialState(streams=streams)
    connection = Connection(role=Role.PROACTIVE, initial=initial, limits=Limits(write_size_max=10))
    for n in range(3):
        connection.stream(n).send_data(bytes(30))
    assert ids(split(connection.data_to_send(13 * 5))) == [2, 2, 2, 0, 1]
    connection.stream(2).send_data(bytes(20))  # within the turns of the others
    assert ids(split(connection.data_to_send())) == [2, 2, 0, 1, 0, 1]


def test_of_what_is_queued_only_a_write_that_was_begun_leaves_after_an_error() -> None:
    connection = connect({0: FREE, 1: FREE}, limits=Limits(write_size_max=10))
    for n in range(2):
        connection.stream(n).send_data(bytes(30))
    whole = write(0, bytes(10))
    assert connection.data_to_send(4) == whole[:4]
    feed(connection, write(7, b"nobody"))
    assert connection.state is State.FAILED
    assert connection.data_to_send() == whole[4:]


def test_credit_decides_who_takes_part() -> None:
    connection = connect({0: (0, 0), 1: (3, 0)}, limits=Limits(write_size_max=2))
    connection.stream(0).send_data(bytes(4))
    connection.stream(1).send_data(bytes(4))
    assert connection.data_to_send() == write(1, bytes(2)) + write(1, bytes(1))
    feed(connection, credit(0, 1), credit(1, 1))
    assert ids(split(connection.data_to_send())) == [0, 1]
    assert connection.stream(0).unsent_size == 3


@pytest.mark.parametrize("stuck", [[0], [2], [0, 1, 3]])
def test_streams_without_credit_hold_up_no_other_one(stuck: list[int]) -> None:
    """Whichever had data first: the others need no more calls, nor bytes, than alone."""

    def taken(streams: Sequence[int]) -> list[bytes]:
        free = {n: FREE for n in range(4) if n not in stuck}
        connection = connect(free | dict.fromkeys(stuck, (5, 0)), limits=Limits(write_size_max=10))
        for n in streams:
            connection.stream(n).send_data(bytes([n]) * 45)
            for _ in range(2 if n in stuck else 0):
                connection.data_to_send(12)
        takes = iter(lambda: connection.data_to_send(12), b"")
        return [take for take in takes if take[1] not in stuck]

    healthy = [n for n in range(4) if n not in stuck]
    assert taken([*stuck, *healthy]) == taken(healthy)


def test_control_packets_leave_before_data() -> None:
    connection = connect({0: FREE, 1: (0, 0)}, local_creation_credit=1)
    connection.stream(0).send_data(bytes(3))
    feed(connection, ping(1))
    connection.stream(1).grant(7)
    connection.create_stream(2)
    connection.stream(1).close()
    assert split(connection.data_to_send()) == [
        pong(1),
        credit(1, 7),
        create(2),
        close(1),
        write(0, bytes(3)),
    ]


def test_control_packets_overtake_data_between_two_takes() -> None:
    connection = connect({0: FREE}, limits=Limits(write_size_max=10))
    connection.stream(0).send_data(bytes(30))
    first = connection.data_to_send(5)
    assert len(first) == 5
    connection.stream(0).ping()
    rest = connection.data_to_send()
    assert split(first + rest) == [
        write(0, bytes(10)),
        ping(0),
        write(0, bytes(10)),
        write(0, bytes(10)),
    ]


def test_close_follows_the_last_data_at_once() -> None:
    connection = connect({0: FREE, 1: FREE}, limits=Limits(write_size_max=2))
    connection.stream(0).send_data(bytes(2))
    connection.stream(0).close()
    connection.stream(1).send_data(bytes(4))
    assert split(connection.data_to_send()) == [
        write(0, bytes(2)),
        close(0),
        write(1, bytes(2)),
        write(1, bytes(2)),
    ]


def test_credit_leaves_before_stop_read() -> None:
    connection = connect({0: (0, 0)})
    connection.stream(0).grant(1)
    connection.stream(0).stop_read()
    assert connection.data_to_send() == credit(0, 1) + stop_read(0)


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 12))
def test_any_sizes_of_takes_give_whole_packets_in_order(
    sizes: list[int], write_size_max: int
) -> None:
    connection = connect({0: FREE, 300: FREE}, limits=Limits(write_size_max=write_size_max))
    zero, other = bytes(range(100)), bytes(range(100, 200))
    connection.stream(0).send_data(zero)
    connection.stream(300).send_data(other)
    feed(connection, ping() * 5, ping(300) * 3)
    taken = b""
    for size in sizes:
        data = connection.data_to_send(size)
        assert len(data) <= size
        assert len(data) == size or connection.data_to_send() == b""
        taken += data
    packets = split(taken + connection.data_to_send())
    assert packets[:8] == [pong()] * 5 + [pong(300)] * 3
    assert b"".join(p[3:] for p in packets if p[0] == 0b001_0_00_00) == zero
    assert b"".join(p[4:] for p in packets if p[0] == 0b001_0_01_00) == other


def test_nothing_is_taken_before_it_is_asked_for() -> None:
    connection = connect({0: FREE})
    connection.stream(0).send_data(bytes(100_000))
    connection.data_to_send(10)
    assert connection.stream(0).unsent_size == 100_000 - 16384
    feed(connection, stop_read(0))
    # The rest of the begun Write, and nothing more.
    assert connection.data_to_send() == bytes(16384 - 6) + close(0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_queued_data_is_not_copied(kind: type) -> None:
    data = kind(bytes(8 * MEBIBYTE))
    connection = connect({0: FREE})
    tracemalloc.start()
    try:
        connection.stream(0).send_data(data)
        for _ in range(16):
            connection.data_to_send(1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_a_large_piece_has_a_write_of_its_own_and_leaves_as_it_is() -> None:
    connection = connect({0: FREE}, limits=Limits(write_size_max=MEBIBYTE))
    large = bytes(MEBIBYTE)
    for data in (b"before", large, b"after"):
        connection.stream(0).send_data(data)
    pieces = [connection.data_to_send(2 * MEBIBYTE) for _ in range(3)]
    assert b"".join(pieces) == write(0, b"before") + write(0, large) + write(0, b"after")
    assert pieces[1] is large


def test_a_large_piece_is_cut_where_credit_or_room_is_short() -> None:
    large = Random(1).randbytes(MEBIBYTE)
    for size_max, allowed in ((16384, MEBIBYTE), (2 * MEBIBYTE, 700_000)):
        connection = connect({0: (allowed, 0)}, limits=Limits(write_size_max=size_max))
        connection.stream(0).send_data(large)
        taken: list[bytes] = []
        while data := connection.data_to_send(2 * MEBIBYTE):
            taken.append(data)
        sent = large[:allowed]
        parts = [sent[at : at + size_max] for at in range(0, len(sent), size_max)]
        assert b"".join(taken) == b"".join(write(0, part) for part in parts)


def test_views_are_sent_byte_for_byte() -> None:
    connection = connect({0: FREE})
    numbers = array("H", [1, 2, 3])
    connection.stream(0).send_data(memoryview(numbers))
    assert connection.data_to_send() == write(0, numbers.tobytes())


def test_what_is_no_buffer_is_refused_at_once() -> None:
    connection = connect({0: FREE})
    with pytest.raises(TypeError):
        connection.stream(0).send_data("text")  # type: ignore[arg-type]
    assert connection.data_to_send() == b""


def test_widths_in_writes() -> None:
    connection = connect({70_000: FREE}, limits=Limits(write_size_max=300))
    connection.stream(70_000).send_data(bytes(301))
    assert split(connection.data_to_send()) == [
        packet(1, 70_000, 300, bytes(300)),
        packet(1, 70_000, 1, b"\0"),
    ]

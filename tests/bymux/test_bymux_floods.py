"""A peer's many demands cost little."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

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

from culm.bymux import Connection, InitialState, InitialStream, Limits, Role

KIBIBYTE = 1024


class Growth:
    size = 0


@contextmanager
def growth() -> Iterator[Growth]:
    """Measures the growth of the traced memory, in bytes."""
    grown = Growth()
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        yield grown
        grown.size = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()


def flood(connection: Connection, unit: bytes, turns: int) -> None:
    """Feed `unit` many times, without keeping the events or taking the answers."""
    for _ in range(turns):
        connection.receive_data(unit)
        while connection.next_event() is not None:
            pass


def test_unanswered_pings_are_counted() -> None:
    connection = connect(dict.fromkeys(range(0, 20, 2), FREE))
    unit = b"".join(ping(i) for i in range(0, 20, 2)) + ping()
    with growth() as grown:
        flood(connection, unit * 100, 50)
    assert grown.size < 8 * KIBIBYTE
    answers = split(connection.data_to_send())
    assert len(answers) == 11 * 5000
    assert answers.count(pong(4)) == answers.count(pong()) == 5000


def test_reading_stops_until_the_answers_are_taken() -> None:
    connection = connect({0: FREE}, limits=Limits(answers_max=10))
    feed(connection, ping(0) * 10)
    assert connection.read_size() == 65536
    feed(connection, ping())
    assert connection.read_size() == 0
    assert connection.data_to_send(2) == pong(0)
    assert connection.read_size() == 65536


def test_answers_leave_one_by_one() -> None:
    connection = connect({0: FREE}, limits=Limits(answers_max=10))
    feed(connection, ping(0) * 20)
    assert connection.data_to_send(3) == (pong(0) * 2)[:3]
    assert connection.read_size() == 0
    # A byte of the second is left over; 7 more come from the 18 waiting bytes.
    assert connection.data_to_send(14) == (pong(0) * 8)[1:15]
    assert connection.read_size() == 0
    connection.data_to_send(1)
    assert connection.read_size() == 0
    connection.data_to_send(1)
    assert connection.read_size() == 65536


def test_reading_stops_for_answers_to_closes_too() -> None:
    connection = connect({0: FREE, 2: FREE}, limits=Limits(answers_max=1))
    feed(connection, close(0), stop_read(0))
    assert connection.read_size() == 0
    connection.data_to_send()
    assert connection.read_size() == 65536


def test_a_peer_that_uses_credit_before_it_is_sent_harms_itself_alone() -> None:
    connection = connect({0: (0, 0)})
    connection.stream(0).grant(10)
    connection.grant_streams(2)
    feed(connection, write(0, bytes(10)), create(1), create(3))
    connection.stream(0).grant(2**64 - 2)
    connection.grant_streams(2**64 - 1)
    # The sums do not fit into a packet.
    assert connection.data_to_send() == credit(0, 2**64 - 1) + credit(None, 2**64 - 1)


@pytest.mark.parametrize(
    "unit",
    [pong(0), pong(), credit(None, 1), credit(0, 1), write(0, b""), credit(2, 0)],
    ids=["pong", "global pong", "creation credit", "credit", "empty write", "infinite credit"],
)
def test_what_needs_no_answer_leaves_nothing(unit: bytes) -> None:
    connection = connect({0: (0, 0), 2: FREE})
    flood(connection, unit, 10)
    with growth() as grown:
        flood(connection, unit * 100, 50)
    assert grown.size < 4 * KIBIBYTE
    assert connection.data_to_send() == b""


def test_streams_that_come_and_go_leave_nothing() -> None:
    connection = connect(remote_creation_credit=2**32)
    unit = b"".join(create(i) + ping(i) + stop_read(i) + close(i) for i in range(1, 41, 2))
    flood(connection, unit, 1)
    connection.data_to_send()
    with growth() as grown:
        for _ in range(200):
            flood(connection, unit, 1)
            connection.data_to_send()
    assert grown.size < 4 * KIBIBYTE


def test_an_answer_that_waits_costs_what_the_limits_say() -> None:
    connection = connect(remote_creation_credit=2**32)
    unit = b"".join(create(i) + stop_read(i) + close(i) for i in range(1, 201, 2))
    with growth() as grown:
        flood(connection, unit, 20)
    assert grown.size < 20 * 200 * 400
    assert connection.read_size() > 0
    flood(connection, unit, 1)
    assert connection.read_size() == 0


def test_nothing_is_allocated_for_what_is_claimed() -> None:
    connection = connect({0: FREE})
    with growth() as grown:
        feed(connection, packet(1, 0, 2**60))
        for _ in range(100):
            connection.receive_data(bytes(16384))
            assert connection.next_event() is not None
        assert connection.next_event() is None
    assert grown.size < 4 * KIBIBYTE
    assert connection.read_size() == 65536


def test_own_streams_that_come_and_go_leave_nothing() -> None:
    connection = connect(local_creation_credit=2**32)

    def turn() -> None:
        for stream_id in (0, 2, 4):
            stream = connection.create_stream(stream_id)
            stream.send_data(b"abc")
            stream.close()
            stream.stop_read()
        feed(connection, *(stop_read(i) + close(i) for i in (0, 2, 4)))
        connection.data_to_send()

    turn()
    with growth() as grown:
        for _ in range(500):
            turn()
    assert grown.size < 4 * KIBIBYTE


def test_a_connection_is_small() -> None:
    initial = InitialState(streams={0: InitialStream(), 1: InitialStream()}, creation_closed=True)
    with growth() as grown:
        connections = [Connection(role=Role.PROACTIVE, initial=initial) for _ in range(200)]
    assert grown.size / len(connections) < 2.5 * KIBIBYTE


def test_a_stream_is_small() -> None:
    connection = connect(
        remote_creation_credit=1000, limits=Limits(streams_max=1000, answers_max=1)
    )
    with growth() as grown:
        flood(connection, b"".join(create(i) for i in range(1, 2001, 2)), 1)
    assert grown.size / 1000 < 500

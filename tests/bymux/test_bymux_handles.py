"""The promises of stream handles."""

from __future__ import annotations

from bymux_support import FREE, close, connect, create, credit, feed, refusal, stop_read

from culm.bymux import Connection, ErrorCode, Stream, StreamEnded


def ended(connection: Connection, stream: Stream) -> None:
    """End the stream from both sides."""
    stream.close()
    stream.stop_read()
    connection.data_to_send()
    number = stream.stream_id
    events = feed(connection, close(number), stop_read(number))
    assert StreamEnded(stream_id=number) in events


def test_those_on_the_same_stream_are_equal() -> None:
    connection, other = connect({0: FREE, 1: FREE}), connect({0: FREE})
    first, again = connection.stream(0), connection.streams[0]
    assert first == again
    assert first is not again
    assert len({first, again, connection.stream(1)}) == 2
    assert first not in (connection.stream(1), other.stream(0), 0)


def test_one_outlives_its_stream() -> None:
    connection = connect({0: FREE})
    late, streams = connection.stream(0), connection.streams
    assert dict(streams) == {0: late}
    ended(connection, late)
    assert (dict(streams), len(streams), 0 in streams) == ({}, 0, False)
    for verb in (late.ping, late.close, late.stop_read, late.grant_infinite):
        assert isinstance(refusal(verb), ErrorCode)
    assert isinstance(refusal(late.send_data, b"x"), ErrorCode)
    assert isinstance(refusal(connection.stream, 0), ErrorCode)
    assert connection.data_to_send() == b""


def test_a_later_stream_with_the_same_id_has_handles_of_its_own() -> None:
    connection = connect({0: FREE})
    old = connection.stream(0)
    ended(connection, old)
    feed(connection, credit(None, 1))
    new = connection.create_stream(0)
    assert new == connection.stream(0) != old
    assert connection.data_to_send() == create(0)
    assert isinstance(refusal(old.ping), ErrorCode)
    assert connection.data_to_send() == b""
    new.ping()
    assert connection.data_to_send() != b""

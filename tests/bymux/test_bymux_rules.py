"""The spec, sentence by sentence (the sentence stands in the docstring)."""

from __future__ import annotations

import pytest
from bymux_support import (
    FREE,
    close,
    connect,
    create,
    credit,
    events,
    failure,
    feed,
    packet,
    ping,
    pong,
    refusal,
    split,
    stop_read,
    write,
)

from culm.bymux import (
    INFINITE,
    VANILLA,
    Closed,
    CloseReceived,
    Connection,
    CreationCredit,
    ErrorCode,
    InitialState,
    InitialStream,
    Limits,
    PingReceived,
    PongReceived,
    Role,
    State,
    StopReadReceived,
    StreamCreated,
    StreamCredit,
    StreamData,
    StreamEnded,
)
from culm.machine import ContractErrorCode, LocalProtocolError


def ended(connection: Connection) -> bool:
    return connection.state in {State.CLOSED, State.FAILED}


class TestStreams:
    def test_id_of_no_active_stream(self) -> None:
        """Whenever a header with a 4th byte of zero is followed by an id that does not
        correspond to an active stream is received, the whole connection must be
        terminated immediately."""
        for kind in range(6):
            connection = connect({0: FREE})
            amount = 0 if kind < 2 else None
            assert failure(connection, packet(kind, 4, amount)) is ErrorCode.UNKNOWN_STREAM

    def test_unknown_packet_type(self) -> None:
        """The first three bits indicate which of the six types of packet follows."""
        assert failure(connect(), b"\xc0") is ErrorCode.UNKNOWN_PACKET_TYPE
        assert failure(connect(), b"\xff") is ErrorCode.UNKNOWN_PACKET_TYPE

    def test_no_handle_on_unknown_stream(self) -> None:
        assert refusal(connect().stream, 3) is ErrorCode.UNKNOWN_STREAM


class TestCredit:
    def test_writing_consumes_credit(self) -> None:
        """Writing to a stream consumes as much credit as there are bytes written."""
        connection = connect({0: (10, 10)})
        connection.stream(0).send_data(b"1234")
        assert connection.data_to_send() == write(0, b"1234")
        assert connection.stream(0).send_credit == 6
        feed(connection, write(0, b"123"))
        assert connection.stream(0).receive_credit == 7

    def test_metadata_costs_nothing(self) -> None:
        """The metadata (header, stream id, length) does *not* cost any credit."""
        connection = connect({0: (0, 3)})
        assert failure(connection, write(0, b""), write(0, b"123"), write(0, b"")) is None
        assert connection.stream(0).receive_credit == 0

    def test_no_writing_without_credit(self) -> None:
        """Writing data without credit being available is forbidden."""
        connection = connect({0: (0, 0)})
        connection.stream(0).send_data(b"1234")
        assert connection.data_to_send() == b""
        feed(connection, credit(0, 3))
        assert connection.data_to_send() == write(0, b"123")
        assert connection.stream(0).unsent_size == 1

    def test_receiving_past_credit(self) -> None:
        """When receiving written data that hasn't been issued credit for, the whole
        connection must be terminated immediately."""
        connection = connect({0: (0, 3)})
        assert failure(connection, write(0, b"12")) is None
        assert failure(connection, packet(1, 0, 2)) is ErrorCode.WRITE_PAST_CREDIT

    def test_credit_is_added(self) -> None:
        """... the amount of credit to be added for the stream."""
        connection = connect({0: (2, 0)})
        assert feed(connection, credit(0, 3)) == [StreamCredit(stream_id=0, amount=3)]
        assert connection.stream(0).send_credit == 5

    def test_granting(self) -> None:
        connection = connect({0: (0, 2)})
        connection.stream(0).grant(300)
        assert connection.stream(0).receive_credit == 302
        assert connection.data_to_send() == credit(0, 300)
        assert failure(connection, write(0, bytes(302))) is None

    def test_sum_of_exactly_the_maximum_is_infinite(self) -> None:
        """If the sum of the previously available credit and the new additional credit
        equals `2^64 - 1`, the credit is set to infinity."""
        connection = connect({0: (7, 0)})
        feed(connection, credit(0, 2**64 - 8))
        stream = connection.stream(0)
        assert stream.send_credit == INFINITE
        stream.send_data(b"123")
        assert connection.data_to_send() == write(0, b"123")
        assert stream.send_credit == INFINITE

    def test_sum_above_the_maximum(self) -> None:
        """If the sum ... is greater than `2^64 - 1`, the whole connection must be
        terminated immediately."""
        connection = connect({0: (7, 7)})
        stream = connection.stream(0)
        assert refusal(stream.grant, 2**64 - 7) is ErrorCode.CREDIT_OVERFLOW
        assert stream.receive_credit == 7
        assert failure(connection, credit(0, 2**64 - 7)) is ErrorCode.CREDIT_OVERFLOW

    def test_credit_of_the_greatest_finite_amount(self) -> None:
        """The maximum of credit for a single stream at a time is 2^64 - 2."""
        connection = connect({0: (7, 7)})
        assert failure(connection, credit(0, 2**64 - 9)) is None
        assert connection.stream(0).send_credit == 2**64 - 2
        connection.stream(0).grant(2**64 - 9)
        assert connection.data_to_send() == credit(0, 2**64 - 9)

    def test_zero_is_infinite(self) -> None:
        """Sending a `Credit` packet that gives zero bytes sets the credit to infinity."""
        connection = connect({0: (7, 7)})
        assert feed(connection, credit(0, 0)) == [StreamCredit(stream_id=0, amount=INFINITE)]
        assert connection.stream(0).send_credit == INFINITE
        connection.stream(0).grant_infinite()
        assert connection.stream(0).receive_credit == INFINITE
        assert connection.data_to_send() == credit(0, 0)

    def test_zero_on_infinite_is_ignored(self) -> None:
        """Receiving zero credit on a stream that already has infinite credit is
        ignored."""
        connection = connect({0: FREE})
        assert feed(connection, credit(0, 0)) == []
        assert connection.stream(0).send_credit == INFINITE
        connection.stream(0).grant_infinite()
        assert connection.data_to_send() == b""

    def test_nonzero_on_infinite(self) -> None:
        """Receiving a nonzero amount of credit on such a stream is an error, and the
        whole connection must be terminated immediately."""
        connection = connect({0: FREE})
        stream = connection.stream(0)
        assert refusal(stream.grant, 1) is ErrorCode.CREDIT_ON_INFINITE
        assert refusal(stream.set_window, 1) is ErrorCode.CREDIT_ON_INFINITE
        assert failure(connection, credit(0, 1)) is ErrorCode.CREDIT_ON_INFINITE

    def test_infinite_credit_by_sum_is_said_outright(self) -> None:
        # The peer may have data under way, which is missing from its own sum.
        connection = connect({0: (0, 5)})
        connection.stream(0).grant(2**64 - 6)
        assert connection.stream(0).receive_credit == INFINITE
        assert connection.data_to_send() == credit(0, 0)

    def test_always_writing_on_infinite(self) -> None:
        """Data may always be written to a stream whose credit has been set to
        infinity."""
        connection = connect({0: FREE})
        assert failure(connection, packet(1, 0, 2**64 - 1)) is None
        assert connection.stream(0).receive_credit == INFINITE

    def test_credits_of_a_stream_are_told_in_one(self) -> None:
        connection = connect({0: (0, 0), 1: (0, 0)})
        for amount in (1, 2, 3):
            connection.stream(0).grant(amount)
            connection.stream(1).grant(10 * amount)
        assert connection.data_to_send() == credit(0, 6) + credit(1, 60)
        connection.stream(0).grant(4)
        connection.stream(0).grant_infinite()
        assert connection.data_to_send() == credit(0, 0)

    @pytest.mark.parametrize("amount", [0, -1])
    def test_credit_that_cannot_be_meant(self, amount: int) -> None:
        connection = connect({0: (0, 0)})
        with pytest.raises(ValueError, match="credit"):
            connection.stream(0).grant(amount)
        with pytest.raises(ValueError, match="count"):
            connection.grant_streams(amount)


class TestHeartbeats:
    def test_global_ping(self) -> None:
        """A ping packet whose fourth bit is one is answered with a pong packet whose
        fourth bit is one."""
        connection = connect()
        assert feed(connection, ping()) == [PingReceived(stream_id=None)]
        assert connection.data_to_send() == pong()

    def test_stream_ping(self) -> None:
        """A ping packet whose fourth bit is zero is followed by a stream id, and is
        answered with a matching pong packet."""
        connection = connect({300: (0, 0)})
        assert feed(connection, ping(300)) == [PingReceived(stream_id=300)]
        assert connection.data_to_send() == pong(300)

    def test_each_ping_has_its_pong(self) -> None:
        connection = connect({0: (0, 0)})
        feed(connection, ping(0), ping(), ping(0))
        assert sorted(split(connection.data_to_send())) == sorted([pong(0), pong(0), pong()])

    def test_sending_pings(self) -> None:
        connection = connect({0: (0, 0)})
        connection.ping()
        connection.stream(0).ping()
        connection.stream(0).ping()
        assert connection.data_to_send() == ping() + ping(0) + ping(0)

    def test_unsolicited_pong(self) -> None:
        """In particular it is totally fine to send unsolicited pongs."""
        connection = connect({0: (0, 0)})
        assert feed(connection, pong(0), pong()) == [
            PongReceived(stream_id=0),
            PongReceived(stream_id=None),
        ]

    def test_no_pong_after_both(self) -> None:
        """After having sent both a `Close` and a `StopRead` packet for a stream, no more
        `Ping` and `Pong` packets may be sent to it."""
        connection = connect({0: (0, 0)})
        connection.stream(0).close()
        connection.stream(0).stop_read()
        assert refusal(connection.stream(0).ping) is ErrorCode.PING_AFTER_END
        connection.data_to_send()
        assert feed(connection, ping(0)) == [PingReceived(stream_id=0)]
        assert connection.data_to_send() == b""

    def test_pong_is_sent_before_the_end_that_is_due_later(self) -> None:
        connection = connect({0: (0, 0)})
        connection.stream(0).close()
        feed(connection, ping(0))
        connection.stream(0).stop_read()
        assert connection.data_to_send() == close(0) + pong(0) + stop_read(0)

    def test_ping_is_answered_while_a_close_waits_behind_data(self) -> None:
        connection = connect({0: (0, 0)})
        stream = connection.stream(0)
        stream.send_data(b"1")
        stream.close()
        stream.stop_read()
        feed(connection, ping(0))
        stream.ping()
        assert connection.data_to_send() == stop_read(0) + pong(0) + ping(0)


class TestEnding:
    def test_close_is_answered(self) -> None:
        """The receiving endpoint must answer with a `StopRead` packet for the same
        stream."""
        connection = connect({0: (0, 0)})
        assert feed(connection, close(0)) == [CloseReceived(stream_id=0)]
        assert connection.data_to_send() == stop_read(0)

    def test_close_is_not_answered_twice(self) -> None:
        """(unless it has already sent a `StopRead` packet for that stream)"""
        connection = connect({0: (0, 0)})
        connection.stream(0).stop_read()
        assert connection.data_to_send() == stop_read(0)
        feed(connection, close(0))
        assert connection.data_to_send() == b""

    def test_stop_read_is_answered(self) -> None:
        """[StopRead packets] must be answered by a `Close` packet for the same stream."""
        connection = connect({0: (0, 0)})
        assert feed(connection, stop_read(0)) == [StopReadReceived(stream_id=0, unsent_size=0)]
        assert connection.data_to_send() == close(0)

    def test_stop_read_is_not_answered_twice(self) -> None:
        """(unless the other endpoint has already sent a `Close` packet for that
        stream)"""
        connection = connect({0: (0, 0)})
        connection.stream(0).close()
        assert connection.data_to_send() == close(0)
        feed(connection, stop_read(0))
        assert connection.data_to_send() == b""

    def test_stop_read_drops_what_is_queued(self) -> None:
        connection = connect({0: (4, 0)})
        connection.stream(0).send_data(b"123456")
        assert connection.data_to_send() == write(0, b"1234")
        assert feed(connection, stop_read(0)) == [StopReadReceived(stream_id=0, unsent_size=2)]
        assert connection.stream(0).unsent_size == 0
        assert feed(connection, credit(0, 5)) != []
        assert connection.data_to_send() == close(0)

    def test_stop_read_lets_a_waiting_close_go(self) -> None:
        connection = connect({0: (0, 0)})
        connection.stream(0).send_data(b"123")
        connection.stream(0).close()
        assert connection.data_to_send() == b""
        feed(connection, stop_read(0))
        assert connection.data_to_send() == close(0)

    def test_close_waits_for_the_data(self) -> None:
        connection = connect({0: (3, 0)})
        stream = connection.stream(0)
        stream.send_data(b"12345")
        stream.close()
        assert refusal(stream.send_data, b"6") is ErrorCode.WRITE_AFTER_CLOSE
        assert refusal(stream.close) is ErrorCode.SECOND_CLOSE
        assert connection.data_to_send() == write(0, b"123")
        feed(connection, credit(0, 2))
        assert connection.data_to_send() == write(0, b"45") + close(0)

    def test_sending_after_close(self) -> None:
        """After sending a `Close` packet for a stream, no more `Write` or further
        `Close` packets may be sent to it by the same endpoint."""
        stream = connect({0: FREE}).stream(0)
        stream.close()
        assert refusal(stream.send_data, b"1") is ErrorCode.WRITE_AFTER_CLOSE
        assert refusal(stream.send_data, b"") is ErrorCode.WRITE_AFTER_CLOSE
        assert refusal(stream.close) is ErrorCode.SECOND_CLOSE

    def test_receiving_after_close(self) -> None:
        """Receiving any of these invalid packets means that the whole connection must be
        terminated immediately."""
        assert failure(connect({0: FREE}), close(0), write(0, b"1")) is ErrorCode.WRITE_AFTER_CLOSE
        assert failure(connect({0: FREE}), close(0), write(0, b"")) is ErrorCode.WRITE_AFTER_CLOSE
        assert failure(connect({0: FREE}), close(0), close(0)) is ErrorCode.SECOND_CLOSE

    def test_sending_after_stop_read(self) -> None:
        """After sending a `StopRead` packet for a stream, no more `Credit` or further
        `StopRead` packets may be sent to it."""
        stream = connect({0: (0, 0)}).stream(0)
        stream.stop_read()
        assert refusal(stream.grant, 1) is ErrorCode.CREDIT_AFTER_STOP_READ
        assert refusal(stream.grant_infinite) is ErrorCode.CREDIT_AFTER_STOP_READ
        assert refusal(stream.set_window, 1) is ErrorCode.CREDIT_AFTER_STOP_READ
        assert refusal(stream.stop_read) is ErrorCode.SECOND_STOP_READ

    def test_receiving_after_stop_read(self) -> None:
        """Receiving any of these invalid packets means that the whole connection must be
        terminated immediately."""
        for after, code in (
            (credit(0, 1), ErrorCode.CREDIT_AFTER_STOP_READ),
            (credit(0, 0), ErrorCode.CREDIT_AFTER_STOP_READ),
            (stop_read(0), ErrorCode.SECOND_STOP_READ),
        ):
            assert failure(connect({0: FREE}), stop_read(0), after) is code

    def test_stop_read_does_not_take_credit_back(self) -> None:
        """[StopRead indicates] that no more credit will be granted for the stream"""
        connection = connect({0: (0, 4)})
        connection.stream(0).stop_read()
        assert feed(connection, write(0, b"1234")) == [StreamData(stream_id=0, data=b"1234")]
        assert failure(connection, write(0, b"5")) is ErrorCode.WRITE_PAST_CREDIT

    def test_stream_is_alive_until_both_have_sent_both(self) -> None:
        """The stream is however still considered alive until both a `Close` and a
        `StopRead` packet have been sent by both endpoints."""
        connection = connect({0: FREE, 1: FREE})
        stream = connection.stream(0)
        assert feed(connection, close(0)) == [CloseReceived(stream_id=0)]
        stream.close()
        assert feed(connection, ping(0), credit(0, 0)) == [PingReceived(stream_id=0)]
        assert 0 in connection.streams
        assert feed(connection, stop_read(0)) == [
            StopReadReceived(stream_id=0),
            StreamEnded(stream_id=0),
        ]
        assert stream.state.ended
        assert list(connection.streams) == [1]
        assert failure(connection, ping(0)) is ErrorCode.UNKNOWN_STREAM

    def test_half_closed_stream_still_carries_data_the_other_way(self) -> None:
        connection = connect({0: FREE})
        feed(connection, close(0))
        connection.stream(0).send_data(b"more")
        assert connection.data_to_send() == stop_read(0) + write(0, b"more")

    def test_id_may_be_used_again(self) -> None:
        """At that point, the stream is fully ended and its id may be reused by further,
        newly created streams."""
        connection = connect({0: (0, 0)}, local_creation_credit=2)
        old = connection.stream(0)
        old.close()
        assert refusal(connection.create_stream, 0) is ErrorCode.ID_ACTIVE
        feed(connection, stop_read(0), close(0))
        new = connection.create_stream(0)
        new.grant(5)
        # The old stream's packets stand before the new one's.
        assert connection.data_to_send() == close(0) + stop_read(0) + create(0) + credit(0, 5)
        assert old != new
        assert refusal(old.grant, 1) is ErrorCode.CREDIT_AFTER_STOP_READ

    def test_id_is_not_free_before_the_end_is_reported(self) -> None:
        connection = connect({0: (0, 0)}, local_creation_credit=2)
        connection.receive_data(close(0) + stop_read(0))
        assert connection.next_event() == CloseReceived(stream_id=0)
        assert connection.next_event() == StopReadReceived(stream_id=0)
        assert refusal(connection.create_stream, 0) is ErrorCode.ID_ACTIVE
        assert connection.next_event() == StreamEnded(stream_id=0)
        assert connection.create_stream(0).stream_id == 0

    def test_both_close_at_the_same_time(self) -> None:
        left = connect({0: FREE, 2: FREE}, local_creation_credit=1)
        right = connect({0: FREE, 2: FREE}, role=Role.REACTIVE, remote_creation_credit=1)
        for connection in (left, right):
            connection.stream(0).close()
            connection.stream(0).stop_read()
        from_left, from_right = left.data_to_send(), right.data_to_send()
        assert feed(left, from_right)[-1] == StreamEnded(stream_id=0)
        left.create_stream(0)  # in the peer's view the old one still lives
        assert feed(right, from_left, left.data_to_send())[-2:] == [
            StreamEnded(stream_id=0),
            StreamCreated(stream_id=0),
        ]
        assert right.data_to_send() == b""


class TestGlobalEnding:
    def test_close_is_answered(self) -> None:
        """[Global Close:] The receiving endpoint must answer with a global `StopRead`
        packet (unless it has already sent a global `StopRead` packet)."""
        connection = connect({0: FREE})
        assert feed(connection, close()) == [CloseReceived(stream_id=None)]
        assert connection.data_to_send() == stop_read()
        connection = connect({0: FREE})
        connection.stop_accepting()
        assert connection.data_to_send() == stop_read()
        feed(connection, close())
        assert connection.data_to_send() == b""

    def test_stop_read_is_answered(self) -> None:
        """[Global StopRead:] The receiving endpoint must answer with a global `Close`
        packet (unless it has already sent a global `Close` packet)."""
        connection = connect({0: FREE})
        assert feed(connection, stop_read()) == [StopReadReceived(stream_id=None)]
        assert connection.data_to_send() == close()
        connection = connect({0: FREE})
        connection.stop_creating()
        assert connection.data_to_send() == close()
        feed(connection, stop_read())
        assert connection.data_to_send() == b""

    def test_after_close(self) -> None:
        """After sending a global `Close` packet, no more global `Write` or further
        global `Close` packets may be sent by the same endpoint."""
        connection = connect(local_creation_credit=1)
        connection.stop_creating()
        assert refusal(connection.create_stream) is ErrorCode.CREATION_AFTER_CLOSE
        assert refusal(connection.stop_creating) is ErrorCode.GLOBAL_SECOND_CLOSE
        for after, code in (
            (create(1), ErrorCode.CREATION_AFTER_CLOSE),
            (close(), ErrorCode.GLOBAL_SECOND_CLOSE),
        ):
            assert failure(connect(remote_creation_credit=1), close(), after) is code

    def test_after_stop_read(self) -> None:
        """After sending a global `StopRead` packet, no more global `Credit` or further
        global `StopRead` packets may be sent by the same endpoint."""
        connection = connect()
        connection.stop_accepting()
        assert refusal(connection.grant_streams, 1) is ErrorCode.GLOBAL_CREDIT_AFTER_STOP_READ
        assert refusal(connection.stop_accepting) is ErrorCode.GLOBAL_SECOND_STOP_READ
        for after, code in (
            (credit(None, 1), ErrorCode.GLOBAL_CREDIT_AFTER_STOP_READ),
            (stop_read(), ErrorCode.GLOBAL_SECOND_STOP_READ),
        ):
            assert failure(connect(), stop_read(), after) is code

    def test_after_both(self) -> None:
        """After having sent both a global `Close` and a global `StopRead` packet, no
        more global `Ping` and `Pong` packets may be sent."""
        connection = connect({0: FREE})
        connection.stop_creating()
        connection.stop_accepting()
        assert refusal(connection.ping) is ErrorCode.GLOBAL_PING_AFTER_END
        for after, code in (
            (ping(), ErrorCode.GLOBAL_PING_AFTER_END),
            (pong(), ErrorCode.GLOBAL_PONG_AFTER_END),
        ):
            assert failure(connect({0: FREE}), close(), stop_read(), after) is code

    def test_existing_streams_go_on(self) -> None:
        """They do *not* restrict the actions that can be performed on streams that
        already exist."""
        connection = connect({0: FREE})
        feed(connection, close(), stop_read())
        assert connection.state is State.SETTLED
        connection.stream(0).send_data(b"out")
        connection.stream(0).ping()
        assert feed(connection, write(0, b"in")) == [StreamData(stream_id=0, data=b"in")]
        assert connection.data_to_send().endswith(write(0, b"out"))

    def test_end_of_everything(self) -> None:
        connection = connect({0: FREE})
        feed(connection, close(), stop_read())
        assert not ended(connection)
        assert feed(connection, stop_read(0), close(0), b"next protocol") == [
            StopReadReceived(stream_id=0),
            CloseReceived(stream_id=0),
            StreamEnded(stream_id=0),
            Closed(error=None),
        ]
        assert connection.state is State.CLOSED
        assert connection.trailing_data == b"next protocol"
        assert split(connection.data_to_send()) == [stop_read(), close(), close(0), stop_read(0)]


class TestCreation:
    def test_credit_for_creations(self) -> None:
        """Global credit is given with a `Credit` packet whose fourth bit is one."""
        connection = connect()
        assert feed(connection, credit(None, 2)) == [CreationCredit(amount=2)]
        assert connection.creation_credit == 2
        connection.grant_streams(300)
        assert connection.remote_creation_credit == 300
        assert connection.data_to_send() == credit(None, 300)

    def test_one_point_allows_one_stream(self) -> None:
        """One point of global credit allows to create one stream."""
        connection = connect(local_creation_credit=1, remote_creation_credit=1)
        connection.create_stream()
        assert refusal(connection.create_stream) is ErrorCode.CREATION_WITHOUT_CREDIT
        assert failure(connection, create(1)) is None
        assert connection.remote_creation_credit == 0
        assert failure(connection, create(3)) is ErrorCode.CREATION_WITHOUT_CREDIT

    def test_overflow(self) -> None:
        """If the sum of the previously available global credit and the new additional
        global credit exceeds `2^64 - 1`, the whole connection must be terminated
        immediately."""
        connection = connect(local_creation_credit=1, remote_creation_credit=1)
        code = ErrorCode.GLOBAL_CREDIT_OVERFLOW
        assert refusal(connection.grant_streams, 2**64 - 1) is code
        assert connection.remote_creation_credit == 1
        connection.grant_streams(2**64 - 2)
        assert connection.data_to_send() == credit(None, 2**64 - 2)
        assert failure(connection, credit(None, 2**64 - 2)) is None
        assert failure(connection, credit(None, 1)) is code

    def test_global_credit_is_never_infinite(self) -> None:
        connection = connect(local_creation_credit=2**64 - 1)
        assert feed(connection, credit(None, 0)) == []
        connection.create_stream()
        assert connection.creation_credit == 2**64 - 2

    def test_creation(self) -> None:
        """A new stream is created with a `Write` packet whose fourth bit is one."""
        connection = connect(remote_creation_credit=2, local_creation_credit=2)
        assert feed(connection, create(301)) == [StreamCreated(stream_id=301)]
        assert connection.stream(301).state.ended is False
        assert connection.create_stream(300).stream_id == 300
        assert connection.data_to_send() == create(300)

    def test_parity(self) -> None:
        """the *proactive* endpoint may only create streams with an even id, the
        *reactive* endpoint may only create streams with an odd id."""
        for role, own, other in ((Role.PROACTIVE, 2, 3), (Role.REACTIVE, 3, 2)):
            connection = connect(role=role, local_creation_credit=9, remote_creation_credit=9)
            assert refusal(connection.create_stream, other) is ErrorCode.WRONG_PARITY
            assert connection.creation_credit == 9
            assert connection.create_stream(own).stream_id == own
            assert connection.create_stream().stream_id == role.value
            assert failure(connection, create(other)) is None
            assert failure(connection, create(own + 2)) is ErrorCode.WRONG_PARITY

    def test_id_in_use(self) -> None:
        """When receiving a packet trying to create a stream with an already active id,
        the whole connection must be terminated immediately."""
        connection = connect({0: FREE, 1: FREE}, local_creation_credit=9, remote_creation_credit=9)
        assert refusal(connection.create_stream, 0) is ErrorCode.ID_ACTIVE
        assert failure(connection, create(1)) is ErrorCode.ID_ACTIVE

    def test_half_ended_id_is_in_use(self) -> None:
        """A stream id is considered active by an endpoint until it has both sent and
        received `Close` and `StopRead` packets for that stream."""
        connection = connect({1: FREE}, remote_creation_credit=9)
        assert failure(connection, close(1), create(1)) is ErrorCode.ID_ACTIVE

    def test_peer_of_the_creator_starts_without_credit(self) -> None:
        """When one endpoint creates a stream, the other endpoint has zero sending credit
        on that stream."""
        connection = connect(
            local_creation_credit=1,
            remote_creation_credit=1,
            local_creator_credit=11,
            remote_creator_credit=22,
        )
        created = connection.create_stream()
        assert (created.send_credit, created.receive_credit) == (11, 0)
        feed(connection, create(1))
        accepted = connection.stream(1)
        assert (accepted.send_credit, accepted.receive_credit) == (0, 22)

    def test_creation_can_be_followed_up_at_once(self) -> None:
        """The creation of the stream can be immediately followed up with a `Credit`
        packet."""
        connection = connect(local_creation_credit=1, local_creator_credit=2)
        stream = connection.create_stream()
        stream.send_data(b"abc")
        stream.grant(9)
        assert connection.data_to_send() == create(0) + credit(0, 9) + write(0, b"ab")

    def test_creation_is_sent_before_a_global_close(self) -> None:
        connection = connect(local_creation_credit=1)
        connection.ping()
        connection.create_stream()
        connection.stop_creating()
        assert connection.data_to_send() == ping() + create(0) + close()

    def test_smallest_free_id_is_chosen(self) -> None:
        connection = connect({2: FREE}, local_creation_credit=9)
        assert [connection.create_stream().stream_id for _ in range(3)] == [0, 4, 6]
        feed(connection, close(2), stop_read(2))
        assert [connection.create_stream().stream_id for _ in range(2)] == [2, 8]

    def test_end_of_a_stream_of_the_peer_frees_none_of_our_ids(self) -> None:
        connection = connect({1: FREE}, local_creation_credit=9)
        assert [connection.create_stream().stream_id for _ in range(2)] == [0, 2]
        feed(connection, close(1), stop_read(1))
        assert connection.create_stream().stream_id == 4

    def test_streams_max(self) -> None:
        limits = Limits(streams_max=2)
        connection = connect(
            {0: FREE}, limits=limits, local_creation_credit=9, remote_creation_credit=9
        )
        assert failure(connection, create(1)) is None
        assert refusal(connection.create_stream) is ErrorCode.STREAMS_LIMIT
        assert connection.creation_credit == 9
        assert failure(connection, create(3)) is ErrorCode.STREAMS_LIMIT

    def test_streams_max_counts_those_alive(self) -> None:
        connection = connect({0: FREE}, limits=Limits(streams_max=1), remote_creation_credit=9)
        assert failure(connection, close(0), stop_read(0), create(1)) is None

    @pytest.mark.parametrize("stream_id", [-2, 2**64])
    def test_id_that_cannot_be_meant(self, stream_id: int) -> None:
        with pytest.raises(ValueError, match="stream id"):
            connect(local_creation_credit=1).create_stream(stream_id)


class TestInitialState:
    def test_vanilla(self) -> None:
        """vanilla "bymux" means that initially there are no streams, both endpoints have
        global credit of zero, and no `Close` and `StopRead` packets have been sent
        yet."""
        connection = Connection(role=Role.PROACTIVE)
        assert connection.state is State.OPEN
        assert list(connection.streams) == []
        assert (connection.creation_credit, connection.remote_creation_credit) == (0, 0)
        assert events(connection) == []
        connection.stop_creating()
        connection.stop_accepting()
        assert connection.data_to_send() == close() + stop_read()

    def test_streams_with_credit(self) -> None:
        """a protocol might start out with certain streams already available, possibly
        even with nonzero credit"""
        connection = connect({0: FREE, 1: (3, 4)})
        assert sorted(connection.streams) == [0, 1]
        assert connection.stream(0).send_credit == INFINITE
        assert connection.stream(1).send_credit == 3
        assert connection.stream(1).receive_credit == 4

    def test_static_set_of_streams(self) -> None:
        """It might even begin in a state that pretends that global `Close` and
        `StopRead` packets had already been sent"""
        connection = connect({0: FREE}, creation_closed=True, local_creation_credit=1)
        assert connection.state is State.SETTLED
        assert refusal(connection.create_stream) is ErrorCode.CREATION_AFTER_CLOSE
        assert refusal(connection.ping) is ErrorCode.GLOBAL_PING_AFTER_END
        assert failure(connection, ping()) is ErrorCode.GLOBAL_PING_AFTER_END

    def test_nothing_at_all(self) -> None:
        connection = connect(creation_closed=True)
        assert events(connection) == [Closed(error=None)]

    def test_mirror(self) -> None:
        state = InitialState(
            streams={0: InitialStream(send_credit=1, receive_credit=2)},
            local_creation_credit=3,
            remote_creation_credit=4,
            local_creator_credit=5,
            remote_creator_credit=6,
            creation_closed=True,
        )
        mirrored = state.mirrored()
        assert mirrored == InitialState(
            streams={0: InitialStream(send_credit=2, receive_credit=1)},
            local_creation_credit=4,
            remote_creation_credit=3,
            local_creator_credit=6,
            remote_creator_credit=5,
            creation_closed=True,
        )
        assert mirrored.mirrored() == state
        assert VANILLA.mirrored() == VANILLA
        assert hash(state) == hash(mirrored.mirrored())

    def test_values_that_cannot_be_meant(self) -> None:
        for wrong in (-1, 2**64):
            with pytest.raises(ValueError, match="stream id"):
                InitialState(streams={wrong: InitialStream()})
            for name in ("send_credit", "receive_credit"):
                with pytest.raises(ValueError, match=name):
                    InitialStream(**{name: wrong})
            for name in (
                "local_creation_credit",
                "remote_creation_credit",
                "local_creator_credit",
                "remote_creator_credit",
            ):
                with pytest.raises(ValueError, match=name):
                    InitialState(**{name: wrong})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="streams"):
            connect({0: FREE, 1: FREE}, limits=Limits(streams_max=1))

    def test_limits_that_cannot_be_meant(self) -> None:
        names = Limits.__dataclass_fields__
        for name in names:
            with pytest.raises(ValueError, match=name):
                Limits(**{name: 0})
        with pytest.raises(ValueError, match="receive_buffer_max"):
            Limits(piece_size_max=100, receive_buffer_max=116)
        Limits(piece_size_max=100, receive_buffer_max=117)


class TestEndOfBytes:
    def test_inside_of_a_packet(self) -> None:
        for data in (b"\x00", credit(0, 300)[:-1], packet(1, 0, 5), write(0, b"12345")[:-1]):
            connection = connect({0: FREE})
            connection.receive_data(data)
            connection.receive_eof()
            assert failure(connection) is ErrorCode.EOF_IN_PACKET

    @pytest.mark.parametrize("as_it_comes", [False, True])
    def test_inside_of_a_write_what_has_come_of_it_comes_up(self, as_it_comes: bool) -> None:
        """However large its pieces: the line may break before the first one is whole."""
        for size in range(1, 21):
            connection = connect(
                {0: FREE}, limits=Limits(piece_size_max=8), as_it_comes=as_it_comes
            )
            data = bytes(range(21))
            connection.receive_data(write(0, data)[: size - 21])
            came = b""
            for eof in (False, True):
                while isinstance(event := connection.next_event(), StreamData):
                    came += event.data
                if not eof:
                    assert came == data[: size - size % 8]
                    assert event is None
                    connection.receive_eof()
            assert came == data[:size]
            assert isinstance(event, Closed)
            assert event.error is not None
            assert event.error.code is ErrorCode.EOF_IN_PACKET

    def test_with_streams(self) -> None:
        connection = connect({0: FREE})
        connection.receive_data(ping(0))
        connection.receive_eof()
        assert connection.next_event() == PingReceived(stream_id=0)
        assert failure(connection) is ErrorCode.EOF_WITH_STREAMS

    def test_without_streams(self) -> None:
        connection = connect()
        connection.receive_data(ping())
        connection.receive_eof()
        assert events(connection) == [PingReceived(), Closed(error=None)]
        assert connection.state is State.CLOSED


class TestGoodbye:
    def test_close(self) -> None:
        connection = connect({0: (3, 0), 1: (0, 0)})
        connection.stream(0).send_data(b"abc")
        connection.stream(1).stop_read()
        connection.close()
        connection.close()
        assert connection.state is State.CLOSING
        assert connection.data_to_send() == b"".join(
            [stop_read(1), close(), stop_read(), stop_read(0), close(1), write(0, b"abc"), close(0)]
        )
        assert feed(connection, close(), stop_read(), close(1), stop_read(1), close(0)) != []
        assert connection.state is State.CLOSING
        assert feed(connection, stop_read(0))[-1] == Closed(error=None)
        assert connection.data_to_send() == b""

    def test_stream_that_the_peer_creates_meanwhile_is_ended_too(self) -> None:
        connection = connect(remote_creation_credit=1)
        connection.close()
        connection.data_to_send()
        assert feed(connection, create(1)) == [StreamCreated(stream_id=1)]
        assert connection.data_to_send() == close(1) + stop_read(1)

    def test_verbs_after_the_end(self) -> None:
        for last in (close(0) + stop_read(0), b"\xff"):
            connection = connect({0: FREE}, creation_closed=True)
            stream = connection.stream(0)
            stream.send_data(b"abc")
            feed(connection, last)
            assert ended(connection)
            for verb in (
                connection.create_stream,
                connection.ping,
                connection.stop_creating,
                connection.stop_accepting,
                lambda: connection.grant_streams(1),  # noqa: B023
                stream.ping,
                stream.close,
                stream.stop_read,
                stream.grant_infinite,
                lambda: stream.grant(1),  # noqa: B023
                lambda: stream.set_window(1),  # noqa: B023
                lambda: stream.send_data(b""),  # noqa: B023
            ):
                with pytest.raises(LocalProtocolError) as caught:
                    verb()
                assert caught.value.code is ContractErrorCode.ALREADY_CLOSED
            stream.consumed(0)
            connection.close()
            assert list(connection.streams) == []
            assert events(connection) == []

    def test_after_a_failure_answers_leave_but_no_data(self) -> None:
        connection = connect({0: FREE})
        connection.stream(0).send_data(b"abc")
        feed(connection, ping(0), b"\xff", ping(0))
        assert connection.data_to_send() == pong(0)
        assert connection.trailing_data == b""

"""muxrpc with malicious peers: floods, lies about sizes, and packets that belong to no call."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ssb_support import converse, events

from culm.machine import LocalProtocolError, RemoteProtocolError
from culm.ssb.muxrpc import (
    BodyType,
    CallEnded,
    CallError,
    CallReceived,
    CallType,
    Closed,
    Connection,
    ErrorCode,
    Limits,
    Manifest,
    ReplyReceived,
    State,
    ValueReceived,
    calls,
)
from culm.ssb.muxrpc.calls import NUMBER_MAX, encode_header
from culm.ssb.muxrpc.requests import Request, encode_request, read_error
from culm.ssb.v8json import JsonError

METHODS = Manifest({"echo": CallType.DUPLEX, "whoami": CallType.ASYNC})
DUPLEX = encode_request(Request(("echo",), [], CallType.DUPLEX))
UNKNOWN = encode_request(Request(("foo",), [], CallType.DUPLEX))
ASYNC = encode_request(Request(("whoami",), [], CallType.ASYNC))


def packet(number: int, body: bytes, *, stream: bool = True, end: bool = False) -> bytes:
    return encode_header(number, len(body), BodyType.JSON, stream=stream, end=end) + body


def connection(**limits: int) -> Connection:
    return Connection(manifest=METHODS, limits=Limits(**limits))


def error_of(happened: list[Any]) -> ErrorCode:
    (closed,) = happened[-1:]
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, RemoteProtocolError)
    return ErrorCode(closed.error.code)


@contextmanager
def growth_below(size: int) -> Iterator[None]:
    """The traced memory grows by less than `size` bytes."""
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        yield
        assert tracemalloc.get_traced_memory()[0] - start < size
    finally:
        tracemalloc.stop()


class TestSizes:
    """Declared sizes are judged before a byte has come."""

    @pytest.mark.parametrize("size", [401, 2**31, 2**32 - 1])
    def test_a_body_beyond_the_limit(self, size: int) -> None:
        machine = connection(body_size_max=400)
        machine.receive_data(packet(1, DUPLEX))
        events(machine)
        machine.receive_data(encode_header(1, size, BodyType.JSON, stream=True))
        assert error_of(events(machine)) is ErrorCode.BODY_TOO_LARGE

    @pytest.mark.parametrize("number", [1, 7, 2**31 - 1, 0])
    @pytest.mark.parametrize("stream", [True, False])
    def test_a_request_beyond_its_own(self, number: int, stream: bool) -> None:
        machine = connection(control_size_max=100)
        machine.receive_data(encode_header(number, 101, BodyType.JSON, stream=stream))
        assert error_of(events(machine)) is ErrorCode.BODY_TOO_LARGE

    def test_an_end_beyond_its_own(self) -> None:
        machine = connection(control_size_max=100)
        machine.receive_data(packet(1, DUPLEX))
        events(machine)
        machine.receive_data(encode_header(1, 101, BodyType.JSON, stream=True, end=True))
        assert error_of(events(machine)) is ErrorCode.BODY_TOO_LARGE

    def test_a_value_may_be_larger_than_a_request(self) -> None:
        machine = connection(control_size_max=100)
        machine.receive_data(packet(1, DUPLEX) + packet(1, b"1" * 5000))
        assert [type(event) for event in events(machine)] == [CallReceived, ValueReceived]

    def test_one_in_a_refused_call_as_well(self) -> None:
        machine = connection(control_size_max=100)
        machine.receive_data(packet(1, UNKNOWN) + packet(1, b"1" * 5000))
        assert events(machine) == []
        assert machine.state is State.OPEN


class TestWhatBelongsToNoCall:
    def test_a_body_of_no_type(self) -> None:
        machine = connection()
        machine.receive_data(b"\x0b\0\0\0\1\0\0\0\1x")
        assert error_of(events(machine)) is ErrorCode.BAD_BODY_TYPE

    def test_flags_that_mean_nothing_are_not_looked_at(self) -> None:
        machine = connection()
        data = packet(1, DUPLEX)
        machine.receive_data(bytes([data[0] | 0xF0]) + data[1:])
        assert [type(event) for event in events(machine)] == [CallReceived]

    @pytest.mark.parametrize("number", [-1, -2, -(2**31)])
    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("end", [True, False])
    def test_an_answer_to_what_was_never_asked(self, number: int, stream: bool, end: bool) -> None:
        machine = connection()
        machine.receive_data(packet(number, b"true", stream=stream, end=end))
        assert error_of(events(machine)) is ErrorCode.UNKNOWN_CALL

    def test_an_answer_that_comes_twice(self) -> None:
        machine = connection()
        machine.make_call(["whoami"], CallType.ASYNC)
        machine.receive_data(2 * packet(-1, b"5", stream=False))
        assert events(machine) == [ReplyReceived(number=1, body=b"5")]
        assert machine.state is State.OPEN

    def test_an_end_of_what_was_never_begun(self) -> None:
        machine = connection()
        machine.receive_data(packet(5, b"true", end=True) + packet(5, b"1", stream=False, end=True))
        assert events(machine) == []
        assert machine.data_to_send() == b""
        assert machine.state is State.OPEN

    def test_a_message_to_nobody(self) -> None:
        machine = connection()
        machine.receive_data(packet(0, b"[1]", stream=False))
        assert events(machine) == []
        assert machine.data_to_send() == b""

    def test_a_number_that_is_in_use(self) -> None:
        for body, stream in ((ASYNC, False), (DUPLEX, True)):
            machine = connection()
            machine.receive_data(packet(1, ASYNC, stream=False) + packet(1, body, stream=stream))
            assert error_of(events(machine)) is ErrorCode.WRONG_PACKET

    def test_a_number_may_be_used_again(self) -> None:
        machine = connection()
        for _ in range(3):
            machine.receive_data(packet(1, ASYNC, stream=False))
            assert [type(event) for event in events(machine)] == [CallReceived]
            machine.call(-1).reply(1)


def ends_unanswered(machine: Connection, *, ours: bool) -> list[int]:
    """End 100 calls of the peer, and with `ours` as many of ours; the calls that are over."""
    happened: list[Any] = []
    for number in range(1, 101):
        machine.receive_data(packet(number, DUPLEX))
        happened += events(machine)
        machine.call(-number).end()
        if ours:
            machine.make_call(["source"], CallType.SOURCE).end()
        assert len(machine.calls) <= (10 if ours else 5)
    happened += events(machine)
    return [event.number for event in happened if isinstance(event, CallEnded)]


class TestFloods:
    def test_streams_beyond_the_limit_are_refused(self) -> None:
        machine = connection(calls_max=3)
        machine.receive_data(b"".join(packet(number, DUPLEX) for number in range(1, 6)))
        assert len(events(machine)) == 3
        assert len(machine.calls) == 3
        assert machine.data_to_send().count(b"too many calls") == 2
        machine.receive_data(packet(1, b"true", end=True) + packet(6, DUPLEX))
        assert [type(event) for event in events(machine)] == [CallEnded, CallReceived]

    def test_ever_more_open_streams(self) -> None:
        """Most are refused; unanswered refusals end nothing else."""
        machine = connection()
        with growth_below(4 << 20):
            for number in range(1, 20_001):
                machine.receive_data(packet(number, DUPLEX))
                assert len(events(machine)) == (number <= 1024)
                machine.data_to_send()
        assert machine.state is State.OPEN
        machine.receive_data(packet(7, b"5") + packet(20_000, b"5"))
        (value,) = events(machine)  # the latest refused ones are recognised
        assert value == ValueReceived(number=-7, body=b"5", type=BodyType.JSON)

    @pytest.mark.slow
    def test_a_million_streams_one_after_the_other(self) -> None:
        machine = connection()
        with growth_below(64 << 10):
            for number in range(1, 20_001):
                machine.receive_data(packet(number, UNKNOWN) + packet(number, b"true", end=True))
                assert events(machine) == []
                machine.data_to_send()
        assert machine.state is State.OPEN

    def test_ends_of_ours_that_are_not_answered(self) -> None:
        """The oldest of too many count as over; further packets for them are dropped."""
        machine = connection(unanswered_max=5, calls_max=2)
        assert ends_unanswered(machine, ours=False) == [-number for number in range(1, 96)]
        machine.data_to_send()
        machine.receive_data(packet(95, b"5") + packet(95, b"true", end=True))
        machine.receive_data(packet(2, b"true", end=True))
        assert events(machine) == []
        machine.receive_data(packet(96, b"5") + packet(96, b"true", end=True))
        assert events(machine) == [CallEnded(number=-96)]
        assert machine.state is State.OPEN
        assert machine.data_to_send() == b""

    def test_ends_of_calls_of_ours_that_are_not_answered(self) -> None:
        """The same of calls that we have made, and ended; those of the peer are counted apart."""
        machine = connection(unanswered_max=5, calls_max=2)
        over = ends_unanswered(machine, ours=True)
        assert sorted(over) == sorted(each for n in range(1, 96) for each in (n, -n))
        machine.receive_data(packet(-95, b"5") + packet(-95, b"true", end=True))
        assert events(machine) == []
        machine.receive_data(packet(-96, b"5") + packet(-96, b"true", end=True))
        assert events(machine) == [CallEnded(number=96)]
        assert machine.state is State.OPEN

    def test_after_our_goodbye_no_call_of_ours_counts_as_over(self) -> None:
        machine = connection(unanswered_max=1)
        for _ in range(3):
            machine.make_call(["createHistoryStream"], CallType.SOURCE)
        machine.close()
        assert events(machine) == []

    def test_a_peer_that_takes_no_answers_is_not_read(self) -> None:
        machine = connection(answers_max=10)
        count = 0
        while machine.read_size():
            count += 1
            machine.receive_data(packet(count, UNKNOWN) + packet(count, b"true", end=True))
            events(machine)
        assert count == 11
        machine.data_to_send(300)
        assert machine.read_size() > 0

    def test_answers_wait_until_they_are_taken_whatever_was_taken_before(self) -> None:
        machine = connection(answers_max=10)
        number = 0
        for last in (11, 22):
            while machine.read_size():
                number += 1
                machine.receive_data(packet(number, UNKNOWN) + packet(number, b"true", end=True))
                events(machine)
            assert number == last
            machine.data_to_send(1)
            assert machine.read_size() == 0
            machine.data_to_send()

    @pytest.mark.parametrize("word", [b"x", b"\xff", b"\\u0001"])
    def test_long_words_are_not_repeated(self, word: bytes) -> None:
        """Neither a name, nor a malformed request, nor the error that ends a stream."""
        words = word * (60_000 // len(word))
        machine = connection()
        with growth_below(1 << 20):
            for number in range(1, 400, 3):
                machine.receive_data(
                    packet(number, b'{"name":["' + words + b'"],"args":[]}', stream=False)
                    + packet(number + 1, words, stream=False)
                    + packet(number + 2, DUPLEX)
                )
                events(machine)
                end = b'{"message":"' + words + b'","name":"' + words + b'","stack":"' + b'"}'
                machine.receive_data(packet(number + 2, end[: 1 << 16], end=True))
                events(machine)
                if not machine.read_size():
                    break
        assert len(machine.data_to_send()) < 1 << 19

    def test_a_peer_that_takes_no_large_answers_is_not_read(self) -> None:
        machine = connection(answers_size_max=1000)
        sizes = []
        while (room := machine.read_size()) > 0:
            sizes.append(room)
            machine.receive_data(packet(len(sizes), UNKNOWN) + packet(len(sizes), b"1", end=True))
            events(machine)
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] == 1000
        waiting = machine.data_to_send()
        assert 1000 <= len(waiting) < 1000 + 2 * len(waiting) / len(sizes)
        assert machine.read_size() == 1000

    def test_packets_wait_in_their_small_size_for_answers_that_nobody_takes(self) -> None:
        """As many bytes as are read at once hold 26,000 packets, each with a large answer."""
        machine = connection()
        count = machine.read_size() // 10
        flood = b"".join(packet(number, b"x", stream=False) for number in range(1, count + 1))
        with growth_below(1 << 20):
            machine.receive_data(flood)
            assert events(machine) == []
        assert machine.read_size() == 0
        assert machine.is_held_up
        answers = b""
        while data := machine.data_to_send(10_000):
            answers += data
            assert events(machine) == []
        assert answers.count(b"message") == count
        assert machine.read_size() > 0
        assert not machine.is_held_up

    def test_packets_that_waited_are_taken_at_the_end_of_the_bytes(self) -> None:
        machine = connection(answers_max=1)
        for number in range(1, 10):
            machine.receive_data(packet(number, b"x", stream=False))
        machine.receive_data(packet(10, ASYNC, stream=False))
        assert events(machine) == []
        machine.receive_eof()
        call, closed = events(machine)
        assert isinstance(call, CallReceived)
        assert isinstance(closed, Closed)

    def test_null_frames(self) -> None:
        machine = connection()
        machine.receive_data(packet(1, DUPLEX))
        events(machine)
        with growth_below(64 << 10):
            for _ in range(1000):
                machine.receive_data(packet(1, b"null"))
                (event,) = events(machine)
                assert isinstance(event, ValueReceived)
                assert event.read() is None

    def test_deep_json_is_refused_in_requests_and_read_in_values(self) -> None:
        machine = connection()
        deep = b"[" * 10_000 + b"]" * 10_000
        request = b'{"name":["whoami"],"args":' + deep + b"}"
        machine.receive_data(packet(1, request, stream=False))
        assert events(machine) == []
        assert b"nested more than 64 deep" in machine.data_to_send()
        machine.receive_data(packet(2, DUPLEX) + packet(2, deep))
        _, event = events(machine)
        assert isinstance(event, ValueReceived)
        assert event.read()

    def test_json_that_is_none_is_said_by_whoever_reads_it(self) -> None:
        machine = connection()
        machine.receive_data(packet(1, DUPLEX) + packet(1, b"{"))
        _, event = events(machine)
        assert isinstance(event, ValueReceived)
        with pytest.raises(JsonError):
            event.read()


class TestEnds:
    @pytest.mark.parametrize(
        ("body", "body_type", "failure"),
        [
            (b"true", BodyType.JSON, None),
            (b'{"message":"x"}', BodyType.JSON, CallError("x", "")),
            (b'{"error":"x"}', BodyType.JSON, CallError("x", "")),
            (b'{"message":"x","name":5,"stack":[]}', BodyType.JSON, CallError("x", "")),
            (b'{"message":5}', BodyType.JSON, CallError('{"message":5}', "")),
            (b"false", BodyType.JSON, CallError("false", "")),
            (b"null", BodyType.JSON, CallError("null", "")),
            (b"{", BodyType.JSON, CallError("{", "")),
            (b"", BodyType.JSON, CallError("", "")),
            (b"true", BodyType.TEXT, CallError("true", "")),
            (b"\xff", BodyType.BINARY, CallError("\ufffd", "")),
        ],
    )
    def test_what_they_say(
        self, body: bytes, body_type: BodyType, failure: CallError | None
    ) -> None:
        assert read_error(body, body_type) == failure

    def test_an_end_is_answered_once_and_with_the_same_error(self) -> None:
        machine = connection()
        machine.receive_data(packet(1, DUPLEX))
        events(machine)
        end = b'{"message":"x","name":"Error","stack":"here"}'
        machine.receive_data(packet(1, end, end=True) * 2)
        failure = CallError("x", "Error", "here")
        assert events(machine) == [CallEnded(number=-1, failure=failure)]
        assert machine.data_to_send() == packet(-1, end, end=True)


class TestOurSide:
    def test_numbers_are_exhausted_at_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert NUMBER_MAX == 2**31 - 1
        monkeypatch.setattr(calls, "NUMBER_MAX", 1)
        machine = connection()
        assert machine.make_call(["whoami"], CallType.ASYNC).number == 1
        with pytest.raises(LocalProtocolError) as caught:
            machine.make_call(["whoami"], CallType.ASYNC)
        assert caught.value.code is ErrorCode.NUMBERS_EXHAUSTED

    def test_how_much_is_welcome(self) -> None:
        machine, peer = connection(unsent_size_max=1000), connection()
        assert machine.send_size == 1000
        call = machine.make_call(["echo"], CallType.DUPLEX)
        call.send([0] * 1000)
        assert machine.send_size == 0
        call.send([1])
        converse(machine, peer)
        assert machine.send_size == 1000
        machine.close()
        assert machine.send_size == 0

    @pytest.mark.parametrize("name", [[], ["a"] * 17, [1], "whoami", None, [["a"]]], ids=repr)
    def test_names_that_are_none(self, name: Any) -> None:
        machine = connection()
        with pytest.raises((TypeError, ValueError)):
            machine.make_call(name, CallType.ASYNC)
        assert machine.data_to_send() == b""

    @pytest.mark.parametrize("value", [b"x", {1}, {1: 2}, Ellipsis], ids=repr)
    def test_values_that_are_none(self, value: Any) -> None:
        machine = connection()
        call = machine.make_call(["echo"], CallType.DUPLEX)
        machine.data_to_send()
        with pytest.raises(TypeError):
            call.send(value)
        assert machine.data_to_send() == b""

    def test_half_a_pair_is_sent_as_node_sends_it(self) -> None:
        machine = connection()
        call = machine.make_call(["echo"], CallType.DUPLEX)
        machine.data_to_send()
        call.send("\ud800a")
        assert machine.data_to_send()[9:] == "\ufffda".encode()


class TestManifest:
    OFFERED = Manifest(
        {"blobs.get": CallType.SOURCE, "blobs.has": CallType.ASYNC, "whoami": CallType.ASYNC}
    )

    def test_as_peers_ask_for_it(self) -> None:
        assert self.OFFERED.to_json() == {
            "blobs": {"get": "source", "has": "async"},
            "whoami": "async",
        }

    def test_permissions(self) -> None:
        allowed = self.OFFERED.allowed
        assert allowed() == self.OFFERED
        assert allowed(allow=["blobs"]).to_json() == {"blobs": {"get": "source", "has": "async"}}
        assert allowed(deny=["blobs.get", "whoami"]).to_json() == {"blobs": {"has": "async"}}
        assert allowed(allow=["blobs"], deny=["blobs.has"]).to_json() == {
            "blobs": {"get": "source"}
        }
        assert allowed(allow=[]) == Manifest()
        assert allowed(allow=["blobsx"]) == Manifest()

    def test_what_is_none(self) -> None:
        for methods in ({"a": "async"}, {1: CallType.ASYNC}, ["a"], "a"):
            with pytest.raises(TypeError):
                Manifest(methods)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="within"):
            Manifest({"a": CallType.ASYNC, "a.b": CallType.ASYNC})

    def test_are_compared_by_what_they_offer(self) -> None:
        again = Manifest({"whoami": CallType.ASYNC})
        assert again == self.OFFERED.allowed(allow=["whoami"])
        assert hash(again) == hash(self.OFFERED.allowed(allow=["whoami"]))
        assert again != self.OFFERED
        assert repr(again) == "Manifest({'whoami': 'ASYNC'})"

"""muxrpc: calls in both directions, their ends, refusals and goodbyes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ssb_support import converse, events

import vectors
from culm.buffer import ReceiveBuffer
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.ssb.muxrpc import (
    Call,
    CallEnded,
    CallError,
    CallReceived,
    CallState,
    CallType,
    Closed,
    Connection,
    ErrorCode,
    Limits,
    Manifest,
    ReplyReceived,
    State,
    ValueReceived,
)
from culm.ssb.muxrpc.calls import (
    GOODBYE,
    HEADER_SIZE,
    BodyType,
    Header,
    encode_header,
    peek_header,
)

METHODS = Manifest(
    {
        "whoami": CallType.ASYNC,
        "blobs.get": CallType.SOURCE,
        "blobs.put": CallType.SINK,
        "ebt.replicate": CallType.DUPLEX,
    }
)


def pair(**limits: int) -> tuple[Connection, Connection]:
    """A client, and a server that offers `METHODS`."""
    return Connection(), Connection(manifest=METHODS, limits=Limits(**limits))


def packet(
    number: int,
    body: bytes,
    body_type: BodyType = BodyType.JSON,
    *,
    stream: bool = True,
    end: bool = False,
) -> bytes:
    return encode_header(number, len(body), body_type, stream=stream, end=end) + body


def error_of(happened: list[Any]) -> ErrorCode:
    closed = happened[-1]
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, RemoteProtocolError)
    return ErrorCode(closed.error.code)


class TestCalls:
    def test_async(self) -> None:
        client, server = pair()
        call = client.make_call(["whoami"], CallType.ASYNC, 1, "a")
        assert call.state is CallState.AWAITED
        _, theirs = converse(client, server)
        assert theirs == [
            CallReceived(number=-1, name=("whoami",), args=[1, "a"], type=CallType.ASYNC)
        ]
        server.call(-1).reply({"id": "@x"})
        ours, _ = converse(client, server)
        assert ours == [ReplyReceived(number=1, body=b'{"id":"@x"}')]
        assert ours[0].read() == {"id": "@x"}  # type: ignore[attr-defined]
        assert (len(client.calls), len(server.calls)) == (0, 0)
        assert call.state is CallState.OVER

    def test_async_that_fails(self) -> None:
        client, server = pair()
        client.make_call(["whoami"], CallType.ASYNC)
        converse(client, server)
        server.call(-1).fail("no idea")
        ours, theirs = converse(client, server)
        assert ours == [CallEnded(number=1, failure=CallError("no idea"))]
        assert theirs == []

    @pytest.mark.parametrize("ender", ["client", "server"])
    def test_source(self, ender: str) -> None:
        client, server = pair()
        call = client.make_call(["blobs", "get"], CallType.SOURCE, "&x")
        converse(client, server)
        answer = server.call(-1)
        answer.send_body(b"one", BodyType.BINARY)
        answer.send("two")
        answer.send([3])
        ours, _ = converse(client, server)
        assert [event.read() for event in ours] == [b"one", "two", [3]]  # type: ignore[attr-defined]
        (call if ender == "client" else answer).end()
        assert converse(client, server) == ([CallEnded(number=1)], [CallEnded(number=-1)])
        assert (len(client.calls), len(server.calls)) == (0, 0)

    def test_sink_and_its_outcome(self) -> None:
        client, server = pair()
        call = client.make_call(["blobs", "put"], CallType.SINK)
        call.send_body(b"data", BodyType.BINARY)
        call.end()
        ours, theirs = converse(client, server)
        assert theirs[1:] == [
            ValueReceived(number=-1, body=b"data", type=BodyType.BINARY),
            CallEnded(number=-1),
        ]
        assert ours == [CallEnded(number=1)]

    def test_duplex_in_both_directions_at_once(self) -> None:
        client, server = Connection(manifest=METHODS), Connection(manifest=METHODS)
        for connection in (client, server):
            connection.make_call(["ebt", "replicate"], CallType.DUPLEX)
        converse(client, server)
        for connection in (client, server):
            connection.call(1).send([1])
            connection.call(-1).send([-1])
        ours, theirs = converse(client, server)
        assert ours == theirs
        assert {(event.number, event.body) for event in ours} == {  # type: ignore[attr-defined]
            (1, b"[-1]"),
            (-1, b"[1]"),
        }

    def test_ends_that_cross(self) -> None:
        client, server = pair()
        call = client.make_call(["ebt", "replicate"], CallType.DUPLEX)
        converse(client, server)
        call.end()
        server.call(-1).send([1])
        server.call(-1).fail("enough")
        ours, theirs = converse(client, server)
        assert ours == [CallEnded(number=1, failure=CallError("enough"))]
        assert theirs == [CallEnded(number=-1)]

    def test_handles(self) -> None:
        client, _ = pair()
        call = client.make_call(["ebt", "replicate"], CallType.DUPLEX)
        assert client.call(1) == call == client.calls[1]
        assert isinstance(client.call(1), Call)
        assert call != client.make_call(["ebt", "replicate"], CallType.DUPLEX)
        assert call != 1
        assert repr(call) == "<Call 1 ebt.replicate EXCHANGING>"
        with pytest.raises(LocalProtocolError) as caught:
            client.call(3)
        assert caught.value.code is ErrorCode.UNKNOWN_CALL

    def test_a_call_that_was_answered_leaves_its_place(self) -> None:
        client = Connection()
        server = Connection(manifest=METHODS, limits=Limits(calls_max=1))
        for _ in range(3):
            client.make_call(["whoami"], CallType.ASYNC)
            converse(client, server)
            assert server.is_full
            server.call(min(server.calls)).reply("me")
            assert not server.is_full
            ours, _ = converse(client, server)
            assert [type(event) for event in ours] == [ReplyReceived]


class TestRefusals:
    @pytest.mark.parametrize("call_type", CallType)
    def test_an_unknown_method(self, call_type: CallType) -> None:
        client, server = pair()
        client.make_call(["foo", "bar"], call_type)
        ours, theirs = converse(client, server)
        why = CallError("method:foo,bar is not in list of allowed methods")
        assert ours == [CallEnded(number=1, failure=why)]
        assert theirs == []
        assert server.state is State.OPEN

    def test_a_wrong_type_of_call(self) -> None:
        client, server = pair()
        client.make_call(["ebt", "replicate"], CallType.SOURCE)
        ours, _ = converse(client, server)
        assert ours == [CallEnded(number=1, failure=CallError("no source:ebt,replicate"))]

    def test_what_comes_in_a_refused_call_is_dropped(self) -> None:
        client, server = pair()
        call = client.make_call(["gossip", "ping"], CallType.DUPLEX)
        call.send(1)
        call.send(2)
        ours, theirs = converse(client, server)
        assert [type(event) for event in ours] == [CallEnded]
        assert theirs == []

    @pytest.mark.parametrize(
        "body",
        [
            b"null",
            b"1",
            b"[]",
            b"{}",
            b"",
            b"{",
            b'{"name":"ebt.replicate","args":[],"type":"duplex"}',
            b'{"name":[],"args":[],"type":"duplex"}',
            b'{"name":[1],"args":[],"type":"duplex"}',
            b'{"name":["whoami"],"args":{},"type":"duplex"}',
            b'{"name":["whoami"],"args":[],"type":"async"}',
            b'{"name":["whoami"],"args":[],"type":"other"}',
            b'{"name":["whoami"],"args":[]}',
            b'{"name":["whoami"],"args":[],"type":null}',
            b'{"name":["ebt","replicate"],"args":'
            + b"[" * 30000
            + b"]" * 30000
            + b',"type":"duplex"}',
        ],
        ids=lambda body: body[:50].decode(),
    )
    def test_what_is_no_request(self, body: bytes) -> None:
        _, server = pair()
        server.receive_data(packet(1, body))
        assert events(server) == []
        assert b'"name":"Error"' in server.data_to_send()
        server.receive_data(packet(1, b"true", end=True))
        assert events(server) == []
        assert server.data_to_send() == b""


class TestGoodbye:
    def test_is_answered_and_ends_both(self) -> None:
        client, server = pair()
        client.close()
        assert client.state is State.CLOSING
        assert converse(client, server) == ([Closed()], [Closed()])
        assert (client.state, server.state) == (State.CLOSED, State.CLOSED)

    def test_ends_streams_first(self) -> None:
        client, server = pair()
        client.make_call(["ebt", "replicate"], CallType.DUPLEX)
        converse(client, server)
        client.close()
        ours, theirs = converse(client, server)
        assert ours == [Closed()]
        assert theirs == [
            CallEnded(number=-1, failure=CallError("unexpected end of parent stream")),
            Closed(),
        ]

    def test_bytes_that_end_without_one(self) -> None:
        client, _ = pair()
        client.receive_eof()
        assert error_of(events(client)) is ErrorCode.TRUNCATED

    def test_nothing_can_be_sent_after_it(self) -> None:
        client, server = pair()
        call = client.make_call(["ebt", "replicate"], CallType.DUPLEX)
        converse(client, server)
        client.close()
        for verb in (lambda: call.send(1), call.end, lambda: client.make_call("a", CallType.ASYNC)):
            with pytest.raises((LocalProtocolError, TypeError)):
                verb()
        with pytest.raises(LocalProtocolError) as caught:
            client.make_call(["a"], CallType.ASYNC)
        assert caught.value.code is ContractErrorCode.ALREADY_CLOSED


class TestRecorded:
    """Byte for byte the traffic of ssb-ebt's peers."""

    NAMES = ("session-3-messages", "session-close", "session-reconnect")

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("role", ["client", "server"])
    def test_what_each_side_sent(self, name: str, role: str) -> None:
        lines = vectors.load_json_lines(f"ssb/{name}.jsonl")
        for session in sorted({line["session"] for line in lines}):
            replay([line for line in lines if line["session"] == session], role)


def replay(lines: list[dict[str, Any]], role: str) -> None:
    """Do what the side `role` did, and compare every byte that it sent."""
    machine = Connection(manifest=METHODS)
    sent = b""
    for line in lines:
        recorded = bytes.fromhex(line["hex"])
        if not line["dir"].startswith(role):
            machine.receive_data(recorded)
            events(machine)
            continue
        sent += machine.data_to_send()
        if sent == b"":  # unless the machine has already said it by itself
            say(machine, recorded, line)
        sent += machine.data_to_send()
        assert sent.startswith(recorded)
        sent = sent.removeprefix(recorded)
    # Where the recorded peer hung up at once, this one still answers.
    inbox = ReceiveBuffer()
    inbox.append(sent + machine.data_to_send())
    while (header := peek_header(inbox)) is not None:
        assert header.end or header == Header(False, False, 0, 0, 0)
        inbox.consume(HEADER_SIZE + header.size)


def say(machine: Connection, recorded: bytes, line: dict[str, Any]) -> None:
    body, number = recorded[9:], line["req"]
    if recorded == GOODBYE:
        machine.close()
    elif number > 0 and number not in machine.calls and not line["end"]:
        machine.make_call(
            ["ebt", "replicate"], CallType.DUPLEX, {"version": 3, "format": "classic"}
        )
    elif line["end"] and body == b"true":
        machine.call(number).end()
    elif line["end"]:
        machine.call(number).fail(CallError(**json.loads(body)))
    else:
        machine.call(number).send_body(body)

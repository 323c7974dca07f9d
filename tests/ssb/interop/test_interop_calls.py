"""Handshake, box stream, muxrpc and createHistoryStream with peers on Node.js."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from interop_support import (
    INTEROP,
    JsPeer,
    Wire,
    all_of,
    ask,
    dial,
    feed_of,
    free_port,
    key_of,
    posts,
    sealed,
    until,
)

from culm.machine import Event
from culm.ssb.events import Authenticated
from culm.ssb.history import METHOD, FeedState, HistoryReader, HistoryServer, Timing
from culm.ssb.messages import ClassicMessage, check_place, create_message
from culm.ssb.muxrpc import (
    CallEnded,
    CallReceived,
    CallType,
    Connection,
    Manifest,
    ReplyReceived,
    State,
    ValueReceived,
)

pytestmark = INTEROP

StartPeer = Callable[..., JsPeer]
OFFER = Manifest({"createHistoryStream": CallType.SOURCE, "ebt.replicate": CallType.DUPLEX})


def connect(connection: Connection, peer: JsPeer, **options: Any) -> Wire:
    machine = sealed(connection, me="culm", server=peer.name, **options)
    return dial(machine, peer.port)


def accept(connection: Connection, peer: JsPeer) -> Wire:
    """Let the peer dial us."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        peer.begin("dial", port=port, peer=feed_of("culm"))
        made, _ = server.accept()
    return Wire(sealed(connection, me="culm"), made)


class Responder:
    """Our messages, which a `HistoryServer` serves to every caller."""

    def __init__(self, count: int) -> None:
        self.messages: list[ClassicMessage] = []
        for content in posts(count):
            last = self.messages[-1].place if self.messages else None
            key = key_of("culm")
            self.messages.append(create_message(key, content=content, timestamp=1, last=last))
        self.connection = Connection(manifest=OFFER)
        self.server = HistoryServer(
            connection=self.connection,
            last_of=lambda feed: len(self.messages) if feed == feed_of("culm") else 0,
            may_read=lambda feed: True,
            time_ms=lambda: 5,
        )

    def take(self, event: Event) -> None:
        if isinstance(event, CallReceived) and event.name == METHOD:
            self.server.open(self.connection.call(event.number), event.args)
        elif isinstance(event, CallReceived):
            self.connection.call(event.number).fail("not now")

    def do_reads(self) -> None:
        while (read := self.server.next_read()) is not None:
            found = self.messages[read.first - 1 :][: read.count_max]
            self.server.take(read.number, [message.data for message in found])


def test_both_prove_who_they_are(js_peer: StartPeer) -> None:
    alice = js_peer("alice")
    wire = connect(Connection(manifest=OFFER), alice)
    until(lambda: alice.happened("connected"), wire.turn)
    assert alice.events[-1] == {"event": "connected", "peer": feed_of("culm"), "isClient": False}
    (authenticated,) = all_of(wire.events, Authenticated)
    assert authenticated.peer == bytes(key_of("alice").verify_key)


def test_it_dials_us(js_peer: StartPeer) -> None:
    alice = js_peer("alice")
    wire = accept(Connection(manifest=OFFER), alice)
    until(lambda: alice.happened("connected"), wire.turn)
    assert alice.events[-1] == {"event": "connected", "peer": feed_of("culm"), "isClient": True}


def test_another_network_is_not_answered(js_peer: StartPeer) -> None:
    alice = js_peer("alice")
    wire = connect(Connection(), alice, network=bytes(32))
    until(lambda: wire.closed is not None, wire.turn)
    assert not alice.happened("connected")
    assert list(all_of(wire.events, Authenticated)) == []


def test_its_first_call_is_a_session(js_peer: StartPeer) -> None:
    alice = js_peer("alice")
    connection = Connection(manifest=OFFER)
    wire = accept(connection, alice)
    until(lambda: any(all_of(wire.events, CallReceived)), wire.turn)
    (call,) = all_of(wire.events, CallReceived)
    assert (call.number, call.name, call.type) == (-1, ("ebt", "replicate"), CallType.DUPLEX)
    assert call.args == [{"version": 3, "format": "classic"}]


def test_a_method_that_it_does_not_have(js_peer: StartPeer) -> None:
    """It says so, and the connection goes on."""
    alice = js_peer("alice", history=True)
    connection = Connection(manifest=OFFER)
    wire = connect(connection, alice)
    for name, call_type in ((["foo"], CallType.ASYNC), (["foo", "bar"], CallType.DUPLEX)):
        call = connection.make_call(name, call_type)
        until(lambda call=call: call.number not in connection.calls, wire.turn)
    one, other = all_of(wire.events, CallEnded)
    assert one.failure.message == "method:foo is not in list of allowed methods"
    assert other.failure.message == "method:foo,bar is not in list of allowed methods"
    history = connection.make_call(METHOD, CallType.SOURCE, {"id": alice.id})
    until(lambda: history.number not in connection.calls, wire.turn)
    assert connection.state is State.OPEN


def test_a_method_that_we_do_not_have(js_peer: StartPeer) -> None:
    alice = js_peer("alice", history=True)
    wire = accept(Connection(), alice)
    until(lambda: alice.happened("connected"), wire.turn)
    call = alice.begin(
        "remote", peer=feed_of("culm"), type="source", name=["createHistoryStream"], args=[{}]
    )
    until(lambda: alice.is_done(call), wire.turn)
    with pytest.raises(RuntimeError, match="method:createHistoryStream is not in list of allowed"):
        alice.result(call)
    assert not alice.happened("disconnected")


@pytest.mark.parametrize(
    ("args", "failure"),
    [
        ({"version": 2}, "expected ebt.replicate"),
        ({"version": 3, "format": "x"}, "Unknown format"),
    ],
)
def test_wrong_arguments_of_a_session(js_peer: StartPeer, args: Any, failure: str) -> None:
    alice = js_peer("alice")
    connection = Connection(manifest=OFFER)
    wire = connect(connection, alice)
    connection.make_call(["ebt", "replicate"], CallType.DUPLEX, args)
    until(lambda: any(all_of(wire.events, CallEnded)), wire.turn)
    (ended,) = all_of(wire.events, CallEnded)
    assert ended.failure.message.startswith(failure)


class TestGoodbye:
    def test_ours(self, js_peer: StartPeer) -> None:
        alice = js_peer("alice")
        connection = Connection(manifest=OFFER)
        wire = connect(connection, alice)
        connection.make_call(["ebt", "replicate"], CallType.DUPLEX, {"version": 3})
        until(lambda: any(all_of(wire.events, ValueReceived)), wire.turn)
        connection.close()
        until(lambda: wire.closed is not None, wire.turn)
        until(lambda: alice.happened("disconnected"), wire.turn)

    def test_its(self, js_peer: StartPeer) -> None:
        alice = js_peer("alice")
        connection = Connection(manifest=OFFER)
        wire = accept(connection, alice)
        until(lambda: any(all_of(wire.events, CallReceived)), wire.turn)
        alice.begin("hang_up", peer=feed_of("culm"))
        until(lambda: wire.closed is not None, wire.turn)

    def test_a_process_that_is_killed(self, js_peer: StartPeer) -> None:
        alice = js_peer("alice")
        wire = accept(Connection(manifest=OFFER), alice)
        until(lambda: any(all_of(wire.events, CallReceived)), wire.turn)
        alice.kill()
        until(lambda: wire.closed is not None, wire.turn)
        assert wire.closed is not None
        assert wire.closed.error is not None
        assert wire.closed.error.code.name == "TRUNCATED"


class TestHistory:
    def test_it_sends_its_feed(self, js_peer: StartPeer) -> None:
        """All of its messages are valid for us, in order, and byte for byte in our form."""
        alice = js_peer("alice", history=True)
        odd = [
            {"type": "odd", "2": 1, "1": [1e21, 1e-7, -0.0, 0.1, 2**53], "é": "\U0001f600"},
            {
                "type": "odd",
                "text": '\x00\x1f\x7f\u2028"\\/',
                "nested": {"b": {}, "10": [], "9": 0},
            },
        ]
        keys = ask(alice, "publish", contents=[*posts(1500), *odd])
        taken: list[ClassicMessage] = []
        came: list[bytes] = []
        connection = Connection(manifest=OFFER)
        reader = HistoryReader(
            connection=connection,
            next_of=lambda feed: len(taken) + 1,
            timing=Timing(pause_s=0.5),
        )

        def take(event: Event) -> None:
            if isinstance(event, ValueReceived) and reader.is_of(event.number):
                came.append(event.body)
                for message in reader.receive(event, 0.0):
                    check_place(message, taken[-1].place if taken else None)
                    assert message.verify()
                    taken.append(message)
            elif isinstance(event, CallEnded):
                reader.call_ended(event, 0.0)

        wire = dial(sealed(connection, me="culm", server="alice"), alice.port, take)
        reader.want(alice.id, 0.0)
        until(lambda: reader.state(alice.id) is FeedState.RESTING, wire.turn)
        assert [message.id for message in taken] == keys
        assert {message.data for message in taken} == set(came)
        assert taken[-1].content == odd[-1]
        ask(alice, "publish", wire.turn, contents=posts(1, "later"))
        reader.advance(0.5)
        until(lambda: len(taken) == len(keys) + 1, wire.turn)

    def test_we_send_ours(self, js_peer: StartPeer) -> None:
        alice = js_peer("alice", history=True)
        ours = Responder(25)
        port = free_port()
        with socket.create_server(("127.0.0.1", port)) as server:
            alice.begin("dial", port=port, peer=feed_of("culm"))
            made, _ = server.accept()
        wire = Wire(sealed(ours.connection, me="culm"), made, ours.take)
        until(lambda: alice.happened("connected"), wire.turn)
        for args, sequences in (
            ({}, range(1, 26)),
            ({"sequence": 20, "keys": False}, range(20, 26)),
            ({"seq": 3, "limit": 2}, range(3, 5)),
        ):
            found = ask(
                alice,
                "remote",
                wire.turn,
                ours.do_reads,
                peer=feed_of("culm"),
                type="source",
                name=["createHistoryStream"],
                args=[{"id": feed_of("culm"), **args}],
            )
            expected = [ours.messages[sequence - 1] for sequence in sequences]
            if "keys" in args:
                assert found == [json.loads(message.data) for message in expected]
            else:
                assert [each["key"] for each in found] == [message.id for message in expected]


def test_replies_of_async_calls(js_peer: StartPeer) -> None:
    alice = js_peer("alice")
    ask(alice, "publish", contents=posts(3))
    connection = Connection(manifest=OFFER)
    wire = connect(connection, alice)
    connection.make_call(["ebt", "clock"], CallType.ASYNC, {"format": "classic"})
    until(lambda: any(all_of(wire.events, ReplyReceived)), wire.turn)
    (reply,) = all_of(wire.events, ReplyReceived)
    assert reply.read() == {alice.id: 3}

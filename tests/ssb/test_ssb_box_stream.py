"""The box stream: bodies whole and in order, and none that was tampered with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_secretbox
from ssb_support import client, converse, events, server, streams

from culm.machine import (
    ContractErrorCode,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StreamMachine,
)
from culm.ssb import (
    Authenticated,
    BoxStream,
    BoxStreamState,
    Closed,
    DataReceived,
    ErrorCode,
    Keys,
    Limits,
    SessionKeys,
)
from culm.ssb.box_stream import BODY_SIZE_MAX
from culm.stack import over, then
from toy_machines import LineReceived, Lines

HEADER_BOX_SIZE = 34
KEYS = Keys(bytes(range(32)), bytes(24))


def received(happened: list[Event]) -> list[bytes]:
    return [event.data for event in happened if isinstance(event, DataReceived)]


def error_of(happened: list[Event]) -> ErrorCode:
    assert isinstance(happened[-1], Closed)
    assert isinstance(happened[-1].error, RemoteProtocolError)
    return ErrorCode(happened[-1].error.code)


@given(st.lists(st.integers(0, 3 * BODY_SIZE_MAX), max_size=5))
def test_what_is_sent_arrives(sizes: list[int]) -> None:
    bob, alice = streams()
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    for data in sent:
        bob.send_data(data)
    _, happened = converse(bob, alice)
    bodies = received(happened)
    assert b"".join(bodies) == b"".join(sent)
    assert all(0 < len(body) <= BODY_SIZE_MAX for body in bodies)


@pytest.mark.parametrize("packets_max", [1, 2, 16])
def test_so_many_packets_are_welcome_and_one_is_enough(packets_max: int) -> None:
    bob, alice = streams(limits=Limits(packets_max=packets_max))
    packet_size = HEADER_BOX_SIZE + BODY_SIZE_MAX
    bob.send_data(bytes(40 * BODY_SIZE_MAX))
    happened: list[Event] = []
    while data := bob.data_to_send(alice.read_size()):
        alice.receive_data(data)
        assert alice.read_size() == packets_max * packet_size - len(data)
        happened += events(alice)
    assert b"".join(received(happened)) == bytes(40 * BODY_SIZE_MAX)


@pytest.mark.parametrize("packets_max", [0, -1])
def test_it_holds_at_least_one_packet(packets_max: int) -> None:
    with pytest.raises(ValueError, match="packets_max"):
        streams(limits=Limits(packets_max=packets_max))


def test_the_same_bytes_are_sealed_differently_every_time() -> None:
    bob, _ = streams()
    bob.send_data(b"hello")
    bob.send_data(b"hello")
    sealed = bob.data_to_send()
    assert sealed[:39] != sealed[39:]
    assert len(sealed) == 2 * (HEADER_BOX_SIZE + 5)


@pytest.mark.parametrize("place", range(0, 39 + 39, 3))
def test_a_changed_bit_ends_it_and_what_came_before_stands(place: int) -> None:
    bob, alice = streams()
    bob.send_data(b"first")
    bob.send_data(b"other")
    sealed = bytearray(bob.data_to_send())
    sealed[place] ^= 0x10
    alice.receive_data(sealed)
    happened = events(alice)
    assert received(happened) == ([] if place < 39 else [b"first"])
    assert error_of(happened) is ErrorCode.BAD_BOX
    assert alice.data_to_send() == b""


def test_packets_that_are_doubled_dropped_or_swapped() -> None:
    for order in ("aa", "b", "ba"):
        bob, alice = streams()
        packets = {}
        for name in "ab":
            bob.send_data(name.encode())
            packets[name] = bob.data_to_send()
        for name in order:
            alice.receive_data(packets[name])
        happened = events(alice)
        assert error_of(happened) is ErrorCode.BAD_BOX
        assert received(happened) == ([b"a"] if order == "aa" else [])


@pytest.mark.parametrize("data", [5, True, "text", [1, 2], None, {1}, range(3)], ids=repr)
def test_what_is_no_buffer_is_not_sent(data: Any) -> None:
    bob, _ = streams()
    with pytest.raises(TypeError):
        bob.send_data(data)
    assert bob.data_to_send() == b""


def test_buffers_of_any_item_size_are_bytes() -> None:
    bob, alice = streams()
    bob.send_data(memoryview(bytes(range(8))).cast("I"))
    alice.receive_data(bob.data_to_send())
    assert received(events(alice)) == [bytes(range(8))]


def test_a_body_beyond_the_largest() -> None:
    alice = BoxStream(keys=SessionKeys(send=KEYS, receive=KEYS))
    header = (BODY_SIZE_MAX + 1).to_bytes(2, "big") + bytes(16)
    alice.receive_data(crypto_secretbox(header, KEYS.nonce, KEYS.key))
    assert error_of(events(alice)) is ErrorCode.BAD_BODY_SIZE


def test_an_empty_body_is_nothing_bad() -> None:
    alice = BoxStream(keys=SessionKeys(send=KEYS, receive=KEYS))
    after = [number.to_bytes(24, "big") for number in (1, 2)]
    tag = crypto_secretbox(b"", after[0], KEYS.key)
    alice.receive_data(crypto_secretbox(bytes(2) + tag, KEYS.nonce, KEYS.key))
    assert events(alice) == [DataReceived(data=b"")]
    bob = BoxStream(keys=SessionKeys(send=Keys(KEYS.key, after[1]), receive=KEYS))
    bob.send_data(b"x")
    alice.receive_data(bob.data_to_send())
    assert received(events(alice)) == [b"x"]


class TestGoodbye:
    def test_is_answered_and_ends_both(self) -> None:
        bob, alice = streams()
        bob.close()
        assert bob.state is BoxStreamState.OPEN
        ours, theirs = converse(bob, alice)
        assert (ours, theirs) == ([Closed()], [Closed()])
        assert (bob.state, alice.state) == (BoxStreamState.CLOSED, BoxStreamState.CLOSED)

    def test_what_the_peer_was_saying_still_arrives(self) -> None:
        bob, alice = streams()
        bob.close()
        alice.send_data(b"one more thing")
        ours, _ = converse(bob, alice)
        assert ours == [DataReceived(data=b"one more thing"), Closed()]

    def test_both_at_once(self) -> None:
        bob, alice = streams()
        bob.close()
        alice.close()
        assert converse(bob, alice) == ([Closed()], [Closed()])
        assert (bob.data_to_send(), alice.data_to_send()) == (b"", b"")

    def test_is_sent_once(self) -> None:
        bob, _ = streams()
        bob.close()
        bob.close()
        assert len(bob.data_to_send()) == HEADER_BOX_SIZE

    def test_the_end_of_the_bytes_is_none(self) -> None:
        bob, alice = streams()
        bob.send_data(b"and then")
        alice.receive_data(bob.data_to_send())
        alice.receive_eof()
        happened = events(alice)
        assert received(happened) == [b"and then"]
        assert error_of(happened) is ErrorCode.TRUNCATED

    def test_who_has_said_it_may_be_left_without_one(self) -> None:
        _, alice = streams()
        alice.close()
        alice.receive_eof()
        assert events(alice) == [Closed()]

    @pytest.mark.parametrize("size", [1, 33, 34, 38])
    def test_but_not_within_a_packet(self, size: int) -> None:
        bob, alice = streams()
        bob.send_data(b"hello")
        alice.close()
        alice.receive_data(bob.data_to_send(size))
        alice.receive_eof()
        assert error_of(events(alice)) is ErrorCode.TRUNCATED

    def test_what_comes_after_it_is_trailing_data(self) -> None:
        bob, alice = streams()
        bob.close()
        alice.receive_data(bob.data_to_send() + b"plain")
        assert events(alice) == [Closed()]
        assert alice.trailing_data == b"plain"

    @pytest.mark.parametrize("end", ["close", "Closed"])
    def test_nothing_is_sent_after_it(self, end: str) -> None:
        bob, alice = streams()
        bob.close()
        machine = bob
        if end == "Closed":
            converse(bob, alice)
            machine = alice
        with pytest.raises(LocalProtocolError) as caught:
            machine.send_data(b"too late")
        assert caught.value.code is ContractErrorCode.ALREADY_CLOSED


def test_handshake_then_boxes_with_another_machine_inside() -> None:
    """Both combinators at once: lines of text, end to end."""

    bobs, alices = Lines(), Lines()

    def stacked(handshake: StreamMachine, upper: Lines) -> StreamMachine:
        def follow(event: Event) -> StreamMachine | None:
            done = isinstance(event, Authenticated)
            return over(BoxStream(keys=event.keys), upper) if done else None

        return then(handshake, follow)

    bobs.say(b"hello, Alice")
    alices.say(b"hello, Bob")
    ours, theirs = converse(stacked(client(), bobs), stacked(server(), alices))
    assert [type(event) for event in ours] == [Authenticated, LineReceived]
    assert ours[1] == LineReceived(text=b"hello, Bob")
    assert theirs[1] == LineReceived(text=b"hello, Alice")

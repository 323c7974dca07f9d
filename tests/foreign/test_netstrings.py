"""The chat in netstrings: its laws, its rules, and a room full of people."""

from __future__ import annotations

import socket

import pytest
from foreign_servers import serving

from culm.machine import Closed, ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases
from foreign.netstrings import Connection, ErrorCode, Joined, Limits, Said, State
from foreign.netstrings.room import Room
from foreign.netstrings.spec import SPEC


@pytest.mark.parametrize(("spec", "law"), cases([SPEC]), ids=str)
def test_the_chat_keeps_every_law(spec: MachineSpec, law: Property) -> None:
    law.check(spec)


def chat(**limits: int) -> Connection:
    return Connection(name="alice", limits=Limits(**limits))


def events(machine: Connection, data: bytes) -> list[object]:
    machine.receive_data(data)
    return list(iter(machine.next_event, None))


def test_a_chat() -> None:
    machine = chat()
    assert machine.data_to_send() == b"5:alice,"
    assert events(machine, b"3:bob,3:\xe2\x98\xba,") == [Joined(name="bob"), Said(text="☺")]
    machine.say("hi")
    assert machine.data_to_send() == b"2:hi,"
    assert events(machine, b"0:,and more") == [Closed()]
    assert (machine.data_to_send(), machine.trailing_data) == (b"0:,", b"and more")
    assert machine.state is State.CLOSED


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"x", ErrorCode.NOT_A_NETSTRING),
        (b":,", ErrorCode.NOT_A_NETSTRING),
        (b"03:bob,", ErrorCode.NOT_A_NETSTRING),
        (b"3:bob;", ErrorCode.NOT_A_NETSTRING),
        (b"9:", ErrorCode.TOO_LONG),  # for a name: none of its bytes has come
        (b"3:bob,17:", ErrorCode.TOO_LONG),
        (b"999", ErrorCode.TOO_LONG),
        (b"1:\xff,", ErrorCode.NOT_TEXT),
    ],
)
def test_a_peer_that_breaks_a_rule(data: bytes, code: ErrorCode) -> None:
    last = events(chat(name_max=8, text_max=16), data)[-1]
    assert last == Closed(error=RemoteProtocolError(code))


def test_a_text_cut_short() -> None:
    machine = chat()
    machine.receive_data(b"3:bob,5:hel")
    machine.receive_eof()
    assert machine.next_event() == Joined(name="bob")
    assert machine.next_event() == Closed(error=RemoteProtocolError(ErrorCode.CUT_SHORT))


def test_what_cannot_be_said() -> None:
    machine = chat(text_max=16)
    machine.data_to_send()
    with pytest.raises(ValueError, match="empty"):
        machine.say("")
    with pytest.raises(LocalProtocolError, match="too long"):
        machine.say("ü" * 9)
    machine.close()
    with pytest.raises(LocalProtocolError) as refused:
        machine.say("too late")
    assert refused.value.code is ContractErrorCode.ALREADY_CLOSED
    assert machine.data_to_send() == b"0:,"


def test_a_room_on_real_sockets() -> None:
    with (
        serving(Room().enter) as port,
        socket.create_connection(("localhost", port), 10) as alice,
        socket.create_connection(("localhost", port), 10) as bob,
    ):
        heard = alice.makefile("rb")
        alice.sendall(b"5:alice,")
        assert heard.read(7) == b"4:room,"
        bob.sendall(b"3:bob,")
        bob.sendall(b"5:he")
        assert heard.read(16) == b"12:bob: is here,"
        bob.sendall(b"llo,0:,")
        assert heard.read(14) == b"10:bob: hello,"
        assert heard.read(17) == b"13:bob: has left,"
        alice.sendall(b"0:,")
        assert heard.read() == b"0:,"
        heard.close()

"""wsproto as a machine: its laws, the examples of RFC 6455, and wsproto's own client."""

from __future__ import annotations

import socket

import pytest
from foreign_servers import serving

from culm.machine import Closed, LocalProtocolError, RemoteProtocolError
from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases

wsproto = pytest.importorskip("wsproto", reason="pip install 'culm[foreign]' brings wsproto")

from wsproto.events import (  # noqa: E402
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Request,
    TextMessage,
)

from foreign.websockets import Connection, ErrorCode, Limits, Opened, Received  # noqa: E402
from foreign.websockets.echo import protocol  # noqa: E402
from foreign.websockets.spec import HANDSHAKE, SPEC  # noqa: E402


@pytest.mark.parametrize(("spec", "law"), cases([SPEC]), ids=str)
def test_a_websocket_keeps_every_law(spec: MachineSpec, law: Property) -> None:
    law.check(spec)


def opened(**limits: int) -> Connection:
    machine = Connection(limits=Limits(**limits))
    machine.receive_data(HANDSHAKE)
    assert machine.next_event() == Opened(target="/chat")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in machine.data_to_send()
    return machine


def events(machine: Connection, frames: str) -> list[object]:
    machine.receive_data(bytes.fromhex(frames))
    return list(iter(machine.next_event, None))


def test_the_examples_of_the_rfc() -> None:
    machine = opened()
    assert events(machine, "818537fa213d7f9f4d5158") == [Received(data="Hello")]
    machine.send("Hello")
    assert machine.data_to_send() == bytes.fromhex("810548656c6c6f")
    assert events(machine, "898537fa213d7f9f4d5158") == []  # a ping
    assert machine.data_to_send() == bytes.fromhex("8a0548656c6c6f")


def test_the_parts_of_a_message_are_one() -> None:
    parts = "0183000000004865c3", "808300000000bc6c6f"  # a character on both sides of the cut
    assert events(opened(), "".join(parts)) == [Received(data="Heülo")]


def test_a_frame_is_refused_at_its_claim() -> None:
    machine = opened(message_max=100)
    (closed,) = events(machine, "82fe0065")
    assert closed == Closed(error=RemoteProtocolError(ErrorCode.TOO_LARGE))
    assert machine.data_to_send() == bytes.fromhex("8802") + (1009).to_bytes(2, "big")


def test_a_client_that_breaks_a_rule() -> None:
    for frames, code in (
        ("8100", ErrorCode.PROTOCOL_ERROR),  # no mask
        ("818100000000ff", ErrorCode.NOT_TEXT),
    ):
        (closed,) = events(opened(), frames)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is code


def test_a_host_that_is_no_name() -> None:
    machine = Connection()
    machine.receive_data(HANDSHAKE.replace(b"server.example.com", b"xn--\xff"))
    assert machine.next_event() == Closed(error=RemoteProtocolError(ErrorCode.NO_HANDSHAKE))
    assert machine.data_to_send().startswith(b"HTTP/1.1 400 ")


def test_a_message_before_the_handshake() -> None:
    with pytest.raises(LocalProtocolError, match="not open"):
        Connection().send("too early")


def test_wsprotos_own_client() -> None:
    with serving(protocol) as port, socket.create_connection(("localhost", port), 10) as client:
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)

        def answer() -> object:
            while not (found := list(ws.events())):
                ws.receive_data(client.recv(1 << 16))
            return found[0]

        client.sendall(ws.send(Request(host="localhost", target="/")))
        assert isinstance(answer(), AcceptConnection)
        for said in (TextMessage(data="grüß dich"), BytesMessage(data=bytes(200))):
            client.sendall(ws.send(said))
            echoed = answer()
            assert isinstance(echoed, type(said))
            assert echoed.data == said.data
        client.sendall(ws.send(CloseConnection(code=1000)))
        assert isinstance(answer(), CloseConnection)

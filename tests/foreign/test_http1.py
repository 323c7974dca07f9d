"""h11 as a machine: its laws, the differences from h11, and the standard library as a client."""

from __future__ import annotations

from http.client import HTTPConnection

import pytest
from foreign_servers import serving

from culm.machine import Closed, LocalProtocolError, RemoteProtocolError
from culm.testing.link import MachinePair
from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases
from foreign.http1 import Connection, ErrorCode, Limits, Requested, Responded, Role
from foreign.http1.server import protocol
from foreign.http1.spec import SPEC

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HOST = [("Host", "a")]


@pytest.mark.parametrize(("spec", "law"), cases([SPEC]), ids=str)
def test_http_keeps_every_law(spec: MachineSpec, law: Property) -> None:
    law.check(spec)


def server(message_max: int = 1 << 20) -> Connection:
    return Connection(role=Role.SERVER, limits=Limits(message_max=message_max))


def test_a_request_and_its_answer() -> None:
    link = MachinePair.of_machines(Connection(role=Role.CLIENT), server())
    client, other = link.left.driver.machine, link.right.driver.machine
    client.request("POST", "/form", headers=HOST, body=b"x=1")
    (asked,) = link.run().right.events
    assert isinstance(asked, Requested)
    assert (asked.method, asked.target, asked.body) == ("POST", "/form", b"x=1")
    other.respond(200, body=b"done")
    (answered,) = link.run().left.events
    assert isinstance(answered, Responded)
    assert (answered.status, answered.body) == (200, b"done")


def test_requests_come_one_by_one() -> None:
    """The next one is not even read before the last one is answered."""
    machine = server()
    machine.receive_data(2 * GET)
    assert isinstance(machine.next_event(), Requested)
    assert machine.next_event() is None
    machine.respond(204)
    assert isinstance(machine.next_event(), Requested)


@pytest.mark.parametrize("size", [len(GET), 1])
def test_the_limit_does_not_depend_on_the_chunks(size: int) -> None:
    """On its own, h11 accepts a head of any size that comes at once."""
    for limit, expected in ((len(GET), Requested), (len(GET) - 1, Closed)):
        machine, found = server(limit), []
        for start in range(0, len(GET), size):
            machine.receive_data(GET[start : start + size])
            found += list(iter(machine.next_event, None))
        assert [type(event) for event in found] == [expected]


def test_a_refusal_changes_nothing() -> None:
    """On its own, h11 can send nothing more afterwards."""
    machine = server()
    machine.receive_data(GET)
    machine.next_event()
    with pytest.raises(LocalProtocolError, match="not http"):
        machine.respond(200, headers=[("Content-Length", "7")], body=b"four")
    assert machine.data_to_send() == b""
    machine.respond(200, body=b"four")
    assert machine.data_to_send().endswith(b"\r\n\r\nfour")


def test_an_answer_that_nobody_asked_for() -> None:
    client = Connection(role=Role.CLIENT)
    client.receive_data(b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n")
    assert client.next_event() == Closed(error=RemoteProtocolError(ErrorCode.OUT_OF_TURN))


def test_a_server_tells_what_is_wrong() -> None:
    machine = server(64)
    machine.receive_data(b"GET /" + b"x" * 100)
    assert machine.next_event() == Closed(error=RemoteProtocolError(ErrorCode.TOO_LARGE))
    assert machine.data_to_send().startswith(b"HTTP/1.1 413 ")


def test_the_client_of_the_standard_library() -> None:
    with serving(lambda: protocol(lambda asked: (200, asked.body or b"hello"))) as port:
        client = HTTPConnection("localhost", port, timeout=10)
        for method, body, expected in (
            ("GET", None, b"hello"),
            ("HEAD", None, b""),
            ("POST", b"x" * 100_000, b"x" * 100_000),
        ):
            client.request(method, "/", body)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, expected)
        client.close()

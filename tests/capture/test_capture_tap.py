"""A pump's tap records its machine: one connection, or each that a listener takes."""

from __future__ import annotations

from typing import Any

import pytest

from culm.capture import Recorder, read, record, replay
from culm.machine import Closed, Event
from culm.pump import DatagramPump, LinkedPump, Pump
from toy_links import Chat
from toy_machines import LineReceived, Lines, Pinger


def test_a_connection_is_recorded_from_its_first_byte() -> None:
    pieces: list[bytes] = []
    events: list[Event] = []
    pump = Pump(Lines(), on_event=events.append, tap=Recorder(pieces.append).stand_in)
    pump.connection_made(0.0)
    machine: Any = pump.machine
    pump.call(0.0, machine.say, b"hello")
    pump.receive_data(b"one\nbye\n", 0.0)
    assert events == [LineReceived(text=b"one"), Closed()]
    while pump.outgoing:
        pump.sent(len(pump.outgoing), 0.0)
    capture = b"".join(pieces)
    moved = [step.name for step in read(capture) if step.name == "say" or step.result]
    assert moved[:3] == ["say", "data_to_send", "next_event"]
    assert replay(read(capture), lambda *_: Lines()) is None


def test_a_listener_records_all_its_connections() -> None:
    captures: list[list[bytes]] = []

    def tap(machine: Lines) -> Lines:
        captures.append([])
        return record(machine, captures[-1].append, machine="lines", session=f"{len(captures)}")

    for text in (b"one\n", b"two\n"):
        pump = Pump(Lines(), tap=tap)
        pump.connection_made(0.0)
        pump.receive_data(text, 0.0)
        pump.receive_eof(0.0)
    headers = [read(b"".join(pieces)).header for pieces in captures]
    assert [header.session for header in headers] == ["1", "2"]
    for pieces in captures:
        assert replay(read(b"".join(pieces)), lambda *_: Lines()) is None


def test_links_are_recorded_with_their_machine() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    pump = LinkedPump(Chat(), tap=recorder.stand_in)
    machine: Any = pump.machine
    link = pump.call(0.0, machine.accepted)
    connection = pump.attach(link, 0.0)
    connection.receive_data(b"hello\n", 0.0)
    connection.receive_eof(0.0)
    recorder.flush()
    steps = list(read(b"".join(pieces)))
    assert [step.on for step in steps if step.name == "receive_data"] == [1]
    assert replay(read(b"".join(pieces)), lambda *_: Chat()) is None


@pytest.mark.parametrize("recorded", [True, False], ids=["machine", "link"])
def test_a_link_that_is_not_recorded_as_its_machine_is_gets_no_connection(recorded: bool) -> None:
    """Otherwise only half of a conversation would be in the capture, unnoticed."""
    chat = Chat()
    shown = record(chat, lambda _: None)
    pump = LinkedPump(shown if recorded else chat)
    link, right = (chat, shown) if recorded else (shown, chat)
    with pytest.raises(ValueError, match=r"pump\.machine"):
        pump.attach(link.accepted(), 0.0)
    pump.attach(right.accepted(), 0.0).receive_data(b"hello\n", 0.0)


def test_datagrams_are_recorded() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    pump = DatagramPump(Pinger(peers=["a"], interval=1.0), tap=recorder.stand_in)
    pump.advance(0.0)
    machine: Any = pump.machine
    pump.call(0.0, machine.ping, "a")
    assert pump.next_datagram(0.0) == ("a", b"P\0\1")
    pump.receive_datagram(b"A\0\1", 0.0, source="a")
    recorder.flush()
    built = replay(read(b"".join(pieces)), lambda *_: Pinger(peers=["a"], interval=1.0))
    assert built is None


def test_a_tap_is_a_function() -> None:
    with pytest.raises(TypeError, match="tap must be callable, not int"):
        Pump(Lines(), tap=3)  # type: ignore[arg-type]

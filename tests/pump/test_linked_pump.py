"""The pump of a machine with several links."""

from __future__ import annotations

from typing import Any

import pytest

from culm.machine import Closed, Event
from culm.pump import AbortedError, ConnectionState, Limits, LinkedPump, LinkPump, Timing
from toy_links import Chat, HungUp, Said
from toy_machines import ToyErrorCode


class Wire:
    """One connection of a pump, whose peer takes everything, unless it is `stalled`."""

    def __init__(self, pump: LinkedPump, machine: Chat, **options: Any) -> None:
        self.woken = 0
        self.sent = b""
        self.stalled = False
        link = pump.call(0.0, machine.accepted)
        self.number = link.number
        self.pump: LinkPump = pump.attach(link, 0.0, wake=self.wake, **options)
        self.wake()

    def wake(self) -> None:
        self.woken += 1
        while hasattr(self, "pump") and self.pump.outgoing and not self.stalled:
            self.sent += self.pump.outgoing
            self.pump.sent(len(self.pump.outgoing), 0.0)


def chatting(count: int = 2, **options: Any) -> tuple[Chat, LinkedPump, list[Event], list[Wire]]:
    machine, events = Chat(), list[Event]()
    pump = LinkedPump(machine, on_event=events.append, **options)
    pump.advance(0.0)
    return machine, pump, events, [Wire(pump, machine) for _ in range(count)]


def test_each_link_has_its_connection() -> None:
    machine, pump, events, (one, two) = chatting()
    pump.call(0.0, machine.say, b"hello")
    assert (one.sent, two.sent) == (b"hello\n", b"hello\n")
    two.pump.receive_data(b"hi\n", 0.0)
    assert events == [Said(link=two.number, text=b"hi")]
    assert (two.pump.bytes_received, two.pump.bytes_sent) == (3, 6)


def test_bytes_leave_before_the_drain_goes_on() -> None:
    machine, pump, _, (one, two) = chatting()
    seen: list[tuple[bytes, bytes]] = []
    take_links = machine.links_to_send

    def links_to_send() -> Any:
        seen.append((one.sent, two.sent))
        return take_links()

    machine.links_to_send = links_to_send  # type: ignore[method-assign]
    pump.call(0.0, machine.say, b"hello")
    assert seen[0] == (b"", b"")
    assert seen[1] == (b"hello\n", b"hello\n")  # a round before the last


def test_only_whose_link_has_something_is_woken() -> None:
    _, _, _, (one, two) = chatting()
    before = one.woken
    two.pump.receive_data(b"hi\n", 0.0)
    assert one.woken == before


def test_a_peer_that_does_not_read_holds_up_nobody_else() -> None:
    machine, pump, _, (one, two) = chatting(limits=Limits(piece_size_max=10))
    one.stalled = True
    for _ in range(100):
        pump.call(0.0, machine.say, b"123456789")
    assert len(two.sent) == 1000
    assert len(one.pump.outgoing) == 10
    one.stalled = False
    one.wake()
    assert one.sent == two.sent


def test_the_last_words_of_a_link_are_sent_and_its_peer_is_read_to_the_end() -> None:
    _, pump, events, (one, _) = chatting(timing=Timing(linger_after_error_s=3))
    one.pump.receive_data(b"bye\n", 0.0)
    assert events == [HungUp(link=one.number, error=None)]
    assert one.sent == b"bye\n"
    assert one.pump.eof_to_send
    one.pump.eof_sent(0.0)
    one.pump.receive_data(b"whatever", 0.0)
    assert one.pump.state is ConnectionState.LINGERING
    assert pump.next_deadline() == 3.0
    one.pump.receive_eof(1.0)
    assert one.pump.hung_up
    assert pump.next_deadline() is None
    one.pump.receive_data(b"too late", 2.0)
    one.pump.connection_lost(2.0)
    assert not pump.over


def test_a_link_that_lingers_for_too_long_is_cut_off() -> None:
    _, pump, _, (one, two) = chatting(timing=Timing(linger_after_error_s=3))
    one.stalled = True
    one.pump.receive_data(b"bye\n", 0.0)
    woken = one.woken
    pump.advance(3.0)
    assert one.pump.state is ConnectionState.CUT_OFF
    assert one.woken > woken
    assert two.pump.state is ConnectionState.OPEN


def test_where_halves_cannot_be_ended_by_themselves() -> None:
    machine, pump, _, _ = chatting()
    wire = Wire(pump, machine, half_close=False)
    wire.pump.receive_data(b"bye\n", 0.0)
    assert wire.pump.state is ConnectionState.LINGERING
    wire.pump.receive_eof(0.0)
    assert wire.pump.hung_up


def test_a_connection_that_is_lost_ends_its_link_alone() -> None:
    machine, pump, events, (one, two) = chatting()
    one.pump.receive_data(b"cut sho", 0.0)
    one.pump.connection_lost(0.0)
    (hung_up,) = events
    assert isinstance(hung_up, HungUp)
    assert hung_up.error is not None
    assert hung_up.error.code is ToyErrorCode.CUT_SHORT
    assert one.pump.hung_up
    pump.call(0.0, machine.say, b"still here")
    assert (one.sent, two.sent) == (b"", b"still here\n")


def test_a_link_that_does_not_mind_is_closed_when_its_connection_is_lost() -> None:
    machine, pump, events, (one, _) = chatting()
    machine.links[0].receive_eof = lambda: None  # type: ignore[method-assign]
    one.pump.receive_eof(0.0)
    assert events == []  # the other half may call
    one.pump.connection_lost(0.0)
    pump.advance(0.0)
    assert machine.links[0].lines.state.name == "CLOSING"


def test_whoever_is_not_read_is_woken_when_there_is_room() -> None:
    machine, _, _, (one, two) = chatting()
    link = machine.links[0]
    full = [True]
    link.read_size = lambda: 0 if full else 100  # type: ignore[method-assign]
    assert one.pump.read_size() == 0
    woken = one.woken
    two.pump.receive_data(b"x", 0.0)
    assert one.woken == woken
    full.clear()
    two.pump.receive_data(b"x", 0.0)
    assert one.woken > woken
    assert one.pump.read_size() == 100


def test_the_end_of_all() -> None:
    machine, pump, events, (one, two) = chatting()
    pump.call(0.0, machine.close)
    assert one.sent == two.sent == b"bye\n"
    for wire in (one, two):
        assert not pump.over
        wire.pump.receive_data(b"bye\n", 0.0)
        wire.pump.eof_sent(0.0)
        wire.pump.receive_eof(0.0)
    assert events[-1] == Closed()
    assert pump.over
    assert pump.result() == Closed()


def test_abort_cuts_off_every_connection() -> None:
    machine, pump, events, (one, two) = chatting()
    woken = one.woken
    pump.abort()
    assert one.pump.state is two.pump.state is ConnectionState.CUT_OFF
    assert one.woken > woken
    assert pump.over
    with pytest.raises(AbortedError):
        pump.result()
    assert Wire(pump, machine).pump.hung_up
    assert events == []


def test_a_link_has_one_connection() -> None:
    machine, pump, _, _ = chatting(1)
    with pytest.raises(ValueError, match="link 1 has a connection"):
        pump.attach(machine.links[0], 0.0)

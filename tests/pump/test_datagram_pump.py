"""The pump of a machine over datagrams."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from culm.machine import Closed, Event
from culm.pump import AbortedError, DatagramPump, Limits
from toy_machines import Answered, Pinged, Pinger, Unanswered


def pinging(**options: Any) -> tuple[Pinger, DatagramPump, list[Event]]:
    machine, events = Pinger(peers=["a", "b"], interval=1.0), list[Event]()
    pump = DatagramPump(machine, on_event=events.append, **options)
    pump.advance(0.0)
    return machine, pump, events


def taken(pump: DatagramPump, now: float = 0.0) -> list[tuple[Hashable, bytes]]:
    return list(iter(lambda: pump.next_datagram(now), None))


def test_datagrams_both_ways() -> None:
    machine, pump, events = pinging()
    assert pump.call(0.0, machine.ping, "a") == 1
    assert taken(pump) == [("a", b"P\0\1")]
    pump.receive_datagram(b"A\0\1", 0.0, source="a")
    pump.receive_datagram(b"P\0\7", 0.0, source="b")
    assert events == [Answered(peer="a", number=1), Pinged(peer="b", number=7)]
    assert taken(pump) == [("b", b"A\0\7")]


def test_time_is_told_when_it_is_due() -> None:
    machine, pump, events = pinging()
    pump.call(0.0, machine.ping, "a")
    for _ in range(Pinger.TRIES_MAX):
        assert taken(pump) == [("a", b"P\0\1")]
        deadline = pump.next_deadline()
        assert deadline is not None
        pump.advance(deadline)
    assert events == [Unanswered(peer="a", number=1)]
    assert pump.next_deadline() is None


def test_more_is_taken_when_all_has_gone() -> None:
    """Data that cannot be sent yet stays in the machine, which knows its limits."""
    machine, pump, _ = pinging()
    pump.call(0.0, machine.ping, "a")
    pump.call(0.0, machine.ping, "b")
    assert machine.out == [("b", b"P\0\2")]
    assert taken(pump) == [("a", b"P\0\1"), ("b", b"P\0\2")]


def test_whoever_waits_is_woken() -> None:
    woken: list[bool] = []
    machine, pump, _ = pinging(wake=lambda: woken.append(True))
    before = len(woken)
    pump.call(0.0, machine.ping, "a")
    assert len(woken) > before


def test_the_end_comes_when_all_is_sent() -> None:
    machine, pump, events = pinging()
    pump.call(0.0, machine.ping, "a")
    pump.call(0.0, machine.close)
    assert events == [Closed()]
    assert not pump.over
    taken(pump)
    assert pump.over
    assert pump.result() == Closed()


@pytest.mark.parametrize("steps_max", [1, 2, 3, 1000])
def test_nothing_is_over_before_the_last_word_was_taken(steps_max: int) -> None:
    """However few steps are taken at a time, and a drain that pauses asks for another turn."""
    machine, pump, events = pinging(limits=Limits(steps_max=steps_max))

    def say_goodbye() -> None:
        machine.ping("a")
        machine.close()

    pump.call(0.0, say_goodbye)
    sent = list[tuple[Hashable, bytes]]()
    while not pump.over:
        if pump.next_deadline() is not None:
            pump.advance(0.0)
        sent += taken(pump)
    assert events == [Closed()]
    assert sent == [("a", b"P\0\1")]
    assert taken(pump) == []
    assert pump.next_deadline() is None


def test_abort_drops_what_was_to_be_sent() -> None:
    machine, pump, _ = pinging()
    pump.call(0.0, machine.ping, "a")
    pump.abort()
    assert pump.over
    assert taken(pump) == []
    with pytest.raises(AbortedError):
        pump.result()
    pump.receive_datagram(b"P\0\7", 0.0, source="b")
    assert taken(pump) == []

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


def asked_between(pump: DatagramPump, machine: Pinger, take: Any) -> list[str]:
    """The calls of the machine while the last datagram is taken."""
    asked: list[str] = []
    for name in ("advance", "next_event", "datagrams_to_send", "next_deadline"):
        call = getattr(machine, name)

        def told(*arguments: Any, name: str = name, call: Any = call) -> Any:
            asked.append(name)
            return call(*arguments)

        setattr(machine, name, told)
    take()
    return asked


def test_in_wake_a_machine_without_more_is_asked_for_datagrams_alone() -> None:
    """The drain before it has told the time, and left nothing else to do."""
    found: list[list[str]] = []

    def wake() -> None:
        if pump.closed is None and not found and machine.out == []:
            found.append(asked_between(pump, machine, lambda: taken(pump)))

    machine = Pinger(peers=["a"], interval=1.0)
    pump = DatagramPump(machine, wake=wake)
    pump.advance(0.0)
    found.clear()
    pump.call(0.0, machine.ping, "a")
    assert found == [["datagrams_to_send"]]


def test_after_wake_the_time_is_told_before_more_is_taken() -> None:
    """A socket may have been full for long."""
    machine, pump, _ = pinging()
    pump.call(0.0, machine.ping, "a")
    asked = asked_between(pump, machine, lambda: taken(pump, 0.5))
    assert asked.index("advance") < asked.index("datagrams_to_send")


@pytest.mark.parametrize("in_wake", [True, False])
def test_a_machine_that_cannot_be_asked_for_more_ends_the_pump(in_wake: bool) -> None:
    def fail() -> Any:
        raise ArithmeticError("a bug")

    def wake() -> None:
        if in_wake and (datagram := pump.next_datagram(0.0)):
            sent.append(datagram)

    sent: list[tuple[Hashable, bytes]] = []
    machine: Any = Pinger(peers=["a"], interval=1.0)
    answers = iter([[("a", b"P\0\1")]])
    machine.datagrams_to_send = lambda: next(answers, None) or fail()
    pump = DatagramPump(machine, wake=wake)
    pump.call(0.0, machine.ping, "a")
    sent += taken(pump)
    assert sent == [("a", b"P\0\1")]
    assert pump.over
    with pytest.raises(ArithmeticError):
        pump.result()


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

"""Links: cutting, holding, half-closing, waiting, and the limit on their length."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import Closed, DataReceived, Event, LocalProtocolError, RemoteProtocolError
from culm.machines.driver import Driver, EndlessError, WrongKindError
from culm.machines.operations import Advance, Complete, Eof, Receive, call
from culm.testing.link import MachinePair, byte_by_byte, random_chunks, random_sizes, whole
from toy_machines import (
    KEEPER,
    LINES,
    Frames,
    Keeper,
    Kept,
    Lanes,
    LineReceived,
    Lines,
    Pinger,
    ToyErrorCode,
    by_lane,
)


def line(text: bytes) -> LineReceived:
    return LineReceived(text=text)


def lines_link(**options: Any) -> MachinePair:
    return MachinePair.of_machines(Lines(), Lines(), **options)


def received(link: MachinePair) -> list[bytes]:
    """The chunks given to the right machine."""
    return [turn.operation.data for turn in link.right.turns if isinstance(turn.operation, Receive)]


def test_both_event_lists_come_back() -> None:
    link = lines_link()
    link.call("left", "say", text=b"hello")
    link.call("right", "say", text=b"you")
    link.run()
    assert link.left.events == [line(b"you")]
    assert link.right.events == [line(b"hello")]
    assert link.left.sent == b"hello\n"


def test_the_machines_themselves_may_be_called_between_runs() -> None:
    link = lines_link().run()
    link.left.machine.say(b"hello")
    assert link.run().right.events == [line(b"hello")]


def test_chunkers_cut() -> None:
    for chunker, sizes in ((whole, [6]), (byte_by_byte, [1] * 6)):
        link = lines_link(chunker=chunker)
        link.call("left", "say", text=b"hello")
        link.run()
        assert [len(data) for data in received(link)] == sizes
        assert link.right.events == [line(b"hello")]


@given(st.integers(0, 1000))
def test_a_seed_fixes_everything(seed: int) -> None:
    logs = []
    for _ in range(2):
        rng = Random(seed)
        link = MachinePair.of_machines(
            Lanes(), Lanes(), chunker=random_chunks(rng), sizer=random_sizes(rng), rng=rng
        )
        link.call("left", "put", lane=0, data=b"a" * 900)
        link.call("left", "put", lane=1, data=b"b" * 900)
        link.call("right", "put", lane=1, data=b"c" * 900)
        link.run()
        logs.append(link.log)
        assert by_lane(link.right.events) == [b"a" * 900, b"b" * 900]
    assert logs[0] == logs[1]


def test_directions_take_turns_without_chance() -> None:
    link = lines_link(chunker=byte_by_byte)
    link.call("left", "say", text=b"a")
    link.call("right", "say", text=b"b")
    link.run()
    sides = [side for side, turn in link.log if isinstance(turn.operation, Receive)]
    assert sides == ["right", "left", "right", "left"]


def test_a_held_direction_waits_and_the_other_goes_on() -> None:
    link = lines_link()
    link.hold("left")
    link.call("left", "say", text=b"held")
    link.call("right", "say", text=b"free")
    link.run()
    assert (link.left.events, link.right.events) == ([line(b"free")], [])
    link.release("left")
    assert link.run().right.events == [line(b"held")]


def test_no_time_passes_for_what_is_held() -> None:
    link = lines_link(latency=(2.0, 2.0))
    link.hold("left")
    link.call("left", "say", text=b"held")
    assert link.run().clock.now == 0.0
    link.release("left")
    assert link.run().clock.now == 2.0


def test_the_end_of_a_held_direction_waits_too() -> None:
    link = lines_link()
    link.hold("left")
    link.eof("left")
    assert link.run().right.events == []
    link.release("left")
    assert link.run().right.events == [Closed()]


def test_half_close_lets_the_other_direction_live() -> None:
    """Frames need a goodbye: without one the end of the stream is an error."""
    link = MachinePair.of_machines(Frames(), Frames())
    link.do("left", call("send_data", data=b"last"))
    link.do("left", Eof())
    link.do("right", call("send_data", data=b"still"))
    link.run()
    assert link.left.events[0] == DataReceived(data=b"still")
    assert link.right.events == [
        DataReceived(data=b"last"),
        Closed(error=RemoteProtocolError(ToyErrorCode.CUT_SHORT)),
    ]


def test_bytes_are_delivered_before_the_end() -> None:
    link = lines_link(chunker=byte_by_byte)
    link.call("left", "say", text=b"last words")
    link.eof("left")
    assert link.run().right.events == [line(b"last words"), Closed()]


def test_who_has_closed_hangs_up_after_the_last_byte() -> None:
    link = MachinePair.of_machines(Lines(), Lines(line_max=3), capacity=2)
    link.call("left", "say", text=b"too long")
    link.call("right", "say", text=b"abc")
    link.run()
    assert link.right.events == [Closed(error=RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG))]
    assert link.left.events == [line(b"abc"), Closed()]


def test_who_has_closed_is_told_nothing_more() -> None:
    link = lines_link()
    link.call("left", "close")
    link.run()
    assert link.left.events == link.right.events == [Closed()]
    assert not any(isinstance(operation, Eof) for operation in link.left.operations)


class Patient(Lines):
    """Keeps talking after the peer has hung up."""

    def _step_eof(self) -> Event | None:
        return None


def test_what_is_sent_to_a_closed_machine_is_lost_and_blocks_nobody() -> None:
    link = MachinePair.of_machines(Patient(), Lines(line_max=1), capacity=3)
    link.call("left", "say", text=b"x" * 60)
    link.run()
    link.call("left", "say", text=b"y" * 60)
    link.run()
    assert isinstance(link.right.events[-1], Closed)
    assert link.left.sent == b"x" * 60 + b"\n" + b"y" * 60 + b"\n"


class CountingKeeper(Keeper):
    @property
    def unread_size(self) -> int:
        return len(self._inbox)


def test_read_size_is_honoured() -> None:
    link = MachinePair.of_machines(Lines(), CountingKeeper(effects_max=1, line_max=4))
    for _ in range(20):
        link.call("left", "say", text=b"abc")
    link.run()
    assert link.right.machine.read_size() == 0
    assert link.right.machine.unread_size == 16
    ticket = 0
    while link.right.driver.unanswered:
        ticket = link.right.driver.unanswered[0].ticket
        link.do("right", Complete(ticket, 0))
        link.run()
    assert ticket == 20
    assert sum(isinstance(event, Kept) for event in link.right.events) == 20


def test_capacity_bounds_what_is_under_way() -> None:
    link = lines_link(capacity=4)
    link.hold("left")
    link.call("left", "say", text=b"123456789")
    link.run()
    assert link.left.sent == b"1234"
    link.release("left")
    assert link.run().right.events == [line(b"123456789")]


def test_a_machine_that_gives_more_than_asked_for_is_found() -> None:
    class Generous(Lines):
        def data_to_send(self, size_max: int | None = None) -> bytes:
            return super().data_to_send()

    link = MachinePair.of_machines(Generous(), Lines(), capacity=2)
    with pytest.raises(AssertionError, match=r"data_to_send\(2\) gave 6 bytes"):
        link.call("left", "say", text=b"hello")


# Time


def test_latency_passes_before_bytes_arrive() -> None:
    link = lines_link(latency=(1.5, 0.25))
    link.call("left", "say", text=b"a")
    link.call("right", "say", text=b"b")
    link.run()
    assert link.clock.now == 1.5
    assert [side for side, turn in link.log if turn.events] == ["left", "right"]


def test_time_stands_still_without_need() -> None:
    link = MachinePair.of_machines(Keeper(idle=10), Keeper(idle=20)).run()
    assert link.clock.now == 0.0


def test_time_goes_over_every_deadline_up_to_the_end() -> None:
    link = MachinePair.of_machines(Keeper(idle=10), Keeper(idle=20)).run(until=5)
    assert link.clock.now == 5
    assert link.left.driver.closed is None
    link.run(until=math.inf)
    assert link.clock.now == 10
    assert link.left.events == link.right.events == [Closed()]


def test_a_deadline_is_met_while_bytes_are_under_way() -> None:
    link = MachinePair.of_machines(Keeper(idle=1), Lines(), latency=(3.0, 3.0))
    link.call("right", "say", text=b"late")
    link.run()
    times = [turn.operation.now for turn in link.left.turns if isinstance(turn.operation, Advance)]
    assert times[:2] == [0.0, 1.0]


class Stubborn(Keeper):
    def advance(self, now: float) -> None:
        if self._now is None:
            super().advance(now)


def test_a_deadline_that_stays_is_found() -> None:
    link = MachinePair.of_machines(Stubborn(idle=1), Lines())
    with pytest.raises(EndlessError, match="left: told that it is 1"):
        link.run(until=2)


class Echo(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            self.say(event.text)
        return event


def test_two_that_never_rest_are_found() -> None:
    link = MachinePair.of_machines(Echo(), Echo(), steps_max=50)
    link.call("left", "say", text=b"ball")
    with pytest.raises(EndlessError, match="not quiet after 50 steps") as caught:
        link.run()
    assert "ball" in str(caught.value)


class Doubling(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            self._outbox.append(2 * event.text + b"\n")
        return event


def test_two_that_say_ever_more_are_found() -> None:
    endless = Doubling(line_max=1 << 20), Doubling(line_max=1 << 20)
    link = MachinePair.of_machines(*endless, size_max=5000)
    link.call("left", "say", text=b"ball")
    with pytest.raises(EndlessError, match=r"not quiet after \d+ bytes"):
        link.run()


class Endless(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        return b"\n" * (10 if size_max is None else size_max)


def test_one_that_has_always_something_to_say_is_found() -> None:
    with pytest.raises(EndlessError, match=r"not quiet after \d+ bytes"):
        MachinePair.of_machines(Endless(), Lines(), size_max=5000).run()


# Its parts


def test_effects_are_completed_by_the_given_stores() -> None:
    left = iter(range(10))
    link = MachinePair.of_machines(Keeper(), Keeper(), respond=(None, lambda effect: next(left)))
    link.call("left", "say", text=b"keep me")
    link.run()
    assert link.right.events == [line(b"keep me"), Kept(text=b"keep me", place=0)]
    link = MachinePair(Driver.of(KEEPER.machine, {}), Driver.of(LINES.machine, {}))
    link.call("right", "say", text=b"and me")
    assert link.run().left.events == [line(b"and me"), Kept(text=b"and me", place=0)]


def test_verbs_are_the_specs() -> None:
    def shout(machine: Lines, text: bytes) -> None:
        machine.say(text.upper())

    link = MachinePair.of_machines(Lines(), Lines(), verbs=({"shout": shout}, {}))
    link.call("left", "shout", text=b"hey")
    assert link.run().right.events == [line(b"HEY")]


def test_a_refusal_is_noted_in_its_turn() -> None:
    link = lines_link()
    link.call("left", "say", text=b"\n")
    assert isinstance(link.log[-1][1].error, LocalProtocolError)


def test_operations_leave_out_the_answers_of_the_own_store() -> None:
    link = MachinePair(Driver.of(KEEPER.machine, {}), Driver.of(KEEPER.machine, {}))
    link.call("left", "say", text=b"x")
    link.run()
    assert [type(operation).__name__ for operation in link.right.operations] == [
        "Advance",
        "Receive",
    ]


def test_datagrams_are_not_for_links() -> None:
    with pytest.raises(WrongKindError):
        MachinePair.of_machines(Lines(), Pinger())

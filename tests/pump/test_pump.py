"""The pump of a stream machine: bounded output, effects, time, and all kinds of ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from culm.effects import Answer
from culm.machine import (
    Closed,
    ContractErrorCode,
    Effect,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StoreFailed,
    StreamBase,
)
from culm.pump import AbortedError, ConnectionState, Limits, Pump, Timing
from toy_machines import Keep, Keeper, Kept, Lanes, LineReceived, Lines, ToyErrorCode

OPEN, LAST_WORDS, END_DUE, LINGERING, HUNG_UP, CUT_OFF = ConnectionState


def taken(pump: Pump, now: float = 0.0) -> bytes:
    """The pump's output to a peer that takes everything."""
    sent = bytearray()
    while pump.outgoing:
        sent += pump.outgoing
        pump.sent(len(pump.outgoing), now)
    return bytes(sent)


def pumped(machine: StreamBase, **options: Any) -> tuple[Pump, list[Event]]:
    events: list[Event] = []
    pump = Pump(machine, on_event=events.append, **options)
    pump.connection_made(0.0)
    return pump, events


class Scolder(Lines):
    """Tells the peer its mistake."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        if error is not None:
            self._outbox.append(b"wrong\n")


# Bytes


def test_a_conversation_to_its_end() -> None:
    machine = Lines()
    pump, events = pumped(machine)
    pump.call(0.0, machine.say, b"hello")
    assert taken(pump) == b"hello\n"
    pump.receive_data(b"one\nbye\n", 0.0)
    assert events == [LineReceived(text=b"one"), Closed()]
    assert (pump.state, bytes(pump.outgoing)) == (LAST_WORDS, b"bye\n")
    assert taken(pump) == b"bye\n"
    assert pump.state is END_DUE
    assert pump.eof_to_send
    pump.eof_sent(0.0)
    assert pump.state is LINGERING
    assert pump.read_size() > 0
    pump.receive_data(b"whatever", 0.0)
    assert not pump.over
    pump.receive_eof(0.0)
    assert pump.state is HUNG_UP
    assert pump.hung_up
    assert pump.over
    assert pump.result() == pump.closed == Closed()
    assert (pump.bytes_received, pump.bytes_sent) == (16, 10)
    assert pump.next_deadline() is None


def test_no_more_than_a_piece_is_taken_from_the_machine() -> None:
    machine = Lanes()
    pump, _ = pumped(machine, limits=Limits(piece_size_max=100))
    pump.call(0.0, machine.put, 0, bytes(1000))
    first = bytes(pump.outgoing)
    assert 0 < len(first) <= 100
    # Later data need not queue after all earlier data.
    pump.call(0.0, machine.put, 1, b"urgent")
    assert bytes(pump.outgoing) == first
    pump.sent(30, 0.0)
    assert bytes(pump.outgoing) == first[30:]
    pump.sent(len(first) - 30, 0.0)
    assert b"urgent" in bytes(pump.outgoing)


def test_pieces_are_as_large_as_what_leaves_within_a_second() -> None:
    machine = Lines(line_max=1 << 20)
    pump, _ = pumped(machine)
    pump.call(0.0, machine.say, bytes(1 << 20))
    sizes, now = [], 0.0
    for seconds in [0.75] * 4 + [2.0] * 8 + [0.0] * 8:
        now += seconds
        sizes.append(len(pump.outgoing))
        pump.sent(sizes[-1], now)
    kib = [64, 64, 64, 64, 64, 32, 16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 32, 64, 64]
    assert sizes == [each << 10 for each in kib]


@pytest.mark.parametrize(("seconds", "size"), [(0.0, 1 << 16), (0.04, 1 << 16), (0.1, 1 << 10)])
def test_small_pieces_say_little_of_a_fast_line_and_enough_of_a_slow_one(
    seconds: float, size: int
) -> None:
    machine = Lines(line_max=1 << 20)
    pump, _ = pumped(machine)
    for number in range(9):
        pump.call(float(number), machine.say, b"hello")
        pump.sent(len(pump.outgoing), number + seconds)
    pump.call(9.0, machine.say, bytes(1 << 20))
    assert len(pump.outgoing) == size


@pytest.mark.parametrize("size", [-1, 101])
def test_what_was_not_to_be_sent_cannot_have_been_sent(size: int) -> None:
    machine = Lanes()
    pump, _ = pumped(machine, limits=Limits(piece_size_max=100))
    pump.call(0.0, machine.put, 0, bytes(1000))
    before = bytes(pump.outgoing)
    with pytest.raises(ValueError, match="size must be in"):
        pump.sent(size, 0.0)
    assert bytes(pump.outgoing) == before


def test_reading_is_bounded_by_machine_and_piece() -> None:
    pump, _ = pumped(Lines(), limits=Limits(piece_size_max=10))
    assert pump.read_size() == 10
    machine = Keeper()
    pump, _ = pumped(machine, defer=lambda effect: None)
    pump.receive_data(b"x\n" * 100, 0.0)
    assert pump.read_size() == machine.read_size() < 256
    pump.receive_data(b"y" * 1000, 0.0)  # more than was welcome
    assert pump.read_size() == 0


# Effects


def perform(effect: Effect[Any]) -> int:
    return 7


def test_effects_are_performed_at_once() -> None:
    pump, events = pumped(Keeper(), perform=perform)
    pump.receive_data(b"one\ntwo\n", 0.0)
    assert events == [
        LineReceived(text=b"one"),
        LineReceived(text=b"two"),
        Kept(text=b"one", place=7),
        Kept(text=b"two", place=7),
    ]


def test_effects_are_deferred_and_answered_in_any_order() -> None:
    effects: list[Effect[Any]] = []
    pump, events = pumped(Keeper(), defer=effects.append)
    pump.receive_data(b"one\ntwo\n", 0.0)
    assert [effect.text for effect in effects if isinstance(effect, Keep)] == [b"one", b"two"]
    for effect in reversed(effects):
        pump.answer(Answer.of(effect, perform), 0.0)
    assert events[-2:] == [Kept(text=b"two", place=7), Kept(text=b"one", place=7)]
    with pytest.raises(LocalProtocolError) as caught:
        pump.answer(Answer.of(effects[0], perform), 0.0)
    assert caught.value.code is ContractErrorCode.UNKNOWN_TICKET
    assert not pump.over


def test_a_deferred_effect_may_be_answered_on_the_spot() -> None:
    pump, events = pumped(
        Keeper(), defer=lambda effect: pump.answer(Answer.of(effect, perform), 0.0)
    )
    pump.receive_data(b"one\n", 0.0)
    assert events == [LineReceived(text=b"one"), Kept(text=b"one", place=7)]


def test_effects_are_either_performed_or_deferred() -> None:
    with pytest.raises(ValueError, match="either"):
        Pump(Keeper(), perform=perform, defer=perform)
    pump, _ = pumped(Keeper())
    pump.receive_data(b"one\n", 0.0)
    assert pump.over
    with pytest.raises(TypeError, match="no performer for Keep"):
        pump.result()


def test_a_failure_of_the_store_is_told_to_the_machine_and_raised_in_the_end() -> None:
    failure = OSError("the disk is full")

    def fail(effect: Effect[Any]) -> None:
        raise failure

    pump, events = pumped(Keeper(), perform=fail)
    pump.receive_data(b"one\n", 0.0)
    assert isinstance(events[1], StoreFailed)
    assert events[2] == Closed()
    taken(pump)
    pump.eof_sent(0.0)
    pump.receive_eof(0.0)
    assert pump.over
    with pytest.raises(OSError, match="full") as caught:
        pump.result()
    assert caught.value is failure


# Ends


def test_an_error_is_lingered_for_shortly() -> None:
    pump, _ = pumped(Scolder(), timing=Timing(linger_s=50, linger_after_error_s=3))
    pump.receive_data(b"x" * 100, 10.0)
    assert taken(pump, 10.0) == b"wrong\n"
    pump.eof_sent(11.0)
    assert pump.next_deadline() == 13.0
    pump.receive_data(b"x" * 100, 12.9)
    assert not pump.hung_up
    pump.advance(13.0)
    assert pump.state is CUT_OFF
    assert pump.over
    error = pump.result().error
    assert error is not None
    assert error.code is ToyErrorCode.LINE_TOO_LONG


@pytest.mark.parametrize(("data", "seconds"), [(b"bye\n", 5.0), (b"x" * 100, 1.0)])
def test_a_peer_gets_five_seconds_and_one_after_an_error(data: bytes, seconds: float) -> None:
    pump, _ = pumped(Scolder() if b"x" in data else Lines())
    pump.receive_data(data, 10.0)
    taken(pump, 10.0)
    pump.eof_sent(10.0)
    assert (pump.state, pump.next_deadline()) == (LINGERING, 10.0 + seconds)
    pump.advance(10.0 + seconds)
    assert pump.state is CUT_OFF


def test_last_words_that_nobody_takes_are_given_up() -> None:
    pump, _ = pumped(Lines(), timing=Timing(linger_s=5))
    pump.receive_data(b"bye\n", 1.0)
    assert (pump.state, pump.next_deadline()) == (LAST_WORDS, 6.0)
    pump.advance(6.0)
    assert (pump.state, bytes(pump.outgoing), pump.over) == (CUT_OFF, b"", True)


def test_last_words_are_sent_after_the_peer_has_ended_its_half() -> None:
    machine = Lines()
    pump, events = pumped(machine)
    pump.call(0.0, machine.say, b"hello")
    pump.receive_eof(0.0)
    pump.receive_eof(0.0)
    assert events == [Closed()]
    assert pump.state is LAST_WORDS
    assert taken(pump) == b"hello\n"
    assert pump.state is HUNG_UP


@pytest.mark.parametrize(("data", "state"), [(b"bye\n", HUNG_UP), (b"x" * 100, LINGERING)])
def test_where_halves_cannot_be_ended_by_themselves(data: bytes, state: ConnectionState) -> None:
    pump = Pump(Scolder())
    pump.connection_made(0.0, half_close=False)
    pump.receive_data(data, 0.0)
    taken(pump)
    assert pump.state is state
    pump.receive_eof(0.0)
    assert pump.state is HUNG_UP


class Unmoved(Lines):
    """Takes no notice of the end of the stream."""

    def _step_eof(self) -> Event | None:
        return Closed() if self._closing else None


def test_a_machine_that_waits_for_nobody_is_closed() -> None:
    pump, events = pumped(Unmoved())
    pump.receive_eof(0.0)
    assert events == [Closed()]
    assert taken(pump) == b"bye\n"
    assert pump.state is HUNG_UP


def test_not_while_there_is_something_to_say() -> None:
    machine = Unmoved()
    pump, events = pumped(machine)
    pump.call(0.0, machine.say, b"hello")
    pump.receive_eof(0.0)
    assert events == []
    assert taken(pump) == b"hello\nbye\n"
    assert events == [Closed()]


def test_not_while_somebody_may_call() -> None:
    pump, events = pumped(Unmoved(), closes_when_quiet=False)
    pump.receive_eof(0.0)
    assert events == []
    pump.connection_lost(0.0)
    assert events == [Closed()]
    assert pump.over


class UnmovedKeeper(Keeper):
    def _step_eof(self) -> Event | None:
        return Closed() if self._closing and not len(self._tickets) else None


def test_not_while_the_store_is_at_work() -> None:
    effects: list[Effect[Any]] = []
    pump, events = pumped(UnmovedKeeper(), defer=effects.append)
    pump.receive_data(b"one\n", 0.0)
    pump.receive_eof(0.0)
    assert events == [LineReceived(text=b"one")]
    pump.answer(Answer.of(effects[0], perform), 0.0)
    assert taken(pump) == b"ok\nbye\n"
    assert events[1:] == [Kept(text=b"one", place=7), Closed()]


def test_not_while_a_job_waits_to_be_done() -> None:
    pump, events = pumped(UnmovedKeeper(), perform=perform, in_jobs=True)
    pump.receive_data(b"one\n", 0.0)
    pump.receive_eof(0.0)
    assert events == [LineReceived(text=b"one")]
    job = pump.next_job()
    assert job is not None
    pump.finish(job(), 0.0)
    assert taken(pump) == b"ok\nbye\n"
    assert events[1:] == [Kept(text=b"one", place=7), Closed()]


def test_a_connection_that_is_lost() -> None:
    machine = Lines()
    pump, events = pumped(machine)
    pump.call(0.0, machine.say, b"hello")
    pump.receive_data(b"cut sho", 0.0)
    pump.connection_lost(0.0)
    pump.connection_lost(0.0)
    assert [type(event) for event in events] == [Closed]
    assert (pump.state, bytes(pump.outgoing), pump.read_size()) == (CUT_OFF, b"", 0)
    error = pump.result().error
    assert error is not None
    assert error.code is ToyErrorCode.CUT_SHORT


def test_a_peer_that_takes_nothing_any_more_is_still_heard() -> None:
    machine = Lines()
    pump, events = pumped(machine)
    pump.call(0.0, machine.say, b"in vain")
    pump.send_failed(0.0)
    assert bytes(pump.outgoing) == b""
    pump.receive_data(b"one\n", 0.0)
    assert events == [LineReceived(text=b"one")]
    pump.receive_eof(0.0)
    assert events[1:] == [Closed()]
    assert pump.state is CUT_OFF


def test_the_store_is_waited_for_longer_than_the_connection() -> None:
    effects: list[Effect[Any]] = []
    machine = Keeper()
    pump, _ = pumped(machine, defer=effects.append)
    pump.receive_data(b"one\n" + b"x" * 100, 0.0)
    pump.connection_lost(0.0)
    assert pump.hung_up
    assert not pump.over
    pump.answer(Answer.of(effects[0], perform), 0.0)
    assert pump.over


def test_a_handler_that_raises_ends_it_all() -> None:
    failure = ZeroDivisionError()

    def fail(event: Event) -> None:
        raise failure

    pump = Pump(Lines(), on_event=fail)
    pump.connection_made(0.0)
    pump.receive_data(b"one\ntwo\n", 0.0)
    assert pump.state is CUT_OFF
    assert pump.over
    with pytest.raises(ZeroDivisionError):
        pump.result()
    pump.receive_data(b"more\n", 0.0)  # data under way may still come
    pump.connection_lost(0.0)


def test_abort_stops_between_two_events() -> None:
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        pump.abort()

    pump = Pump(Lines(), on_event=on_event)
    pump.connection_made(0.0)
    with pytest.raises(RuntimeError, match="has not ended"):
        pump.result()
    pump.receive_data(b"one\ntwo\n", 0.0)
    assert events == [LineReceived(text=b"one")]
    assert pump.over
    with pytest.raises(AbortedError):
        pump.result()


def test_abort_after_the_end_gives_up_last_words() -> None:
    pump, _ = pumped(Lines())
    pump.receive_data(b"bye\n", 0.0)
    pump.abort()
    assert pump.over
    assert pump.result() == Closed()


# Time


class Clocked(Keeper):
    """Records its input, in order."""

    def __init__(self) -> None:
        super().__init__(idle=10.0)
        self.told: list[object] = []

    def advance(self, now: float) -> None:
        super().advance(now)
        self.told.append(now)

    def receive_data(self, data: Any) -> None:
        super().receive_data(data)
        self.told.append(bytes(data))


def test_the_time_is_told_before_an_input_and_after_it_if_a_deadline_has_passed() -> None:
    machine = Clocked()
    pump, _ = pumped(machine, perform=perform)
    pump.receive_data(b"one\n", 5.0)
    assert machine.told == [0.0, 5.0, b"one\n"]
    assert pump.next_deadline() == 15.0
    pump.receive_data(b"two\n", 16.0)
    assert machine.told[3:] == [b"two\n"]
    pump.advance(16.0)
    assert machine.told[4:] == [16.0]


def test_a_clock_that_goes_back_stands_still() -> None:
    machine = Clocked()
    pump, _ = pumped(machine, perform=perform)
    pump.receive_data(b"one\n", 5.0)
    pump.receive_data(b"two\n", 3.0)
    pump.advance(4.0)
    assert machine.told == [0.0, 5.0, b"one\n", 5.0, b"two\n", 5.0]


@pytest.mark.parametrize("now", [float("nan"), float("inf"), 2.0**41])
def test_what_is_no_time_is_refused(now: float) -> None:
    pump, events = pumped(Lines())
    with pytest.raises(LocalProtocolError):
        pump.advance(now)
    with pytest.raises(LocalProtocolError):
        pump.receive_data(b"one\n", now)
    assert events == []


def test_a_machine_that_has_much_to_do_gives_way() -> None:
    pump, events = pumped(Lines(), limits=Limits(steps_max=10))
    pump.receive_data(b"x\n" * 25, 7.0)
    assert len(events) == 10
    assert pump.next_deadline() == 7.0
    pump.advance(8.0)
    assert len(events) == 20
    pump.advance(8.0)
    assert len(events) == 25
    assert pump.next_deadline() is None


def test_the_end_is_not_told_before_all_is_said() -> None:
    """Even if the drain pauses right at the end."""
    pump, events = pumped(Lines(), limits=Limits(steps_max=1))
    pump.receive_data(b"bye\n", 0.0)
    assert events == [Closed()]
    assert (pump.state, bytes(pump.outgoing)) == (LAST_WORDS, b"bye\n")


# Calls from within


def test_whoever_is_woken_may_call_the_pump() -> None:
    """To any depth: a peer that takes everything at once costs no stack."""
    machine = Lanes()
    sent: list[bytes] = []

    def wake() -> None:
        if pump.outgoing:
            sent.append(bytes(pump.outgoing))
            pump.sent(len(pump.outgoing), 0.0)

    pump = Pump(machine, wake=wake, limits=Limits(piece_size_max=64))
    pump.connection_made(0.0)
    pump.call(0.0, machine.put, 0, bytes(200_000))
    assert len(sent) > 3000


def test_a_handler_may_call_verbs() -> None:
    machine = Lines()

    def on_event(event: Event) -> None:
        if isinstance(event, LineReceived):
            pump.call(0.0, machine.say, event.text.upper())
            machine.say(b"more")

    pump = Pump(machine, on_event=on_event)
    pump.connection_made(0.0)
    pump.receive_data(b"one\n", 0.0)
    assert taken(pump) == b"ONE\nmore\n"


def test_a_verb_that_is_refused_raises() -> None:
    machine = Lines()
    pump, _ = pumped(machine)
    with pytest.raises(LocalProtocolError):
        pump.call(0.0, machine.say, b"two\nlines")
    assert taken(pump) == b""


@pytest.mark.parametrize(
    "fields",
    [
        {"piece_size_max": 0},
        {"steps_max": 0},
        {"linger_s": -1.0},
        {"linger_s": float("inf")},
        {"linger_after_error_s": float("nan")},
    ],
)
def test_limits_and_times_are_looked_at(fields: dict[str, Any]) -> None:
    build: Callable[..., object] = Timing if next(iter(fields)).endswith("_s") else Limits
    with pytest.raises(ValueError, match=next(iter(fields))):
        build(**fields)

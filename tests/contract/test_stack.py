"""`over` and `then`: bytes up, bytes down, and ends, in the right order."""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import (
    Closed,
    ContractErrorCode,
    Durable,
    Event,
    LocalProtocolError,
    Machine,
    RemoteProtocolError,
    StoreFailed,
    StreamMachine,
    Ticket,
    Timed,
)
from culm.stack import Stacked, over, then
from toy_machines import (
    Frames,
    Keep,
    Keeper,
    Kept,
    Lanes,
    LineReceived,
    Lines,
    ToyErrorCode,
    ToyState,
)

CUT_SHORT = RemoteProtocolError(ToyErrorCode.CUT_SHORT)
LINE_TOO_LONG = RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG)
GOODBYE = b"\x00"

R = TypeVar("R")


def drained(machine: Machine) -> list[Event]:
    return list(iter(machine.next_event, None))


def framed(*parts: bytes) -> bytes:
    return b"".join(bytes([len(part)]) + part for part in parts)


def line(text: bytes) -> LineReceived:
    return LineReceived(text=text)


# over: up and down


def test_bytes_of_the_upper_machine_ride_in_the_lower_one() -> None:
    lines = Lines()
    stack = over(Frames(), lines)
    lines.say(b"down")
    stack.receive_data(framed(b"u", b"p\nand", b"\n"))
    assert drained(stack) == [line(b"up"), line(b"and")]
    assert stack.data_to_send() == framed(b"down\n")


def test_events_of_both_come_in_the_order_in_which_they_happened() -> None:
    """The keeper's effect of line one is handed out before line two is looked at."""
    stack = over(Frames(), Keeper(effects_max=1))
    stack.receive_data(framed(b"one\n", b"two\n"))
    assert drained(stack) == [line(b"one")]
    effect = stack.next_effect()
    assert effect is not None
    stack.complete(effect.ticket, 7)
    assert drained(stack) == [Kept(text=b"one", place=7), line(b"two")]


def test_what_the_upper_machine_says_waits_until_the_lower_one_is_ready() -> None:
    lines = Lines()
    stack = over(Frames(greeting=True), lines)
    lines.say(b"early")
    assert stack.data_to_send() == b"\x47"
    stack.receive_data(b"\x47")
    drained(stack)
    assert stack.data_to_send() == framed(b"early\n")


def test_state_is_the_upper_machines() -> None:
    lines = Lines()
    stack = over(Frames(), lines)
    assert stack.state is ToyState.OPEN
    lines.close()
    assert stack.state is ToyState.CLOSING


@given(st.lists(st.binary(max_size=600), max_size=5), st.lists(st.integers(1, 700), min_size=1))
def test_bytes_in_pieces_are_the_bytes_at_once(said: list[bytes], sizes: list[int]) -> None:
    taken = []
    for cut in (False, True):
        lanes = Lanes()
        stack = over(Frames(), lanes)
        for data in said:
            lanes.put(0, data)
        pieces = [stack.data_to_send(size) for size in sizes] if cut else []
        assert all(len(piece) <= size for piece, size in zip(pieces, sizes, strict=False))
        taken.append(b"".join(pieces) + stack.data_to_send())
    assert taken[0] == taken[1]


def test_little_is_carried_down_before_it_is_wanted() -> None:
    """An upper machine that schedules late keeps data until it is asked for."""
    lanes = Lanes()
    frames = Frames()
    stack = over(frames, lanes)
    lanes.put(0, bytes(1_000_000))
    drained(stack)
    assert sum(map(len, lanes.queues)) == 1_000_000
    stack.data_to_send(10)
    assert sum(map(len, lanes.queues)) > 900_000
    assert len(frames.data_to_send()) < 70_000


def test_reading_stops_while_the_upper_machine_has_enough() -> None:
    """With a store that does not answer, the lower buffer fills, then nothing is welcome."""
    frames = Frames(receive_max=100)
    stack = over(frames, Keeper(line_max=8, effects_max=1))
    for number in range(200):
        data = framed(b"line %d\n" % (number % 10))
        if stack.read_size() < len(data):
            break
        stack.receive_data(data)
        drained(stack)
    else:
        pytest.fail("the stack reads for ever")
    seen = []
    while (effect := stack.next_effect()) is not None:
        stack.complete(effect.ticket, 0)
        seen += drained(stack)
    assert stack.read_size() == 100
    assert len([event for event in seen if isinstance(event, Kept)]) == number


# over: ends


def test_the_end_of_the_lower_machine_is_the_end_of_the_upper_ones_stream() -> None:
    stack = over(Frames(), Lines())
    stack.receive_data(framed(b"whole\n", b"cut") + GOODBYE + b"rest")
    assert drained(stack) == [line(b"whole"), Closed(error=CUT_SHORT)]
    assert stack.trailing_data == b""


class Particular(Lines):
    """Has its own error for an end in the middle."""

    def _step_eof(self) -> Event | None:
        if len(self._inbox):
            raise RemoteProtocolError(ToyErrorCode.NOT_A_LINE)
        return super()._step_eof()


def test_the_lower_error_goes_before_what_it_does_to_the_upper_machine() -> None:
    stack = over(Frames(), Particular(line_max=3))
    stack.receive_data(framed(b"abc\nde"))
    stack.receive_eof()
    assert drained(stack) == [line(b"abc"), Closed(error=CUT_SHORT)]
    greeted = over(Frames(greeting=True), Lines())
    greeted.receive_data(b"\x00")
    assert drained(greeted) == [Closed(error=CUT_SHORT)]


def test_the_upper_error_comes_at_once_and_the_lower_machine_says_goodbye() -> None:
    frames = Frames()
    stack = over(frames, Lines(line_max=3))
    stack.receive_data(framed(b"ab\n", b"long line") + b"\x09rest")
    assert drained(stack) == [line(b"ab"), Closed(error=LINE_TOO_LONG)]
    assert stack.data_to_send() == GOODBYE
    assert stack.trailing_data == b""
    assert stack.read_size() == 0
    room = frames.read_size()
    stack.receive_data(b"more")
    assert frames.read_size() == room > 0
    stack.receive_eof()
    assert drained(stack) == []
    with pytest.raises(LocalProtocolError):
        stack.receive_data(b"")


def test_the_upper_goodbye_is_sent_before_the_lower_one() -> None:
    stack = over(Frames(), Lines())
    stack.receive_data(framed(b"bye\n"))
    assert drained(stack) == []
    assert stack.data_to_send() == framed(b"bye\n") + GOODBYE


def test_closed_comes_when_both_have_ended() -> None:
    stack = over(Frames(), Lines())
    stack.receive_data(framed(b"bye\n"))
    assert drained(stack) == []
    stack.receive_data(GOODBYE + b"next")
    assert drained(stack) == [Closed()]
    assert stack.trailing_data == b"next"
    assert drained(stack) == []


def test_what_comes_up_after_the_upper_end_is_dropped() -> None:
    lines = Lines()
    stack = over(Frames(receive_max=16), lines)
    stack.receive_data(framed(b"bye\n"))
    for _ in range(100):
        stack.receive_data(framed(b"too late"))
        assert drained(stack) == []
        assert stack.read_size() == 16
    assert lines.trailing_data == b""
    stack.receive_data(GOODBYE)
    assert drained(stack) == [Closed()]


def test_a_missing_lower_goodbye_is_an_error_even_after_the_upper_one() -> None:
    stack = over(Frames(), Lines())
    stack.receive_data(framed(b"bye\n"))
    stack.receive_eof()
    assert drained(stack) == [Closed(error=CUT_SHORT)]
    assert stack.trailing_data == b""


def test_close_says_both_goodbyes_in_turn() -> None:
    stack = over(Frames(), Lines())
    stack.close()
    stack.close()
    assert stack.data_to_send() == framed(b"bye\n")
    stack.receive_data(framed(b"bye\n"))
    assert drained(stack) == []
    assert stack.data_to_send() == GOODBYE
    stack.receive_data(GOODBYE)
    assert drained(stack) == [Closed()]


class Patient(Lines):
    """Takes no notice of the end of the stream: only `close` ends it."""

    def _step(self) -> Event | None:
        if self._state is ToyState.CLOSING:
            return Closed()
        return super()._step()

    def _step_eof(self) -> Event | None:
        return None


def test_a_machine_that_would_go_on_is_closed_when_the_one_below_ends() -> None:
    stack = over(Frames(), Patient())
    stack.receive_data(framed(b"ab\n") + GOODBYE)
    assert drained(stack) == [line(b"ab"), Closed()]


# Time and effects


def test_the_deadline_is_the_earliest_and_time_goes_to_both() -> None:
    times: list[float] = []

    class TimedFrames(Frames):
        def next_deadline(self) -> float | None:
            return None if times else 3.0

        def advance(self, now: float) -> None:
            times.append(now)

    keeper = Keeper(idle=7)
    stack = over(TimedFrames(), keeper)
    assert stack.next_deadline() == 3.0
    stack.advance(1.0)
    assert times == [1.0]
    assert stack.next_deadline() == keeper.next_deadline() == 8.0


def test_parts_without_time_or_effects_give_none() -> None:
    stack = over(Frames(), Lines())
    stack.advance(5.0)
    assert stack.next_deadline() is None
    assert stack.next_effect() is None
    assert isinstance(stack, Timed)
    assert isinstance(stack, Durable)


def test_a_closed_stack_waits_for_nothing() -> None:
    class NeverDone(Frames):
        def next_deadline(self) -> float | None:
            return 9.0

        def advance(self, now: float) -> None:
            pass

    stack = over(NeverDone(), Lines(line_max=1))
    stack.receive_data(framed(b"xxx"))
    assert drained(stack) == [Closed(error=LINE_TOO_LONG)]
    assert stack.next_deadline() is None


class KeepingFrames(Frames):
    """Frames that also have effects for the store; its tickets are those of any machine."""

    def __init__(self) -> None:
        super().__init__()
        self.effects = [Keep(ticket=Ticket(1), text=b"lower")]
        self.answers: list[object] = []

    def next_effect(self) -> Keep | None:
        return self.effects.pop() if self.effects else None

    def complete(self, ticket: Ticket[R], result: R) -> None:
        self.answers.append(result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        self.answers.append(error)


def effects_by_text(stack: Stacked) -> dict[bytes, Keep]:
    effects = iter(stack.next_effect, None)
    return {effect.text: effect for effect in effects if isinstance(effect, Keep)}


def test_effects_of_both_are_numbered_anew() -> None:
    frames = KeepingFrames()
    stack = over(frames, Keeper())
    stack.receive_data(framed(b"upper\n"))
    assert drained(stack) == [line(b"upper")]
    tickets = {text: effect.ticket for text, effect in effects_by_text(stack).items()}
    assert len(set(tickets.values())) == 2
    stack.complete(tickets[b"upper"], 5)
    assert drained(stack) == [Kept(text=b"upper", place=5)]
    with pytest.raises(LocalProtocolError) as caught:
        stack.complete(tickets[b"lower"], "bad")
    assert caught.value.code is ContractErrorCode.WRONG_RESULT
    stack.complete(tickets[b"lower"], 6)
    assert frames.answers == [6]
    for ticket in (*tickets.values(), 99):
        with pytest.raises(LocalProtocolError) as caught:
            stack.complete(ticket, None)
        assert caught.value.code is ContractErrorCode.UNKNOWN_TICKET


def test_what_only_a_part_can_refuse_is_refused_and_the_ticket_stays_open() -> None:
    class Particular(Keeper):
        def complete(self, ticket: Ticket[R], result: R) -> None:
            if result == 13:
                raise LocalProtocolError(ContractErrorCode.WRONG_RESULT)
            super().complete(ticket, result)

    stack = then(Particular(), lambda event: None)
    stack.receive_data(b"line\n")
    assert drained(stack) == [line(b"line")]
    effect = stack.next_effect()
    assert effect is not None
    with pytest.raises(LocalProtocolError, match="wrong result"):
        stack.complete(effect.ticket, 13)
    stack.complete(effect.ticket, 4)
    assert drained(stack) == [Kept(text=b"line", place=4)]


def test_a_failure_is_told_with_the_effect_that_was_handed_out() -> None:
    frames = KeepingFrames()
    stack = over(frames, Keeper())
    stack.receive_data(framed(b"upper\n"))
    drained(stack)
    effects, error = effects_by_text(stack), OSError("disk full")
    stack.fail(effects[b"lower"].ticket, error)
    assert frames.answers == [error]
    stack.fail(effects[b"upper"].ticket, error)
    assert drained(stack) == [StoreFailed(effect=effects[b"upper"], error=error)]
    assert stack.state is ToyState.CLOSED
    with pytest.raises(LocalProtocolError) as caught:
        stack.fail(effects[b"upper"].ticket, error)
    assert caught.value.code is ContractErrorCode.UNKNOWN_TICKET


# then


def upgrade(event: Event) -> StreamMachine | None:
    return Frames() if event == line(b"frames") else None


@given(st.sets(st.integers(0, 24)))
def test_the_successor_starts_with_the_bytes_after_the_end(cuts: set[int]) -> None:
    data = b"frames\nbye\n" + framed(b"abc", b"de") + GOODBYE + b"trail"
    stack = then(Lines(), upgrade)
    events: list[Event] = []
    places = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(places):
        stack.receive_data(data[start:end])
        events += drained(stack)
    assert [type(event).__name__ for event in events] == [
        "LineReceived",
        "DataReceived",
        "DataReceived",
        "Closed",
    ]
    assert stack.trailing_data == b"trail"


@pytest.mark.parametrize("junk", [5, "machine", Lines, object()])
def test_what_is_no_machine_is_refused_and_no_event_is_lost(junk: Any) -> None:
    built: list[Any] = [junk, Lines(), junk, None]
    stack = then(Lines(), lambda event: built.pop(0))
    stack.receive_data(b"one\nbye\ntwo\n")
    with pytest.raises(TypeError, match="no stream machine"):
        stack.next_event()
    assert stack.next_event() == line(b"one")
    with pytest.raises(TypeError, match="no stream machine"):
        stack.next_event()
    assert stack.next_event() == line(b"two")  # the first machine goes on


@pytest.mark.parametrize("closing", [False, True])
def test_what_build_raises_is_raised_and_no_event_is_lost(closing: bool) -> None:
    failures = [ValueError("not now")]

    def build(event: Event) -> None:
        if isinstance(event, Closed) == closing and failures:
            raise failures.pop()

    stack = then(Lines(), build)
    stack.receive_data(b"one\nbye\n")
    events: list[Event | None] = [stack.next_event()] if closing else []
    with pytest.raises(ValueError, match="not now"):
        stack.next_event()
    assert events + drained(stack) == [line(b"one"), Closed()]
    assert stack.next_event() is None


@pytest.mark.parametrize("junk", [5, None, Lines])
def test_parts_are_machines(junk: Any) -> None:
    for combine in (
        lambda: over(junk, Lines()),
        lambda: over(Frames(), junk),
        lambda: over(Lines(), Lines()),  # type: ignore[arg-type]
        lambda: then(junk, lambda event: None),
        lambda: then(Lines(), junk if junk is not Lines else 7),
    ):
        with pytest.raises(TypeError):
            combine()


def test_a_machine_is_put_into_no_stack_twice() -> None:
    frames = Frames()
    with pytest.raises(TypeError, match="itself"):
        over(frames, frames)
    first = Lines()
    built = [first]
    stack = then(first, lambda event: built.pop() if built else None)
    stack.receive_data(b"one\n")
    with pytest.raises(TypeError, match="itself"):
        stack.next_event()
    assert stack.next_event() == line(b"one")


def test_build_is_asked_for_every_event_and_the_last_machine_counts() -> None:
    asked: list[Event] = []

    def build(event: Event) -> StreamMachine | None:
        asked.append(event)
        return {b"a": Frames(), b"b": Keeper()}.get(getattr(event, "text", b""))

    stack = then(Lines(), build)
    stack.receive_data(b"a\nb\nc\nbye\nkeep\n")
    assert drained(stack) == [line(b"a"), line(b"b"), line(b"c"), line(b"keep")]
    assert asked == [line(b"a"), line(b"b"), line(b"c"), Closed()]
    assert isinstance(stack.next_effect(), Keep)


def test_without_a_successor_the_first_end_is_the_end() -> None:
    stack = then(Lines(), upgrade)
    stack.receive_data(b"no\nbye\nrest")
    assert drained(stack) == [line(b"no"), Closed()]
    assert stack.trailing_data == b"rest"


def test_after_an_error_nobody_follows() -> None:
    stack = then(Lines(line_max=6), upgrade)
    stack.receive_data(b"frames\nlong line\n")
    assert drained(stack) == [line(b"frames"), Closed(error=LINE_TOO_LONG)]
    assert stack.trailing_data == b""


def test_after_close_nobody_follows() -> None:
    stack = then(Lines(), upgrade)
    stack.close()
    stack.receive_data(b"frames\nbye\n")
    assert drained(stack) == [line(b"frames"), Closed()]


def test_close_closes_whoever_is_on() -> None:
    stack = then(Lines(), upgrade)
    stack.receive_data(b"frames\nbye\n")
    assert drained(stack) == [line(b"frames")]
    stack.data_to_send()
    stack.close()
    assert stack.data_to_send() == GOODBYE


class Sparing(Lines):
    """Gives less than is asked for, as any machine may."""

    def data_to_send(self, size_max: int | None = None) -> bytes:
        return super().data_to_send(size_max and min(size_max, 2))


@pytest.mark.parametrize("first", [Lines, Sparing])
@pytest.mark.parametrize("size", [None, 1, 3, 5, 100])
def test_the_first_ones_bytes_go_before_the_successors(
    first: type[Lines], size: int | None
) -> None:
    stack = then(first(), lambda event: Frames(greeting=True))
    stack.receive_data(b"bye\n")
    drained(stack)
    pieces = list(iter(lambda: stack.data_to_send(size), b""))
    assert b"".join(pieces) == b"bye\n\x47"
    assert all(len(piece) <= (size or 100) for piece in pieces)


def test_the_first_one_is_let_go_when_its_bytes_are_gone() -> None:
    lines = Lines()
    gone = weakref.ref(lines)
    stack = then(lines, lambda event: Frames())
    del lines
    stack.receive_data(b"bye\n")
    drained(stack)
    stack.data_to_send(3)
    assert gone() is not None
    stack.data_to_send()
    assert gone() is None


@pytest.mark.parametrize("ends_early", [True, False])
def test_the_end_of_the_stream_reaches_the_successor(ends_early: bool) -> None:
    stack = then(Lines(), upgrade)
    stack.receive_data(b"frames\nbye\n\x05ab")
    if ends_early:
        stack.receive_eof()
    events = drained(stack)
    if not ends_early:
        stack.receive_eof()
    assert events + drained(stack) == [line(b"frames"), Closed(error=CUT_SHORT)]
    assert stack.read_size() == 0


def test_the_state_is_that_of_whoever_is_on() -> None:
    frames: Any = Frames()
    stack = then(Lines(), lambda event: frames)
    stack.receive_data(b"bye\n")
    drained(stack)
    frames.close()
    assert stack.state is ToyState.CLOSING


def test_the_successor_is_told_the_time_that_it_is() -> None:
    stack = then(Keeper(idle=7), lambda event: Keeper(idle=20))
    stack.advance(1.0)
    assert stack.next_deadline() == 8.0
    stack.advance(2.0)
    stack.receive_data(b"bye\n")
    drained(stack)
    assert stack.next_deadline() == 22.0


def test_a_successor_that_was_never_told_the_time_is_not_told_any() -> None:
    stack = then(Lines(), lambda event: Keeper(idle=20))
    stack.receive_data(b"bye\n")
    drained(stack)
    assert stack.next_deadline() is None
    stack.advance(2.0)
    assert stack.next_deadline() == 22.0


def test_stacks_nest() -> None:
    inner = Lines()
    stack = then(over(Frames(), inner), lambda event: over(Frames(greeting=True), Lines()))
    stack.receive_data(framed(b"one\nbye\n") + GOODBYE + b"\x47" + framed(b"two\n"))
    assert drained(stack) == [line(b"one"), line(b"two")]
    assert stack.data_to_send() == framed(b"bye\n") + GOODBYE + b"\x47"

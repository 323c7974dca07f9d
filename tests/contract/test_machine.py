"""Errors, events, and the services of `StreamBase` for every stream machine."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import (
    Closed,
    Conduit,
    ContractErrorCode,
    DatagramMachine,
    DataReceived,
    Durable,
    Event,
    LocalProtocolError,
    Machine,
    ProtocolError,
    RemoteProtocolError,
    StreamBase,
    StreamMachine,
    Timed,
)
from toy_machines import (
    Frames,
    Keeper,
    LineReceived,
    Lines,
    Pinger,
    ToyErrorCode,
    ToyState,
)


class OtherCode(IntEnum):
    LINE_TOO_LONG = 1


def drained(machine: Machine) -> list[Event]:
    return list(iter(machine.next_event, None))


# Errors and events


def test_errors_compare_by_class_code_and_message() -> None:
    error = RemoteProtocolError(ToyErrorCode.CUT_SHORT, "in the middle")
    assert error == RemoteProtocolError(ToyErrorCode.CUT_SHORT, "in the middle")
    assert hash(error) == hash(RemoteProtocolError(ToyErrorCode.CUT_SHORT, "in the middle"))
    assert error != RemoteProtocolError(ToyErrorCode.CUT_SHORT)
    assert error != RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG, "in the middle")
    assert error != LocalProtocolError(ToyErrorCode.CUT_SHORT, "in the middle")
    assert error != "cut short: in the middle"


def test_equal_numbers_of_different_enums_are_different_codes() -> None:
    assert ToyErrorCode.LINE_TOO_LONG == OtherCode.LINE_TOO_LONG
    assert RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG) != RemoteProtocolError(
        OtherCode.LINE_TOO_LONG
    )


def test_an_error_reads_as_its_code_and_message() -> None:
    assert str(ProtocolError(ToyErrorCode.CUT_SHORT)) == "cut short"
    assert str(ProtocolError(ToyErrorCode.CUT_SHORT, "at 3")) == "cut short: at 3"


def test_errors_and_events_survive_pickling() -> None:
    event = Closed(error=RemoteProtocolError(ToyErrorCode.CUT_SHORT, "at 3"))
    assert pickle.loads(pickle.dumps(event)) == event


def test_events_compare_by_class_and_value() -> None:
    assert DataReceived(data=b"x") == DataReceived(data=b"x")
    assert DataReceived(data=b"x") != DataReceived(data=b"y")
    assert Closed() != Closed(error=RemoteProtocolError(ToyErrorCode.CUT_SHORT))


@pytest.mark.parametrize(
    ("machine", "kinds"),
    [
        (Lines(), {Machine, StreamMachine}),
        (Frames(), {Machine, StreamMachine, Conduit}),
        (Keeper(), {Machine, StreamMachine, Timed, Durable}),
        (Pinger(), {Machine, DatagramMachine, Timed}),
    ],
)
def test_a_machine_is_known_by_what_it_offers(machine: object, kinds: set[type]) -> None:
    every = {Machine, StreamMachine, Conduit, DatagramMachine, Timed, Durable}
    assert {kind for kind in every if isinstance(machine, kind)} == kinds


# Input


def test_receive_data_only_buffers() -> None:
    lines = Lines()
    lines.receive_data(b"bye\n")
    assert lines.state is ToyState.OPEN
    assert lines.data_to_send() == b""
    assert lines.next_event() == Closed()
    assert lines.state is ToyState.CLOSED


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_receive_data_takes_every_buffer_and_keeps_none(kind: Callable[[bytes], bytes]) -> None:
    lines, data = Lines(), bytearray(b"abc\n")
    lines.receive_data(memoryview(data) if kind is memoryview else kind(data))
    data.extend(b"the buffer can be resized: nobody holds a view")
    assert drained(lines) == [LineReceived(text=b"abc")]


def test_data_after_eof_is_refused_and_changes_nothing() -> None:
    lines = Lines()
    lines.receive_data(b"ab")
    lines.receive_eof()
    with pytest.raises(LocalProtocolError) as caught:
        lines.receive_data(b"\n")
    assert caught.value.code is ContractErrorCode.DATA_AFTER_EOF
    assert drained(lines) == [Closed(error=RemoteProtocolError(ToyErrorCode.CUT_SHORT))]


def test_data_after_eof_is_refused_even_after_the_end() -> None:
    lines = Lines()
    lines.receive_eof()
    assert drained(lines) == [Closed()]
    with pytest.raises(LocalProtocolError):
        lines.receive_data(b"x")


def test_eof_again_is_no_news() -> None:
    lines = Lines()
    lines.receive_data(b"ab\n")
    lines.receive_eof()
    lines.receive_eof()
    assert drained(lines) == [LineReceived(text=b"ab"), Closed()]
    lines.receive_eof()
    assert drained(lines) == []


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_read_size_is_what_is_left_of_the_buffer(data: list[bytes]) -> None:
    frames = Frames(receive_max=64)  # takes nothing out before next_event
    for index, piece in enumerate(data):
        frames.receive_data(piece)
        assert frames.read_size() == max(0, 64 - len(b"".join(data[: index + 1])))


def test_nothing_is_welcome_after_eof_or_the_end() -> None:
    ended, closed = Lines(), Lines()
    assert ended.read_size() > 0
    ended.receive_eof()
    assert ended.read_size() == 0
    closed.receive_data(b"bye\n")
    drained(closed)
    assert closed.read_size() == 0


# Ends


def test_a_fault_does_not_swallow_the_events_before_it() -> None:
    lines = Lines(line_max=3)
    lines.receive_data(b"abc\nde\nfghi\njk\n")
    assert drained(lines) == [
        LineReceived(text=b"abc"),
        LineReceived(text=b"de"),
        Closed(error=RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG)),
    ]


def test_closed_is_the_last_event_whatever_comes_later() -> None:
    lines = Lines()
    lines.receive_data(b"bye\nmore\n")
    assert drained(lines) == [Closed()]
    lines.receive_data(b"and more\n")
    lines.close()
    lines.receive_eof()
    assert drained(lines) == []
    assert lines.data_to_send() == b"bye\n"


def test_trailing_data_is_what_came_after_the_end() -> None:
    lines = Lines()
    lines.receive_data(b"bye\nthe n")
    assert lines.trailing_data == b""
    assert drained(lines) == [Closed()]
    lines.receive_data(b"ext")
    assert lines.trailing_data == b"the next"


def test_there_is_no_trailing_data_after_an_error() -> None:
    lines = Lines(line_max=1)
    lines.receive_data(b"xxx")
    drained(lines)
    lines.receive_data(b"yyy")
    assert lines.trailing_data == b""


def test_close_says_goodbye_once_and_waits_for_the_peer() -> None:
    lines = Lines()
    lines.close()
    lines.close()
    assert lines.data_to_send() == b"bye\n"
    assert drained(lines) == []
    lines.receive_data(b"one more\nbye\n")
    assert drained(lines) == [LineReceived(text=b"one more"), Closed()]


def test_only_the_first_close_before_the_end_says_goodbye() -> None:
    frames, failed = Frames(), Frames()
    frames.close()
    frames.close()
    assert frames.data_to_send() == b"\x00"
    failed.receive_eof()
    drained(failed)
    failed.close()
    assert failed.data_to_send() == b""


def test_output_written_before_the_end_can_be_taken_after_it() -> None:
    lines = Lines()
    lines.say(b"x")
    lines.receive_data(b"bye\n")
    assert drained(lines) == [Closed()]
    assert lines.data_to_send(3) + lines.data_to_send() == b"x\nbye\n"


class Blames(StreamBase[Event]):
    """Raises with a cause whose frame holds a large object."""

    state = ToyState.OPEN

    def __init__(self) -> None:
        super().__init__(receive_max=10)
        self.seen: weakref.ref[Big] | None = None

    def _step(self) -> Event | None:
        big = Big()
        self.seen = weakref.ref(big)
        try:
            raise ValueError("cause")
        except ValueError as error:
            raise RemoteProtocolError(ToyErrorCode.CUT_SHORT) from error

    def _step_eof(self) -> Event | None:
        return None

    def _goodbye(self) -> None:
        pass


class Big:
    pass


def test_an_error_keeps_no_frame_alive() -> None:
    machine = Blames()
    event = machine.next_event()
    gc.collect()
    assert isinstance(event, Closed)
    assert event.error is not None
    assert event.error.__traceback__ is None
    assert machine.seen is not None
    assert machine.seen() is None


class AsksOnceMore(Lines):
    """Still has an event due at the end of the stream."""

    def _step_eof(self) -> Event | None:
        if len(self._inbox):
            return LineReceived(text=self._inbox.take(len(self._inbox)))
        return super()._step_eof()


def test_an_event_that_is_owed_comes_before_the_end() -> None:
    machine = AsksOnceMore()
    machine.receive_data(b"a\nb")
    machine.receive_eof()
    assert drained(machine) == [LineReceived(text=b"a"), LineReceived(text=b"b"), Closed()]


class Releases(Lines):
    def __init__(self) -> None:
        super().__init__(line_max=3)
        self.released: list[RemoteProtocolError | None] = []

    def _ended(self, error: RemoteProtocolError | None) -> None:
        assert self._closed is not None
        self.released.append(error)


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"bye\n", None), (b"long", RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG))],
)
def test_what_is_held_is_released_once(data: bytes, error: RemoteProtocolError | None) -> None:
    machine = Releases()
    machine.receive_data(data)
    drained(machine)
    drained(machine)
    assert machine.released == [error]

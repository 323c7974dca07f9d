"""Recording: every call of a machine, and its outcome, written to a sink."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Hashable, Mapping, Set
from enum import Enum
from typing import Any, TypeVar

import culm
from culm.buffer import Buffer
from culm.capture.blocks import PIECE_MIN, block_of, front_of
from culm.capture.chance import RecordedChance
from culm.capture.compression import Compression, compress
from culm.capture.encoding import Forms, encode
from culm.capture.records import (
    IDLE,
    SEVEN,
    SIX,
    Header,
    Step,
    called,
    fronts_of_call,
    fronts_of_plain,
    in_state,
)
from culm.capture.redaction import SECRET_CALLS, Redact, without_secrets
from culm.capture.tape import Tape, is_stand_in, tape_of
from culm.kernels import cbor as _kernel
from culm.machine import Closed

__all__ = ["Recorder", "Tape", "is_stand_in", "record", "recorder_of"]

M = TypeVar("M")

Sink = Callable[[bytes], object]

_BLOCK_SIZE = 1 << 16
_WRITTEN_BY_PARTS = SECRET_CALLS | {"next_deadline"}

_NO_ARGUMENTS = b"\x80\xa0"  # an empty array, an empty map
_NOTHING_CAME = b"\xa0\xf6"  # an empty map, nothing


class Recorder(Tape):
    """Writes the calls of one machine.

    sink: takes the capture, in pieces to be put one after the other.
    machine, config: the machine's name in `culm.machines` and its settings, as JSON data.  Without
        them a replay has to be given a machine that was built alike.
    session: see `Header`.
    clock: the monotonic time in seconds, for the time between steps.
    began: the wall clock's time now, in seconds since 1970.
    redact: the parts that are left out.  A replay ends at the call that was given one of them.
    compression: of the blocks.

    Raises `CaptureError` (``UNKNOWN_COMPRESSION``) if the library for it is not installed.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        machine: str = "",
        config: Mapping[str, Any] | None = None,
        session: str = "",
        clock: Callable[[], float] | None = None,
        began: float | None = None,
        redact: Set[Redact] = frozenset({Redact.KEYS}),
        compression: Compression = Compression.LZFOO,
    ) -> None:
        super().__init__(redact=redact)
        compress(compression, b"", 0)  # now, and not when the first block is full
        self._sink = sink
        self._compression = compression
        self.forms = Forms(self._special)
        self.waiting = _kernel.Records(self.forms, clock, _BLOCK_SIZE, PIECE_MIN)
        header = Header(
            machine=machine,
            config=without_secrets(machine, config or {}) if redact else config or {},
            session=session,
            culm=culm.__version__,
            python=platform.python_version(),
            began=began,
            redacted=frozenset(redact),
        )
        self.waiting.put(header.encode())
        self.error: Exception | None = None
        """The error of the sink: the capture ended there, and the machine goes on."""
        sink(front_of(compression))

    def chance(self, rng: random.Random) -> random.Random:
        """A generator for the machine to come, whose draws are recorded: a replay has the same.

        They are written as they are, whatever is redacted.  Do not give it to makers of keys.
        """
        return RecordedChance(rng, self.put)

    def micros(self) -> int:
        return self.waiting.micros()

    def put(self, step: Step) -> None:
        self._write(step.encode())

    def note_plain(self, on: int, name: str, arguments: tuple[Any, ...], result: object) -> None:
        if not (on or arguments or result) and (name, type(result)) in IDLE:
            # It gave nothing: the next call that did something tells the time.
            self._write(IDLE[name, type(result)])
        elif self._payloads_out or name in _WRITTEN_BY_PARTS:
            super().note(on, name, arguments, {}, result)
        else:
            fronts = fronts_of_plain(name, len(arguments))
            if self.waiting.note(SIX, fronts, (on, *arguments, result), b""):
                self.hand_over()

    def _write(self, encoded: bytes) -> None:
        if self.waiting.put(encoded):
            self.hand_over()

    def calls_of(self, machine: Any) -> dict[str, Callable[..., Any]]:
        made = {} if self._payloads_out else _QUICK
        return {name: make(self, machine) for name, make in made.items() if hasattr(machine, name)}

    def flush(self) -> None:
        """Hand everything to the sink: later steps may be lost with the process.

        Raises the sink's error, of now or before.  That ends the capture.
        """
        self.hand_over()
        if self.error is not None:
            raise self.error

    def hand_over(self) -> None:
        """The same within a finished call of the machine, whose outcome must be returned."""
        records = self.waiting.take()
        if not records or self.error is not None:
            return
        try:
            for piece in block_of(records, self._compression):
                self._sink(piece)
        except Exception as error:  # whatever it is: the machine goes on, unrecorded
            self.error = error

    def note(
        self,
        on: int,
        name: str,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        result: object,
        *,
        error: BaseException | None = None,
        state: Enum | None = None,
    ) -> None:
        if self._payloads_out or error is not None or name in _WRITTEN_BY_PARTS:
            super().note(on, name, arguments, keywords, result, error=error, state=state)
        else:
            fronts, names = fronts_of_call(name, len(arguments), tuple(keywords))
            if keywords:
                arguments = (*arguments, *[keywords[each] for each in names])
            head, tail = (SIX, b"") if state is None else (SEVEN, in_state(state.name))
            if self.waiting.note(head, fronts, (on, *arguments, result), tail):
                self.hand_over()
        if state is not None and isinstance(result, Closed):
            self.hand_over()


def record(machine: M, sink: Sink, /, **of: Any) -> M:
    """The machine, with every call told to `sink`; keywords are those of `Recorder`.

    >>> from culm.bymux import Connection, Role
    >>> pieces = []
    >>> machine = record(Connection(role=Role.PROACTIVE), pieces.append, machine="bymux")
    >>> isinstance(machine, Connection)
    True
    """
    return Recorder(sink, **of).stand_in(machine)


def recorder_of(value: object) -> Recorder | None:
    """The recorder whose stand-in this is; ``None`` if it is none."""
    tape = tape_of(value)
    return tape if isinstance(tape, Recorder) else None


# The calls of which every drain has several, noted in as few steps as can be, in the same records
# as by `Recorder.note`.  Calls of the clock's law (`advance`, `next_deadline`) and those that
# gave nothing tell no time: the next one does.


def _next_event(recorder: Recorder, machine: Any) -> Callable[[], Any]:
    take, idle = machine.next_event, IDLE["next_event", type(None)]
    put, note, hand_over = recorder.waiting.put, recorder.waiting.note, recorder.hand_over
    fronts = [called("next_event") + _NO_ARGUMENTS]
    last: Enum | None = None
    tail = b""

    def next_event() -> Any:
        nonlocal last, tail
        try:
            event = take()
        except Exception as error:
            recorder.note(0, "next_event", (), {}, None, error=error)
            raise
        if event is None:
            if put(idle):
                hand_over()
            return None
        if (state := machine.state) is not last:
            last, tail = state, in_state(state.name)
        if note(SEVEN, fronts, (event,), tail) or type(event) is Closed:
            hand_over()
        return event

    return next_event


def _advance(recorder: Recorder, machine: Any) -> Callable[[float], None]:
    tell, note, hand_over = machine.advance, recorder.waiting.note, recorder.hand_over
    fronts = [SIX + b"\0" + called("advance") + b"\x81"]

    def advance(now: float) -> None:
        try:
            tell(now)
        except Exception as error:
            recorder.note(0, "advance", (now,), {}, None, error=error)
            raise
        if note(None, fronts, (now,), _NOTHING_CAME):
            hand_over()

    return advance


def _next_deadline(recorder: Recorder, machine: Any) -> Callable[[], float | None]:
    ask, note, hand_over = machine.next_deadline, recorder.waiting.note, recorder.hand_over
    fronts = [SIX + b"\0" + called("next_deadline") + _NO_ARGUMENTS]
    last: object = recorder  # which is no deadline

    def next_deadline() -> float | None:
        nonlocal last
        deadline: float | None = ask()
        if deadline != last:
            last = deadline
            if note(None, fronts, (deadline,), b""):
                hand_over()
        return deadline

    return next_deadline


def _next_effect(recorder: Recorder, machine: Any) -> Callable[[], Any]:
    take, put, idle = machine.next_effect, recorder.waiting.put, IDLE["next_effect", type(None)]

    def next_effect() -> Any:
        effect = take()
        if effect is not None:
            recorder.note(0, "next_effect", (), {}, effect)
        elif put(idle):
            recorder.hand_over()
        return effect

    return next_effect


def _receive_data(recorder: Recorder, machine: Any) -> Callable[[Buffer], None]:
    receive, note, hand_over = machine.receive_data, recorder.waiting.note, recorder.hand_over
    fronts = [called("receive_data") + b"\x81"]

    def receive_data(data: Buffer) -> None:
        try:
            receive(data)
        except Exception as error:
            recorder.note(0, "receive_data", (data,), {}, None, error=error)
            raise
        # A copy, whatever the format of a view; bytes are not copied.
        if note(SIX, fronts, (bytes(data),), _NOTHING_CAME):
            hand_over()

    return receive_data


def _data_to_send(recorder: Recorder, machine: Any) -> Callable[..., bytes]:
    send, idle = machine.data_to_send, IDLE["data_to_send", bytes]
    put, note, hand_over = recorder.waiting.put, recorder.waiting.note, recorder.hand_over
    front = called("data_to_send")
    all_of_it = [front + _NO_ARGUMENTS]
    some_of_it = [front + b"\x81", b"\xa0"]

    def data_to_send(size_max: int | None = None) -> bytes:
        try:
            data: bytes = send() if size_max is None else send(size_max)
        except Exception as error:
            recorder.note(0, "data_to_send", (size_max,), {}, None, error=error)
            raise
        if size_max is not None:
            full = note(SIX, some_of_it, (size_max, data), b"")
        else:
            full = note(SIX, all_of_it, (data,), b"") if data else put(idle)
        if full:
            hand_over()
        return data

    return data_to_send


def _receive_datagram(recorder: Recorder, machine: Any) -> Callable[..., None]:
    receive, note, hand_over = machine.receive_datagram, recorder.waiting.note, recorder.hand_over
    fronts = [called("receive_datagram") + b"\x81", b"\xa1" + encode("source", recorder.forms)]

    def receive_datagram(data: Buffer, *, source: Hashable) -> None:
        try:
            receive(data, source=source)
        except Exception as error:
            recorder.note(0, "receive_datagram", (data,), {"source": source}, None, error=error)
            raise
        if note(SIX, fronts, (bytes(data), source), b"\xf6"):
            hand_over()

    return receive_datagram


def _datagrams_to_send(recorder: Recorder, machine: Any) -> Callable[[], Any]:
    send, idle = machine.datagrams_to_send, IDLE["datagrams_to_send", list]
    put, note, hand_over = recorder.waiting.put, recorder.waiting.note, recorder.hand_over
    fronts = [called("datagrams_to_send") + _NO_ARGUMENTS]

    def datagrams_to_send() -> Any:
        datagrams = send()
        if note(SIX, fronts, (datagrams,), b"") if datagrams else put(idle):
            hand_over()
        return datagrams

    return datagrams_to_send


_QUICK: dict[str, Callable[[Recorder, Any], Callable[..., Any]]] = {
    "next_event": _next_event,
    "advance": _advance,
    "next_deadline": _next_deadline,
    "next_effect": _next_effect,
    "receive_data": _receive_data,
    "data_to_send": _data_to_send,
    "receive_datagram": _receive_datagram,
    "datagrams_to_send": _datagrams_to_send,
}

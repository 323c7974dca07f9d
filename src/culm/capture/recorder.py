"""Recording: every call of a machine, and what came of it, told to a sink."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Hashable, Mapping, Set
from enum import Enum
from typing import Any, TypeVar

import culm
from culm.buffer import Buffer
from culm.capture.blocks import block_of, front_of
from culm.capture.chance import RecordedChance
from culm.capture.compression import Compression, compress
from culm.capture.encoding import Encoder
from culm.capture.records import IDLE, STATE, Header, Step, called, encode_step
from culm.capture.redaction import SECRET_CALLS, Redact, without_secrets
from culm.capture.tape import Tape, is_stand_in, tape_of
from culm.kernels import cbor as _kernel
from culm.machine import Closed
from culm.wire.cbor import BYTES, encode_head

__all__ = ["Recorder", "Tape", "is_stand_in", "record", "recorder_of"]

M = TypeVar("M")

Sink = Callable[[bytes], object]

_BLOCK_SIZE = 1 << 16
_WAITING_MAX = 1 << 10  # records that wait at most
_SMALL_MAX = 1 << 9  # bytes of records that are only counted
_WRITTEN_BY_PARTS = SECRET_CALLS | {"next_deadline"}

_SIX, _SEVEN = b"\x86", b"\x87"
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

    Raises `CaptureError` (``UNKNOWN_COMPRESSION``) if what compresses so is not installed.
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
        super().__init__(clock=clock, redact=redact)
        compress(compression, b"", 0)  # now, and not when the first block is full
        self._sink = sink
        self._compression = compression
        self._encoder = Encoder(self._special)
        self.encode = self._encoder.encode
        header = Header(
            machine=machine,
            config=without_secrets(machine, config or {}) if redact else config or {},
            session=session,
            culm=culm.__version__,
            python=platform.python_version(),
            began=began,
            redacted=frozenset(redact),
        )
        self.waiting = [header.encode()]
        self._waiting_size = len(self.waiting[0])
        self.error: Exception | None = None
        """What the sink has raised: the capture ended there, and the machine goes on."""
        sink(front_of(compression))

    def chance(self, rng: random.Random) -> random.Random:
        """A generator for the machine to come, whose draws are recorded: a replay has the same.

        They are written as they are, whatever is redacted.  Do not give it to what makes keys.
        """
        return RecordedChance(rng, self.put)

    def put(self, step: Step) -> None:
        self._write(step.encode())

    def note_idle(self, on: int, name: str, result: object) -> None:
        """Note a call that gave nothing: the next one that did something tells the time."""
        encoded = None if on else IDLE.get((name, type(result)))
        if encoded is None:
            self.note(on, name, (), {}, result)
        else:
            self.waiting.append(encoded)

    def _write(self, encoded: bytes) -> None:
        self.waiting.append(encoded)
        self.grow(len(encoded))

    def grow(self, size: int) -> None:
        """So many bytes more are waiting; hands over many of them, or many records."""
        self._waiting_size = size = self._waiting_size + size
        if size >= _BLOCK_SIZE or len(self.waiting) > _WAITING_MAX:
            self.hand_over()

    def calls_of(self, machine: Any) -> dict[str, Callable[..., Any]]:
        made = {} if self._payloads_out else _QUICK
        return {name: make(self, machine) for name, make in made.items() if hasattr(machine, name)}

    def flush(self) -> None:
        """Hand everything to the sink: what comes later may be lost with the process.

        Raises what the sink has raised, now or before.  That ends the capture.
        """
        self.hand_over()
        if self.error is not None:
            raise self.error

    def hand_over(self) -> None:
        """The same within a call of the machine, which is done and has its outcome to tell."""
        if not self.waiting:
            return
        records = self.waiting.copy()
        self.waiting.clear()  # the calls of machines know this list
        self._waiting_size = 0
        if self.error is not None:
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
            pieces = encode_step(
                self._encoder, self.micros(), on, name, arguments, keywords, result, state
            )
            self.waiting += pieces
            if len(pieces) > 1:
                self.grow(sum(map(len, pieces)))
            elif len(pieces[0]) > _SMALL_MAX or len(self.waiting) > _WAITING_MAX:
                self.grow(len(pieces[0]))
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
    take, append, idle = machine.next_event, recorder.waiting.append, IDLE["next_event", type(None)]
    encode, micros, fields = recorder.encode, recorder.micros, _kernel.fields
    fronts = [_SEVEN, called("next_event") + _NO_ARGUMENTS]
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
            append(idle)
            return None
        if (state := machine.state) is not last:
            last, tail = state, STATE + encode(state.name)
        encoded = fields(fronts, (micros(), event), encode) + tail
        append(encoded)
        if len(encoded) > _SMALL_MAX or type(event) is Closed:
            recorder.grow(len(encoded))
            if type(event) is Closed:
                recorder.hand_over()
        return event

    return next_event


def _advance(recorder: Recorder, machine: Any) -> Callable[[float], None]:
    tell, waiting, append = machine.advance, recorder.waiting, recorder.waiting.append
    encode, fields = recorder.encode, _kernel.fields
    fronts = [_SIX + b"\0" + called("advance") + b"\x81"]

    def advance(now: float) -> None:
        try:
            tell(now)
        except Exception as error:
            recorder.note(0, "advance", (now,), {}, None, error=error)
            raise
        append(fields(fronts, (now,), encode) + _NOTHING_CAME)
        if len(waiting) > _WAITING_MAX:
            recorder.hand_over()

    return advance


def _next_deadline(recorder: Recorder, machine: Any) -> Callable[[], float | None]:
    ask, append, encode = machine.next_deadline, recorder.waiting.append, recorder.encode
    front = _SIX + b"\0" + called("next_deadline") + _NO_ARGUMENTS
    last: object = recorder  # which is no deadline

    def next_deadline() -> float | None:
        nonlocal last
        deadline: float | None = ask()
        if deadline != last:
            last = deadline
            append(front + encode(deadline))
        return deadline

    return next_deadline


def _next_effect(recorder: Recorder, machine: Any) -> Callable[[], Any]:
    take, append, idle = (
        machine.next_effect,
        recorder.waiting.append,
        IDLE["next_effect", type(None)],
    )

    def next_effect() -> Any:
        effect = take()
        if effect is None:
            append(idle)
        else:
            recorder.note(0, "next_effect", (), {}, effect)
        return effect

    return next_effect


def _receive_data(recorder: Recorder, machine: Any) -> Callable[[Buffer], None]:
    receive, waiting = machine.receive_data, recorder.waiting
    encode, micros, fields = recorder.encode, recorder.micros, _kernel.fields
    fronts = [_SIX, called("receive_data") + b"\x81"]

    def receive_data(data: Buffer) -> None:
        try:
            receive(data)
        except Exception as error:
            recorder.note(0, "receive_data", (data,), {}, None, error=error)
            raise
        came = bytes(data)  # whatever the format of a view
        size = len(came)
        if size > _SMALL_MAX:
            head = _SIX + encode(micros()) + fronts[1] + encode_head(BYTES, size)
            waiting.extend((head, came, _NOTHING_CAME))
        else:
            waiting.append(fields(fronts, (micros(), came), encode) + _NOTHING_CAME)
        recorder.grow(size)

    return receive_data


def _data_to_send(recorder: Recorder, machine: Any) -> Callable[..., bytes]:
    send, waiting, idle = machine.data_to_send, recorder.waiting, IDLE["data_to_send", bytes]
    encode, micros, fields = recorder.encode, recorder.micros, _kernel.fields
    front = called("data_to_send")
    all_of_it = [_SIX, front + _NO_ARGUMENTS]
    some_of_it = [_SIX, front + b"\x81", b"\xa0"]

    def data_to_send(size_max: int | None = None) -> bytes:
        try:
            data: bytes = send() if size_max is None else send(size_max)
        except Exception as error:
            recorder.note(0, "data_to_send", (size_max,), {}, None, error=error)
            raise
        if not data and size_max is None:
            waiting.append(idle)
            return data
        size = len(data)
        if size > _SMALL_MAX:
            given = b"\x80" if size_max is None else b"\x81" + encode(size_max)
            head = _SIX + encode(micros()) + front + given + b"\xa0" + encode_head(BYTES, size)
            waiting.extend((head, data))
        elif size_max is None:
            waiting.append(fields(all_of_it, (micros(), data), encode))
        else:
            waiting.append(fields(some_of_it, (micros(), size_max, data), encode))
        recorder.grow(size)
        return data

    return data_to_send


def _receive_datagram(recorder: Recorder, machine: Any) -> Callable[..., None]:
    receive, waiting, encode = machine.receive_datagram, recorder.waiting, recorder.encode
    micros, fields = recorder.micros, _kernel.fields
    fronts = [_SIX, called("receive_datagram") + b"\x81", b"\xa1" + encode("source")]

    def receive_datagram(data: Buffer, *, source: Hashable) -> None:
        try:
            receive(data, source=source)
        except Exception as error:
            recorder.note(0, "receive_datagram", (data,), {"source": source}, None, error=error)
            raise
        came = bytes(data)
        waiting.append(fields(fronts, (micros(), came, source), encode) + b"\xf6")
        if len(came) > _SMALL_MAX or len(waiting) > _WAITING_MAX:
            recorder.grow(len(came))

    return receive_datagram


def _datagrams_to_send(recorder: Recorder, machine: Any) -> Callable[[], Any]:
    send, append, encode = machine.datagrams_to_send, recorder.waiting.append, recorder.encode
    micros, fields = recorder.micros, _kernel.fields
    front, idle = called("datagrams_to_send") + _NO_ARGUMENTS, IDLE["datagrams_to_send", list]
    several = [_SIX, front]
    one = [_SIX, front + encode([(b"", b"")])[:-2], b""]  # without both parts

    def datagrams_to_send() -> Any:
        datagrams = send()
        if not datagrams:
            append(idle)
            return datagrams
        if len(datagrams) == 1 and type(datagrams[0]) is tuple and len(datagrams[0]) == 2:
            encoded = fields(one, (micros(), *datagrams[0]), encode)
        else:
            encoded = fields(several, (micros(), datagrams), encode)
        append(encoded)
        if len(encoded) > _SMALL_MAX:
            recorder.grow(len(encoded))
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

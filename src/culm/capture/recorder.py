"""Recording: every call of a machine, and its outcome, written to a sink."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import Any, TypeVar

import culm
from culm.capture.blocks import PIECE_MIN, block_of, front_of
from culm.capture.chance import RecordedChance
from culm.capture.compression import Compression, compress
from culm.capture.encoding import Forms
from culm.capture.records import (
    IDLE,
    SEVEN,
    SIX,
    Header,
    Step,
    called,
    fronts_of_call,
    in_state,
)
from culm.capture.redaction import SECRET_CALLS, Redact, without_secrets
from culm.capture.tape import Tape, is_stand_in, tape_of
from culm.kernels import cbor as _kernel
from culm.machine import Closed
from culm.wire import cbor

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
            fronts, _ = fronts_of_call(name, len(arguments), ())
            if self.waiting.note(SIX, fronts, (on, *arguments, result), b""):
                self.hand_over()

    def _write(self, encoded: bytes) -> None:
        if self.waiting.put(encoded):
            self.hand_over()

    def calls_of(self, machine: Any) -> dict[str, Callable[..., Any]]:
        return {} if self._payloads_out else _kernel.noted_calls(machine, self, _NOTED)

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


# The parts of records that are always the same.  Calls of the clock's law (`advance`,
# `next_deadline`) and those that gave nothing tell no time: the next one does.
_NOTED: dict[str, tuple[Any, ...]] = {
    "next_event": (
        IDLE["next_event", type(None)],
        [called("next_event") + _NO_ARGUMENTS],
        SEVEN,
        in_state,
        Closed,
    ),
    "advance": ([SIX + b"\0" + called("advance") + b"\x81"], _NOTHING_CAME),
    "next_deadline": ([SIX + b"\0" + called("next_deadline") + _NO_ARGUMENTS],),
    "next_effect": (IDLE["next_effect", type(None)],),
    "receive_data": (SIX, [called("receive_data") + b"\x81"], _NOTHING_CAME),
    "data_to_send": (
        IDLE["data_to_send", bytes],
        SIX,
        [called("data_to_send") + _NO_ARGUMENTS],
        [called("data_to_send") + b"\x81", b"\xa0"],
    ),
    "receive_datagram": (
        SIX,
        [called("receive_datagram") + b"\x81", b"\xa1" + cbor.encode("source")],
        b"\xf6",
    ),
    "datagrams_to_send": (
        IDLE["datagrams_to_send", list],
        SIX,
        [called("datagrams_to_send") + _NO_ARGUMENTS],
    ),
}

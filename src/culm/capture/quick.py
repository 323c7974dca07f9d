"""The calls of which every drain has several, noted in as few steps as can be.

What stands here writes the same records as `Recorder.note` does.  Calls of the clock's law
(`advance`, `next_deadline`) and those that gave nothing tell no time: the next one does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Protocol

from culm.buffer import Buffer
from culm.capture.records import IDLE, STATE, called
from culm.kernels import cbor as _kernel
from culm.machine import Closed
from culm.wire.cbor import BYTES, encode_head

__all__ = ["QUICK", "SMALL_MAX", "WAITING_MAX", "quick_calls"]

WAITING_MAX = 1 << 10
"""How many records wait at most."""
SMALL_MAX = 1 << 9
"""Records of up to so many bytes are only counted."""

_SIX, _SEVEN = b"\x86", b"\x87"
_NO_ARGUMENTS = b"\x80\xa0"  # an empty array, an empty map
_NOTHING_CAME = b"\xa0\xf6"  # an empty map, nothing


class Notes(Protocol):
    """What a recorder has for these calls."""

    waiting: list[bytes]

    @property
    def encode(self) -> Callable[[Any], bytes]:
        """The encoding of a value."""
        ...

    @property
    def micros(self) -> Callable[[], int]:
        """Tells the microseconds since it was last called."""
        ...

    def grow(self, size: int) -> None:
        """So many bytes more are waiting; hands over many of them, or many records."""
        ...

    def hand_over(self) -> None:
        """Hand over what is waiting; raises nothing."""
        ...

    def note(self, *of: Any, **more: Any) -> None:
        """Note a call in any way."""
        ...


def quick_calls(notes: Notes, machine: Any) -> dict[str, Callable[..., Any]]:
    """The calls of a machine that are in `QUICK`, by name."""
    return {name: make(notes, machine) for name, make in QUICK.items() if hasattr(machine, name)}


def _next_event(notes: Notes, machine: Any) -> Callable[[], Any]:
    take, append, idle = machine.next_event, notes.waiting.append, IDLE["next_event", type(None)]
    encode, micros, fields = notes.encode, notes.micros, _kernel.fields
    fronts = [_SEVEN, called("next_event") + _NO_ARGUMENTS]
    last: Enum | None = None
    tail = b""

    def next_event() -> Any:
        nonlocal last, tail
        try:
            event = take()
        except Exception as error:
            notes.note(0, "next_event", (), {}, None, error=error)
            raise
        if event is None:
            append(idle)
            return None
        if (state := machine.state) is not last:
            last, tail = state, STATE + encode(state.name)
        encoded = fields(fronts, (micros(), event), encode) + tail
        append(encoded)
        if len(encoded) > SMALL_MAX or type(event) is Closed:
            notes.grow(len(encoded))
            if type(event) is Closed:
                notes.hand_over()
        return event

    return next_event


def _advance(notes: Notes, machine: Any) -> Callable[[float], None]:
    tell, waiting, append = machine.advance, notes.waiting, notes.waiting.append
    encode, fields = notes.encode, _kernel.fields
    fronts = [_SIX + b"\0" + called("advance") + b"\x81"]

    def advance(now: float) -> None:
        try:
            tell(now)
        except Exception as error:
            notes.note(0, "advance", (now,), {}, None, error=error)
            raise
        append(fields(fronts, (now,), encode) + _NOTHING_CAME)
        if len(waiting) > WAITING_MAX:
            notes.hand_over()

    return advance


def _next_deadline(notes: Notes, machine: Any) -> Callable[[], float | None]:
    ask, append, encode = machine.next_deadline, notes.waiting.append, notes.encode
    front = _SIX + b"\0" + called("next_deadline") + _NO_ARGUMENTS
    last: object = notes  # which is no deadline

    def next_deadline() -> float | None:
        nonlocal last
        deadline: float | None = ask()
        if deadline != last:
            last = deadline
            append(front + encode(deadline))
        return deadline

    return next_deadline


def _next_effect(notes: Notes, machine: Any) -> Callable[[], Any]:
    take, append, idle = machine.next_effect, notes.waiting.append, IDLE["next_effect", type(None)]

    def next_effect() -> Any:
        effect = take()
        if effect is None:
            append(idle)
        else:
            notes.note(0, "next_effect", (), {}, effect)
        return effect

    return next_effect


def _receive_data(notes: Notes, machine: Any) -> Callable[[Buffer], None]:
    receive, waiting = machine.receive_data, notes.waiting
    encode, micros, fields = notes.encode, notes.micros, _kernel.fields
    fronts = [_SIX, called("receive_data") + b"\x81"]

    def receive_data(data: Buffer) -> None:
        try:
            receive(data)
        except Exception as error:
            notes.note(0, "receive_data", (data,), {}, None, error=error)
            raise
        came = bytes(data)  # whatever the format of a view
        size = len(came)
        if size > SMALL_MAX:
            head = _SIX + encode(micros()) + fronts[1] + encode_head(BYTES, size)
            waiting.extend((head, came, _NOTHING_CAME))
        else:
            waiting.append(fields(fronts, (micros(), came), encode) + _NOTHING_CAME)
        notes.grow(size)

    return receive_data


def _data_to_send(notes: Notes, machine: Any) -> Callable[..., bytes]:
    send, waiting, idle = machine.data_to_send, notes.waiting, IDLE["data_to_send", bytes]
    encode, micros, fields = notes.encode, notes.micros, _kernel.fields
    front = called("data_to_send")
    all_of_it = [_SIX, front + _NO_ARGUMENTS]
    some_of_it = [_SIX, front + b"\x81", b"\xa0"]

    def data_to_send(size_max: int | None = None) -> bytes:
        try:
            data: bytes = send() if size_max is None else send(size_max)
        except Exception as error:
            notes.note(0, "data_to_send", (size_max,), {}, None, error=error)
            raise
        if not data and size_max is None:
            waiting.append(idle)
            return data
        size = len(data)
        if size > SMALL_MAX:
            given = b"\x80" if size_max is None else b"\x81" + encode(size_max)
            head = _SIX + encode(micros()) + front + given + b"\xa0" + encode_head(BYTES, size)
            waiting.extend((head, data))
        elif size_max is None:
            waiting.append(fields(all_of_it, (micros(), data), encode))
        else:
            waiting.append(fields(some_of_it, (micros(), size_max, data), encode))
        notes.grow(size)
        return data

    return data_to_send


def _receive_datagram(notes: Notes, machine: Any) -> Callable[..., None]:
    receive, waiting, encode = machine.receive_datagram, notes.waiting, notes.encode
    micros, fields = notes.micros, _kernel.fields
    fronts = [_SIX, called("receive_datagram") + b"\x81", b"\xa1" + encode("source")]

    def receive_datagram(data: Buffer, *, source: Hashable) -> None:
        try:
            receive(data, source=source)
        except Exception as error:
            notes.note(0, "receive_datagram", (data,), {"source": source}, None, error=error)
            raise
        came = bytes(data)
        waiting.append(fields(fronts, (micros(), came, source), encode) + b"\xf6")
        if len(came) > SMALL_MAX or len(waiting) > WAITING_MAX:
            notes.grow(len(came))

    return receive_datagram


def _datagrams_to_send(notes: Notes, machine: Any) -> Callable[[], Any]:
    send, append, encode = machine.datagrams_to_send, notes.waiting.append, notes.encode
    micros, fields = notes.micros, _kernel.fields
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
        if len(encoded) > SMALL_MAX:
            notes.grow(len(encoded))
        return datagrams

    return datagrams_to_send


QUICK: dict[str, Callable[[Notes, Any], Callable[..., Any]]] = {
    "next_event": _next_event,
    "advance": _advance,
    "next_deadline": _next_deadline,
    "next_effect": _next_effect,
    "receive_data": _receive_data,
    "data_to_send": _data_to_send,
    "receive_datagram": _receive_datagram,
    "datagrams_to_send": _datagrams_to_send,
}
"""What makes each of the calls, for a machine."""

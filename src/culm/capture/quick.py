"""The calls of which every drain has several, noted in as few steps as can be.

What stands here writes the same records as `Recorder.note` does.  Calls of the clock's law
(`advance`, `next_deadline`) and those that gave nothing tell no time: the next one does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from struct import Struct
from typing import Any, Protocol

from culm.buffer import Buffer
from culm.capture.encoding import DOUBLE, UINT_MAX
from culm.capture.records import IDLE, STATE, called
from culm.machine import Closed
from culm.wire.cbor import BYTES, encode_head

__all__ = ["QUICK", "SMALL_MAX", "WAITING_MAX", "quick_calls"]

WAITING_MAX = 1 << 10
"""How many records wait at most."""
SMALL_MAX = 1 << 9
"""Records of up to so many bytes are only counted."""

_ENOUGH = 8388608.0  # 2^23: a number from 1 on that is no multiple of its inverse needs 64 bits
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

    def stamp(self) -> bytes:
        """The time since the last step that had one, encoded."""
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
    encode, stamp = notes.encode, notes.stamp
    front = called("next_event") + _NO_ARGUMENTS
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
        encoded = b"".join((_SEVEN, stamp(), front, encode(event), tail))
        append(encoded)
        if len(encoded) > SMALL_MAX:
            notes.grow(len(encoded))
        if type(event) is Closed:
            notes.hand_over()
        return event

    return next_event


def _advance(notes: Notes, machine: Any) -> Callable[[float], None]:
    tell, waiting, append = machine.advance, notes.waiting, notes.waiting.append
    front = _SIX + b"\0" + called("advance") + b"\x81"
    pack = partial(Struct(f">{len(front) + 1}sd2s").pack, front + DOUBLE)

    def advance(now: float) -> None:
        try:
            tell(now)
        except Exception as error:
            notes.note(0, "advance", (now,), {}, None, error=error)
            raise
        if type(now) is float and 1.0 <= now < UINT_MAX and now * _ENOUGH % 1.0:
            append(pack(now, _NOTHING_CAME))
        else:
            append(front + notes.encode(now) + _NOTHING_CAME)
        if len(waiting) > WAITING_MAX:
            notes.hand_over()

    return advance


def _next_deadline(notes: Notes, machine: Any) -> Callable[[], float | None]:
    ask, append, encode = machine.next_deadline, notes.waiting.append, notes.encode
    front = _SIX + b"\0" + called("next_deadline") + _NO_ARGUMENTS
    pack = partial(Struct(f">{len(front) + 1}sd").pack, front + DOUBLE)
    last: object = notes  # which is no deadline

    def next_deadline() -> float | None:
        nonlocal last
        deadline: float | None = ask()
        if deadline != last:
            last = deadline
            if type(deadline) is float and 1.0 <= deadline < UINT_MAX and deadline * _ENOUGH % 1.0:
                append(pack(deadline))
            else:
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
    front = called("receive_data") + b"\x81"

    def receive_data(data: Buffer) -> None:
        try:
            receive(data)
        except Exception as error:
            notes.note(0, "receive_data", (data,), {}, None, error=error)
            raise
        came = bytes(data)  # whatever the format of a view
        size = len(came)
        waiting.extend(
            (_SIX + notes.stamp() + front + encode_head(BYTES, size), came, _NOTHING_CAME)
        )
        notes.grow(size)

    return receive_data


def _data_to_send(notes: Notes, machine: Any) -> Callable[..., bytes]:
    send, waiting, idle = machine.data_to_send, notes.waiting, IDLE["data_to_send", bytes]
    front = called("data_to_send")

    def data_to_send(size_max: int | None = None) -> bytes:
        try:
            data: bytes = send() if size_max is None else send(size_max)
        except Exception as error:
            notes.note(0, "data_to_send", (size_max,), {}, None, error=error)
            raise
        if not data and size_max is None:
            waiting.append(idle)
            return data
        given = b"\x80" if size_max is None else b"\x81" + notes.encode(size_max)
        head = encode_head(BYTES, len(data))
        waiting.extend((_SIX + notes.stamp() + front + given + b"\xa0" + head, data))
        notes.grow(len(data))
        return data

    return data_to_send


def _receive_datagram(notes: Notes, machine: Any) -> Callable[..., None]:
    receive, waiting, encode = machine.receive_datagram, notes.waiting, notes.encode
    front = called("receive_datagram") + b"\x81"
    given = b"\xa1" + encode("source")

    def receive_datagram(data: Buffer, *, source: Hashable) -> None:
        try:
            receive(data, source=source)
        except Exception as error:
            notes.note(0, "receive_datagram", (data,), {"source": source}, None, error=error)
            raise
        came = bytes(data)
        size = len(came)
        head = _SIX + notes.stamp() + front + encode_head(BYTES, size)
        waiting.append(b"".join((head, came, given, encode(source), b"\xf6")))
        if size > SMALL_MAX or len(waiting) > WAITING_MAX:
            notes.grow(size)

    return receive_datagram


def _datagrams_to_send(notes: Notes, machine: Any) -> Callable[[], Any]:
    send, append, encode = machine.datagrams_to_send, notes.waiting.append, notes.encode
    front, idle = called("datagrams_to_send") + _NO_ARGUMENTS, IDLE["datagrams_to_send", list]
    one = encode([(b"", b"")])[:-2]  # without both parts

    def datagrams_to_send() -> Any:
        datagrams = send()
        if not datagrams:
            append(idle)
            return datagrams
        if len(datagrams) == 1 and type(datagrams[0]) is tuple and len(datagrams[0]) == 2:
            to, data = datagrams[0]
            encoded = b"".join((_SIX, notes.stamp(), front, one, encode(to), encode(data)))
        else:
            encoded = _SIX + notes.stamp() + front + encode(datagrams)
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

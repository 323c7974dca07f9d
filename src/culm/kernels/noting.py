"""Calls that are noted in records: a part of `culm.kernels.pure_cbor`.

``cext/cbor.pyx`` compiles it as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any


def noted_calls(
    machine: Any, tape: Any, parts: Mapping[str, tuple[Any, ...]]
) -> dict[str, Callable[..., Any]]:
    """The calls of which every drain has several, by name, each noted in `Records`.

    machine: called in each case; calls that it has not are left out.
    tape: has the records (``waiting``), hands them over when they are full (``hand_over``), and
        notes calls that raise (``note``).
    parts: the parts of records that are always the same, by the name of the call.
    """
    return {
        name: make(machine, tape, *parts[name])
        for name, make in _MAKERS.items()
        if hasattr(machine, name)
    }


def _next_event(
    machine: Any, tape: Any, idle: Any, fronts: Any, head: Any, tail_of: Any, closed: Any
) -> Callable[..., Any]:
    take, put, note, full = machine.next_event, tape.waiting.put, tape.waiting.note, tape.hand_over
    last: Any = None
    tail = b""

    def next_event() -> Any:
        nonlocal last, tail
        try:
            event = take()
        except Exception as error:
            tape.note(0, "next_event", (), {}, None, error=error)
            raise
        if event is None:
            if put(idle):
                full()
            return None
        state = machine.state
        if state is not last:
            last, tail = state, tail_of(state.name)
        if note(head, fronts, (event,), tail) or type(event) is closed:
            full()
        return event

    return next_event


def _advance(machine: Any, tape: Any, fronts: Any, tail: Any) -> Callable[..., Any]:
    tell, note, full = machine.advance, tape.waiting.note, tape.hand_over

    def advance(now: Any) -> None:
        try:
            tell(now)
        except Exception as error:
            tape.note(0, "advance", (now,), {}, None, error=error)
            raise
        if note(None, fronts, (now,), tail):
            full()

    return advance


def _next_deadline(machine: Any, tape: Any, fronts: Any) -> Callable[..., Any]:
    ask, note, full = machine.next_deadline, tape.waiting.note, tape.hand_over
    last: Any = tape  # which is no deadline

    def next_deadline() -> Any:
        nonlocal last
        deadline = ask()
        if deadline != last:
            last = deadline
            if note(None, fronts, (deadline,), b""):
                full()
        return deadline

    return next_deadline


def _next_effect(machine: Any, tape: Any, idle: Any) -> Callable[..., Any]:
    take, put, full = machine.next_effect, tape.waiting.put, tape.hand_over

    def next_effect() -> Any:
        effect = take()
        if effect is not None:
            tape.note(0, "next_effect", (), {}, effect)
        elif put(idle):
            full()
        return effect

    return next_effect


def _receive_data(machine: Any, tape: Any, head: Any, fronts: Any, tail: Any) -> Callable[..., Any]:
    receive, note, full = machine.receive_data, tape.waiting.note, tape.hand_over

    def receive_data(data: Any) -> None:
        try:
            receive(data)
        except Exception as error:
            tape.note(0, "receive_data", (data,), {}, None, error=error)
            raise
        # A copy, whatever the format of a view; bytes are not copied.
        if note(head, fronts, (bytes(data),), tail):
            full()

    return receive_data


def _data_to_send(
    machine: Any, tape: Any, idle: Any, head: Any, all_of_it: Any, some_of_it: Any
) -> Callable[..., Any]:
    send, put, note, full = (
        machine.data_to_send,
        tape.waiting.put,
        tape.waiting.note,
        tape.hand_over,
    )

    def data_to_send(size_max: Any = None) -> Any:
        try:
            data = send() if size_max is None else send(size_max)
        except Exception as error:
            tape.note(0, "data_to_send", (size_max,), {}, None, error=error)
            raise
        if size_max is not None:
            is_full = note(head, some_of_it, (size_max, data), b"")
        else:
            is_full = note(head, all_of_it, (data,), b"") if data else put(idle)
        if is_full:
            full()
        return data

    return data_to_send


def _receive_datagram(
    machine: Any, tape: Any, head: Any, fronts: Any, tail: Any
) -> Callable[..., Any]:
    receive, note, full = machine.receive_datagram, tape.waiting.note, tape.hand_over

    def receive_datagram(data: Any, *, source: Any) -> None:
        try:
            receive(data, source=source)
        except Exception as error:
            tape.note(0, "receive_datagram", (data,), {"source": source}, None, error=error)
            raise
        if note(head, fronts, (bytes(data), source), tail):
            full()

    return receive_datagram


def _datagrams_to_send(
    machine: Any, tape: Any, idle: Any, head: Any, fronts: Any
) -> Callable[..., Any]:
    send, put, note, full = (
        machine.datagrams_to_send,
        tape.waiting.put,
        tape.waiting.note,
        tape.hand_over,
    )

    def datagrams_to_send() -> Any:
        datagrams = send()
        if note(head, fronts, (datagrams,), b"") if datagrams else put(idle):
            full()
        return datagrams

    return datagrams_to_send


_MAKERS: dict[str, Callable[..., Callable[..., Any]]] = {
    "next_event": _next_event,
    "advance": _advance,
    "next_deadline": _next_deadline,
    "next_effect": _next_effect,
    "receive_data": _receive_data,
    "data_to_send": _data_to_send,
    "receive_datagram": _receive_datagram,
    "datagrams_to_send": _datagrams_to_send,
}

"""Operations on a machine and their results, as readable text.

Each line has one item; ``>`` goes into a machine, ``<`` comes out of it::

    > receive 01 ff
    . Opened(stream=1) -> OPEN
    * #1 StoreEntry(entry=<00 fe>)
    < send 'hello'
    @ deadline 30.0

``.`` is an event and the state after it, ``*`` an effect with its ticket, ``=`` the result
of a call, ``!`` a refusal, ``@`` the deadline when it has changed.  Bytes are in hex, text in
quotes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from culm.arguments import is_buffer, is_dict, is_list, is_set, is_tuple
from culm.machines.driver import Turn
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Fail,
    Operation,
    Receive,
    ReceiveDatagram,
)
from culm.wire.multihash import HashFamily

_BYTES_MAX = 48  # longer ones are cut, so that a line stays a line
_TEXT = frozenset(b"\t\r\n") | frozenset(range(0x20, 0x7F))

Show = Callable[[bytes], str]


def turn_lines(turn: Turn, deadline_before: float | None, show: Show | None = None) -> list[str]:
    """The lines of a turn; `show` writes bytes for people, in place of hex."""
    lines: list[str] = []
    show = _hex if show is None else show
    if turn.operation is not None:
        lines.append(f"> {_operation(turn.operation, show)}")
    if turn.error is not None:
        lines.append(f"! {type(turn.error).__name__}: {turn.error}")
    if turn.result is not None:
        lines.append(f"= {turn.result}")
    lines += [
        f". {_value(event)} -> {state.name}"
        for event, state in zip(turn.events, turn.states, strict=True)
    ]
    lines += [f"* #{effect.ticket} {_value(effect)}" for effect in turn.effects]
    if turn.sent:
        lines.append(f"< send {_hex(turn.sent)}")
    lines += [
        f"< send {show(data)} to {_value(destination)}" for destination, data in turn.datagrams
    ]
    lines += [f"< send {show(data)} on link {link}" for link, data in turn.links]
    if turn.deadline != deadline_before:
        lines.append(f"@ deadline {turn.deadline}")
    return lines


def _operation(operation: Operation, show: Show) -> str:
    match operation:
        case Receive(data, link):
            return f"receive {show(data)}{_on_link(link)}"
        case Eof(link):
            return f"eof{_on_link(link)}"
        case ReceiveDatagram(data, source):
            return f"receive {show(data)} from {_value(source)}"
        case Advance(now):
            return f"advance {now}"
        case Call(method, args):
            inside = ", ".join(f"{name}={_value(value)}" for name, value in args.items())
            return f"call {method}({inside})"
        case Complete(ticket, result):
            return f"complete #{ticket} {_value(result)}"
        case Fail(ticket, message):
            return f"fail #{ticket}: {message}"


def _on_link(link: int | None) -> str:
    return "" if link is None else f" on link {link}"


def _value(value: Any) -> str:
    """Like ``repr``, but stable: no addresses in memory, enums by name, bytes as hex."""
    match value:
        case Enum() | HashFamily():
            return value.name
        case _ if is_buffer(value):
            return f"<{_hex(bytes(value))}>"
        case None | bool() | int() | float() | str():
            return repr(value)
        case BaseException():
            return f"{type(value).__name__}({value})"
        case _ if is_dict(value):
            inside = ", ".join(f"{_value(key)}: {_value(item)}" for key, item in value.items())
            return f"{{{inside}}}"
        case _ if is_set(value):
            return f"{{{', '.join(sorted(_value(item) for item in value))}}}"
        case _ if is_tuple(value) and (names := getattr(value, "_fields", None)) is not None:
            pairs = zip(names, value, strict=True)
            inside = ", ".join(f"{name}={_value(item)}" for name, item in pairs)
            return f"{type(value).__name__}({inside})"
        case _ if is_list(value) or is_tuple(value):
            return f"[{', '.join(_value(item) for item in value)}]"
        case _:
            pass
    if isinstance(value, type) or not is_dataclass(value):
        return type(value).__name__
    inside = ", ".join(
        f"{field.name}={_value(getattr(value, field.name))}"
        for field in fields(value)
        if field.repr and field.name != "ticket"
    )
    return f"{type(value).__name__}({inside})"


def _hex(data: bytes) -> str:
    """All of `data` in hex, or in quotes if it is text; of long data only the ends and the size."""
    if len(data) > _BYTES_MAX:
        half = _BYTES_MAX // 2
        return f"{_hex(data[:half])} .. {_hex(data[-half:])} ({len(data)} bytes)"
    is_text = all(byte in _TEXT for byte in data)
    return repr(data)[1:] if is_text else data.hex(" ")

"""Whole conversations as text, to be read, kept in files and compared.

A line says one thing; ``>`` goes into a machine, ``<`` comes out of it::

    > receive 01 ff
    . Opened(stream=1) -> OPEN
    * #1 StoreEntry(entry=<00 fe>)
    < send 'hello'
    @ deadline 30.0

``.`` is an event and the state as of then, ``*`` an effect with its ticket, ``=`` the result
of a call, ``!`` a refusal, ``@`` the deadline when it has changed.  Bytes are in hex, text in
quotes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
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
from culm.testing.cluster import Cluster
from culm.testing.link import Link
from culm.testing.mesh import Mesh
from culm.testing.record import conversations, replay
from culm.testing.spec import MachineSpec, Side
from culm.wire.multihash import HashFamily

__all__ = ["all_conversations", "check", "of_cluster", "of_link", "of_mesh", "of_turns"]

_BYTES_MAX = 48  # longer ones are cut, so that a line stays a line
Show = Callable[[bytes], str]

_TEXT = frozenset(b"\t\r\n") | frozenset(range(0x20, 0x7F))


def of_turns(turns: Iterable[Turn]) -> str:
    """The transcript of one machine's turns."""
    lines: list[str] = []
    deadline: float | None = None
    for turn in turns:
        lines += _turn_lines(turn, deadline)
        deadline = turn.deadline
    return "".join(f"{line}\n" for line in lines)


def of_link(link: Link) -> str:
    """The transcript of both ends in the order of their turns, each under its side."""
    return of_log(link.log)


def of_cluster(cluster: Cluster, show: Show) -> str:
    """The transcript of all nodes in the order of their turns, each under its address.

    The cluster must record.  `show` says how datagrams are written: their meaning, in the
    protocol's own terms.  Deadlines are left out: nodes that look after each other have a
    new one at every turn.
    """
    log = [(_address(address), turn) for address, turn in cluster.log]
    width = max((len(address) for address, _ in log), default=0)
    return "".join(
        f"{address:{width}} {line}\n"
        for address, turn in log
        for line in _turn_lines(turn, turn.deadline, show)
    )


def of_mesh(mesh: Mesh, show: Show) -> str:
    """The transcript of all members in the order of their turns, each under its name.

    `show` says how bytes are written: their meaning, in the protocol's own terms.
    """
    width = max(map(len, mesh.members), default=0)
    lines: list[str] = []
    deadlines: dict[str, float | None] = {}
    for member, turn in mesh.log:
        said = _turn_lines(turn, deadlines.get(member), show)
        deadlines[member] = turn.deadline
        lines += [f"{member:{width}} {line}\n" for line in said]
    return "".join(lines)


def of_log(log: Sequence[tuple[Side, Turn]]) -> str:
    """The transcript of turns of two sides."""
    lines: list[str] = []
    deadlines: dict[Side, float | None] = {"left": None, "right": None}
    for side, turn in log:
        said = _turn_lines(turn, deadlines[side])
        deadlines[side] = turn.deadline
        lines += [f"{side:5} {line}" for line in said]
    return "".join(f"{line}\n" for line in lines)


def _address(address: object) -> str:
    return address.decode() if isinstance(address, bytes) else str(address)


def all_conversations(spec: MachineSpec) -> str:
    """The transcripts of all conversations of `spec`."""
    return "\n".join(
        f"# {told.name}\n{of_turns(replay(spec.machine, told))}" for told in conversations(spec)
    )


def check(text: str, path: Path, *, rewrite: bool = False) -> None:
    """Compare `text` with the file `path`, or write it there with `rewrite`.

    Raises `AssertionError` with the difference.
    """
    if rewrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    if not path.exists():
        raise AssertionError(f"there is no transcript {path}; write it on purpose")
    kept = path.read_text(encoding="utf-8")
    if kept != text:
        difference = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), str(path), "this run", lineterm=""
        )
        raise AssertionError("the conversation went another way\n" + "\n".join(difference))


def _turn_lines(turn: Turn, deadline_before: float | None, show: Show | None = None) -> list[str]:
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

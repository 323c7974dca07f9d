"""Operations on a machine, as data: the alphabet of conversations.

The same operations come over the wire of the line driver, make up recorded
conversations and are mutated by the property suite.  In JSON::

    {"op": "receive", "hex": "..."}, with "link": 1 for a machine with links
    {"op": "eof"}, likewise
    {"op": "datagram", "source": ..., "hex": "..."}
    {"op": "advance", "now": 1.5}
    {"op": "call", "method": "...", "args": {...}}
    {"op": "complete", "ticket": 1, "result": ...}
    {"op": "fail", "ticket": 1, "message": "..."}

Bytes inside ``args`` and ``result`` are written ``{"hex": "..."}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from culm.arguments import is_dict
from culm.machines.plain import JSON, from_plain, hashable, to_plain


class BadOperationError(ValueError):
    """A piece of JSON that is not an operation."""


class StoreFault(Exception):
    """The error that, according to `Fail`, the store has raised.  Compared by value."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreFault) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


@dataclass(frozen=True, slots=True)
class Receive:
    """Bytes from the peer arrive: `receive_data`, on a link if the machine has several."""

    data: bytes
    link: int | None = None


@dataclass(frozen=True, slots=True)
class Eof:
    """The peer sends no more: `receive_eof`, on a link if the machine has several."""

    link: int | None = None


@dataclass(frozen=True, slots=True)
class ReceiveDatagram:
    """One datagram arrives: `receive_datagram`."""

    data: bytes
    source: Hashable


@dataclass(frozen=True, slots=True)
class Advance:
    """The time is `now` (seconds): `advance`."""

    now: float


@dataclass(frozen=True, slots=True)
class Call:
    """The user calls `method`, a verb of the registry or a method of the machine."""

    method: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Complete:
    """The store answers the effect with that ticket: `complete`."""

    ticket: int
    result: object = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The store could not do the effect with that ticket: `fail`, with a `StoreFault`."""

    ticket: int
    message: str = ""


Operation = Receive | Eof | ReceiveDatagram | Advance | Call | Complete | Fail


def call(method: str, /, **args: object) -> Call:
    """A `Call`, written like the call itself: ``call("write", stream=1, data=b"x")``."""
    return Call(method, args)


def operation_to_json(operation: Operation) -> dict[str, JSON]:
    """The JSON form of `operation`."""
    match operation:
        case Receive(data, link):
            return {"op": "receive", **_on_link(link), "hex": data.hex()}
        case Eof(link):
            return {"op": "eof", **_on_link(link)}
        case ReceiveDatagram(data, source):
            return {"op": "datagram", "source": to_plain(source), "hex": data.hex()}
        case Advance(now):
            return {"op": "advance", "now": now}
        case Call(method, args):
            return {"op": "call", "method": method, "args": to_plain(args)}
        case Complete(ticket, result):
            return {"op": "complete", "ticket": ticket, "result": to_plain(result)}
        case Fail(ticket, message):
            return {"op": "fail", "ticket": ticket, "message": message}


def operation_from_json(value: JSON) -> Operation:
    """The operation that `value` describes.  Raises `BadOperationError`."""
    if not isinstance(value, dict):
        raise BadOperationError("an operation is a JSON object")
    read = _READERS.get(str(value.get("op")))
    if read is None:
        raise BadOperationError(f"op must be one of {', '.join(_READERS)}, not {value.get('op')!r}")
    try:
        return read(value)
    except KeyError as error:
        raise BadOperationError(f"{value['op']} needs {error.args[0]!r}") from None
    except (TypeError, ValueError) as error:
        raise BadOperationError(f"{value['op']}: {error}") from None


def _on_link(link: int | None) -> dict[str, JSON]:
    return {} if link is None else {"link": link}


def _link(value: dict[str, JSON]) -> int | None:
    link = value.get("link")
    if link is not None and (isinstance(link, bool) or not isinstance(link, int)):
        raise TypeError(f"{link!r} is no number of a link")
    return link


def _number(value: JSON) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no time")
    return value


def _ticket(value: JSON) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no ticket")
    return value


def _bytes(value: JSON) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string of hexadecimal digits")
    return bytes.fromhex(value)


def _method(value: JSON) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no method name")
    return value


def _text(value: JSON) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _args(value: JSON) -> Mapping[str, Any]:
    args = from_plain(value)
    if not is_dict(args):
        raise TypeError("args must be an object")
    return args


_READERS: dict[str, Callable[[dict[str, JSON]], Operation]] = {
    "receive": lambda value: Receive(_bytes(value["hex"]), _link(value)),
    "eof": lambda value: Eof(_link(value)),
    "datagram": lambda value: ReceiveDatagram(
        _bytes(value["hex"]), hashable(from_plain(value["source"]))
    ),
    "advance": lambda value: Advance(_number(value["now"])),
    "call": lambda value: Call(_method(value["method"]), _args(value.get("args", {}))),
    "complete": lambda value: Complete(_ticket(value["ticket"]), from_plain(value.get("result"))),
    "fail": lambda value: Fail(_ticket(value["ticket"]), _text(value.get("message", ""))),
}

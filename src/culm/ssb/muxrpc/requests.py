"""The bodies that muxrpc itself reads: those that open a call, and those that end one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from culm.arguments import check_type, is_dict, is_list
from culm.ssb.v8json import JsonError, JsonValue, parse, stringify

DEPTH_MAX: Final = 64
"""The greatest depth to which lists and objects from peers may be nested."""
_NAME_PARTS_MAX: Final = 16
_WORDS_MAX: Final = 100  # characters of the peer's words that we repeat in an error
_ECHO_MAX: Final = 1000  # and in the answer to an error that ends a stream


class BodyType(IntEnum):
    """The type of a body."""

    BINARY = 0
    TEXT = 1  # UTF-8
    JSON = 2


class CallType(Enum):
    """The side that sends values in a call; the enum's value is the type's name in requests."""

    ASYNC = "async"
    """A request, and one reply; "sync" is the same to a caller."""
    SOURCE = "source"
    """The side that is called sends values."""
    SINK = "sink"
    """The caller sends values."""
    DUPLEX = "duplex"
    """Both sides send values."""


@dataclass(frozen=True, slots=True)
class CallError:
    """The reason for a call's failure, as peers tell each other.

    stack: the stack trace in the peer's language; we send none.
    """

    message: str
    name: str = "Error"
    stack: str = ""

    def __post_init__(self) -> None:
        for field in ("message", "name", "stack"):
            check_type(field, getattr(self, field), str)

    def __str__(self) -> str:
        return self.message


class MalformedRequestError(Exception):
    """A body that is not a request; the peer is told the message."""


@dataclass(frozen=True, slots=True)
class Request:
    """The body of a packet that opens a call."""

    name: tuple[str, ...]
    args: list[JsonValue]
    type: CallType


_TYPES: Final = {call_type.value: call_type for call_type in CallType} | {"sync": CallType.ASYNC}


def check_name(name: Sequence[str]) -> tuple[str, ...]:
    """The name of a method, given by its parts (``["ebt", "replicate"]``).

    Raises `TypeError` and `ValueError`.
    """
    check_type("name", name, list, tuple)
    for part in name:
        check_type("part of a name", part, str)
    if not 0 < len(name) <= _NAME_PARTS_MAX:
        raise ValueError(f"a name has 1 to {_NAME_PARTS_MAX} parts, not {len(name)}")
    return tuple(name)


def encode_request(request: Request) -> bytes:
    """The body of a packet that opens a call; only streams name their type.

    Raises `TypeError` and `ValueError` for arguments that JSON does not have.
    """
    fields: dict[str, JsonValue] = {"name": list(request.name), "args": request.args}
    if request.type is not CallType.ASYNC:
        fields["type"] = request.type.value
    return stringify(fields).encode()


def read_request(body: bytes, body_type: int, *, stream: bool) -> Request:
    """Read a request.  Raises `MalformedRequestError`."""
    if body_type != BodyType.JSON:
        raise MalformedRequestError("a request is JSON")
    try:
        fields = parse(body, depth_max=DEPTH_MAX)
    except JsonError as error:
        raise MalformedRequestError(f"malformed request: {error}") from None
    if not is_dict(fields):
        raise MalformedRequestError("a request is an object")
    try:
        name = check_name(fields.get("name"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MalformedRequestError("the name of a request is an array of strings") from None
    args = fields.get("args", [])
    if not is_list(args):
        raise MalformedRequestError("the args of a request are an array")
    wanted = fields.get("type", None if stream else CallType.ASYNC.value)
    call_type = _TYPES.get(wanted) if isinstance(wanted, str) else None
    if call_type is None or stream is (call_type is CallType.ASYNC):
        raise MalformedRequestError("unsupported type of request")
    return Request(name, args, call_type)


def encode_error(error: CallError) -> bytes:
    """The body of the packet that ends a call with an error."""
    fields = {"message": error.message, "name": error.name, "stack": error.stack}
    return stringify(fields).encode()


def encode_end(error: CallError | None) -> bytes:
    """The body of the packet that ends a stream."""
    return b"true" if error is None else encode_error(error)


def encode_echo(error: CallError | None) -> bytes:
    """The body of the packet that answers the end of a stream, by repeating it."""
    if error is not None:
        fields = (error.message, error.name, error.stack)
        error = CallError(*(shortened(field, _ECHO_MAX) for field in fields))
    return encode_end(error)


def shortened(words: str, size_max: int = _WORDS_MAX) -> str:
    """The peer's words, shortened to be repeated to it."""
    return words if len(words) <= size_max else f"{words[:size_max]}..."


def read_error(body: bytes, body_type: int) -> CallError | None:
    """Read the body of a packet that ends a call; ``None`` for ``true``, the end of a stream.

    Peers write errors differently: an object with a ``message`` or (scuttlego) an ``error``, or
    a text.  Anything else counts as an error, too, with its text as the message.
    """
    if body_type == BodyType.JSON:
        if body == b"true":
            return None
        fields = _fields(body)
        message = fields.get("message", fields.get("error"))
        if isinstance(message, str):
            name, stack = fields.get("name"), fields.get("stack")
            return CallError(
                message,
                name if isinstance(name, str) else "",
                stack if isinstance(stack, str) else "",
            )
    return CallError(str(body, "utf-8", "replace"), "")


def _fields(body: bytes) -> dict[str, JsonValue]:
    try:
        fields = parse(body, depth_max=DEPTH_MAX)
    except JsonError:
        return {}
    return fields if is_dict(fields) else {}

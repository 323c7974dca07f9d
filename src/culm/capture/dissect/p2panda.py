"""p2panda: messages, the entries and operations in them."""

from __future__ import annotations

from functools import partial

from culm.capture.dissect.bamboo import take_entry
from culm.capture.dissect.cbor_syntax import Inner, check_items, take_cbor
from culm.capture.dissect.fields import FieldReader
from culm.machine import RemoteProtocolError
from culm.p2panda.codec import Codec, Dialect
from culm.p2panda.errors import ErrorCode
from culm.p2panda.limits import Limits
from culm.p2panda.messages import MessageType
from culm.p2panda.operation import Action, decode
from culm.wire import cbor
from culm.wire.errors import DecodeError
from culm.wire.multihash import YASMF

_DEPTH_MAX = 16
_SIZE_MAX = 1 << 26
_ONE_BYTE = b"\x18"  # the type is in the next one
_T = MessageType
# The items of each message, after its type.
NAMES: dict[MessageType, tuple[str, ...]] = {
    _T.ANNOUNCE: ("version", "timestamp", "schema_ids"),
    _T.SYNC_REQUEST: ("session_id", "mode", "schema_ids"),
    _T.ENTRY: ("session_id", "entry", "operation"),
    _T.SYNC_DONE: ("session_id", "live_mode"),
    _T.HAVE: ("session_id", "heights"),
    _T.EMPTY_SET: ("session_id", "can_respond"),
    _T.LOWER_BOUND: ("session_id", "bound"),
    _T.PAYLOAD: ("session_id", "item", "can_respond", "upper_bound"),
    _T.EMPTY_PAYLOAD: ("session_id", "upper_bound"),
    _T.DONE: ("session_id", "upper_bound"),
    _T.FINGERPRINT: ("session_id", "lift", "upper_bound"),
    _T.TERMINAL: ("session_id",),
}
_TYPES = {kind.value: kind for kind in MessageType}
_ACTIONS = {action.value: action for action in Action}


def take_message(reader: FieldReader, dialect: Dialect) -> None:
    """Take a message."""
    with reader.group("message") as message, reader.judged(partial(_decode, dialect)):
        front = reader.peek(3)
        number = front[2:] if front[1:2] == _ONE_BYTE else front[1:2]
        kind = _TYPES.get(int.from_bytes(number, "big")) if number else None
        names: tuple[str, ...] = ()
        if kind is not None:
            message.call(kind.name)
            names = ("type", *NAMES[kind])
        inner: Inner = {"entry": partial(take_entry, family=YASMF), "operation": take_operation}
        take_cbor(reader, message.name, names, inner)


def _decode(dialect: Dialect, data: bytes, at: int) -> object:
    """The codec's reading of the message at `at`; ``None`` if it is not whole."""
    codec = Codec(dialect=dialect, limits=Limits())
    found = data[at:]
    check_items(found, at)
    value, end = cbor.decode_first(found, 0, _DEPTH_MAX)
    if end < 0:  # it is not whole, or no part of a message
        scanner = cbor.Scanner(size_max=_SIZE_MAX, depth_max=_DEPTH_MAX)
        try:
            whole = scanner.scan(found, len(found))
        except DecodeError as error:
            raise DecodeError(error.code, at + error.offset, str(error)) from None
        if whole is None:
            return None
        value, end = cbor.decode(found[:whole], depth_max=_DEPTH_MAX), whole
    begins = value[0] if isinstance(value, list) and value else None
    bounds = codec.bounds.get(begins) if isinstance(begins, int) else None
    if bounds is None or len(value) not in bounds.arities:
        raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE, f"{value!r:.100}")
    return codec.decode(found[:end])


def items_of(action: Action | None) -> list[str]:
    """The names of an operation's items."""
    previous = [] if action is Action.CREATE else ["previous"]
    return ["version", "action", "schema_id", *previous, "fields"]


def take_operation(reader: FieldReader) -> None:
    """Take an operation."""

    def judge(data: bytes, at: int) -> object:
        found = data[at : reader.end]
        check_items(found, at)
        return decode(found)

    with reader.judged(judge):
        front = reader.peek(3)
        action = _ACTIONS.get(front[2]) if len(front) > 2 else None
        name = "operation" if action is None else action.name
        take_cbor(reader, name, items_of(action))

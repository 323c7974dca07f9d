"""Frames of an EBT session: messages and notes, told apart.

Seed, "Exchanged messages": nothing marks them explicitly.  A message is an object whose ``author``
is a text; no note has such a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from culm.arguments import is_dict
from culm.machine import RemoteProtocolError
from culm.ssb.ebt import ErrorCode, ForkedFeedError, InvalidMessageError, Message, decode_notes
from culm.ssb.messages import ClassicMessage, MessageError, MessageErrorCode, read_message
from culm.ssb.muxrpc import BodyType
from culm.ssb.muxrpc.requests import DEPTH_MAX
from culm.ssb.v8json import SAFE_INTEGER_MAX, JsonError, JsonValue, parse

__all__ = ["ClassicFormat", "MessageFrame", "read_frame"]

_BEGINS_NOTES: Final = b'{"@'


class MessageFrame(NamedTuple):
    """A message as received, with the feed and sequence that it claims; not verified.

    sequence: 0 if it claims none.
    """

    author: str
    sequence: int
    message: ClassicMessage | MessageError


def read_frame(body: bytes, body_type: BodyType) -> MessageFrame | Mapping[str, int]:
    """The message, or the notes, in a frame.

    Raises `RemoteProtocolError`: ``NOT_NOTES``, ``BAD_FEED_ID``, ``BAD_NOTE``.
    """
    if body_type is not BodyType.JSON:
        raise RemoteProtocolError(ErrorCode.NOT_NOTES, f"{body_type.name}")
    failure: MessageError | None = None
    if not body.startswith(_BEGINS_NOTES):
        try:
            message = read_message(body)
        except MessageError as error:
            failure = error.with_traceback(None)
        else:
            return MessageFrame(message.author, message.sequence, message)
    try:
        value = parse(body, depth_max=DEPTH_MAX)
    except JsonError as error:
        raise RemoteProtocolError(ErrorCode.NOT_NOTES, str(error)) from None
    if failure is not None and _is_message(value):
        return MessageFrame(value["author"], _sequence(value.get("sequence")), failure)
    return decode_notes(value)


def _is_message(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return is_dict(value) and isinstance(value.get("author"), str)


def _sequence(value: JsonValue) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 1 <= value <= SAFE_INTEGER_MAX else 0


class ClassicFormat:
    """The classic format, as far as a replicator has to know it.

    hmac_key: 32 bytes, of a network whose messages are signed with a key.
    """

    name: Final = "classic"

    def __init__(self, *, hmac_key: bytes | None = None) -> None:
        self._hmac_key = hmac_key

    def check(self, previous: str | None, received: ClassicMessage | MessageError) -> Message:
        if isinstance(received, MessageError):
            raise InvalidMessageError(str(received))
        if not received.verify(hmac_key=self._hmac_key):
            raise InvalidMessageError(str(MessageError(MessageErrorCode.BAD_SIGNATURE)))
        if received.previous != previous:
            raise ForkedFeedError(received.data)
        return Message(received.author, received.sequence, received.id, received.data)

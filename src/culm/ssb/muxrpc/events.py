"""What the peer did.  The last event is always `culm.machine.Closed`.

`number` tells calls apart: it is positive if the call is ours and negative if it is the peer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event
from culm.ssb.muxrpc.packets import BodyType
from culm.ssb.muxrpc.requests import CallError, CallType
from culm.ssb.v8json import JsonValue, parse

__all__ = ["CallEnded", "CallReceived", "ConnectionEvent", "ReplyReceived", "ValueReceived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReceived(Event):
    """The peer calls a method that the manifest has.

    args: JSON values, nested at most 64 deep.  Whether they are what the method takes is for
        the method to say.
    """

    number: int
    name: tuple[str, ...]
    args: list[JsonValue]
    type: CallType


@dataclass(frozen=True, slots=True, kw_only=True)
class _BodyReceived(Event):
    number: int
    body: bytes
    type: BodyType = BodyType.JSON

    def read(self) -> JsonValue:
        """The value: bytes, str or what the JSON says.

        Raises `culm.ssb.v8json.JsonError` for a JSON body that is none: nobody has looked
        at it yet.
        """
        if self.type is BodyType.BINARY:
            return self.body
        if self.type is BodyType.TEXT:
            return str(self.body, "utf-8", "replace")
        return parse(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReceived(_BodyReceived):
    """A value in a stream, as it came; see `read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReceived(_BodyReceived):
    """The peer has answered an async call of ours, which is over; see `read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded(Event):
    """A call is over on both sides: no event will name it any more.

    It comes once for every call, whoever has ended it, except for async calls that were
    answered.  The end that answers the peer's is on its way.

    failure: why, if the peer has said so.
    """

    number: int
    failure: CallError | None = None


ConnectionEvent: TypeAlias = CallReceived | ValueReceived | ReplyReceived | CallEnded | Closed

"""Events of calls.  The last one is always `culm.machine.Closed`.

`number` identifies a call: it is positive if the call is ours and negative if it is the peer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event
from culm.ssb.muxrpc.requests import BodyType, CallError, CallType
from culm.ssb.v8json import JsonValue, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReceived(Event):
    """The peer calls a method of the manifest.

    args: JSON values, nested at most 64 deep, not checked against the method.
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

    def read(self, *, depth_max: int | None = None) -> JsonValue:
        """The value: bytes, str or a parsed JSON value.

        depth_max: see `culm.ssb.v8json.parse`.  Give it where the peer is a stranger: without it a
            body that is nested deeply takes forty times as long as others.

        Raises `culm.ssb.v8json.JsonError` for an invalid JSON body, which is not parsed before.
        """
        if self.type is BodyType.BINARY:
            return self.body
        if self.type is BodyType.TEXT:
            return str(self.body, "utf-8", "replace")
        return parse(self.body, depth_max=depth_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueReceived(_BodyReceived):
    """A value in a stream, as received; see `read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReceived(_BodyReceived):
    """The peer has answered an async call of ours, which is over now; see `read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded(Event):
    """A call is over on both sides: no later event names it.

    It comes once for every call, on an end by either side, except for async calls that were
    answered.  Our answer to the peer's end is on its way.

    failure: the peer's error, if it has given one.
    """

    number: int
    failure: CallError | None = None


ConnectionEvent: TypeAlias = CallReceived | ValueReceived | ReplyReceived | CallEnded | Closed

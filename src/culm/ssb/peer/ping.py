"""``gossip.ping``: a sign of life."""

from __future__ import annotations

from enum import Enum
from typing import Final

from culm.ssb.muxrpc import Call, ValueReceived
from culm.ssb.v8json import JsonError, JsonValue

_NUMBER_SIZE_MAX: Final = 64  # bytes; a longer body is not read


class PingState(Enum):
    """The side whose turn it is."""

    RESTING = "resting"
    """The peer may serve; if it has served last, it is our turn after a pause."""
    SERVED = "served"
    """We have sent our time, and the peer is to volley its own."""


class Ping:
    """A call of ``gossip.ping``, made by either side.

    The two sides send each other their time, in milliseconds, in turn: the caller serves, the other
    side volleys its time back, and serves itself after a pause.  So nothing is answered twice, and
    a peer that serves without end gets one answer for each serve.

    A side that has served does not serve again before the answer is there: the second answer would
    be taken for the peer's own serve, and volleyed, and that for ours, and so on for ever.

    The peer's end of the call may wait to be taken, behind a message that is being verified.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.state = PingState.RESTING

    @property
    def rests(self) -> bool:
        """Whether we may serve: the last answer is there, and the call open, as far as is known."""
        return self.state is PingState.RESTING and self.call.may_send

    def serve(self, time_ms: int) -> None:
        """Send our time, if we rest."""
        self.state = PingState.SERVED
        self.call.send(time_ms)

    def volley(self, time_ms: int) -> None:
        """Answer with our time, unless the peer has ended the call."""
        if self.call.may_send:
            self.call.send(time_ms)

    def receive(self, event: ValueReceived) -> bool:
        """Take the peer's time, if it is a number; returns whether ours is due."""
        if not _is_number(event):
            return False
        was_served, self.state = self.state is PingState.SERVED, PingState.RESTING
        return not was_served


def _is_number(event: ValueReceived) -> bool:
    if len(event.body) > _NUMBER_SIZE_MAX:
        return False
    try:
        value: JsonValue = event.read()
    except JsonError:
        return False
    return type(value) in (int, float)

"""The roles of the two sides, and the states of sessions."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """Whether a side speaks first."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class State(Enum):
    """The turn in a session."""

    SPEAKING = "speaking"
    LISTENING = "listening"
    ENDED = "ended"


class Continuation(Enum):
    """The next turn, once the peer has ended a round."""

    OURS = "ours"  # there is something to answer
    OVER = "over"  # we know the union once the peer has sent its check
    ANOTHER_RUN = "another run"  # this run is not worthwhile


class CompactState(Enum):
    """The state of a compact session."""

    WAITING = "waiting"  # for the initiator's hello
    OPENING = "opening"  # the first round of the peer is to come
    SPEAKING = "speaking"
    GREETING = "greeting"  # our first round is out; the peer has the same, or something to say
    LISTENING = "listening"
    TRYING = "trying"  # the same in a rateless run, which the peer may replace by another one
    CHECKING = "checking"  # the peer knows the union, and its check is to come
    CHECKED = "checked"  # ours is out
    CLOSED = "closed"
    FAILED = "failed"

"""Who speaks first, and whose turn it is."""

from __future__ import annotations

from enum import Enum

__all__ = ["CompactState", "Role", "State"]


class Role(Enum):
    """Who speaks first."""

    INITIATOR = "initiator"
    RESPONDER = "responder"


class State(Enum):
    """Whose turn it is."""

    SPEAKING = "speaking"
    LISTENING = "listening"
    ENDED = "ended"


class CompactState(Enum):
    """What is to come."""

    WAITING = "waiting"  # for the initiator's hello
    SPEAKING = "speaking"
    GREETING = "greeting"  # our first round is out, the peer has not agreed to speak
    LISTENING = "listening"
    CHECKING = "checking"  # the peer knows the union, and its check is to come
    CHECKED = "checked"  # ours is out
    CLOSED = "closed"
    FAILED = "failed"

"""The states of a node, and of each of its associations."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """The state of a node."""

    IDLE = auto()
    """Neither `Node.start` nor `Node.join` was called."""
    JOINING = auto()
    """A server was asked for help, and no peer has joined yet."""
    ACTIVE = auto()
    LEAVING = auto()
    """Goodbyes are on their way."""
    CLOSED = auto()


class PeerState(Enum):
    """The state of an association."""

    SYNCHRONIZING = "synchronizing"
    """It has not acknowledged our synchronize message, or we have not received its own."""
    JOINED = "joined"
    """Messages go both ways."""
    FINALIZING = "finalizing"
    """It is leaving, and messages that it announced are still missing."""
    GIVEN_UP = "given up"
    """It is not usefully reachable.  Its messages are dropped."""


class Pressure(Enum):
    """The state of a peer's queue."""

    NONE = "none"
    FULL = "full"
    """There was no room, and the user has not been told of any since."""
    STUCK = "stuck"
    """There is no room, but the user was told that the queue no longer holds up broadcasts."""

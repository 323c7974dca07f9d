"""What a server is in its cluster."""

from __future__ import annotations

from enum import Enum

__all__ = ["State"]


class State(Enum):
    """Paper, figure 4, and the end of a core's life."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    CLOSED = "closed"

    __hash__ = object.__hash__  # looked up for every message: quicker than by name

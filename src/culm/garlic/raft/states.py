"""The roles of a server."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Paper, figure 4, with the thesis's pre-vote (9.6), and the end of a core's life."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"  # asks whether it could win, and changes nothing
    CANDIDATE = "candidate"
    LEADER = "leader"
    CLOSED = "closed"

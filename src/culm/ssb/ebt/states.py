"""The states of sessions and feeds: the rules of replication as tables.

Pairs missing from a table cannot happen; the tests try all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = [
    "FEED_RULES",
    "SESSION_RULES",
    "SUPPLY_RULES",
    "Demand",
    "EndReason",
    "FeedInput",
    "FeedState",
    "SessionInput",
    "SessionRole",
    "SessionState",
    "State",
    "Supply",
    "SupplyInput",
]


class State(Enum):
    """The state of a replicator."""

    OPEN = "open"
    CLOSING = "closing"
    """`Replicator.close` was called; the store has not done everything."""
    FAILING = "failing"
    """The store has failed."""
    CLOSED = "closed"


class SessionRole(Enum):
    """Which side has requested the session (seed, "Creating an EBT session")."""

    CLIENT = "client"
    """We have: the server's notes come first."""
    SERVER = "server"
    """The peer has: our notes come first."""


class SessionState(Enum):
    """The state of a session."""

    LOADING = "loading"
    """What the peer told last time is being read from the store."""
    AWAITING_NOTES = "awaiting notes"
    """A client does not send anything before the server's notes are there."""
    OPEN = "open"
    ENDED = "ended"


class SessionInput(Enum):
    """The inputs of a session."""

    LOADED_AS_CLIENT = "loaded as client"
    LOADED_AS_SERVER = "loaded as server"
    NOTES = "notes"
    END = "end"


SESSION_RULES: Final[Mapping[SessionState, Mapping[SessionInput, SessionState]]] = {
    SessionState.LOADING: {
        SessionInput.LOADED_AS_CLIENT: SessionState.AWAITING_NOTES,
        SessionInput.LOADED_AS_SERVER: SessionState.OPEN,
        SessionInput.END: SessionState.ENDED,
    },
    SessionState.AWAITING_NOTES: {
        SessionInput.NOTES: SessionState.OPEN,
        SessionInput.END: SessionState.ENDED,
    },
    SessionState.OPEN: {
        SessionInput.NOTES: SessionState.OPEN,
        SessionInput.END: SessionState.ENDED,
    },
    SessionState.ENDED: {},
}


class EndReason(Enum):
    """Why a session has ended."""

    DISCONNECTED = "disconnected"
    """The stream has, or the user has closed the replicator."""
    RECONNECTED = "reconnected to peer"
    """The same peer has opened another session."""
    BLOCKED = "blocked"
    """The user has blocked the peer."""
    FAULT = "fault"
    """The peer has broken a rule."""


class FeedState(Enum):
    """Whether a feed is one chain."""

    WHOLE = "whole"
    PROVING = "proving"
    """A message contradicts ours; ours is being read, for the proof."""
    FORKED = "forked"
    """There are two messages that contradict each other: nothing is taken any more."""


class FeedInput(Enum):
    """The inputs of a feed."""

    CONTRADICTED = "contradicted"
    PROVED = "proved"


FEED_RULES: Final[Mapping[FeedState, Mapping[FeedInput, FeedState]]] = {
    FeedState.WHOLE: {FeedInput.CONTRADICTED: FeedState.PROVING},
    FeedState.PROVING: {FeedInput.PROVED: FeedState.FORKED},
    FeedState.FORKED: {},
}


class Supply(Enum):
    """What we send of a feed to the peer of a session."""

    UNTOLD = "untold"
    """It has told nothing of the feed in this session."""
    REFUSED = "refused"
    """It does not want the feed."""
    STANDBY = "standby"
    """It receives the feed from somebody else; notes tell it what we have."""
    READING = "reading"
    """It lacks messages, which come from the store."""
    LIVE = "live"
    """It has all of ours, or will have with what is on its way; new ones follow at once."""


class SupplyInput(Enum):
    """The inputs of `Supply`; the first four are notes of the peer."""

    REFUSES = "refuses"
    STANDS_BY = "stands by"
    RECEIVES_BEHIND = "receives, behind us"
    RECEIVES_LEVEL = "receives, level with us"
    CAUGHT_UP = "caught up"
    """The last message that we have was read for it."""
    FELL_BEHIND = "fell behind"
    """There was a new message and no room for it."""


_TOLD: Final = {
    SupplyInput.REFUSES: Supply.REFUSED,
    SupplyInput.STANDS_BY: Supply.STANDBY,
    SupplyInput.RECEIVES_BEHIND: Supply.READING,
    SupplyInput.RECEIVES_LEVEL: Supply.LIVE,
}

SUPPLY_RULES: Final[Mapping[Supply, Mapping[SupplyInput, Supply]]] = {
    Supply.UNTOLD: _TOLD,
    Supply.REFUSED: _TOLD,
    Supply.STANDBY: _TOLD,
    Supply.READING: {**_TOLD, SupplyInput.CAUGHT_UP: Supply.LIVE},
    Supply.LIVE: {**_TOLD, SupplyInput.FELL_BEHIND: Supply.READING},
}


class Demand(Enum):
    """What we have told the peer of a session to want of a feed."""

    UNTOLD = "untold"
    """Nothing, in this session, or nothing since the peer refused the feed as its source."""
    STANDBY = "standby"
    """We know where else to get it; its notes keep us up to date."""
    SOURCE = "source"
    """We have asked this peer for the feed, and no other one, as long as the feed moves."""

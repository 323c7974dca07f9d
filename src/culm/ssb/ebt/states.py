"""The states of sessions and feeds: the rules of replication as tables.

Pairs missing from a table cannot happen; the tests try all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a replicator."""

    OPEN = "open"
    CLOSING = "closing"
    """`Replicator.close` was called; the store still has work to do."""
    FAILING = "failing"
    """The store has failed."""
    CLOSED = "closed"


class SessionRole(Enum):
    """The side that has requested the session (seed, "Creating an EBT session")."""

    CLIENT = "client"
    """Ours: the server's notes come first."""
    SERVER = "server"
    """The peer's: our notes come first."""


class SessionState(Enum):
    """The state of a session."""

    LOADING = "loading"
    """The peer's clock is being read from the store."""
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
    """Reasons for the end of a session."""

    DISCONNECTED = "disconnected"
    """The stream has ended, or the user has closed the replicator."""
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
    """Two messages contradict each other: no more are taken."""


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
    """Our sending of a feed to the peer of a session."""

    UNTOLD = "untold"
    """It has told nothing of the feed in this session."""
    REFUSED = "refused"
    """It does not want the feed."""
    STANDBY = "standby"
    """It receives the feed from another peer; notes tell it our sequence."""
    READING = "reading"
    """It lacks messages, which come from the store."""
    LIVE = "live"
    """All of our messages have reached it or are on their way; new ones follow at once."""


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
    """The wish for a feed that we have told the peer of a session."""

    UNTOLD = "untold"
    """None in this session, or none since the peer refused the feed."""
    STANDBY = "standby"
    """We get it from another peer; the notes of this one keep us up to date."""
    SOURCE = "source"
    """We have asked this peer for the feed, and no other one, as long as the feed moves."""

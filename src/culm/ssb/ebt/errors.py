"""The error codes of EBT sessions: a peer's faults, and a caller's mistakes."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # Faults of the peer
    NOT_NOTES = 2
    """A frame that is neither a message nor an object of notes."""
    BAD_FEED_ID = 3
    """A note whose name is not a feed id."""
    BAD_NOTE = 4
    """A note whose value is not an integer, or is above 2^53 - 1."""
    OUT_OF_ORDER = 6
    """A message that skips others, although the peer was asked for them, and only once."""
    INVALID_MESSAGES = 7
    """Invalid messages of more feeds than `Limits.invalid_max`."""
    # Silence
    NO_NOTES = 8
    """The server has not sent its notes in time."""
    # A caller's mistakes
    NO_SESSION = 20
    """There is no such session, or it has ended."""
    NOT_READY = 21
    """The session still waits for its remembered clock."""
    WRONG_SEQUENCE = 22
    """A message written here that does not follow the last one of its feed."""
    NOT_WHOLE = 23
    """The feed has forked: nothing can be appended to it."""
    TOO_MANY_SESSIONS = 24
    """There are `Limits.sessions_max` sessions already."""
    BLOCKED = 25
    """We block the peer."""

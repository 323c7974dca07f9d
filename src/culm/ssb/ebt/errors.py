"""Why an EBT session ends, and what a caller may not do."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode

__all__ = ["ErrorCode"]


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # What the peer said
    NOT_NOTES = 2
    """A frame that is neither a message nor an object of notes."""
    BAD_FEED_ID = 3
    """A note whose name is not written as a feed's."""
    BAD_NOTE = 4
    """A note whose value is no integer, or is above 2^53 - 1."""
    OUT_OF_ORDER = 6
    """A message that leaves others out, though none but the next one was asked for."""
    INVALID_MESSAGES = 7
    """More messages that are not valid than `Limits.invalid_max`."""
    # What the peer did not do
    NO_NOTES = 8
    """The server has not sent its notes in time."""
    # What the caller did
    NO_SESSION = 20
    """There is no such session, or it has ended."""
    NOT_READY = 21
    """The session still waits for its remembered clock."""
    WRONG_SEQUENCE = 22
    """An own message that does not follow the last one of its feed."""
    NOT_WHOLE = 23
    """The feed has forked: nothing can be appended to it."""
    TOO_MANY_SESSIONS = 24
    """There are `Limits.sessions_max` sessions already."""
    BLOCKED = 25
    """The peer is blocked by us."""

"""What a peer or the caller can do wrong in a reconciliation session."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode

__all__ = ["ErrorCode"]


class ErrorCode(ProtocolErrorCode):
    """Which rule was broken."""

    UNEXPECTED_MESSAGE = 1
    """A message out of turn, or one that cannot stand at that place of a round."""
    BAD_BOUND = 2
    """A bound that is no bytes or longer than items are, or not behind the one before."""
    BAD_ITEM = 3
    """An item of a wrong size, outside of its range, or not above the one before."""
    BAD_FINGERPRINT = 4
    """A fingerprint with a digest of a wrong size, or a count that is none."""
    TOO_MANY_RANGES = 5
    """More than `Parameters.ranges_max` ranges in a round."""
    TOO_MANY_ROUNDS = 6
    """A question where no round is left to answer it."""
    BAD_FRAME = 8
    """A frame of no known kind, too large, or cut inside of what it says."""
    BAD_NUMBER = 9
    """A number in a round that cannot be."""
    OTHER_PARAMETERS = 10
    """The two sides' items, monoid or version are not the same, or only one wants a key."""
    CHECK_FAILED = 11
    """Both sides have exchanged all they found, with a key, and still differ."""
    END_OF_STREAM = 12
    """The stream has ended before the session."""

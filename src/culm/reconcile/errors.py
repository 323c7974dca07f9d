"""The error codes of reconciliation sessions."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """The rule that was broken."""

    UNEXPECTED_MESSAGE = 1
    """A message out of turn, or one that cannot stand at that place of a round."""
    BAD_BOUND = 2
    """A bound that is not bytes, is longer than items are, or does not follow the one before."""
    BAD_ITEM = 3
    """An item of a wrong size, outside its range, or not above the one before."""
    BAD_FINGERPRINT = 4
    """A fingerprint with a digest of a wrong size, or an impossible count."""
    TOO_MANY_RANGES = 5
    """More than `Parameters.ranges_max` ranges in a round."""
    TOO_MANY_ROUNDS = 6
    """A question where no round is left to answer it."""
    BAD_FRAME = 8
    """A frame of an unknown kind, of a wrong size, or with incomplete content."""
    BAD_NUMBER = 9
    """An impossible number in a round."""
    OTHER_PARAMETERS = 10
    """The two sides' items, monoid or version are not the same, or only one wants a key."""
    CHECK_FAILED = 11
    """Both sides have exchanged everything they found, with a key, and still differ."""
    END_OF_STREAM = 12
    """The stream has ended before the session."""

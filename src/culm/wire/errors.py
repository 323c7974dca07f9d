"""The errors of codecs for bytes that they cannot decode."""

from __future__ import annotations

from enum import IntEnum


class WireErrorCode(IntEnum):
    """Why bytes do not decode."""

    TRUNCATED = 1
    """The bytes end before the encoding does."""
    NON_CANONICAL = 2
    """A value in another form than its only one, as a number in more bytes than it needs."""
    BAD_TYPE = 3
    """A tag or type that is not known, or not one that may stand there."""
    BAD_LENGTH = 4
    """A length that does not fit its content, as of a hash of another family."""
    BAD_OFFSET = 5
    """A copy from before the beginning of the output, or from nowhere."""
    BAD_VALUE = 6
    """A value that cannot stand there, as 0 for a sequence number."""
    TRAILING_DATA = 7
    """More bytes than the encoding has."""
    LIMIT_EXCEEDED = 8
    """More than a limit allows."""


class DecodeError(ValueError):
    """Bytes that are not an encoding; `offset` is the index of the byte at fault."""

    def __init__(self, code: WireErrorCode, offset: int, message: str) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.code = code
        self.offset = offset


class Truncated(DecodeError):
    """Bytes that more bytes could complete."""

    def __init__(self, offset: int, message: str = "more bytes are needed") -> None:
        super().__init__(WireErrorCode.TRUNCATED, offset, message)

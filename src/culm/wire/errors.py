"""The errors of codecs for bytes that they cannot decode."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["DecodeError", "Truncated", "WireErrorCode"]


class WireErrorCode(IntEnum):
    """Why bytes do not decode."""

    TRUNCATED = 1
    NON_CANONICAL = 2
    BAD_TYPE = 3
    BAD_LENGTH = 4
    BAD_OFFSET = 5
    BAD_VALUE = 6
    TRAILING_DATA = 7
    LIMIT_EXCEEDED = 8


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

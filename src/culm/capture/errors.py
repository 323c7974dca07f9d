"""The faults of captures."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The kinds of faults."""

    NO_CAPTURE = 1
    """The bytes do not begin as a capture does."""
    UNKNOWN_VERSION = 2
    DAMAGED = 3
    """A block is not as it was written, and another one follows it."""
    TOO_LARGE = 4
    """A block declares more than the reader takes."""
    BAD_RECORD = 5
    BAD_VALUE = 6
    OPAQUE = 7
    """A value could not be written, or was left out, so the call cannot be made again."""
    NO_MACHINE = 8
    """The capture does not say which machine it is of, or no machine can be made so."""
    UNKNOWN_COMPRESSION = 9
    """Its blocks are compressed in a way that nothing here knows."""
    SECOND_MACHINE = 10
    """A recorder was given another machine: a capture is of one."""


class CaptureError(Exception):
    """A capture that cannot be read or replayed.

    offset: the byte of the capture at which the fault was found, where there is one.
    """

    def __init__(self, code: ErrorCode, message: str, *, offset: int | None = None) -> None:
        super().__init__(code, message, offset)
        self.code = code
        self.message = message
        self.offset = offset

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.code.name.lower().replace('_', ' ')}{place}: {self.message}"

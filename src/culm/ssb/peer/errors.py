"""Why a peer's link ends, and what a caller may not do."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode

__all__ = ["ErrorCode"]


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # What the peer did not do
    SILENT = 1
    """Nothing has come from it for too long, though it was asked for a sign of life."""
    NO_GOODBYE = 2
    """It has neither answered our goodbye in time nor hung up."""
    # What the caller did
    TOO_MANY_LINKS = 20
    """There are `Limits.links_max` links already."""
    BLOCKED = 21
    """The peer is blocked by us."""

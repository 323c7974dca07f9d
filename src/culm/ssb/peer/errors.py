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
    REPLACED = 3
    """It has opened more than `Limits.links_of_peer_max` links; this was the oldest."""
    HALF_SENT = 4
    """Packets that have come in part take more than `Limits.half_sent_size_max`; this was slow."""
    # What the caller did
    TOO_MANY_LINKS = 20
    """There are `Limits.links_max` links already."""
    BLOCKED = 21
    """The peer is blocked by us."""
    RESTORED = 22
    """Our feed comes from a backup, and it is not known whether there is more of it."""

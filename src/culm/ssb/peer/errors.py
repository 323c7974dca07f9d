"""The error codes of a peer's links: a peer's faults, and a caller's mistakes."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Codes of `culm.machine.ProtocolError` in this package."""

    # A peer's faults
    SILENT = 1
    """Nothing has come from it for too long, though it was asked for a sign of life."""
    NO_GOODBYE = 2
    """It has neither answered our goodbye in time nor hung up."""
    REPLACED = 3
    """It has opened more than `Limits.links_of_peer_max` links; this was the oldest."""
    HALF_SENT = 4
    """Half-sent packets take more than `Limits.half_sent_size_max`; this one came slowest."""
    # A caller's mistakes
    TOO_MANY_LINKS = 20
    """There are `Limits.links_max` links already."""
    BLOCKED = 21
    """We block the peer."""
    RESTORED = 22
    """Our feed comes from a backup, and others may have more of it."""

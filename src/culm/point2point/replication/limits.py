"""What one replicator may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from culm.arguments import check_numbers, check_type
from culm.point2point.limits import Limits

__all__ = ["ENTRY_SIZE", "ReplicatorLimits"]

ENTRY_SIZE = 400  # what an entry costs in memory besides its payload, about


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorLimits:
    """What one replicator may use.  Sizes in bytes, times in seconds.

    Raises `ValueError` for one below 0, and for a connection that allows fewer than 2 adjustments
    of a request: a confirmation alone may take as many.

    connection
        The limits of the connection.
    unwritten_size_max
        Received bytes whose writing is not completed; reading pauses above it.
    read_ahead_size_max
        What has been read for the peer and is not sent, over all requests; the worst is that
        or one packet, whichever is more.
    batch_size_max, batch_count_max
        What is written, or read to be sent, in one go.
    payload_inline_max
        Payloads up to this size, at least `connection.packet_size_max`, are written with
        their entry, larger ones in pieces of it.
    logs_max
        Logs that are kept track of, under 8 KiB each, with what waits for credit or for room; one
        with nothing to do makes way for the next.  Where none does, further ones are refused.
    outstanding_max
        Answers of the store, events waiting for one, and proposals waiting for the logs of the
        store to be known, above which reading pauses.
    settle_s
        See `Settled`.
    """

    connection: Limits = field(default_factory=Limits)
    unwritten_size_max: int = 1 << 23
    read_ahead_size_max: int = 1 << 23
    batch_size_max: int = 1 << 20
    batch_count_max: int = 512
    payload_inline_max: int = 1 << 18
    logs_max: int = 10_000
    outstanding_max: int = 4096
    settle_s: float = 0.5

    def __post_init__(self) -> None:
        check_type("connection", self.connection, Limits)
        check_numbers(self)
        if self.connection.request_adjustments_max < 2:
            raise ValueError("request_adjustments_max: a confirmation alone may take 2 adjustments")

    @property
    def payload_piece_size(self) -> int:
        """The size in bytes of the pieces in which large payloads are written."""
        return max(self.payload_inline_max, self.connection.packet_size_max)

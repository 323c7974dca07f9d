"""Limits and times of Point-2-Point connections and replicators."""

from __future__ import annotations

from dataclasses import dataclass, field

from culm.arguments import check_numbers, check_type

# Packets that we send expand to this many times their size at most; the peer's may, by default.
INFLATION_FACTOR = 256

ENTRY_SIZE = 400  # bytes of memory for an entry besides its payload, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the resources of one connection.  Sizes in bytes.

    Raises `ValueError` for one below 0.

    data_window_max
        Bytes of the peer's under way on the data channel; data received and not yet processed
        never exceeds it.
    packet_size_max
        Data in one packet that we send; between two packets any other request and the
        control channel get their turn.
    unsent_size_max
        Data that waits to be taken with ``data_to_send`` before a sender is told to
        pause (`Connection.send_size`).
    requests_max
        Requests that the peer may have open at once: the proposal credit that it is
        granted.  About 3 KiB each, and the hashes of the log that later entries link to.
    request_adjustments_max
        Adjustments of one request whose effect on the peer's data is still open; one of our own
        beyond that is refused, one of the peer's makes us cancel (`RequestGivenUp`).
    dropped_max
        Remembered runs of ids (one after the other) of proposals that the overlap rule
        dropped.  More are joined: messages about an id between them are passed over, too.
    compression_window_max
        Window that we offer in each direction; costs as much again for the history,
        and only once data has filled it.
    inflation_factor_max, inflation_burst_max
        Bytes that a compressed byte may become, and bytes that all of them may become besides.
        More ends the connection (``INFLATION``).  Costs time, not memory; our own packets keep to
        256 for each.
    """

    data_window_max: int = 1 << 20
    packet_size_max: int = 1 << 18
    unsent_size_max: int = 1 << 18
    requests_max: int = 256
    request_adjustments_max: int = 64
    dropped_max: int = 256
    compression_window_max: int = 1 << 16
    inflation_factor_max: int = INFLATION_FACTOR
    inflation_burst_max: int = 1 << 24

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times that a connection or a replicator waits for its peer, in seconds.

    Raises `ValueError` for one below 0.

    idle_timeout_s
        Silence of the peer within a packet or a payload, or before its setup.
    keepalive_s
        Silence after which the peer is asked for a sign of life; it has `idle_timeout_s`
        to give it.
    progress_max_s
        Time for which the peer may owe something and send no data at all: an answer to a proposal
        of ours, or the rest of a range that has an end, or of an entry of which it has sent the
        metadata (then the request is given up: `RequestGivenUp`), its part in a cancellation
        (``PEER_STALLED``).  Also the time for which it may take nothing of the data that waits for
        it, by granting no credit or by not reading.  Noticed in twice that time at the latest.
    settle_s
        Quiet after which a replicator reports `Settled`.
    """

    idle_timeout_s: float = 30.0
    keepalive_s: float = 30.0
    progress_max_s: float = 300.0
    settle_s: float = 0.5

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorLimits:
    """Bounds on the resources of one replicator.  Sizes in bytes.

    Raises `ValueError` for one below 0, and for a connection that allows fewer than 2 adjustments
    of a request: a confirmation alone may take as many.

    connection
        The limits of the connection.
    unwritten_size_max
        Received bytes whose writing is not completed; reading pauses above it.
    read_ahead_size_max
        Bytes read for the peer and not sent, over all requests; at worst that many or one packet,
        the greater of the two.
    batch_size_max, batch_count_max
        Bytes and entries written, or read to be sent, in one go.
    payload_inline_max
        Payloads up to this size, at least `connection.packet_size_max`, are written with
        their entry, larger ones in pieces of it.
    logs_max
        Logs with a place, under 8 KiB each, including proposals that wait for credit or for room;
        one with nothing to do makes way for the next.  Where none does, further ones are refused.
    outstanding_max
        Answers of the store, events waiting for one, and proposals waiting for the logs of the
        store to be known, above which reading pauses.
    verifying_max
        Signatures, under 1 KiB each, that the driver verifies at a time
        (`culm.signatures.Verify`): those of entries that come many at a time.  0: the replicator
        verifies them itself.
    """

    connection: Limits = field(default_factory=Limits)
    unwritten_size_max: int = 1 << 23
    read_ahead_size_max: int = 1 << 23
    batch_size_max: int = 1 << 20
    batch_count_max: int = 512
    payload_inline_max: int = 1 << 18
    logs_max: int = 10_000
    outstanding_max: int = 4096
    verifying_max: int = 0

    def __post_init__(self) -> None:
        check_type("connection", self.connection, Limits)
        check_numbers(self)
        if self.connection.request_adjustments_max < 2:
            raise ValueError("request_adjustments_max: a confirmation alone may take 2 adjustments")

    @property
    def payload_piece_size(self) -> int:
        """The size in bytes of the pieces in which large payloads are written."""
        return max(self.payload_inline_max, self.connection.packet_size_max)

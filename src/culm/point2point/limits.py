"""Limits of one Point-2-Point connection."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers

__all__ = ["INFLATION_FACTOR", "Limits"]

# What we send expands to at most so many times its size, and by default we allow the peer the same.
INFLATION_FACTOR = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection may use.  Sizes in bytes, times in seconds.

    Raises `ValueError` for one below 0.

    data_window_max
        What the peer may have on its way on the data channel; received and not yet
        processed data never exceeds it.
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
        dropped. More are joined: what is said of an id between them is passed over, too.
    compression_window_max
        Window that we offer in each direction; costs as much again for the history,
        and only once data has filled it.
    inflation_factor_max, inflation_burst_max
        What compressed data may become: so many bytes for each byte of it, and that many besides.
        More ends the connection (``INFLATION``).  Costs time, not memory; what we send
        keeps to 256 for each.
    idle_timeout_s
        How long the peer may stay silent within a packet or a payload, or before its setup.
    keepalive_s
        Silence after which the peer is asked for a sign of life; it has `idle_timeout_s`
        to give it.
    progress_max_s
        How long the peer may owe something without sending any data at all: an answer to a
        proposal of ours, or the rest of a range that has an end, or of an entry of which it has
        sent the metadata (then the request is given up: `RequestGivenUp`), its part in a
        cancellation (``PEER_STALLED``).  And how long it may take nothing of the data that waits
        for it, by granting no credit or by not reading.  It is noticed in twice that time at the
        latest.
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
    idle_timeout_s: float = 30.0
    keepalive_s: float = 30.0
    progress_max_s: float = 300.0

    def __post_init__(self) -> None:
        check_numbers(self)

"""Bounds on the memory that a peer may make a node use."""

from __future__ import annotations

from dataclasses import dataclass, field

from culm.arguments import check_numbers, check_type
from culm.garlic.raft.limits import Limits as RaftLimits

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the data of a peer, each with its worst-case memory.

    Raises `ValueError` for one below 0.

    log_size_max
        Bytes of log entries in one request; a connection buffers one such request and its header.
    entries_max
        Log entries in one request or one log pack; about 150 bytes each beside their values.
    inflated_size_max
        Bytes of one log pack after inflation; held twice while it is taken apart.
    servers_max
        Servers of one configuration.
    endpoint_size_max
        Bytes of one server's endpoint.
    head_size_max
        Bytes of one HTTP head of the handshake.
    term_max
        A term above this is refused, so that a single message cannot use up the terms, which have
        63 bits on the wire.
    raft
        The limits of the core.  They are lowered where its requests would not fit the frames.
    """

    log_size_max: int = 64 * 1024 * 1024
    entries_max: int = 65536
    inflated_size_max: int = 64 * 1024 * 1024
    servers_max: int = 1024
    endpoint_size_max: int = 1024
    head_size_max: int = 16 * 1024
    term_max: int = 2**62
    raft: RaftLimits = field(default_factory=RaftLimits)

    def __post_init__(self) -> None:
        check_numbers(self)
        check_type("raft", self.raft, RaftLimits)

"""The memory limits of a connection."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Connection`, each with the memory that it implies.

    Raises `ValueError` if one is below 1.

    body_size_max
        Bytes in a body, by its declared size: they are held until a packet is complete.  The first
        notes of a peer are one packet, of about 64 bytes for each feed.
    control_size_max
        Bytes in the body of a request, or of an end, which are parsed at once.
    calls_max
        Open calls of the peer, about 600 bytes each and their arguments; further ones are refused.
    unanswered_max
        Calls of ours, and as many of the peer, that we have ended and it has not, about 300 bytes
        each, and as many of its that were refused, about 100 bytes each.  If there are more, the
        oldest count as over.
    answers_max
        Answers that the peer has not taken: ends, refusals, and replies to its async calls, about
        250 bytes each and their bodies.  While there are more `read_size()` is 0, and packets that
        have come wait.
    answers_size_max
        Bytes of such answers, and also the bytes to read at a time.  An answer may be larger than
        its cause, by some hundred bytes.
    unsent_size_max
        Bytes that may wait to be sent before `Connection.send_size` is 0: a hint to the sender to
        hold the rest back.
    """

    body_size_max: int = 4 << 20
    control_size_max: int = 1 << 16
    calls_max: int = 1024
    unanswered_max: int = 4096
    answers_max: int = 1024
    answers_size_max: int = 1 << 18
    unsent_size_max: int = 1 << 18

    def __post_init__(self) -> None:
        check_numbers(self, low=1)

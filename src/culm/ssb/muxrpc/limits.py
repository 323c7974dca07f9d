"""What a connection keeps in memory at most."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Connection`, each with the memory that it implies.

    Raises `ValueError` if one is below 1.

    body_size_max
        Bytes in a body, judged by the size that is declared: that much is held until a packet is
        whole. The first notes of a peer are one packet, of about 64 bytes for each feed.
    control_size_max
        Bytes in the body of a request, or of an end: what is read at once.
    calls_max
        Calls of the peer that are open at once, about 600 bytes each and their arguments; further
        ones are refused.
    unanswered_max
        Calls of the peer that we have ended, and for which it owes its end, about 300 bytes
        each. With more than that it is cut off.
    answers_max
        Packets that the peer has caused and has not taken: ends, refusals, and what is said in
        its async calls. `read_size()` is 0 while there are more.
    answers_size_max
        Bytes of such packets, and at the same time what is read at once.  An answer may be larger
        than what has caused it, by some hundred bytes.
    unsent_size_max
        Bytes that wait to be taken before `Connection.send_size` is 0: a hint to whoever sends,
        who holds the rest back.
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

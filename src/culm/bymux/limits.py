"""The most that a connection keeps in memory."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers
from culm.bymux.packets import HEADER_SIZE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Connection`, each with the memory that it implies.

    Raises `ValueError` if one is below 1, or if `receive_buffer_max` cannot hold a
    piece and a packet's header.

    write_size_max
        Bytes of data in a Write that we send. This takes no memory (the caller's data is cut,
        not copied) but decides for how long one stream holds up the others.
    piece_size_max
        Bytes of data in a `StreamData` event: one such event at a time, whatever size the peer
        claims for its Write.
    streams_max
        Streams alive at once, created by either side: under 300 bytes each, and under 1200 more
        while data is queued on one, in addition to that data.
    receive_buffer_max
        Bytes received and not yet parsed, as long as no more than `read_size()` bytes are handed
        in.
    answers_max
        Pong, Close and StopRead packets that wait for `data_to_send`; `read_size()` is 0 while
        there are more. At most 9 bytes each when they are taken; before that, Pongs are counted
        (per stream) and the others cost under 300 bytes each.
    """

    write_size_max: int = 16384
    piece_size_max: int = 16384
    streams_max: int = 1024
    receive_buffer_max: int = 65536
    answers_max: int = 4096

    def __post_init__(self) -> None:
        check_numbers(self, low=1)
        if self.receive_buffer_max < self.piece_size_max + HEADER_SIZE_MAX:
            raise ValueError(
                f"receive_buffer_max must be at least piece_size_max + {HEADER_SIZE_MAX}"
            )

"""The memory that a peer may make us use with createHistoryStream, and our way of asking."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_int, check_numbers

_POSITIVE = (
    "replies_max",
    "read_count_max",
    "read_size_max",
    "reads_max",
    "calls_max",
    "messages_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `HistoryServer` and a `HistoryReader`, with the memory that they imply.

    Raises `ValueError` for one below 1; `live_max` and `early_max` may be 0.

    replies_max
        Open calls of the peer, about 400 bytes each.  One more ends the live call that has waited
        longest for news, or is refused.
    read_count_max
        Messages to read at a time.
    read_size_max
        Bytes to read at a time; one message is read whatever its size.
    reads_max
        Concurrent reads; each holds up to `read_size_max`.
    calls_max
        Feeds to catch up with at a time.
    messages_max
        Messages of a feed to ask for in one call; then others have their turn.
    live_max
        Calls of ours that stay open for later messages, one for each feed.  Feeds beyond that, and
        feeds of peers that end such calls, are asked for again after `Timing.pause_s`.
    early_max
        Messages of one feed held before their turn, for `Timing.patience_s` at most; `EarlyRoom`
        bounds the bytes of all feeds and connections.
    """

    replies_max: int = 1024
    read_count_max: int = 100
    read_size_max: int = 1 << 16
    reads_max: int = 2
    calls_max: int = 10
    messages_max: int = 1000
    live_max: int = 256
    early_max: int = 50

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in _POSITIVE:
            check_int(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a `HistoryReader`, in seconds.  Raises `TypeError` and `ValueError`.

    pause_s
        Rest of a feed when there was nothing new.
    retry_s
        Rest of a feed after the peer has ended a call with an error, left out messages, or fallen
        silent.
    patience_s
        Time for which a peer may be silent in a call that it should answer.  If it is silent
        everywhere, the call ends; otherwise the call stays open for `retry_s` more, in case the
        line is slow, but another feed has its place.  After a call in vain both times are twice as
        long, and then four times.  So there may be `Limits.calls_max` such calls for each
        `patience_s` in four `retry_s`, 400, besides the `calls_max` with a place.
    """

    pause_s: float = 30.0
    retry_s: float = 600.0
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        check_numbers(self)

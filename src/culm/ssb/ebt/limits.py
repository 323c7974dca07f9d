"""The memory that peers may make a replicator use, and its patience with them."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Replicator`, each with the memory that it implies.

    Raises `ValueError` if one is below 1.

    sessions_max
        Concurrent sessions.
    feeds_max
        Feeds that one peer may tell us about in a session, besides those that we follow: about 250
        bytes each, and 400 for those that we follow.  Notes about further feeds are left out.
    notes_max
        Notes that we put into one frame, about 64 bytes each.
    unsent_size_max
        Bytes of messages that wait to be sent to one peer; more are read when there are fewer.
        One read may exceed it.
    read_count_max
        Messages in one `ReadMessages`.
    unwritten_size_max
        Bytes of messages that wait to be written; `Replicator.takes_messages` is false while there
        are more.  Each message counts 512 bytes more than its size.
    write_count_max
        Messages in one `AppendMessages`.
    invalid_max
        Feeds of which a peer may send invalid messages before its session ends.
    """

    sessions_max: int = 1024
    feeds_max: int = 65536
    notes_max: int = 512
    unsent_size_max: int = 1 << 17
    read_count_max: int = 256
    unwritten_size_max: int = 1 << 23
    write_count_max: int = 4096
    invalid_max: int = 16

    def __post_init__(self) -> None:
        check_numbers(self, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times, in seconds.  Raises `ValueError` below 0, `TypeError` unless they are numbers.

    stall_s
        If a feed's source, which claims to have more of it, has sent nothing at all for this long,
        the feed goes to another peer that claims to have more.  A source that has brought nothing,
        or takes its claim back, gets another turn after twice this time, then four times, and so
        on; if all others have been asked it is asked besides them.
    stall_feed_s
        The same if the source sends something, but nothing of this feed.
    turn_s
        If a source sends messages of a feed, and has more, others that claim more are tried after
        this time: the fastest keeps the feed.
    overtake_s
        Time for which a feed's source may lag behind the claim of another peer.
    notes_s
        A client's patience with the server's first notes while nothing arrives at all.
    """

    stall_s: float = 3.0
    stall_feed_s: float = 30.0
    turn_s: float = 10.0
    overtake_s: float = 0.5
    notes_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)

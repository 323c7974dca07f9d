"""What peers may make a replicator hold, and how long it waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_numbers

__all__ = ["Limits", "Timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Replicator`, each with the memory that it implies.

    Raises `ValueError` if one is below 1.

    sessions_max
        Sessions at a time.
    feeds_max
        Feeds of which one peer may tell, in this session and before: about 250 bytes each, and
        150 more for those that we follow.
    notes_max
        Notes that we put into one frame, about 64 bytes each.
    unsent_size_max
        Bytes of messages that were read, or have just come, for one peer, and wait for being
        taken; new ones are read when there are fewer.  One read may exceed it.
    read_count_max
        Messages that are read at once, in `ReadMessages`.
    unwritten_size_max
        Bytes of messages that wait for being written; `Replicator.takes_messages` is false while
        there are more.  Each counts 512 bytes more than it has.
    write_count_max
        Messages in one `AppendMessages`.
    invalid_max
        Messages that are not valid, of one session, before it ends.
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
    """Times, in seconds.  Raises `ValueError` below 0, `TypeError` for what is no number.

    stall_s
        A peer that says it has more of a feed, and has sent us nothing for this long, loses the
        feed to another one that says so, too.  If it had brought nothing at all, or takes back
        what it has said, it gets it again after twice this time, or four times if that happens
        again, and so on, unless nobody else says so.
    stall_feed_s
        The same where it sends something else, but nothing of this feed.
    turn_s
        How long a peer that sends messages of a feed has it, and says that it has more, before
        others that say so are tried: whoever is faster keeps it.
    overtake_s
        How long a peer from which we receive a feed may be behind what another one says it has.
    notes_s
        How long a client waits for the server's first notes, as long as nothing comes at all.
    """

    stall_s: float = 3.0
    stall_feed_s: float = 30.0
    turn_s: float = 10.0
    overtake_s: float = 0.5
    notes_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)

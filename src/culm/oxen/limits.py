"""Bounds of memory, and the times by which a node lives."""

from __future__ import annotations

import math
from dataclasses import dataclass

from culm.arguments import check_fields, check_numbers

__all__ = ["Limits", "Timing"]

_OFF_AT_0 = ("message_size_max", "tags_size_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Node`, each with the memory that it implies.

    Raises `ValueError` for a bound below 1, but for `message_size_max` and `tags_size_max`, and
    for a `datagram_size_max` that leaves no room for a message between servers with the longest
    IDs, nor for all tags, or that UDP cannot carry.

    datagram_size_max
        Bytes of a datagram, in and out; at most 65,507. The default passes any network.
    sid_size_max
        Bytes of a server ID.
    peers_max
        Servers known besides the node itself. The last contact table has their square as entries,
        of about 100 bytes each.
    candidates_max
        Servers, of those, that have never joined: made known by gossip, and forgotten if they do
        not synchronize in time. As many again that nobody has named and that have proved nothing:
        each may be displaced by the next one.
    queue_max
        Messages to one peer that are not acknowledged: at most that many payloads of
        `datagram_size_max` bytes, and about 650 bytes each besides.
    window_max
        In-order messages ahead of the next one: kept for each peer and for each of its two streams
        on receiving, and not exceeded on sending. All nodes of a cluster should have the same; a
        smaller window on the receiving side costs redeliveries.
    inbox_size_max
        Bytes of datagrams received and not yet looked at (`Node.next_event` does), with their
        sources' IDs and 160 bytes of overhead for each. What is less than one datagram of
        `datagram_size_max` bytes needs lets none of that size in.
    outbox_max
        Parcels to be sent and not yet taken (`Node.datagrams_to_send`), of at most
        `datagram_size_max` bytes each, and keepalives owed.
    forwards_max
        Forwarded messages remembered in order to cut loops, about 300 bytes each.
    message_size_max
        Bytes of a message in order that is larger than a datagram, in and out; 0 if there is to be
        none. Peers are told, and those that have such a limit too get and send larger ones, in
        pieces. The last one queued for a peer may exceed `queue_max` by its pieces.
    assemblies_max
        Messages that come in pieces at the same time, each of at most `message_size_max` bytes:
        one for each peer and each of its two streams. Further ones have to wait.
    tags_size_max
        Bytes of the tags of a node, ours and those of each peer, as an XENC dictionary; 0 if there
        are to be none. At most 64 tags, of about 200 bytes of memory each besides. Peers are told,
        and those that have such a limit too say their tags, if they are within ours.
    """

    datagram_size_max: int = 1200
    sid_size_max: int = 32
    peers_max: int = 256
    candidates_max: int = 64
    queue_max: int = 1024
    window_max: int = 256
    inbox_size_max: int = 4_194_304
    outbox_max: int = 16_384
    forwards_max: int = 4096
    message_size_max: int = 0
    assemblies_max: int = 64
    tags_size_max: int = 0

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in self.__dataclass_fields__:
            if name not in _OFF_AT_0:
                check_fields(self, name, low=1)
        self.check_parcels(0)

    def check_parcels(self, overhead: int) -> None:
        """Datagrams have room for parcels beside so many bytes; raises `ValueError` if not."""
        low = 160 + 2 * self.sid_size_max + self.tags_size_max + overhead
        if not low <= self.datagram_size_max <= 65_507:
            raise ValueError(f"datagram_size_max must be within {low} and 65507")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a `Node`, all in seconds.  Raises `ValueError` for one that is not positive.

    keepalive_s
        Age of the last contact at which a peer is asked for a sign of life. What is sent anyway
        asks earlier: a parcel with a body at half of it.
    keepalive_retry_s
        Between two such questions, as long as the link is usable; also how often the table is
        looked at.
    usable_s
        Age of the last contact from which a link is possibly unusable. Clocks of the cluster
        should agree within a quarter of it.
    give_up_s
        How long a peer is possibly unreachable before it is given up.
    suspect_s
        How long a peer that has joined may be silent, to us and to those who tell us, until others
        are asked to reach it for us; infinite: they never are. If nothing comes back for as long
        again, it is given up, whatever `usable_s` and `give_up_s` are. Some times `keepalive_s`.
    seek_max_s
        Longest interval of asking a peer that is out of reach: it is an eighth of the time since
        the last contact, and at least `keepalive_s`.
    forget_s
        How long a peer that was given up is still looked for; `PeerForgotten` follows.
    gossip_s
        Between two portions of the last contact table.
    resolution_s
        What times in gossip are rounded down to; whole seconds are shortest to write.
    redelivery_first_s
        After how long a message is sent again while no round trip has been measured.
    redelivery_min_s
        The shortest such time once round trips have been measured, but for probes and for what is
        known to be lost. It doubles with each time in a row.
    redelivery_max_s
        The longest. Those that were doubled vary by a fifth either way.
    leave_s
        How long a leaving node waits for acknowledgements and for what peers owe it.
    """

    keepalive_s: float = 5.0
    keepalive_retry_s: float = 1.0
    usable_s: float = 20.0
    give_up_s: float = 60.0
    suspect_s: float = math.inf
    seek_max_s: float = 240.0
    forget_s: float = 604_800.0
    gossip_s: float = 1.0
    resolution_s: float = 1.0
    redelivery_first_s: float = 0.8
    redelivery_min_s: float = 0.2
    redelivery_max_s: float = 5.0
    leave_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")

"""Bounds of memory, and the times that a node goes by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from culm.arguments import check_fields, check_numbers

_OFF_AT_0 = ("message_size_max", "tags_size_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Node`, each with the memory that it implies.

    Raises `ValueError` for a bound below 1, except `message_size_max` and `tags_size_max`, and
    for a `datagram_size_max` that UDP cannot carry, or that leaves no room for all tags or for a
    message between servers with the longest IDs.

    datagram_size_max
        Bytes of a datagram, in and out; at most 65,507. The default gets through any network.
    sid_size_max
        Bytes of a server ID.
    peers_max
        Servers known besides the node itself, and one more while any of them is given up. The last
        contact table has their square as entries, of about 100 bytes each.
    candidates_max
        Known servers that have never joined: gossip has named them, and they are forgotten if they
        do not synchronize in time. As many again may be strangers, which have proved nothing
        and were named by no trusted server: each can be displaced by a later one.
    queue_max
        Unacknowledged messages to one peer, each with a payload of at most `datagram_size_max`
        bytes and about 650 bytes more. There may be as many again in each of the two streams
        while a large message waits there for a place.
    window_max
        Distance by which messages in order may be ahead of the next one: a receiver keeps that many
        for each of a peer's two streams, and a sender never exceeds it. It should be the same on
        all nodes of a cluster; a smaller window on the receiving side costs redeliveries.
    inbox_size_max
        Bytes of datagrams received and not yet processed (by `Node.next_event`), with their
        sources' IDs and 160 bytes of overhead each. A datagram that does not fit even into an
        empty inbox never gets in.
    outbox_max
        Parcels waiting to be taken (`Node.datagrams_to_send`), of at most `datagram_size_max`
        bytes each; also neighbours whose keepalives await an answer, with the last 16 of each.
    forwards_max
        Forwarded messages remembered to cut loops, about 300 bytes each.
    message_size_max
        Bytes of a message in order that is sent in pieces because it is larger than a datagram, in
        and out; 0 turns pieces off. Peers are told this limit, and only those that also have one
        send and get pieces. The pieces of the last message in a queue may exceed `queue_max`.
    assemblies_max
        Messages received in pieces at the same time, each of at most `message_size_max` bytes, one
        for each of a peer's two streams. Further ones have to wait for their turn.
    tags_size_max
        Bytes of a node's tags, this one's and each peer's, as an XENC dictionary; 0 turns tags
        off. There are at most 64 tags, which take about 200 bytes of memory more each. Peers are
        told this limit, and those that also have one send their tags if they are within it.
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
        """Raise `ValueError` unless a datagram has room for a parcel beside `overhead` bytes."""
        low = 160 + 2 * self.sid_size_max + self.tags_size_max + overhead
        if not low <= self.datagram_size_max <= 65_507:
            raise ValueError(f"datagram_size_max must be within {low} and 65507")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a `Node`, all in seconds.

    Raises `ValueError` for one that is not positive, and for an infinite `resolution_s`.

    keepalive_s
        Age of the last contact at which a peer is asked for a sign of life. A parcel that is sent
        anyway asks earlier: at half that age if it has a body.
    keepalive_retry_s
        Time between two such questions while the link is usable; also the interval at which the
        table is reviewed.
    usable_s
        Age of the last contact at which a link may have become unusable. The clocks of a cluster
        should agree within a quarter of it.
    give_up_s
        Time for which a peer may be unreachable before it is given up.
    suspect_s
        Time for which a joined peer may be silent, towards this node and those that gossip to it,
        before others are asked to reach it; if infinite, they never are. If nothing comes back for
        as long again, the peer is given up, regardless of `usable_s` and `give_up_s`. A few times
        `keepalive_s` is a good choice.
    seek_max_s
        Longest interval between two questions to a peer that is out of reach. The interval is an
        eighth of the time since the last contact, and at least `keepalive_s`.
    forget_s
        Time for which a peer that was given up is still looked for; then `PeerForgotten` follows.
    gossip_s
        Time between two portions of the last contact table.
    resolution_s
        Resolution to which times in gossip are rounded down, a nanosecond at least; whole seconds
        take the fewest bytes.
    redelivery_first_s
        Wait before a message is sent again, until a round trip has been measured.
    redelivery_min_s
        The shortest such wait once round trips have been measured, except for probes and for
        messages known to be lost. It doubles with every timeout in a row.
    redelivery_max_s
        The longest such wait. Doubled waits vary by a fifth either way.
    leave_s
        Time that a leaving node waits for acknowledgements and for messages that peers owe it.
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
        if math.isinf(self.resolution_s):
            raise ValueError("resolution_s must be finite")

"""The memory that peers may make us use, and our patience with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from culm import ssb
from culm.arguments import check_int, check_numbers, check_type
from culm.ssb import ebt, history, muxrpc

_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of a `Peer`, each with the memory that it implies.

    Raises `ValueError` for one below 1 (`verifying_max`: below 0).

    links_max
        Concurrent connections: each takes at most the memory that `rpc` and `ssb` allow,
        and 4 KiB; `half_sent_size_max` and `early_size_max` count apart.  While it is asked for
        feeds one by one, it takes 300 bytes for each, and 1 KiB more for each of about 700 calls.
    links_of_peer_max
        Connections of one peer: one more ends the oldest of them.
    half_sent_size_max
        Bytes of packets that have come in part, of all connections together.  When there are more,
        the connection whose packet comes slowest ends: of strangers, if they hold more than half,
        otherwise of peers that we follow or have dialled.
    early_size_max
        Bytes of messages that come before their turn where feeds are asked for one by one, of all
        connections together.  A connection may hold as much of that as is free.
    sessions_max
        Sessions that a peer may open over one connection, one after the other; further ones are
        refused.  Each reads the peer's clock, and feeds, from the store.
    verifying_max
        Signatures that the driver verifies at a time (`culm.signatures.Verify`), of messages in
        sessions that follow those before them; as many frames of a connection wait for that, at
        most, and 128 KiB.  0: the peer verifies them itself.
    fill_size_max
        Bytes of feeds to put into a connection at a time.
    ssb
        The limits of each connection's handshake and box stream.
    rpc
        The limits of each connection's calls.
    ebt
        The limits of the replicator.
    history
        The limits of each connection's answers to createHistoryStream.
    """

    links_max: int = 1024
    links_of_peer_max: int = 4
    half_sent_size_max: int = 1 << 26
    early_size_max: int = 1 << 23
    sessions_max: int = 64
    fill_size_max: int = 1 << 16
    verifying_max: int = 0
    ssb: ssb.Limits = field(default_factory=ssb.Limits)
    rpc: muxrpc.Limits = field(default_factory=muxrpc.Limits)
    ebt: ebt.Limits = field(default_factory=ebt.Limits)
    history: history.Limits = field(default_factory=history.Limits)

    def __post_init__(self) -> None:
        check_int("links_max", self.links_max, 1)
        check_int("links_of_peer_max", self.links_of_peer_max, 1)
        check_int("half_sent_size_max", self.half_sent_size_max, 1)
        check_int("early_size_max", self.early_size_max, 1)
        check_int("sessions_max", self.sessions_max, 1)
        check_int("fill_size_max", self.fill_size_max, 1)
        check_int("verifying_max", self.verifying_max, 0)
        check_type("ssb", self.ssb, ssb.Limits)
        check_type("rpc", self.rpc, muxrpc.Limits)
        check_type("ebt", self.ebt, ebt.Limits)
        check_type("history", self.history, history.Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a `Peer`, in seconds.

    Raises `ValueError` for one below 0, `TypeError` for something that is not a time.

    session_s
        A server's wait for the client's session before it falls back (scenario 3), or requests one
        itself (scenario 4).  Also the shortest pause before a lost session is requested again: one
        that gave way to another link's, or whose first notes were late.
    ping_s
        Pause before we serve again in a ``gossip.ping``, which the client opens at once; infinite:
        no pings, unless the peer is silent.
    idle_timeout_s
        Time for which a peer, client or server, may be silent before it is asked for a sign of
        life, and the time that it then has to give one: any byte will do.  The latter counts from
        the moment when bytes of ours last left.  `ping_s` if that is shorter; infinite: for ever.
    goodbye_s
        Time that a peer has to answer our goodbye.
    confirm_s
        If our own feed comes from a backup, and peers that we follow have told that they have less
        of it, or nothing: the time until it is confirmed, since another one may know of more.
    ssb
        The time for the secret handshake.
    ebt
        The times of the replicator.
    history
        The times of requests for feeds one by one.
    """

    session_s: float = 5.0
    ping_s: float = inf
    idle_timeout_s: float = 300.0
    goodbye_s: float = 5.0
    confirm_s: float = 30.0
    ssb: ssb.Timing = field(default_factory=ssb.Timing)
    ebt: ebt.Timing = field(default_factory=ebt.Timing)
    history: history.Timing = field(default_factory=history.Timing)

    def __post_init__(self) -> None:
        check_numbers(self)
        check_type("ssb", self.ssb, ssb.Timing)
        check_type("ebt", self.ebt, ebt.Timing)
        check_type("history", self.history, history.Timing)

    @property
    def patience_s(self) -> float:
        """The time for which a peer may be silent: the lesser of `ping_s` and `idle_timeout_s`.

        A tenth of a second at least: with times of 0, one that waits for our store would be looked
        at again and again at once.
        """
        return max(min(self.ping_s, self.idle_timeout_s), _TICK_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Ways to exchange feeds.  Raises `TypeError`.

    asks_as_server
        Whether a server requests a session itself before it falls back (scenario 4).
    speaks_ebt
        Whether there are sessions at all; without them feeds are requested one by one.
    falls_back
        Whether feeds are requested one by one where there is no session.  Peers that ask us in that
        way are answered in any case.
    """

    asks_as_server: bool = False
    speaks_ebt: bool = True
    falls_back: bool = True

    def __post_init__(self) -> None:
        for name in ("asks_as_server", "speaks_ebt", "falls_back"):
            check_type(name, getattr(self, name), bool)

"""Events of a peer's links; those of feeds are in `culm.ssb.ebt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Event, RemoteProtocolError
from culm.ssb.ebt.effects import ReplicatorEffect
from culm.ssb.ebt.events import ReplicatorEvent
from culm.ssb.peer.states import ExchangeInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected(Event):
    """A link's other end has proved who it is.

    peer: the feed id of its public key.
    """

    link: int
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDisconnected(Event):
    """A link has ended.

    peer: ``None`` if the other end has not proved who it is.
    error: the peer's fault, if that was the reason.
    """

    link: int
    peer: str | None
    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack(Event):
    """There is no session with the peer: feeds are asked for one by one (`culm.ssb.history`).

    `Settings.falls_back` says whether they are; a session that the peer opens later takes over.

    reason: ``SESSION_REFUSED`` (scenarios 1 and 4), ``HISTORY_ASKED`` (2), ``WAITED`` (3), or
        ``NO_PLACE`` for a session of ours: there are too many with others, and we ask again later.
    """

    link: int
    peer: str
    reason: ExchangeInput


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFeedConfirmed(Event):
    """Our own feed, which comes from a backup, is as long as peers that we follow know it.

    From now on messages may be published.
    """

    last: int


LinkEvent: TypeAlias = PeerConnected | PeerDisconnected | FellBack
PeerEvent: TypeAlias = (
    ReplicatorEvent | LinkEvent | OwnFeedConfirmed
)  # `Closed` is one of the replicator's
PeerEffect: TypeAlias = ReplicatorEffect

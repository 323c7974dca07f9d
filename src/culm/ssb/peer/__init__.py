"""A peer of Secure Scuttlebutt: all layers, over any number of connections."""

from culm.ssb.peer.errors import ErrorCode
from culm.ssb.peer.events import (
    FellBack,
    OwnFeedConfirmed,
    PeerConnected,
    PeerDisconnected,
    PeerEffect,
    PeerEvent,
)
from culm.ssb.peer.limits import Limits, Settings, Timing
from culm.ssb.peer.links import PeerLink
from culm.ssb.peer.peer import Peer
from culm.ssb.peer.states import ExchangeInput

__all__ = [
    "FellBack",
    "OwnFeedConfirmed",
    "PeerConnected",
    "PeerDisconnected",
    "PeerEvent",
    "ErrorCode",
    "ExchangeInput",
    "Limits",
    "Peer",
    "PeerEffect",
    "PeerLink",
    "Settings",
    "Timing",
]

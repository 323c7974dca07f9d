"""A peer of Secure Scuttlebutt: all layers, over any number of connections."""

from culm.ssb.peer.conversation import read_frame
from culm.ssb.peer.errors import ErrorCode
from culm.ssb.peer.events import (
    FellBack,
    OwnFeedConfirmed,
    PeerConnected,
    PeerDisconnected,
    PeerEffect,
    PeerEvent,
)
from culm.ssb.peer.frames import MessageFrame
from culm.ssb.peer.limits import Limits, Settings, Timing
from culm.ssb.peer.links import PeerLink
from culm.ssb.peer.peer import ClassicFormat, Peer
from culm.ssb.peer.states import ExchangeInput, ExchangeMode

__all__ = [
    "ClassicFormat",
    "ErrorCode",
    "ExchangeInput",
    "ExchangeMode",
    "FellBack",
    "Limits",
    "MessageFrame",
    "OwnFeedConfirmed",
    "Peer",
    "PeerConnected",
    "PeerDisconnected",
    "PeerEffect",
    "PeerEvent",
    "PeerLink",
    "Settings",
    "Timing",
    "read_frame",
]

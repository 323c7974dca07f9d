"""Oxen, the cluster protocol: reliable messages between servers, around broken links.

`Node` is the machine.  Source: manual/dev-oxen.md of aji/ircd-oxide.
"""

from culm.oxen.errors import DropReason, ErrorCode
from culm.oxen.events import (
    Delivered,
    Delivery,
    FailReason,
    LeaveReason,
    MessageReceived,
    NodeEvent,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerUnreachable,
    SendFailed,
    SendResumed,
    SendWaiting,
    TagsChanged,
    Writable,
)
from culm.oxen.limits import Limits, Timing
from culm.oxen.messages import Dialect
from culm.oxen.node import Node
from culm.oxen.states import PeerState, State
from culm.oxen.status import PeerView, format_peers

__all__ = [
    "Delivered",
    "MessageReceived",
    "NodeEvent",
    "PeerForgotten",
    "PeerJoined",
    "PeerLeft",
    "PeerReachable",
    "PeerUnreachable",
    "SendFailed",
    "SendResumed",
    "SendWaiting",
    "TagsChanged",
    "Writable",
    "Delivery",
    "Dialect",
    "DropReason",
    "ErrorCode",
    "FailReason",
    "LeaveReason",
    "Limits",
    "Node",
    "PeerState",
    "PeerView",
    "State",
    "Timing",
    "format_peers",
]

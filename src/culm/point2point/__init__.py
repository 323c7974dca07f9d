"""Bamboo Point-2-Point: two endpoints replicate bamboo logs over one stream of bytes."""

from culm.bymux import Role
from culm.machine import Closed
from culm.point2point.connection import Connection
from culm.point2point.errors import ErrorCode
from culm.point2point.events import (
    Adjusted,
    Apologized,
    Cancelled,
    Confirmed,
    ConnectionEvent,
    CreditReceived,
    EntriesReceived,
    EntryWanted,
    Established,
    ForkSuspected,
    GivenUp,
    HashWanted,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    ProposalDropped,
    Proposed,
    RequestEnded,
    RequestGivenUp,
    SkipReason,
)
from culm.point2point.handles import (
    ConnectionSnapshot,
    DirectionSnapshot,
    Request,
    RequestSnapshot,
)
from culm.point2point.limits import Limits
from culm.point2point.messages import (
    EVERYTHING,
    NOTIFY,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Proposal,
    payloads_up_to,
)
from culm.point2point.pieces import Part, Piece
from culm.point2point.setup import Mode, Session, Setup
from culm.point2point.states import RequestState, State

__all__ = [
    "EVERYTHING",
    "NOTIFY",
    "Adjust",
    "Adjusted",
    "Apologized",
    "Cancel",
    "CancelReason",
    "Cancelled",
    "Closed",
    "Confirmed",
    "Connection",
    "ConnectionEvent",
    "ConnectionSnapshot",
    "CreditReceived",
    "DirectionSnapshot",
    "Eagerness",
    "EntriesReceived",
    "EntryWanted",
    "ErrorCode",
    "Established",
    "ForkSuspected",
    "GivenUp",
    "HashWanted",
    "Limits",
    "MetadataReceived",
    "Mode",
    "Notified",
    "Part",
    "PayloadReceived",
    "PayloadSkipped",
    "Piece",
    "Proposal",
    "ProposalDropped",
    "Proposed",
    "Request",
    "RequestEnded",
    "RequestGivenUp",
    "RequestSnapshot",
    "RequestState",
    "Role",
    "Session",
    "Setup",
    "SkipReason",
    "State",
    "payloads_up_to",
]

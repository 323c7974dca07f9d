"""Bamboo Point-2-Point: two endpoints replicate bamboo logs over one stream of bytes."""

from culm.bymux import Role
from culm.machine import Closed
from culm.point2point.connection import Connection, State
from culm.point2point.errors import ErrorCode
from culm.point2point.events import (
    Adjusted,
    Apologized,
    Cancelled,
    Confirmed,
    CreditReceived,
    EntryWanted,
    Established,
    ForkSuspected,
    HashWanted,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    ProposalDropped,
    Proposed,
    RequestEnded,
    SkipReason,
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
from culm.point2point.replication_events import (
    EntryStored,
    ForkFound,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    PayloadProgress,
    PiecesNotified,
    ReplicatorLimits,
    Settled,
    Want,
)
from culm.point2point.replicator import Replicator
from culm.point2point.request import Request
from culm.point2point.setup import Mode, Session, Setup
from culm.point2point.states import RequestState

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
    "CreditReceived",
    "Eagerness",
    "EntryStored",
    "EntryWanted",
    "ErrorCode",
    "Established",
    "ForkFound",
    "ForkSuspected",
    "HashWanted",
    "Interest",
    "Limits",
    "LogEnded",
    "LogOffered",
    "LogRefused",
    "LogSynced",
    "MetadataReceived",
    "Mode",
    "Notified",
    "Part",
    "PayloadProgress",
    "PayloadReceived",
    "PayloadSkipped",
    "Piece",
    "PiecesNotified",
    "Proposal",
    "ProposalDropped",
    "Proposed",
    "Replicator",
    "ReplicatorLimits",
    "Request",
    "RequestEnded",
    "RequestState",
    "Role",
    "Session",
    "Settled",
    "Setup",
    "SkipReason",
    "State",
    "Want",
    "payloads_up_to",
]

"""Log sync over Point-2-Point: two stores of bamboo logs become alike."""

from culm.machine import Closed, StoreFailed
from culm.point2point.limits import ReplicatorLimits, Timing
from culm.point2point.replication.events import (
    EntryStored,
    ForkFound,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    PayloadProgress,
    PiecesNotified,
    ReplicatorEffect,
    ReplicatorEvent,
    Settled,
    Want,
)
from culm.point2point.replication.replicator import Replicator

__all__ = [
    "Closed",
    "EntryStored",
    "ForkFound",
    "LogEnded",
    "LogOffered",
    "LogRefused",
    "LogSynced",
    "PayloadProgress",
    "PiecesNotified",
    "ReplicatorEvent",
    "Settled",
    "StoreFailed",
    "Interest",
    "Replicator",
    "ReplicatorEffect",
    "ReplicatorLimits",
    "Timing",
    "Want",
]

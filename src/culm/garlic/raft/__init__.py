"""The Raft core: elections, replication, snapshots, membership.  Knows no wire format."""

from culm.garlic.raft.core import Raft
from culm.garlic.raft.effects import (
    Apply,
    Compact,
    Persist,
    RaftEffect,
    ReadSnapshot,
    SnapshotChunk,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import (
    ChangeFailed,
    Committed,
    ConfigurationChanged,
    Forwarded,
    ForwardFailed,
    LeaderChanged,
    LeadershipTransferred,
    Left,
    Lost,
    PeerFault,
    RaftEvent,
    ReadFailed,
    ReadReady,
    RoleChanged,
    SnapshotInstalled,
    TransferFailed,
)
from culm.garlic.raft.limits import Limits, Timing
from culm.garlic.raft.log import LogView
from culm.garlic.raft.model import Configuration, Entry, PeerStatus, Server, Snapshot, Stored
from culm.garlic.raft.states import State

__all__ = [
    "ChangeFailed",
    "Committed",
    "ConfigurationChanged",
    "ForwardFailed",
    "Forwarded",
    "LeaderChanged",
    "LeadershipTransferred",
    "Left",
    "Lost",
    "PeerFault",
    "RaftEvent",
    "ReadFailed",
    "ReadReady",
    "RoleChanged",
    "SnapshotInstalled",
    "TransferFailed",
    "Apply",
    "Compact",
    "Configuration",
    "Entry",
    "ErrorCode",
    "Limits",
    "LogView",
    "PeerStatus",
    "Persist",
    "Raft",
    "RaftEffect",
    "ReadSnapshot",
    "Server",
    "Snapshot",
    "SnapshotChunk",
    "State",
    "Stored",
    "TakeSnapshot",
    "Timing",
    "WriteSnapshot",
]

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
from culm.garlic.raft.events import (
    ChangeFailed,
    ConfigurationChanged,
    LeaderChanged,
    Left,
    RaftErrorCode,
    RaftEvent,
    ReadFailed,
    ReadReady,
    Role,
    RoleChanged,
    SnapshotInstalled,
    TransferFailed,
)
from culm.garlic.raft.model import Configuration, Entry, Server, Snapshot, Stored
from culm.garlic.raft.settings import Settings

__all__ = [
    "Apply",
    "ChangeFailed",
    "Compact",
    "Configuration",
    "ConfigurationChanged",
    "Entry",
    "LeaderChanged",
    "Left",
    "Persist",
    "Raft",
    "RaftEffect",
    "RaftErrorCode",
    "RaftEvent",
    "ReadFailed",
    "ReadReady",
    "ReadSnapshot",
    "Role",
    "RoleChanged",
    "Server",
    "Settings",
    "Snapshot",
    "SnapshotChunk",
    "SnapshotInstalled",
    "Stored",
    "TakeSnapshot",
    "TransferFailed",
    "WriteSnapshot",
]

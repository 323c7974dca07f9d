"""Epidemic Broadcast Trees: feeds exchanged with any number of peers, over few links."""

from culm.machine import Closed, StoreFailed
from culm.ssb.ebt.effects import (
    AppendMessages,
    LoadClock,
    MarkForked,
    ReadMessages,
    ReplicatorEffect,
    SaveClock,
)
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.ebt.events import (
    FeedExtended,
    FeedForked,
    FeedsLeftOut,
    MessageRefused,
    ReplicatorEvent,
    SessionEnded,
    SessionOpened,
    SessionSynced,
    SourceChanged,
)
from culm.ssb.ebt.limits import Limits, Timing
from culm.ssb.ebt.model import (
    TURNS,
    ForkedFeedError,
    Format,
    Head,
    InvalidMessageError,
    Message,
    PeerClock,
    StoredFeeds,
    SyncProgress,
)
from culm.ssb.ebt.notes import Note, decode_note, decode_notes, encode_note
from culm.ssb.ebt.replicator import Replicator
from culm.ssb.ebt.states import EndReason, SessionRole, State

__all__ = [
    "Closed",
    "FeedExtended",
    "FeedForked",
    "FeedsLeftOut",
    "MessageRefused",
    "ReplicatorEvent",
    "SessionEnded",
    "SessionOpened",
    "SessionSynced",
    "SourceChanged",
    "StoreFailed",
    "TURNS",
    "AppendMessages",
    "EndReason",
    "ErrorCode",
    "ForkedFeedError",
    "Format",
    "Head",
    "InvalidMessageError",
    "Limits",
    "LoadClock",
    "MarkForked",
    "Message",
    "Note",
    "PeerClock",
    "ReadMessages",
    "Replicator",
    "ReplicatorEffect",
    "SaveClock",
    "SessionRole",
    "State",
    "StoredFeeds",
    "SyncProgress",
    "Timing",
    "decode_note",
    "decode_notes",
    "encode_note",
]

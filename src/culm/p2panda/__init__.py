"""p2panda: documents of many writers, and their replication between two peers."""

from culm.machine import Closed
from culm.p2panda.author import Author
from culm.p2panda.codec import Dialect
from culm.p2panda.comparison import Offers
from culm.p2panda.connection import Connection
from culm.p2panda.document import Document, materialise
from culm.p2panda.effects import ReplicatorEffect
from culm.p2panda.errors import ErrorCode, InvalidOperation, Reason
from culm.p2panda.events import (
    Announced,
    AnnouncementIgnored,
    ConnectionEvent,
    DoneReceived,
    EntriesReceived,
    EntryReceived,
    HaveReceived,
    Ignored,
    MessageIgnored,
    OperationLeftOut,
    OperationStored,
    RangeReceived,
    ReplicatorEvent,
    RequestDropped,
    RequestedAgain,
    RequestIgnored,
    RequestRenumbered,
    SessionEnded,
    SessionLive,
    SessionRequested,
)
from culm.p2panda.heights import Height
from culm.p2panda.limits import Limits, Policy, ReplicatorLimits, Timing
from culm.p2panda.messages import Mode
from culm.p2panda.operation import Action, Operation, Value, decode
from culm.p2panda.replicator import Replicator
from culm.p2panda.schema import FieldType, Kind, Schema, SchemaId
from culm.p2panda.sessions import Session
from culm.p2panda.states import SessionState, SideState, State
from culm.p2panda.store import MemoryStore, OperationStore

__all__ = [
    "Announced",
    "AnnouncementIgnored",
    "Closed",
    "ConnectionEvent",
    "DoneReceived",
    "EntriesReceived",
    "EntryReceived",
    "HaveReceived",
    "MessageIgnored",
    "OperationLeftOut",
    "OperationStored",
    "RangeReceived",
    "ReplicatorEvent",
    "RequestDropped",
    "RequestIgnored",
    "RequestRenumbered",
    "RequestedAgain",
    "SessionEnded",
    "SessionLive",
    "SessionRequested",
    "Action",
    "Author",
    "Connection",
    "Dialect",
    "Document",
    "ErrorCode",
    "FieldType",
    "Height",
    "Ignored",
    "InvalidOperation",
    "Kind",
    "Limits",
    "MemoryStore",
    "Mode",
    "Offers",
    "Operation",
    "OperationStore",
    "Policy",
    "Reason",
    "Replicator",
    "ReplicatorEffect",
    "ReplicatorLimits",
    "Schema",
    "SchemaId",
    "Session",
    "SessionState",
    "SideState",
    "State",
    "Timing",
    "Value",
    "decode",
    "materialise",
]

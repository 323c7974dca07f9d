"""p2panda: documents of many writers, and their replication between two peers."""

from culm.machine import Closed
from culm.p2panda.author import Author
from culm.p2panda.codec import Dialect
from culm.p2panda.comparison import Offers
from culm.p2panda.connection import Connection
from culm.p2panda.document import Document, materialise, sort_operations, view_id
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
from culm.p2panda.schema import SYSTEM_SCHEMAS, FieldType, Kind, Schema, SchemaId
from culm.p2panda.sessions import Session
from culm.p2panda.states import SessionState, SideState, State
from culm.p2panda.store import MemoryStore, OperationStore

__all__ = [
    "SYSTEM_SCHEMAS",
    "Action",
    "Announced",
    "AnnouncementIgnored",
    "Author",
    "Closed",
    "Connection",
    "ConnectionEvent",
    "Dialect",
    "Document",
    "DoneReceived",
    "EntriesReceived",
    "EntryReceived",
    "ErrorCode",
    "FieldType",
    "HaveReceived",
    "Height",
    "Ignored",
    "InvalidOperation",
    "Kind",
    "Limits",
    "MemoryStore",
    "MessageIgnored",
    "Mode",
    "Offers",
    "Operation",
    "OperationLeftOut",
    "OperationStore",
    "OperationStored",
    "Policy",
    "RangeReceived",
    "Reason",
    "Replicator",
    "ReplicatorEffect",
    "ReplicatorEvent",
    "ReplicatorLimits",
    "RequestDropped",
    "RequestIgnored",
    "RequestRenumbered",
    "RequestedAgain",
    "Schema",
    "SchemaId",
    "Session",
    "SessionEnded",
    "SessionLive",
    "SessionRequested",
    "SessionState",
    "SideState",
    "State",
    "Timing",
    "Value",
    "decode",
    "materialise",
    "sort_operations",
    "view_id",
]

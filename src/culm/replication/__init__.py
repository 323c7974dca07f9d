"""The parts that every replicator needs and no protocol owns: small, one task each."""

from culm.replication.base import DurableBase
from culm.replication.patience import Debts, Liveness, Pauses, Quiet
from culm.replication.queues import Room, Turns, Write, Writes

__all__ = [
    "Debts",
    "DurableBase",
    "Liveness",
    "Pauses",
    "Quiet",
    "Room",
    "Turns",
    "Write",
    "Writes",
]

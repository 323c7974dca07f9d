"""The data pipeline: DataFrame in, DataFrame out, with the same culm inside the executors.

Importing this package imports nothing of Spark; calling it does, and needs the extra
``culm[spark]``.  The names that most programs need are here; `culm.spark.schemas` describes the
columns.
Some names are those of modules, too: ``from culm.spark import audit`` gives the function, and
``from culm.spark.audit import FORKS`` another name of the module.
"""

from culm.spark.audit import Audit, audit
from culm.spark.audits import Audits
from culm.spark.captures import decode_captures
from culm.spark.delta import DeltaAudits, append_once, merge_rows
from culm.spark.errors import ColumnError, SparkSetupError, UnreadableError
from culm.spark.face import decode, read, verify
from culm.spark.fingerprint import ENTRY_LEVELS, Fingerprinted, entry_items, fingerprint, write_tree
from culm.spark.functions import register_functions
from culm.spark.metrics import observe
from culm.spark.operations import decode_operations
from culm.spark.quarantine import count_faults, quarantined, sound
from culm.spark.raft_logs import decode_raft_entries, raft_violations
from culm.spark.reasons import reasons_of
from culm.spark.reconcile import Reconciliation, divergent_ranges, reconcile
from culm.spark.session import pack_culm, prepare, ship_culm, start_session
from culm.spark.sessions import replay_sessions, session_lines
from culm.spark.source import read_again, register, write
from culm.spark.ssb import verify_feed_messages as verify_messages
from culm.spark.stream import read_batches, write_batches

__all__ = [
    "ENTRY_LEVELS",
    "Audit",
    "Audits",
    "ColumnError",
    "DeltaAudits",
    "Fingerprinted",
    "Reconciliation",
    "SparkSetupError",
    "UnreadableError",
    "append_once",
    "audit",
    "count_faults",
    "decode",
    "decode_captures",
    "decode_operations",
    "decode_raft_entries",
    "divergent_ranges",
    "entry_items",
    "fingerprint",
    "merge_rows",
    "observe",
    "pack_culm",
    "prepare",
    "quarantined",
    "raft_violations",
    "read",
    "read_again",
    "read_batches",
    "reasons_of",
    "reconcile",
    "register",
    "register_functions",
    "replay_sessions",
    "session_lines",
    "ship_culm",
    "sound",
    "start_session",
    "verify",
    "verify_messages",
    "write",
    "write_batches",
    "write_tree",
]

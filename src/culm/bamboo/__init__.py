"""Bamboo logs: entries, links, verification, forks, storage, authoring.

The log format of AljoschaMeyer/bamboo, with either family of hashes.
"""

from culm.bamboo.audit import Verdict, audit_log
from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.errors import AUTHOR_FAULTS, Reason, VerificationError
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.bamboo.store import LogStore, MemoryStore
from culm.bamboo.verify import LogVerifier, PayloadVerifier

__all__ = [
    "AUTHOR_FAULTS",
    "Entry",
    "ForkProof",
    "Head",
    "LogAuthor",
    "LogKey",
    "LogStore",
    "LogVerifier",
    "MemoryStore",
    "NewEntry",
    "PayloadVerifier",
    "Reason",
    "StoreError",
    "StoreErrorCode",
    "StoredEntry",
    "Verdict",
    "VerificationError",
    "audit_log",
    "decode",
    "find_fork",
]

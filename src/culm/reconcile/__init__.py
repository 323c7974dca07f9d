"""Range-based set reconciliation: items, monoids, fingerprint trees, sessions.

Two sides that hold sets of items find the items that each lacks by comparing fingerprints of
ranges.
This package knows no protocol: items are byte strings.
"""

from culm.reconcile.compact import CompactSession
from culm.reconcile.errors import ErrorCode
from culm.reconcile.events import (
    CheckFailed,
    CompactEvent,
    ItemReceived,
    ItemsReceived,
    Reconciled,
    SessionEvent,
    SumsEqual,
)
from culm.reconcile.joined import join
from culm.reconcile.limits import Limits, SessionLimits
from culm.reconcile.monoids import DEFAULT, MONOIDS, Fingerprint, Monoid, named
from culm.reconcile.plain import PlainResponder, PlainSession
from culm.reconcile.run import CompactParameters
from culm.reconcile.session import Parameters, Session
from culm.reconcile.states import CompactState, Role, State
from culm.reconcile.tree import Frozen, Tree, TreeSnapshot, View

__all__ = [
    "CheckFailed",
    "CompactEvent",
    "ItemReceived",
    "ItemsReceived",
    "Reconciled",
    "SessionEvent",
    "SumsEqual",
    "DEFAULT",
    "MONOIDS",
    "CompactParameters",
    "CompactSession",
    "CompactState",
    "ErrorCode",
    "Fingerprint",
    "Frozen",
    "Limits",
    "Monoid",
    "Parameters",
    "PlainResponder",
    "PlainSession",
    "Role",
    "Session",
    "SessionLimits",
    "State",
    "Tree",
    "TreeSnapshot",
    "View",
    "join",
    "named",
]

"""Range-based set reconciliation: items, monoids, fingerprint trees, sessions.

Two sides that hold sets of items find out what each lacks by comparing fingerprints of ranges.
This room knows no protocol: items are byte strings.
"""

from culm.reconcile.errors import ErrorCode
from culm.reconcile.monoids import DEFAULT, ITEM_SIZE_MAX, MONOIDS, Fingerprint, Monoid, named
from culm.reconcile.session import ItemReceived, Parameters, Role, Session, SessionEvent, State
from culm.reconcile.tree import Frozen, Snapshot, Tree, View

__all__ = [
    "DEFAULT",
    "ITEM_SIZE_MAX",
    "MONOIDS",
    "ErrorCode",
    "Fingerprint",
    "Frozen",
    "ItemReceived",
    "Monoid",
    "Parameters",
    "Role",
    "Session",
    "SessionEvent",
    "Snapshot",
    "State",
    "Tree",
    "View",
    "named",
]

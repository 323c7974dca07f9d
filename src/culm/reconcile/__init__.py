"""Range-based set reconciliation: items, monoids, fingerprint trees.

Two sides that hold sets of items find out what each lacks by comparing fingerprints of ranges.
This room knows no protocol: items are byte strings.
"""

from culm.reconcile.monoids import DEFAULT, ITEM_SIZE_MAX, MONOIDS, Fingerprint, Monoid, named
from culm.reconcile.tree import Frozen, Snapshot, Tree, View

__all__ = [
    "DEFAULT",
    "ITEM_SIZE_MAX",
    "MONOIDS",
    "Fingerprint",
    "Frozen",
    "Monoid",
    "Snapshot",
    "Tree",
    "View",
    "named",
]

"""Which test proves which normative sentence of Point-2-Point.

``python tests/point2point/p2p_rules.py`` lists the sentences with their tests.  ``rules.toml``
holds the sentences of the specification and of the decisions that complete it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as under pytest

from normative import Rule, RuleBook

HERE = Path(__file__).parent
BOOK = RuleBook(HERE / "rules.toml", (HERE,), prefixes=("test_p2p_", "test_replicator_"))


def invariants(channel: str) -> list[Rule]:
    """The violations on that channel that end a connection."""
    return [rule for rule in BOOK.all_rules() if rule.section == f"Invariants, {channel} channel"]


if __name__ == "__main__":
    BOOK.main()

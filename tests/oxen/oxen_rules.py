"""Which test proves which normative sentence of Oxen.

``python tests/oxen/oxen_rules.py`` lists the sentences with their tests.  ``rules.toml``
holds the sentences of the specification and of the decisions that complete it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as under pytest

from normative import RuleBook

HERE = Path(__file__).parent
BOOK = RuleBook(
    HERE / "rules.toml", (HERE, HERE.parent / "wire"), prefixes=("test_oxen_", "test_xenc")
)

if __name__ == "__main__":
    BOOK.main()

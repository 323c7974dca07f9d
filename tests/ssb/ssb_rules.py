"""Which test proves which normative sentence of Epidemic Broadcast Trees.

``python tests/ssb/ssb_rules.py`` lists the sentences with their tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as under pytest

from normative import RuleBook

HERE = Path(__file__).parent
BOOK = RuleBook(HERE / "rules.toml", (HERE,), prefixes=("test_ssb_",))

if __name__ == "__main__":
    BOOK.main()

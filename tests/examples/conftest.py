from __future__ import annotations

import sys
from pathlib import Path

# As for the programs there, whose folder is the first on their path.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

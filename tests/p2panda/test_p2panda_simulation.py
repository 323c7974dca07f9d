"""Many nodes, random topologies, faults of all kinds: all documents converge.

``CULM_P2PANDA_SEEDS`` sets the number of seeds.
"""

from __future__ import annotations

import pytest
from p2panda_simulation import run_p2panda_seed

from effort import seeds


@pytest.mark.parametrize("seed", seeds("P2PANDA", 400, 100_000))
def test_all_documents_converge(seed: int) -> None:
    run_p2panda_seed(seed)

"""Many nodes, random topologies, faults of all kinds: all documents converge.

``CULM_P2PANDA_SEEDS`` says how many seeds are tried.
"""

from __future__ import annotations

import pytest
from p2panda_simulation import OTHER, SCHEMA, Simulation

from effort import seeds


def assert_level(simulation: Simulation) -> None:
    """All nodes have all operations that were ever written, and the same documents.

    And nobody has said that anybody else has broken a rule.
    """
    assert simulation.blamed == []
    first, *others = simulation.nodes
    documents = first.documents()
    found = {each for document in documents.values() for each in document.order}
    assert found == simulation.written
    assert all(node.documents() == documents for node in others)
    position = len(found)
    assert all(node.store.range((SCHEMA, OTHER)).position == position for node in others)


@pytest.mark.parametrize("seed", seeds("P2PANDA", 200, 100_000))
def test_all_documents_converge(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    assert_level(simulation)
    for _ in range(3):  # live, from node to node
        simulation.write()
    simulation.settle()
    assert_level(simulation)

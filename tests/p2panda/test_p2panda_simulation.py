"""Many nodes, random topologies, connections that break at any byte: all documents converge.

``CULM_P2PANDA_SEEDS`` says how many seeds are tried.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import OTHER, SCHEMA, Node

from culm.p2panda import Author, Mode, Policy, Replicator
from culm.p2panda.effects import perform
from effort import LONG, seeds

NODES_MAX = 20 if LONG else 6


class Connection:
    """Two replicators, between which bytes are carried in random pieces, as long as it lasts."""

    def __init__(self, nodes: tuple[Node, Node], rng: Random) -> None:
        self._nodes = nodes
        self._rng = rng
        live, mode = rng.random() < 0.5, rng.choice(list(Mode))
        self._machines = tuple(
            Replicator(
                local_peer=ids[0],
                remote_peer=ids[1],
                policy=Policy(asks=asks, mode=mode, live=live),
            )
            for ids, asks in zip(
                ((b"a", b"b"), (b"b", b"a")), (True, rng.random() < 0.5), strict=True
            )
        )
        for machine in self._machines:
            machine.announce((SCHEMA, OTHER), timestamp=1)

    def run(self, turns: int | None = None) -> None:
        """Go on for so many turns, or until nothing happens."""
        busy = True
        while busy and turns != 0:
            turned = [self._turn(side) for side in (0, 1)]  # both have one
            busy = any(turned)
            turns = None if turns is None else turns - 1

    def _turn(self, side: int) -> bool:
        machine, store, busy = self._machines[side], self._nodes[side].store, False
        while machine.next_event() is not None:
            busy = True
        while (effect := machine.next_effect()) is not None:
            machine.complete(effect.ticket, perform(effect, store))
            busy = True
        peer = self._machines[1 - side]
        size = min(self._rng.choice((1, 100, 1 << 16)) * 50, peer.read_size())
        if data := machine.data_to_send(size):
            peer.receive_data(data)
            busy = True
        return busy

    def wake(self) -> None:
        for machine in self._machines:
            machine.stored()


def write(nodes: list[Node], rng: Random) -> None:
    """Somebody creates, changes or deletes something, as far as he knows it."""
    node = rng.choice(nodes)
    known = [each for each, document in node.documents(SCHEMA).items() if not document.deleted]
    dice = rng.random()
    if not known or dice < 0.3:
        node.author.create(rng.choice((SCHEMA, OTHER)), {"n": rng.randrange(99)})
    elif dice < 0.95:
        node.author.update(rng.choice(known), {"n": rng.randrange(99)})
    else:
        node.author.delete(rng.choice(known))


def simulate(seed: int) -> list[Node]:
    rng = Random(seed)
    nodes = [Node(number + 1) for number in range(rng.randint(2, NODES_MAX))]
    open: list[Connection] = []
    for _ in range(rng.randint(10, 40)):
        dice = rng.random()
        if dice < 0.5:
            write(nodes, rng)
            for each in open:
                each.wake()
        elif dice < 0.7 or not open:
            one, other = rng.sample(nodes, 2)
            open.append(Connection((one, other), rng))
        elif dice < 0.9:
            rng.choice(open).run(rng.randint(1, 8))
        elif dice < 0.95:
            open.remove(rng.choice(open))  # cut off, wherever it was
        else:
            number = rng.randrange(len(nodes))  # a node starts anew from its store
            nodes[number].author = Author(
                SigningKey((number + 1).to_bytes(32, "big")), nodes[number].store
            )
            open = []
    line = list(pairwise(nodes))
    for pair in [*line, *reversed(line)]:  # whoever is at the end of the line has all
        Connection(pair, rng).run()
    return nodes


@pytest.mark.parametrize("seed", seeds("P2PANDA", 200, 100_000))
def test_all_documents_converge(seed: int) -> None:
    nodes = simulate(seed)
    first = nodes[0].documents()
    assert all(node.documents() == first for node in nodes)

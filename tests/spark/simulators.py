"""The simulators of all protocols, as functions of a seed that return steps and bytes.

Each is in the room of its protocol; `ROOMS` lists the directories that must be on the path, beside
this one.  The bytes carried are null where messages travel as objects.  A failure comes with
captures on request (`culm.testing.captures`).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from culm.testing.captures import of_failures

#: Directories below ``tests``, by the name of the simulator.
ROOMS = {
    "ebt": "ssb",
    "garlic": "garlic",
    "oxen": "oxen",
    "p2panda": "p2panda",
    "point2point": "point2point",
    "point2point_forks": "point2point",
    "point2point_parts": "point2point",
    "raft": "garlic",
}
EBT_STEPS = 150


class Run(NamedTuple):
    """The result of a run."""

    steps: int | None = None
    bytes: int | None = None


def modules_of(name: str) -> list[str]:
    """The directories that this simulator needs."""
    here = Path(__file__).parent
    return [str(here), str(here.parent / ROOMS[name])]


@of_failures
def ebt(seed: int) -> Run:
    """Replicators of Epidemic Broadcast Trees, up to ten; steps are frames."""
    from ebt_simulator import Simulation

    class Counted(Simulation):
        frames = 0

        def deliver(self) -> bool:
            moved = super().deliver()
            self.frames += moved
            return moved

    world = Counted(seed).run(EBT_STEPS).settle().check().check_tree().check()
    assert isinstance(world, Counted)
    return Run(world.frames)


def garlic(seed: int) -> Run:
    """Nodes of Garlic Farm, on connections that break."""
    from garlic_simulator import run_garlic_seed

    happened = run_garlic_seed(seed).happened
    return Run(happened["step"], happened["bytes"])


def raft(seed: int) -> Run:
    """Cores of Raft, which handle no bytes."""
    from raft_simulator import run_seed

    return Run(run_seed(seed).happened["step"])


def oxen(seed: int) -> Run:
    """Peers of Oxen; steps are datagrams."""
    from oxen_simulation import simulate

    total = simulate(seed).network.statistics()
    return Run(total.sent, total.sent_bytes)


def p2panda(seed: int) -> Run:
    """Nodes of p2panda; steps are turns of connections."""
    from p2panda_simulation import run_p2panda_seed

    simulation = run_p2panda_seed(seed)
    return Run(simulation.steps, simulation.bytes)


@of_failures
def point2point(seed: int) -> Run:
    """Replicators over Point-2-Point, whose stores become equal."""
    from replicator_random import RandomWorld

    return _replicated(RandomWorld(seed))


@of_failures
def point2point_forks(seed: int) -> Run:
    """The same, with authors that fork their logs."""
    from replicator_random import RandomWorld

    return _replicated(RandomWorld(seed, forks=True))


@of_failures
def point2point_parts(seed: int) -> Run:
    """Readers that want different parts of a log."""
    from replicator_parts_random import RandomParts

    return _replicated(RandomParts(seed))


def _replicated(random) -> Run:
    random.go()
    return Run(random.world.steps, random.world.carried)

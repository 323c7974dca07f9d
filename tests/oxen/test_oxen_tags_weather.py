"""Tags with every fault at the worst moment: in the end all agree on each node's description."""

from __future__ import annotations

import pytest
from oxen_simulation import Simulation

import effort
from culm.machine import Event
from culm.oxen import PeerJoined, PeerLeft, TagsChanged
from culm.testing.cluster import Host
from culm.testing.network import Conditions

STORIES = effort.seeds("OXEN_TAGS", usual=24, long=4_000)

STORM = Conditions(
    loss=0.3, duplication=0.3, reordering=0.5, delay_min=0.001, delay_max=0.1, hold_max=2.0
)


class Storm(Simulation):
    """Three datagrams in ten are lost, and eavesdroppers replay traffic.

    Whenever a node learns something of another, one of the two may die at once, and start anew
    before the others have noticed.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, size=2 + seed % 4, tags=True, keys=seed % 4 == 3)
        self._deaths = 12
        self._raging = True
        self.learned = 0

    def _suffer(self) -> None:
        rng, network = self.rng, self.network
        network.set_conditions(STORM)
        deeds = [self._some_tags] * 4 + [self._some_group] * 4 + [self._echo] * 6
        deeds += [self._some_restart] * 2 + [self._some_cut, network.heal]
        end = network.clock.now + rng.choice([2.0, 6.0])
        while network.clock.now < end:
            network.run(network.clock.now + rng.expovariate(20.0))
            rng.choice(deeds)()
        for delay in range(40):  # it goes on while the others recover
            network.timetable.after(delay * 0.25, self._echo)
        self._raging = False  # nodes that have just brought others together die no more

    def _echo(self) -> None:
        """Some synchronize messages and tags are replayed, from all former lives."""
        for _ in range(min(3, len(self.network.starts))):
            self.network.replay(self.rng.choice(self.network.starts))

    def _note(self, host: Host, event: Event) -> None:
        super()._note(host, event)
        if isinstance(event, TagsChanged):
            self.learned += 1
        if isinstance(event, TagsChanged | PeerJoined | PeerLeft):
            self._strike(self.cluster[self.rng.choice([host.address, event.peer])])

    def _strike(self, host: Host) -> None:
        if self._raging and self._deaths and host.running and self.rng.random() < 0.2:
            self._deaths -= 1
            delay = self.rng.choice([0.0, 0.0, 0.005, 0.05])
            self.network.timetable.after(delay, lambda: self._kill(host))

    def _kill(self, host: Host) -> None:
        if self._raging and host.running and len(self.running()) > 1:
            host.crash()
            sid = host.address
            if self.rng.random() < 0.7:
                delay = self.rng.choice([0.0, 0.01, 0.5])
                self.network.timetable.after(
                    delay,
                    lambda: None if host.running else self.boot(sid, self.helper(sid)),  # type: ignore[arg-type]
                )


@pytest.mark.timeout(60 + len(STORIES))
@pytest.mark.parametrize("part", range(6))
def test_all_agree_in_the_end(part: int) -> None:
    for seed in STORIES[part::6]:
        Storm(seed).run()


def test_tags_are_learned_in_the_storm() -> None:
    storms = [Storm(seed) for seed in range(3)]
    for storm in storms:
        storm.run()
    assert sum(storm.learned for storm in storms) >= 3

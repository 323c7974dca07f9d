"""Worlds with pretenders among the peers: they promise feeds, and keep others from sending them.

Each of them has a session with one honest host, and claims again and again to have more of a feed
than exists, in its own way: it takes that back, gives the feed to an accomplice, sends a message
now and then, talks of other things, or comes back under another name.  Whatever they do, connected
honest hosts get the feeds, and in time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ebt_simulator import Simulation
from ebt_support import Host, feed

from culm.ssb.ebt import Timing

MUCH = 2 * (2**52 - 1)  # as a note
TICK_S = 0.05
STALL_S = Timing().stall_s


class Sybil:
    """A peer without a feed, at one host."""

    def __init__(self, world: Sybils, number: int, victim: str) -> None:
        self.world = world
        self.rng = world.rng
        self.victim = victim
        self.number = number
        self.lives = 0
        self.target = feed(self.rng.choice(world.authors))
        self.period_s = self.rng.choice([0.3, 0.5, 1.0, 2.0, 2.5, 2.9])
        self.way = self.rng.choice([getattr(self, way) for way in world.ways])
        self.due = world.now + self.rng.random() * self.period_s
        self.session = 0
        self.begin()

    @property
    def host(self) -> Host:
        return self.world.hosts[self.victim]

    def begin(self) -> None:
        self.lives += 1
        self.session = self.host.accept(feed(f"sybil {self.number} {self.lives}"))
        self.promise()

    def promise(self) -> None:
        self.say({self.target: self.rng.choice([MUCH, MUCH + 1, MUCH - 2 * self.lives])})

    def say(self, frame: Any) -> None:
        if self.host.machine.is_ready(self.session):
            self.host.hear(self.session, frame)
            self.world.flush(self.victim)

    def act(self) -> None:
        self.due += self.period_s
        self.way()

    # Ways to keep a feed

    def wait(self) -> None:
        """Nothing comes, ever."""

    def flip(self) -> None:
        self.say({self.target: -1})
        self.promise()

    def lower(self) -> None:
        self.say({self.target: 0})
        self.promise()

    def drip(self) -> None:
        """The next message, whichever peer was asked for it."""
        self.promise()
        had = self.host.machine.head(self.target)
        sequence = 0 if had is None else had.sequence
        for data in self.world.written(self.target)[sequence : sequence + 1]:
            self.say(json.loads(data))

    def chat(self) -> None:
        """Unrequested messages."""
        self.promise()
        for data in self.world.written(self.target)[:1]:
            self.say(json.loads(data))
        self.say({feed(f"feed {self.rng.random()}"): 2})

    def rename(self) -> None:
        self.host.machine.disconnect(self.session)
        self.host.drain()
        self.begin()


class Sybils(Simulation):
    """One world: the honest hosts are connected, and `count` sybils come earlier or later."""

    ways: tuple[str, ...] = ("flip", "lower", "drip", "chat", "rename", "wait")

    def __init__(
        self, seed: int, *, count_max: int = 6, authors_max: int = 4, host: type[Host] = Host
    ) -> None:
        super().__init__(seed, hosts_max=4, authors_max=authors_max, host=host)
        self.sybils: list[Sybil] = []
        self.count = self.rng.randint(1, count_max)
        self.early = self.rng.random() < 0.5

    def written(self, feed_id: str) -> list[bytes]:
        for author in self.authors:
            if feed(author) == feed_id:
                return self.stores[author].messages(feed_id)
        return []

    def come(self) -> None:
        for number in range(self.count):
            self.sybils.append(Sybil(self, number, self.rng.choice(self.names)))

    def suffer(self, *, messages: int = 30) -> Sybils:
        for author in self.authors:
            self.hosts[author].write(feed(author), messages, "old")
        if self.early:
            self.come()
        for edge in self.edges:
            self.connect(edge)
        if not self.early:
            self.live(self.rng.random() * 3)
            self.come()
        for _ in range(3):
            self.overcome()
            self.live(self.rng.random() * 3)
            for author in self.authors:
                self.write(author)
        self.overcome()
        return self

    def recover(self) -> Sybils:
        """The sybils are gone, and all hosts begin again from their stores, with news."""
        self.count, self.sybils = 0, []
        for name in self.names:
            self._crash(name)
        for author in self.authors:
            self.write(author)
        for edge in self.edges:
            self.connect(edge)
        self.overcome()
        return self

    def overcome(self) -> None:
        """All hosts have the feeds in time."""
        end = self.now + self.longest_s()
        while not self.is_level():
            assert self.now < end, "feeds are kept from somebody"
            self.live(1.0)

    def is_level(self) -> bool:
        return all(
            self.hosts[name].machine.stored(feed(author)) == len(self.written(feed(author)))
            for author in self.authors
            for name in self.names
        )

    def longest_s(self) -> float:
        """Time for all sybils to have their turn at each host on the way, and once more."""
        return (self.count + 1) * len(self.names) * 12.0

    def live(self, seconds: float) -> None:
        """Let time pass from deadline to deadline."""
        end = self.now + seconds
        while self.now < end:
            self.drain()
            self._wait(max(TICK_S, min(end, *self._due()) - self.now))
            for sybil in self.sybils:
                if sybil.due <= self.now:
                    sybil.act()
        self.drain()

    def _due(self) -> Iterator[float]:
        for sybil in self.sybils:
            yield sybil.due
        for host in self.hosts.values():
            due = host.machine.next_deadline()
            if due is not None:
                yield due
        yield self.now + 60.0


class Crowd(Sybils):
    """One author; honest hosts that are strangers to each other; and a crowd at one of them."""

    ways = ("flip", "lower", "chat", "rename", "wait")

    def __init__(self, seed: int, *, host: type[Host] = Host) -> None:
        super().__init__(seed, count_max=64, authors_max=1, host=host)

    def come(self) -> None:
        victim = self.rng.choice(self.names)
        for number in range(self.count):
            self.sybils.append(Sybil(self, number, victim))

    def longest_s(self) -> float:
        """With every turn in vain twice as many peers are asked."""
        turns = (self.count + len(self.names)).bit_length() + 1
        return (turns + len(self.names)) * STALL_S

"""Worlds in which saved state comes back older, newer or not at all.

A host may be killed before any write and in the middle of one; its folder is restored from a
backup, the messages, the clocks or both; clocks are lost; and hosts follow feeds and stop doing so,
while authors block readers.  After all that, undisturbed sessions bring all hosts level, in at most
`SESSIONS_MAX` on each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from unittest.mock import patch

from ebt_simulator import Simulation
from ebt_support import Host, feed

from culm.machine import Effect
from culm.ssb.ebt import AppendMessages, LoadClock, PeerClock, ReadMessages, replicator
from culm.ssb.ebt.notes import REFUSAL
from culm.ssb.ebt.session import Feed, PeerSession
from culm.ssb.store import MemoryStore

SESSIONS_MAX = 16


class Killed(Exception):
    """The process is gone; ``args[0]`` is the host's name."""


class Disk(MemoryStore):
    """A store whose process may be killed; see `arm`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._rng = Random(0)
        self._left: int | None = None  # writes until then
        self.clocks: dict[str, PeerClock] = {}

    def arm(self, rng: Random, writes: int) -> None:
        """Kill the process at a write, after `writes` others."""
        self._rng, self._left = rng, writes

    @property
    def is_armed(self) -> bool:
        return self._left is not None

    def disarm(self) -> None:
        self._left = None

    def perform(self, effect: Effect[object]) -> object:
        if self._left is not None and not isinstance(effect, LoadClock | ReadMessages):
            if not self._left:
                self._die(effect)
            self._left -= 1
        return super().perform(effect)

    def _die(self, effect: Effect[object]) -> None:
        self.disarm()
        if isinstance(effect, AppendMessages):  # some prefix of them is there
            count = self._rng.randint(0, len(effect.messages))
            super().perform(AppendMessages(ticket=effect.ticket, messages=effect.messages[:count]))
        elif self._rng.random() < 0.5:
            super().perform(effect)
        raise Killed(self._name)

    def load_clock(self, peer: str) -> PeerClock:
        return self.clocks.get(peer, PeerClock())

    def save_clock(self, peer: str, clock: PeerClock) -> None:
        self.clocks[peer] = clock

    def with_clocks_of(self, other: Disk) -> Disk:
        """These messages, and those clocks."""
        made = deepcopy(self)
        made.clocks = deepcopy(other.clocks)
        made.disarm()
        return made


class Memories(Simulation):
    """One world; its hosts follow feeds of their choice."""

    def __init__(
        self, seed: int, *, hosts_max: int = 6, authors_max: int = 4, host: type[Host] = Host
    ) -> None:
        super().__init__(seed, hosts_max=hosts_max, authors_max=authors_max, host=host)
        self.rounds = 0  # sessions until all hosts were level
        self.stores = {name: Disk(name) for name in self.names}
        self.backups = dict(self.stores)
        self.follows = {
            name: {each for each in self.authors if each == name or self.rng.random() < 0.7}
            for name in self.names
        }
        for name in self.names:
            self.hosts[name] = self._new(name)
            self.back_up(name)

    def _new(self, name: str) -> Host:
        host = super()._new(name)
        if hasattr(self, "follows"):
            for author in set(self.authors) - self.follows[name]:
                host.machine.follow(feed(author), False)
            host.drain()
        return host

    # Events

    def live(self, steps: int) -> Memories:
        """Twice the weather, with a backup between; restored state is from that backup."""
        self.run(steps).settle().check()
        for edge in list(self.wires):
            self._cut(edge)
        for name in self.names:
            self.back_up(name)
        self.run(steps).settle().check()
        for _ in range(self.rng.randint(1, 3)):
            self.restore()
        return self.settle().check()

    def run(self, steps: int) -> Memories:
        for edge in self.edges:
            self.connect(edge)
        actions = self.actions()
        for _ in range(steps):
            try:
                self.rng.choice(actions)()
            except Killed as killed:
                self._crash(killed.args[0])
        for store in self.stores.values():
            store.disarm()
        return self

    def actions(self) -> list[Callable[[], object]]:
        found: list[Callable[[], object]] = [self.deliver] * 20
        found += [self.publish] * 3 + [self.reconnect] * 3
        found += [self.cut, self.wait, self.wait, self.deafen, self.crash, self.arm]
        found += [self.follow, self.unfollow, self.back_up_one, self.restore]
        return found + ([self.block] if self.rng.random() < 0.3 else [])

    def publish(self) -> None:
        """Authors know the length of their feed, and do not write while they lack a part of it."""
        author = self.rng.choice(self.authors)
        lengths = [len(store.messages(feed(author))) for store in self.stores.values()]
        if self.hosts[author].machine.stored(feed(author)) == max(lengths):
            self.write(author)

    def arm(self) -> None:
        if not any(store.is_armed for store in self.stores.values()):
            self.stores[self.rng.choice(self.names)].arm(self.rng, self.rng.randint(0, 3))

    def follow(self) -> None:
        self._choose(True)

    def unfollow(self) -> None:
        self._choose(False)

    def _choose(self, value: bool) -> None:
        name, author = self.rng.choice(self.names), self.rng.choice(self.authors)
        if name != author:
            (self.follows[name].add if value else self.follows[name].discard)(author)
            self.hosts[name].machine.follow(feed(author), value)
            self.flush(name)

    def back_up_one(self) -> None:
        self.back_up(self.rng.choice(self.names))

    def back_up(self, name: str) -> None:
        self.backups[name] = self.stores[name].with_clocks_of(self.stores[name])

    def restore(self) -> None:
        """A host's backup comes back: all of it, its messages, its clocks, or no clocks."""
        name = self.rng.choice(self.names)
        now, then, nothing = self.stores[name], self.backups[name], Disk(name)
        messages, clocks = self.rng.choice(
            [(then, then), (then, then), (then, now), (now, then), (then, nothing), (now, nothing)]
        )
        self.stores[name] = messages.with_clocks_of(clocks)
        if messages is then:
            self.came_back(name)
        self._crash(name)

    def came_back(self, name: str) -> None:
        """The host's messages are those of its backup."""

    # Results

    def settle(self) -> Memories:
        """Sessions on all connections at once, one after the other, until all hosts are level."""
        self.rounds = 0
        while True:
            for edge in list(self.wires):
                self._cut(edge)
            for edge in self.edges:
                self.connect(edge)
            for _ in range(6):
                self.drain()
                self._wait(1.0)
            self._wait(31.0)
            self.drain()
            self.rounds += 1
            if self.rounds == SESSIONS_MAX or self.is_level():
                return self

    def is_level(self) -> bool:
        try:
            self.check()
        except AssertionError:
            return False
        return True

    def readers(self, author: str) -> set[str]:
        """Those connected with the author over hosts that follow it, and allowed its feed."""
        strangers = {name for name in self.names if author not in self.follows[name]}
        wires = self.wires
        self.wires = {edge: wire for edge, wire in wires.items() if not strangers & set(edge)}
        try:
            return super().readers(author)
        finally:
            self.wires = wires

    def check(self) -> Memories:
        """A feed is level among its followers if only strangers have its end."""
        for author in self.authors:
            lengths = {
                len(self.stores[each].messages(feed(author))) for each in self.readers(author)
            }
            assert len(lengths) == 1, f"{author}: {lengths}"
        for edge in self.wires:
            for author in self.authors:
                self._check_neighbours(edge, author)
        super().check()
        return self

    def _check_neighbours(self, edge: tuple[str, str], author: str) -> None:
        """Two neighbours that exchange a feed have as much of it, even cut off from its author."""
        one, other = edge
        name, hosts = feed(author), self.hosts
        if hosts[one].machine.shares(name, feed(other)) and hosts[other].machine.shares(
            name, feed(one)
        ):
            lengths = [len(self.stores[end].messages(name)) for end in edge]
            assert lengths[0] == lengths[1], f"{author} from {one} to {other}: {lengths}"


class SkippingHost(Host):
    """A host that skips as other implementations do: its memory is true, refusals included."""

    def dial(self, peer: str) -> int:
        with patch.object(replicator, "PeerSession", SkippingSession):
            return super().dial(peer)

    def accept(self, peer: str) -> int:
        with patch.object(replicator, "PeerSession", SkippingSession):
            return super().accept(peer)


class SkippingSession(PeerSession):
    def is_level(self, feed: Feed) -> bool:
        if feed.id in self._refused | self._refused_before:
            return False
        return self.last_told(feed.id) in (REFUSAL, feed.stored)

    def first_notes(self, me: str, feeds: Iterable[Feed]) -> list[Feed]:
        return [feed for feed in feeds if feed.id == me or not self.is_level(feed)]


class Skipping(Memories):
    """Some hosts are of this kind; no two of them are connected."""

    def _new(self, name: str) -> Host:
        if not hasattr(self, "edges"):
            return super()._new(name)
        self._host = SkippingHost if name in self._skipping() else Host
        return super()._new(name)

    def _skipping(self) -> set[str]:
        found: set[str] = set()
        for name in self.names[::-1]:
            if not any({name, each} <= set(edge) for each in found for edge in self.edges):
                found.add(name)
        return found

"""Whole peers over bad lines: they follow, unfollow and block, crash, go back to backups, and fail.

Bytes are carried in pieces, and lost with their line.  Now and then a store fails once, and a
backup comes back: messages and clocks together, or only one of them.  Some peers have no sessions,
and ask for feeds one by one.  Then the weather is over: all followers of a feed, and its author,
have the same of it after some sessions.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from math import inf
from random import Random
from typing import Any

from ebt_memories import Disk
from peer_support import feed_of, identity

from culm.machine import Closed, Event, LocalProtocolError
from culm.signatures import Verify, verify
from culm.ssb.ebt import SessionRole, State
from culm.ssb.peer import OwnFeedConfirmed, Peer, PeerLink, Settings, Timing
from culm.testing import captures

ROUNDS_MAX = 16
"""Connections of each pair, one after the other, until all have the same."""

_ROUND_S = 30.0
_ONE_BY_ONE_S = 1300.0  # twice the pause before a refused feed is asked for again
_DEEDS = {
    "publish": 8.0,
    "follow": 3.0,
    "unfollow": 2.0,
    "block": 1.0,
    "unblock": 1.5,
    "connect": 5.0,
    "cut": 2.0,
    "carry": 12.0,
    "wait": 3.0,
    "crash": 1.0,
    "start": 3.0,
    "backup": 1.0,
    "restore": 0.7,
    "fail": 0.6,
}


class Host:
    """A user with a peer, unless that is down."""

    def __init__(self, world: World, name: str, settings: Settings) -> None:
        self.name, self.feed = name, feed_of(name)
        self.follows: set[str] = set()
        self.blocks: set[tuple[str, str]] = set()
        self.store = Disk(name)
        self.backups: list[Disk] = []
        self.peer: Peer | None = None
        self.events: list[Event] = []
        self.fails_after: int | None = None  # effects until one fails
        self._restored = False
        self._world, self._settings = world, settings

    def start(self) -> None:
        world = self._world
        self.peer = peer = captures.make(
            Peer,
            identity=identity(self.name),
            stored=self.store.load(),
            now=world.now,
            epoch=1.7e9,
            restored=self._restored,
            settings=self._settings,
            timing=world.timing,
        )
        for name in sorted(self.follows):
            peer.follow(feed_of(name))
        for author, target in sorted(self.blocks):
            peer.block(feed_of(author), feed_of(target))
        self.drain()

    def crash(self) -> None:
        self.peer = None
        for line in self._world.lines:
            if any(host is self for host, _ in line.ends):
                self._world.cut(line)

    def restore(self, store: Disk, *, older: bool) -> None:
        """Restore the folder; the user says so if messages of its own may be missing."""
        self.crash()
        self.store = store
        self._restored |= older

    def drain(self) -> bool:
        """Whether anything has moved."""
        moved, before = False, True
        while self.peer is not None and before:
            before = self._take_events() or self._answer_effects()
            moved |= before
        return moved

    def _take_events(self) -> bool:
        moved = False
        while self.peer is not None and (event := self.peer.next_event()) is not None:
            self.events.append(event)
            moved = True
            if isinstance(event, OwnFeedConfirmed):
                self._restored = False
            elif isinstance(event, Closed):
                self.crash()
        return moved

    def _answer_effects(self) -> bool:
        peer, moved = self.peer, False
        while peer is not None and (effect := peer.next_effect()) is not None:
            moved = True
            if isinstance(effect, Verify):
                peer.complete(effect.ticket, verify(effect.signatures))
            elif self.fails_after == 0:
                self.fails_after = None
                peer.fail(effect.ticket, OSError("the disk"))
            else:
                self.fails_after = None if self.fails_after is None else self.fails_after - 1
                peer.complete(effect.ticket, self.store.perform(effect))
        return moved

    def count(self, name: str) -> int:
        """The number of messages that it has of the feed of `name`."""
        return len(self.store.messages(feed_of(name)))


class Line:
    """A connection, and the bytes on their way from each end."""

    def __init__(self, *ends: tuple[Host, PeerLink]) -> None:
        self.ends = ends
        self.ways = [b"", b""]
        self.told_end = [False, False]

    def joins(self, one: Host, other: Host) -> bool:
        return {host.name for host, _ in self.ends} == {one.name, other.name}


class World:
    """A world of peers; `rng` draws everything that happens to it."""

    def __init__(self, seed: int, *, mixed: bool = False) -> None:
        self.rng = rng = Random(seed)
        self.now = 0.0
        self.timing = Timing(ping_s=rng.choice([inf, 20.0]))
        self.lines: list[Line] = []
        self._published = 0
        self._mixed = mixed
        names = [f"peer {number}" for number in range(rng.randint(2, 5))]
        self.hosts = [Host(self, name, self._settings()) for name in names]
        for host in self.hosts:
            others = [name for name in names if name != host.name]
            host.follows = {name for name in others if rng.random() < 0.7}
            host.start()

    def _settings(self) -> Settings:
        if not self._mixed:
            return Settings()
        ebt, asks = self.rng.random() < 0.6, self.rng.random() < 0.3
        return Settings(speaks_ebt=ebt, asks_as_server=asks)

    # -- the weather ----------------------------------------------------------------------

    def suffer(self, steps: int) -> World:
        for _ in range(steps):
            (deed,) = self.rng.choices([*_DEEDS], [*_DEEDS.values()])
            host, other = self.rng.choice(self.hosts), self.rng.choice(self.hosts)
            with suppress(LocalProtocolError):  # of a peer whose store has failed, for instance
                getattr(self, f"_{deed}")(host, other)
        return self

    def _publish(self, host: Host, _other: Host) -> None:
        """Publish a message, unless others, or backups, have more of the feed: it would fork."""
        stores = (store for each in self.hosts for store in (each.store, *each.backups))
        most = max(len(store.messages(host.feed)) for store in stores)
        if host.peer is not None and host.count(host.name) == most:
            self._published += 1
            text = f"{self._published} " * self.rng.choice([1, 1, 300])
            host.peer.publish({"type": "post", "text": text})
            host.drain()

    def _follow(self, host: Host, other: Host, *, value: bool = True) -> None:
        if other is host:
            return
        (host.follows.add if value else host.follows.discard)(other.name)
        if host.peer is not None:
            host.peer.follow(other.feed, value)
            host.drain()

    def _unfollow(self, host: Host, other: Host) -> None:
        self._follow(host, other, value=False)

    def _block(self, host: Host, _other: Host, *, value: bool = True) -> None:
        """The host hears that an author, perhaps itself, blocks another one."""
        author, target = self.rng.sample(self.hosts, 2)
        if self.rng.random() < 0.5:
            author = host
        if target in (author, host):
            return
        pair = author.name, target.name
        (host.blocks.add if value else host.blocks.discard)(pair)
        if host.peer is not None:
            host.peer.block(author.feed, target.feed, value)
            host.drain()

    def _unblock(self, host: Host, other: Host) -> None:
        self._block(host, other, value=False)

    def _connect(self, host: Host, other: Host) -> None:
        if other is host or host.peer is None or other.peer is None:
            return
        if any(line.joins(host, other) for line in self.lines) and self.rng.random() < 0.8:
            return
        far = other.peer.attached(host.feed, role=SessionRole.SERVER)
        try:
            near = host.peer.attached(other.feed, role=SessionRole.CLIENT)
        except LocalProtocolError:
            far.receive_eof()
            other.drain()
        else:
            self.lines.append(Line((host, near), (other, far)))

    def _cut(self, _host: Host, _other: Host) -> None:
        if self.lines:
            self.cut(self.rng.choice(self.lines))

    def _carry(self, _host: Host, _other: Host) -> None:
        for _ in range(self.rng.choice([1, 5, 20])):
            self.carry()

    def _wait(self, _host: Host, _other: Host) -> None:
        self.wait(self.rng.choice([0.1, 1.0, 10.0, 60.0]))

    def _crash(self, host: Host, _other: Host) -> None:
        host.crash()

    def _start(self, host: Host, _other: Host) -> None:
        if host.peer is None:
            host.start()

    def _backup(self, host: Host, _other: Host) -> None:
        host.backups.append(deepcopy(host.store))

    def _restore(self, host: Host, _other: Host) -> None:
        if host.backups:
            old, now = self.rng.choice(host.backups), host.store
            kinds = [(deepcopy(old), True), (old.with_clocks_of(now), True)]
            store, older = self.rng.choice([*kinds, (now.with_clocks_of(old), False)])
            host.restore(store, older=older)

    def _fail(self, host: Host, _other: Host) -> None:
        host.fails_after = self.rng.randrange(3)

    # -- lines and time -------------------------------------------------------------------

    def cut(self, line: Line) -> None:
        """End a line, and lose the bytes on it."""
        if line not in self.lines:
            return
        self.lines = [each for each in self.lines if each is not line]
        for host, link in line.ends:
            if host.peer is not None and not link.closed:
                link.receive_eof()
        for host, _ in line.ends:
            host.drain()

    def carry(self, *, all_of_it: bool = False) -> bool:
        """Carry some of the bytes on each line; returns whether anything has moved."""
        moved = False
        for line in list(self.lines):
            for at in (0, 1):
                moved |= line in self.lines and self._carry_from(line, at, all_of_it)
            if all(link.closed for _, link in line.ends):
                self.cut(line)
        for host in self.hosts:
            moved |= host.drain()
        return moved

    def _carry_from(self, line: Line, at: int, all_of_it: bool) -> bool:
        (_, near), (host, far) = line.ends[at], line.ends[1 - at]
        data = near.data_to_send(None if all_of_it else self.rng.choice([None, 1, 100, 2_000]))
        line.ways[at] = way = line.ways[at] + data
        size = len(way) if all_of_it else self.rng.choice([0, 1, 50, 1_000, len(way)])
        size = min(size, far.read_size())
        if size:
            line.ways[at] = way[size:]
            far.receive_data(way[:size])
            host.drain()
        elif near.closed and not way and not far.closed and not line.told_end[at]:
            line.told_end[at] = True
            far.receive_eof()
            host.drain()
            return True
        return bool(data or size)

    def wait(self, seconds: float) -> None:
        """Let time pass, over every deadline on the way."""
        end = self.now + seconds
        while self.now < end:
            peers = [host.peer for host in self.hosts if host.peer is not None]
            deadlines = [due for peer in peers if (due := peer.next_deadline()) is not None]
            self.now = min(end, max(self.now, min(deadlines, default=end)))
            for host in self.hosts:
                if host.peer is not None:
                    host.peer.advance(self.now)
                    host.drain()
            for _ in range(30):
                if not self.carry():
                    break

    # -- afterwards -----------------------------------------------------------------------

    def recover(self) -> World:
        """No author blocks another, and lines are made anew when they end, until all is well."""
        for host in self.hosts:
            host.fails_after = None
            host.blocks.clear()
            if host.peer is not None and host.peer.state is not State.OPEN:
                host.crash()
            self._unblock_all(host)
            if host.peer is None:
                host.start()
        pairs = self._pairs()
        for number in range(ROUNDS_MAX):
            for one, other in pairs:
                for host in (one, other):
                    if host.peer is None:
                        host.start()
                if not any(line.joins(one, other) for line in self.lines):
                    self._connect(one, other)
            while self.carry(all_of_it=True):
                pass
            self.wait(_ROUND_S)
            if self.unequal() and self._mixed:
                self.wait(_ONE_BY_ONE_S)
            if not self.unequal():
                break
            if number % 4 == 3:
                for line in list(self.lines):
                    self.cut(line)
        return self

    def _unblock_all(self, host: Host) -> None:
        for author in self.hosts:
            for target in self.hosts:
                if host.peer is not None and target is not host and target is not author:
                    host.peer.block(author.feed, target.feed, False)
        host.drain()

    def _pairs(self) -> list[tuple[Host, Host]]:
        """The connected pairs: all with all, or a tree of those that exchange everything."""
        hosts = list(self.hosts)
        self.rng.shuffle(hosts)
        if self.rng.random() < 0.5:
            return [(one, other) for at, one in enumerate(hosts) for other in hosts[:at]]
        for host in hosts:
            for other in hosts:
                self._follow(host, other)
        return [(one, self.rng.choice(hosts[:at])) for at, one in enumerate(hosts) if at]

    def _most(self, name: str, hosts: list[Host]) -> int:
        return max(host.count(name) for host in hosts)

    def unequal(self) -> list[tuple[str, str, int, int]]:
        """Hosts and feeds, with the number of messages, where another follower has more."""
        found: list[tuple[str, str, int, int]] = []
        for author in self.hosts:
            name = author.name
            group = [host for host in self.hosts if host is author or name in host.follows]
            most = self._most(name, group)
            found += [
                (host.name, name, count, most)
                for host in group
                if (count := host.count(name)) < most
            ]
        return found

    def forked(self) -> list[tuple[str, Any]]:
        """Hosts with proofs that a feed has forked: no host has two branches of any."""
        proofs = [
            (host.name, host.store.proof(each.feed)) for host in self.hosts for each in self.hosts
        ]
        return [proof for proof in proofs if proof[1] is not None]

"""Many replicators on a random graph, with every kind of fault, from one seed.

Frames of a connection come in order, those of different ones in any order; connections break, peers
stop listening for a while, peers crash and begin again from their stores, authors block readers,
and authors lose their last messages and write others.  Some hosts stop following feeds for a while.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from ebt_support import Host, feed

from culm.machine import RemoteProtocolError
from culm.machines.ssb_lines import encode_fields
from culm.ssb.ebt import ErrorCode, FeedForked, Limits, SessionEnded
from culm.ssb.store import MemoryStore
from culm.testing import captures

STEPS_MAX = 200_000
# A server that has been deaf for so long that its client has given it up.
_EXCUSED = (None, RemoteProtocolError(ErrorCode.NO_NOTES))


class TightHost(Host):
    """A host with the minimum of everything: one note, one message at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        tight = Limits(
            feeds_max=1,
            notes_max=1,
            unsent_size_max=1,
            read_count_max=1,
            unwritten_size_max=1,
            write_count_max=1,
            invalid_max=1,
        )
        super().__init__(*arguments, limits=tight, **options)


class Wire:
    """A connection of two hosts: frames under way, by sender."""

    def __init__(self, client: str, server: str) -> None:
        self.ends = (client, server)
        self.sessions: dict[str, int] = {}
        self.frames: dict[str, deque[Any]] = {client: deque(), server: deque()}
        self.deaf: str | None = None  # the end that does not listen

    def other(self, name: str) -> str:
        return self.ends[1] if name == self.ends[0] else self.ends[0]


class Simulation:
    """One world; `run` lets things go wrong, `settle` puts them right, `check` looks."""

    def __init__(
        self,
        seed: int,
        *,
        hosts_max: int = 10,
        authors_max: int = 4,
        host: type[Host] = Host,
        fickle: bool = False,
    ) -> None:
        self.seed = seed
        self.fickle = fickle
        self.rng = Random(seed)
        self.now = 0.0
        self._host = host
        count = self.rng.randint(2, hosts_max)
        self.names = [f"host {number}" for number in range(count)]
        self.authors = self.rng.sample(self.names, min(count, authors_max))
        self.stores = {name: MemoryStore() for name in self.names}
        self.blocks: set[tuple[str, str]] = set()
        self.away: set[tuple[str, str]] = set()  # authors, and hosts that do not follow them
        self.rewritten: set[str] = set()
        self.hosts = {name: self._new(name) for name in self.names}
        self.edges = self._graph()
        self.wires: dict[tuple[str, str], Wire] = {}
        self.crossings: Counter[tuple[str, int]] = Counter()  # of messages over links
        self.asked: Counter[str] = Counter()  # links that were switched in, by feed

    def _new(self, name: str) -> Host:
        host = self._host(feed(name), self.stores[name], now=self.now)
        follows = [author for author in self.authors if (author, name) not in self.away]
        host.follow(*map(feed, follows))
        for author, target in self.blocks:
            host.machine.block(feed(author), feed(target))
        return host

    def _graph(self) -> list[tuple[str, str]]:
        """A random tree, and a few more edges."""
        edges = [
            (self.names[self.rng.randrange(at)], self.names[at]) for at in range(1, len(self.names))
        ]
        for _ in range(self.rng.randint(0, len(self.names))):
            pair = tuple(self.rng.sample(self.names, 2))
            if pair not in edges and pair[::-1] not in edges:
                edges.append((pair[0], pair[1]))
        return edges

    # Events

    def run(self, steps: int) -> Simulation:
        for edge in self.edges:
            self.connect(edge)
        actions = [self.deliver] * 20 + [self.publish] * 3
        actions += [self.cut, self.reconnect, self.reconnect, self.deafen, self.wait, self.wait]
        actions += [self.crash, *self.opinions()]
        if self.rng.random() < 0.2:
            actions.append(self.rewrite)
        if self.fickle:
            actions += [self.change] * 3
        for _ in range(steps):
            self.rng.choice(actions)()
        return self

    def opinions(self) -> list[Callable[[], None]]:
        """In some worlds authors block readers, and take that back."""
        return [self.block, self.unblock] if self.rng.random() < 0.3 else []

    def change(self) -> None:
        """A host stops following an author, or follows it again."""
        author, name = self.rng.choice(self.authors), self.rng.choice(self.names)
        if author != name:
            self._follow(author, name, (author, name) in self.away)

    def _follow(self, author: str, name: str, value: bool) -> None:
        (self.away.discard if value else self.away.add)((author, name))
        self.hosts[name].machine.follow(feed(author), value)
        self.flush(name)

    def publish(self) -> None:
        author = self.rng.choice(self.authors)
        if feed(author) not in self.stores[author].load().forked:
            self.write(author)

    def write(self, author: str) -> None:
        host = self.hosts[author]
        host.write(feed(author), 1, str(self.rng.random()))
        self.flush(author)

    def deliver(self) -> bool:
        ready = [
            (wire, name)
            for wire in self.wires.values()
            for name in wire.ends
            if wire.frames[name] and wire.deaf != wire.other(name)
        ]
        if not ready:
            return False
        wire, name = self.rng.choice(ready)
        frame = wire.frames[name].popleft()
        to = wire.other(name)
        if "content" in frame:
            self.crossings[frame["author"], frame["sequence"]] += 1
        else:
            self.asked.update(each for each, note in frame.items() if note >= 0 and not note & 1)
        host = self.hosts[to]
        contradicted = False
        if host.machine.is_ready(wire.sessions[to]):
            contradicted = self._contradicts(host, name, frame)
            host.hear(wire.sessions[to], frame)
        self.flush(to)
        if contradicted:
            self._check_fork(to, frame)
        return True

    def _contradicts(self, host: Host, peer: str, frame: Any) -> bool:
        """Whether it is a message that would come next, on another branch."""
        if "content" not in frame or not host.machine.shares(frame["author"], feed(peer)):
            return False
        head = host.machine.head(frame["author"])
        sequence, last_id = (0, None) if head is None else head
        return frame["sequence"] == sequence + 1 and frame["previous"] != last_id

    def _check_fork(self, name: str, frame: Any) -> None:
        """A host has seen both branches: the feed is stopped, and reported with its proof."""
        author, host = frame["author"], self.hosts[name]
        proof = ours, theirs = self.stores[name].messages(author)[-1], encode_fields(frame).data
        forks = [event for event in host.events if isinstance(event, FeedForked)]
        assert forks.count(FeedForked(feed=author, ours=ours, theirs=theirs)) == 1
        assert self.stores[name].proof(author) == proof
        assert not any(host.machine.shares(author, feed(other)) for other in self.names)

    def flush(self, name: str) -> None:
        """Put a host's frames on its wires; sessions that ended there end on both sides."""
        host = self.hosts[name]
        host.drain()
        ended = []
        for edge, wire in self.wires.items():
            if name in edge:
                session = wire.sessions[name]
                if session in host.frames:
                    wire.frames[name] += host.frames.pop(session)
                if not host.machine.is_ready(session):
                    ended.append(edge)
        for edge in ended:
            self._cut(edge)

    def connect(self, edge: tuple[str, str]) -> None:
        client, server = edge
        if edge in self.wires or {edge, edge[::-1]} & self.blocks:
            return
        wire = self.wires[edge] = Wire(client, server)
        wire.sessions[server] = self.hosts[server].accept(feed(client))
        wire.sessions[client] = self.hosts[client].dial(feed(server))
        for name in edge:
            self.flush(name)

    def reconnect(self) -> None:
        self.connect(self.rng.choice(self.edges))

    def cut(self) -> None:
        if self.wires:
            self._cut(self.rng.choice(list(self.wires)))

    def _cut(self, edge: tuple[str, str]) -> None:
        wire = self.wires.pop(edge, None)
        if wire is not None:
            for name in wire.ends:
                self.hosts[name].machine.disconnect(wire.sessions[name])
            for name in wire.ends:
                self.hosts[name].drain()

    def deafen(self) -> None:
        if self.wires:
            wire = self.rng.choice(list(self.wires.values()))
            wire.deaf = None if wire.deaf else self.rng.choice(wire.ends)

    def wait(self) -> None:
        self._wait(self.rng.choice([0.1, 0.6, 3.5]))

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        for name, host in self.hosts.items():
            due = host.machine.next_deadline()
            host.machine.advance(self.now)
            if due is not None and due <= self.now:
                self.flush(name)

    def crash(self) -> None:
        self._crash(self.rng.choice(self.names))

    def _crash(self, name: str) -> None:
        """A host loses all but its store."""
        self.hosts[name] = self._new(name)
        left = []
        for edge, wire in list(self.wires.items()):
            other = wire.other(name)
            if name in edge:
                del self.wires[edge]
            if name in edge and other in wire.sessions:
                self.hosts[other].machine.disconnect(wire.sessions[other])
                left.append(self.hosts[other])
        for host in left:
            host.drain()

    def block(self) -> None:
        author, target = self.rng.choice(self.authors), self.rng.choice(self.names)
        if author == target or len(self.blocks) > 2:
            return
        self.blocks.add((author, target))
        self._tell_of_block(author, target, True)

    def unblock(self) -> None:
        """An author takes a block back, and the former blocked reader gets its feed at once."""
        if self.blocks:
            author, target = self.rng.choice(sorted(self.blocks))
            self.blocks.remove((author, target))
            self._tell_of_block(author, target, False)
            hosts = self.hosts.values()
            assert not any(host.machine.blocks(feed(author), feed(target)) for host in hosts)

    def _tell_of_block(self, author: str, target: str, value: bool) -> None:
        for name in self.names:
            self.hosts[name].machine.block(feed(author), feed(target), value)
            self.flush(name)

    def rewrite(self) -> None:
        """An author goes back to an earlier backup, and writes on from there."""
        author = self.rng.choice(self.authors)
        messages = self.stores[author].messages(feed(author))
        if len(messages) < 2 or self.rewritten:
            return
        self.rewritten.add(author)
        self.stores[author] = MemoryStore()
        self._crash(author)

    # Results

    def settle(self) -> Simulation:
        """All hosts listen, all connections are up, and time passes until nothing moves."""
        for _ in range(4):
            for edge in self.edges:
                self.connect(edge)
            for wire in self.wires.values():
                wire.deaf = None
            for _ in range(6):
                self.drain()
                self._wait(1.0)
            self._wait(31.0)
        self.drain()
        return self

    def forgive(self) -> Simulation:
        """All blocks are taken back, and all feeds followed: it takes effect in open sessions."""
        while self.blocks:
            self.unblock()
        for author, name in sorted(self.away):
            self._follow(author, name, True)
        self.drain()
        self._wait(1.0)
        self.drain()
        return self

    def drain(self) -> None:
        for _ in range(STEPS_MAX):
            if not self.deliver():
                return
        raise AssertionError("they do not come to rest")

    def readers(self, author: str) -> set[str]:
        """Hosts connected with the author over hosts that may have its feed."""
        barred = {target for blocker, target in self.blocks | self.away if blocker == author}
        found, waiting = {author}, [author]
        while waiting:
            name = waiting.pop()
            for edge in self.wires:
                if name in edge:
                    other = edge[0] if edge[1] == name else edge[1]
                    if other not in found | barred:
                        found.add(other)
                        waiting.append(other)
        return found

    def check(self) -> Simulation:
        """All connected honest hosts have the same; no host has a broken chain."""
        for author in self.authors:
            name = feed(author)
            have = {each: self.stores[each].messages(name) for each in self.names}
            longest = max(have.values(), key=len)
            if author in self.rewritten:
                self.check_branches(author)
                continue
            for each, messages in have.items():
                assert messages == longest[: len(messages)], f"{each} has another chain"
            for reader in self.readers(author):
                assert have[reader] == have[author], f"{reader} lacks messages of {author}"
        faults = [
            event
            for host in self.hosts.values()
            for event in host.events
            if (isinstance(event, SessionEnded) and event.error not in _EXCUSED)
            or (isinstance(event, FeedForked) and not self.rewritten)
        ]
        assert faults == []
        if not (self.rewritten or self.blocks):
            for host in self.hosts.values():
                progress = host.machine.progress
                assert progress.current == progress.target, f"{progress} at rest"
        return self

    def check_branches(self, author: str) -> None:
        """Of a feed that may have forked: no host has both branches, or goes on after the proof.

        Connected hosts that have seen no contradiction have as many messages; which ones, only the
        next message will show.
        """
        name = feed(author)
        stopped = set()
        for each, store in self.stores.items():
            previous = None
            for data in store.messages(name):
                fields = json.loads(data)
                assert fields["previous"] == previous, f"{each} has both branches"
                previous = encode_fields(fields).id
            proof = store.proof(name)
            if proof is not None:
                stopped.add(each)
                assert proof[0] == store.messages(name)[-1], f"{each} has gone on"
        for edge in self.wires:
            barred = {(author, end) for end in edge} & (self.blocks | self.away)
            if not barred and not stopped & set(edge):
                counts = {len(self.stores[end].messages(name)) for end in edge}
                assert len(counts) == 1, f"{edge} do not notice the fork"

    def check_tree(self) -> Simulation:
        """One more message of each author crosses no more links than a tree has.

        Links that are switched in meanwhile may be crossed besides.
        """
        for author in self.authors:
            name = feed(author)
            if author in self.rewritten:
                continue
            self.crossings.clear()
            self.asked.clear()
            self.write(author)
            self.drain()
            self._wait(1.0)
            self.drain()
            sequence = len(self.stores[author].messages(name))
            links = len(self.readers(author)) - 1
            assert links <= self.crossings[name, sequence] <= links + self.asked[name]
        return self


@captures.of_failures
def run_ebt_seed(seed: int, *, steps: int = 150, **options: Any) -> Simulation:
    """Run the world of `seed` to its end; raises with the seed as a note."""
    world = Simulation(seed, **options)
    try:
        world.run(steps).settle().check().check_tree().check().forgive().check()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return world

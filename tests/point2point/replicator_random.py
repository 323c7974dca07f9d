"""Random worlds of replicators: the simulation, one seed a world."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from nacl.signing import SigningKey
from replicator_support import KEEP, Cable, Node, World, check_store, same

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import LogKey
from culm.bamboo.errors import VerificationError
from culm.bamboo.records import NewEntry
from culm.machine import Effect
from culm.point2point import ErrorCode, Limits
from culm.point2point.replication import Interest, ReplicatorLimits
from culm.testing.link import random_chunks

_SIZES = (0, 1, 30, 63, 64, 65, 130, 500, 900, 3000)
_PATIENCE = 100.0  # seconds; longer than any wait within an entry


def random_limits(rng: Random) -> ReplicatorLimits:
    return ReplicatorLimits(
        payload_inline_max=rng.choice((10, 64, 200)),
        batch_count_max=rng.choice((1, 3, 100)),
        batch_size_max=rng.choice((100, 700, 10_000)),
        unwritten_size_max=rng.choice((1, 500, 100_000)),
        outstanding_max=rng.choice((10, 100, 4096)),
        connection=Limits(
            packet_size_max=rng.choice((48, 300, 5000)),
            data_window_max=rng.choice((60, 500, 5000)),
            requests_max=rng.choice((8, 100)),
        ),
    )


class RandomNodes:
    """Nodes in a random world, and the pairs of them that are connected now and then."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.world = World(
            chunker=random_chunks(Random(seed + 1)),
            rng=rng,
            capacity=rng.choice((100, 1000, 1 << 20)),
            take_size=rng.choice((lambda: None, lambda: None, lambda: rng.choice((7, 100, 4000)))),
            steps_max=200_000,
        )
        self.pairs: list[tuple[Node, Node]] = []
        self.cables: dict[int, Cable] = {}  # by the index of their pair

    def node(self, interest: Interest) -> Node:
        return self.world.node(interest=interest, limits=random_limits(self.rng))

    def happen(self, times: tuple[int, int], *what: Callable[[], None]) -> None:
        """Some of these actions, in any order, with pauses between them."""
        for _ in range(self.rng.randint(*times)):
            self.rng.choice(what)()
            self.world.run(self.rng.choice((0, 3, 30, 300)))

    def connect(self) -> None:
        apart = [n for n in range(len(self.pairs)) if n not in self.cables]
        if apart:
            n = self.rng.choice(apart)
            self.cables[n] = self.world.connect(*self.pairs[n][:: self.rng.choice((1, -1))])

    def connect_all(self) -> None:
        while len(self.cables) < len(self.pairs):
            self.connect()

    def cut(self) -> None:
        if self.cables:
            cable = self.cables.pop(self.rng.choice(sorted(self.cables)))
            self.before_cut(cable)
            self.world.cut(cable)

    def before_cut(self, cable: Cable) -> None:
        """A hook for an end whose connection is about to break."""

    def check(self) -> None:
        """No fault so far."""
        for node in self.world.nodes:
            check_store(node.store)
            for end in node.ends:
                assert end.code in (None, ErrorCode.UNEXPECTED_EOF), end.closed


class RandomWorld(RandomNodes):
    """2 to 4 nodes that all want everything, and their misfortunes."""

    def __init__(self, seed: int, *, forks: bool = False) -> None:
        super().__init__(seed)
        self.pestering = True  # authors are at work whatever else happens
        self.forks = forks
        self.nodes = self.world.nodes
        for _ in range(self.rng.choice((2, 2, 2, 3, 3, 4))):
            node = self.node(KEEP)
            node.respond = self._with_author(node)
        self.pairs = self._topology()
        self._keys = [SigningKey(bytes([n + 1]) * 32) for n in range(len(self.nodes))]

    def _topology(self) -> list[tuple[Node, Node]]:
        """A random tree, and some more cables, also between two that have one already."""
        rng, nodes = self.rng, self.nodes
        pairs = [(nodes[rng.randrange(n)], nodes[n]) for n in range(1, len(nodes))]
        for _ in range(rng.randrange(3)):
            one, other = rng.sample(nodes, 2)
            pairs.append((one, other))
        return pairs

    # Events

    def go(self) -> None:
        self.happen((3, 10), self.author, self.author, self.connect, self.cut, self.pause)
        for node in self.nodes:
            node.paused = False
        self.mend()

    def author(self) -> None:
        """Some entries of an author that lives on one of the nodes."""
        rng = self.rng
        home = rng.randrange(len(self.nodes))
        node = self.nodes[home]
        if self.forks and rng.random() < 0.5:
            home = 0  # the author's key has been copied to this node
        self._publish(node, self._keys[home], rng.randrange(2), rng.randint(1, 6))

    def _with_author(self, node: Node) -> Callable[[Effect], object]:
        """The author may publish between any two effects; the replicators hear of it later."""
        perform = node.respond

        def respond(effect: Effect) -> object:
            if self.pestering and self.rng.random() < 0.02:
                self._publish(node, self._keys[self.nodes.index(node)], self.rng.randrange(2), 1)
            return perform(effect)

        return respond

    def _publish(self, node: Node, key: SigningKey, log_id: int, count: int) -> None:
        try:
            author = LogAuthor.resume(key, node.store, log_id)
        except VerificationError:
            return  # forked
        head = author.head
        if head is not None:
            last = node.store.entry(author.log, head.seqnum)
            if head.end_of_log or last is None or not last.payload_complete:
                return
        news: list[NewEntry] = []
        for _ in range(count):
            ends = self.rng.random() < 0.02
            news.append(author.publish(self._payload(), end_of_log=ends))
            if ends:
                break
        node.store.append(author.log, news)
        node.changed.append((None, author.log))

    def _key(self, log: LogKey) -> SigningKey:
        return next(key for key in self._keys if bytes(key.verify_key) == log.author)

    def _payload(self) -> bytes:
        size = self.rng.choice(_SIZES)
        return self.rng.randbytes(size) if self.rng.random() < 0.5 else b"compress" * (size // 8)

    def before_cut(self, cable: Cable) -> None:
        if self.rng.random() < 0.2:
            cable.left.machine.close()
            cable.left.drain()
            self.world.run(self.rng.choice((0, 5, 50)))

    def pause(self) -> None:
        node = self.rng.choice(self.nodes)
        node.paused = not node.paused

    # The end

    def mend(self) -> None:
        """Connect everything; in the end all have everything."""
        self.pestering = False
        self.connect_all()
        self.world.wait(2)
        if self.forks:
            # The common part of a fork shows at the latest when its branches go on.
            logs = {log for node in self.nodes for log in node.store.logs()}
            for log in sorted(logs):
                for node in self.nodes:
                    self._publish(node, self._key(log), log.log_id, 1)
            self.world.wait(2)
        self.world.wait(_PATIENCE)
        self.check()
        for end in (end for node in self.nodes for end in node.ends):
            assert end.closed is not None or not end.cut, "cut, and never over"
        assert self.alike(), "the stores differ"

    def alike(self) -> bool:
        """Whether all have everything."""
        return same(*self.nodes)

"""Random worlds in which nodes want parts: the simulation of parts, one seed a world."""

from __future__ import annotations

from dataclasses import replace

from nacl.signing import SigningKey
from replicator_random import RandomNodes
from replicator_support import Cable, End, Node, same, settled

from culm.bamboo.author import LogAuthor
from culm.bamboo.links import lower_pool, shortest_path
from culm.point2point import NOTIFY, payloads_up_to
from culm.point2point.replication import Interest, Want
from culm.wire.multihash import YAMF

_SIZES = (0, 1, 30, 63, 64, 65, 130, 500, 900)
_WISHES = (
    None,
    Want(),
    Want(payload_mandatory=True),
    Want(size_max=100),
    Want(size_max=100, payload_mandatory=True),
    Want(size_min=64, payload_mandatory=True),
    Want(eagerness=payloads_up_to(64)),
    Want(eagerness=NOTIFY),
)


class RandomParts(RandomNodes):
    """An author, and readers that want different parts of the log, and change their minds."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
        self.log = self.author.log
        self.server = self.node(Interest())
        self.readers = [self.node(self._wish()) for _ in range(self.rng.choice((1, 1, 2)))]
        self.pairs = [(reader, self.server) for reader in self.readers]

    def _wish(self) -> Interest:
        live, want = self.rng.random() < 0.5, self.rng.choice(_WISHES)
        return Interest(live=live, accept_new_logs=True, want=want)

    @property
    def head(self) -> int:
        return 0 if self.author.head is None else self.author.head.seqnum

    def go(self) -> None:
        self.publish()
        self.happen((3, 12), self.publish, self.connect, self.ask, self.ask, self.cut, self.forget)
        self.mend()

    # Events

    def publish(self) -> None:
        sizes = self.rng.choices(_SIZES, k=self.rng.randint(1, 8))
        self.server.add(*[self.author.publish(self.rng.randbytes(size)) for size in sizes])

    def before_cut(self, cable: Cable) -> None:
        """Perhaps the reader's process dies, along with its store's pending work."""
        if self.rng.random() < 0.5:
            for end in (cable.left, cable.right):
                if end.node is not self.server:
                    end.effects.clear()

    def ask(self) -> None:
        """A reader wants some range, perhaps one of which it has no entries."""
        if self.cables:
            n = self.rng.choice(sorted(self.cables))
            if self.readers[n].end.open:
                self._replicate(self.readers[n].end, self._range())

    def _range(self) -> Want:
        rng = self.rng
        first, last = sorted(rng.randint(1, self.head) for _ in range(2))
        return Want(
            first=first if rng.random() < 0.7 else last,
            last=last,
            sparse=rng.random() < 0.4,
            payload_only=rng.random() < 0.3,
            payload_mandatory=rng.random() < 0.5,
            size_min=rng.choice((0, 0, 64)),
            size_max=rng.choice((64, 1 << 30, 1 << 30)),
        )

    def _replicate(self, end: End, want: Want | None) -> None:
        end.machine.replicate(self.log, want)
        end.drain()

    def forget(self) -> None:
        """A reader deletes a payload, without telling any replicator."""
        node = self.rng.choice(self.readers)
        complete = [e.seqnum for e in node.store.entries(self.log) if e.payload_complete]
        if complete:
            node.store.discard_payload(self.log, self.rng.choice(complete))

    # The end

    def mend(self) -> None:
        for n in list(self.cables):
            self.world.cut(self.cables.pop(n))
        self.world.run()
        self.connect_all()
        self.world.wait(2)
        for node in self.readers:
            self._check_wish(node)
        for node in self.readers:
            self._check_range(node)
        for node in self.readers:
            self._replicate(node.end, Want())
            self._replicate(node.end, Want(first=1, last=self.head, payload_only=True))
        self.world.wait(2)
        # Entries may have come after the request for their payloads.
        for node in self.readers:
            self._replicate(node.end, Want(first=1, last=self.head, payload_only=True))
        self.world.wait(2)
        self.check()
        assert same(self.server, *self.readers), "the stores differ"

    def check(self) -> None:
        """And everything comes to an end."""
        super().check()
        for node in self.world.nodes:
            assert settled(node.end), "it does not come to an end"

    def _check_wish(self, node: Node) -> None:
        """In a log that it follows, a reader has all entries, whatever it had before."""
        self.check()
        want = node.interest.want
        if want is not None and want.eagerness.wants_metadata:
            there = {entry.seqnum for entry in node.store.entries(self.log)}
            assert there == set(range(1, self.head + 1))

    def _check_range(self, node: Node) -> None:
        """Its present wish is met, with the proof."""
        want = replace(self._range(), payload_only=False)
        assert want.first is not None
        assert want.last is not None
        self._replicate(node.end, want)
        self.world.wait(2)
        self.check()
        there = {entry.seqnum: entry for entry in node.store.entries(self.log)}
        middle = range(want.first, want.last + 1)
        for seqnum in shortest_path(want.last, want.first) if want.sparse else middle:
            entry = there[seqnum]
            assert entry.payload_complete or not want.admits_payload(entry.payload_size)
        assert set(lower_pool(want.first)) <= there.keys()

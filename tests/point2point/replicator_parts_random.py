"""Random worlds in which nodes want parts: what the simulation of parts does, one seed a world."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from nacl.signing import SigningKey
from replicator_random import random_limits
from replicator_support import Cable, End, Node, World, check_store, same, settled

from culm.bamboo.author import LogAuthor
from culm.bamboo.links import lower_pool, shortest_path
from culm.bamboo.store import MemoryStore
from culm.point2point import NOTIFY, ErrorCode, payloads_up_to
from culm.point2point.replication import Interest, Want
from culm.testing.link import random_chunks
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


class RandomParts:
    """An author, and readers who want different parts of the log, and change their minds."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.world = World(
            chunker=random_chunks(Random(seed + 1)),
            rng=rng,
            capacity=rng.choice((100, 1000, 1 << 20)),
            take_size=rng.choice((lambda: None, lambda: rng.choice((7, 100, 4000)))),
            steps_max=100_000,
        )
        self.author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
        self.log = self.author.log
        self.server = self.world.node(
            MemoryStore(family=YAMF), interest=Interest(), limits=random_limits(rng)
        )
        self.readers = [
            self.world.node(
                MemoryStore(family=YAMF),
                interest=Interest(
                    live=rng.random() < 0.5, accept_new_logs=True, want=rng.choice(_WISHES)
                ),
                limits=random_limits(rng),
            )
            for _ in range(rng.choice((1, 1, 2)))
        ]
        self.cables: dict[int, Cable] = {}

    @property
    def head(self) -> int:
        return 0 if self.author.head is None else self.author.head.seqnum

    def go(self) -> None:
        rng = self.rng
        self.publish()
        for _ in range(rng.randint(3, 12)):
            rng.choice((self.publish, self.connect, self.ask, self.ask, self.cut, self.forget))()
            self.world.run(rng.choice((0, 3, 30, 300)))
        self.mend()

    # What happens.

    def publish(self) -> None:
        sizes = self.rng.choices(_SIZES, k=self.rng.randint(1, 8))
        self.server.add(*[self.author.publish(self.rng.randbytes(size)) for size in sizes])

    def connect(self) -> None:
        apart = [n for n in range(len(self.readers)) if n not in self.cables]
        if apart:
            n = self.rng.choice(apart)
            pair = self.readers[n], self.server
            self.cables[n] = self.world.connect(*pair[:: self.rng.choice((1, -1))])

    def cut(self) -> None:
        if self.cables:
            n = self.rng.choice(sorted(self.cables))
            if self.rng.random() < 0.5:  # the process dies: so does what its store had to do
                self.readers[n].end.effects.clear()
            self.world.cut(self.cables.pop(n))

    def ask(self) -> None:
        """A reader wants some range, which may well be none of which it has the entries."""
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
        """A reader deletes a payload, and tells nobody."""
        node = self.rng.choice(self.readers)
        complete = [e.seqnum for e in node.store.entries(self.log) if e.payload_complete]
        if complete:
            node.store.discard_payload(self.log, self.rng.choice(complete))

    # How it ends.

    def mend(self) -> None:
        for n in list(self.cables):
            self.world.cut(self.cables.pop(n))
        self.world.run()
        while len(self.cables) < len(self.readers):
            self.connect()
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
        self._check()
        assert same(self.server, *self.readers), "the stores differ"

    def _check(self) -> None:
        for node in (self.server, *self.readers):
            check_store(node.store)
            for end in node.ends:
                assert end.code in (None, ErrorCode.UNEXPECTED_EOF), end.closed
            assert settled(node.end), "it does not come to an end"

    def _check_wish(self, node: Node) -> None:
        """Of a log that it follows, a reader has all entries, whatever it had before."""
        self._check()
        want = node.interest.want
        if want is not None and want.eagerness.wants_metadata:
            there = {entry.seqnum for entry in node.store.entries(self.log)}
            assert there == set(range(1, self.head + 1))

    def _check_range(self, node: Node) -> None:
        """What it asks for now it gets, with what proves it."""
        want = replace(self._range(), payload_only=False)
        assert want.first is not None
        assert want.last is not None
        self._replicate(node.end, want)
        self.world.wait(2)
        self._check()
        there = {entry.seqnum: entry for entry in node.store.entries(self.log)}
        middle = range(want.first, want.last + 1)
        for seqnum in shortest_path(want.last, want.first) if want.sparse else middle:
            entry = there[seqnum]
            assert entry.payload_complete or not want.admits_payload(entry.payload_size)
        assert set(lower_pool(want.first)) <= there.keys()

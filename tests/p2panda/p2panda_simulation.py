"""Nodes that write, and replicate over connections on which everything goes wrong.

A connection brings bytes late and in pieces of any size, spoils some, and is cut at any byte; a
store answers late; a node stops at any moment, and starts anew from what its store has.  In the
end the network is whole: its connections, in rings too, have no fault, and all of them are live.
From then on nobody has a reason to blame anybody, whoever writes, and however slow a line is.

In some networks an author writes on two nodes at once, and forks his logs; what becomes of the
documents of such logs is open, but nothing else depends on them.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from nacl.signing import SigningKey
from p2panda_nodes import OTHER, SCHEMA, Node

from culm.machine import Closed, RemoteProtocolError
from culm.p2panda import (
    Author,
    Mode,
    OperationStored,
    Policy,
    Replicator,
    ReplicatorLimits,
    SessionEnded,
)
from culm.p2panda.effects import perform

NODES_MAX = 20


def key_of(number: int) -> SigningKey:
    """Of the author of the node of that number."""
    return SigningKey((number + 1).to_bytes(32, "big"))


class End:
    """A node's end of a connection: the replicator, and what its store has not answered."""

    def __init__(self, node: Node, machine: Replicator) -> None:
        self.node = node
        self.machine = machine
        self.incoming = bytearray()  # on its way here
        self.open = True
        self.blamed: list[RemoteProtocolError] = []  # what the peer is said to have done
        self._effects: deque[Any] = deque()
        self._answers: deque[tuple[Any, Any]] = deque()  # what was done is not told at once

    def take_events(self) -> tuple[bool, bool]:
        """Whether there were any, and whether something has been stored."""
        moved = stored = False
        while (event := self.machine.next_event()) is not None:
            moved = True
            stored |= isinstance(event, OperationStored)
            self.open &= not isinstance(event, Closed)
            if isinstance(event, SessionEnded | Closed) and event.error is not None:
                self.blamed.append(event.error)
        return moved, stored

    def answer(self, count: int, *, late: bool) -> bool:
        """Let the store do at most so many things; whether it has anything to do.

        late: what it has done it tells next time.
        """
        while (effect := self.machine.next_effect()) is not None:
            self._effects.append(effect)
        busy = bool(self._effects or self._answers)
        while self._effects and count:
            effect = self._effects.popleft()
            self._answers.append((effect.ticket, perform(effect, self.node.store)))
            count -= 1
        while self._answers and not late:
            self.machine.complete(*self._answers.popleft())
        return busy

    def receive(self, size: int) -> bool:
        data = bytes(self.incoming[: min(size, self.machine.read_size())])
        if data:
            del self.incoming[: len(data)]
            self.machine.receive_data(data)
        return bool(data)


class Connection:
    """Two replicators, between which bytes are carried as long as it lasts.

    faulty: about one byte in 1500 is not the one that was sent.
    at_rest: nothing happened in its last turn, and nothing will before somebody wakes it.
    """

    def __init__(self, nodes: tuple[Node, Node], rng: Random, *, live: bool, faulty: bool) -> None:
        self.nodes = nodes
        self._rng = rng
        self._faulty = faulty
        self.carried = 0  # bytes
        self.at_rest = False
        mode = rng.choice(list(Mode))
        self.ends = tuple(
            End(
                node,
                Replicator(
                    local_peer=ids[0],
                    remote_peer=ids[1],
                    policy=Policy(asks=asks, mode=mode, live=live),
                    limits=ReplicatorLimits(
                        repeated_max=rng.choice((1, 1000)),
                        unwritten_size_max=rng.choice((1, 1 << 20)),
                        # Which documents have very many logs, and how many are sent at once.
                        spans_max=rng.choice((1, 256)),
                        batch_count_max=rng.choice((2, 512)),
                    ),
                ),
            )
            for node, ids, asks in zip(
                nodes, ((b"a", b"b"), (b"b", b"a")), (True, rng.random() < 0.5), strict=True
            )
        )
        for end in self.ends:
            end.machine.announce((SCHEMA, OTHER), timestamp=1)

    def turn(self) -> set[Node]:
        """Both ends go on a little; who has stored something."""
        busy, wrote = False, set[Node]()
        for end, peer in (self.ends, self.ends[::-1]):
            if not end.open:
                continue
            moved, stored = end.take_events()
            size = self._rng.choice((1, 100, 1 << 16)) * 50
            busy |= moved
            busy |= end.answer(self._rng.choice((0, 1, 9)), late=self._rng.random() < 0.3)
            busy |= end.receive(size)
            if data := end.machine.data_to_send(size):
                busy = True
                self.carried += len(data)
                peer.incoming += self._spoilt(data)
            if stored:
                wrote.add(end.node)
        self.at_rest = not busy
        return wrote

    def _spoilt(self, data: bytes) -> bytes:
        if not self._faulty or self._rng.random() * 1500 > len(data):
            return data
        spoilt = bytearray(data)
        spoilt[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(spoilt)

    def wake(self, node: Node) -> None:
        """That node has stored something, which did not come from here."""
        for end in self.ends:
            if end.node is node and end.open:
                end.machine.stored()
                self.at_rest = False


class Simulation:
    """A network whose course depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        count = 2 + int((NODES_MAX - 1) * self._rng.random() ** 2)  # small networks more often
        self.nodes = [Node(number + 1) for number in range(count)]
        self._connections: list[Connection] = []
        self._forks = self._rng.random() < 0.3
        self.written: set[bytes] = set()
        """The ids of all operations."""
        self.steps = 0
        """Turns of connections, and the bytes that these have carried."""
        self.bytes = 0

    def run(self) -> None:
        """Everything goes wrong for a while; then it is made whole, and goes on."""
        for _ in range(self._rng.randint(10, 40)):
            self._step()
        self._make_whole()
        for _ in range(self._rng.choice((0, 10, 60))):  # slow lines beside fast ones
            self.write() if self._rng.random() < 0.4 else self._turn(
                self._rng.choice(self._connections)
            )
        self.settle()

    @property
    def blamed(self) -> list[RemoteProtocolError]:
        """What those whose connections are there are said to have done."""
        return [error for each in self._connections for end in each.ends for error in end.blamed]

    def forked(self) -> set[bytes]:
        """The documents of which some nodes have entries that others cannot take."""
        entries: dict[tuple[Any, int], bytes] = {}
        logs = set()
        for node in self.nodes:
            for each in node.store.read_new((SCHEMA, OTHER), count_max=1 << 20, size_max=1 << 30):
                if entries.setdefault((each.log, each.seqnum), each.entry) != each.entry:
                    logs.add(each.log)
        found = [node.store.documents_of(logs).values() for node in self.nodes]
        return {each.document_id for documents in found for each in documents}

    def _step(self) -> None:
        rng, dice = self._rng, self._rng.random()
        if dice < 0.5:
            self.write()
        elif dice < 0.7 or not self._connections:
            self._connect(rng.sample(self.nodes, 2), live=rng.random() < 0.5, faulty=True)
        elif dice < 0.9:
            for _ in range(rng.randint(1, 15)):
                self._turn(rng.choice(self._connections))
        elif dice < 0.95:
            self._connections.remove(rng.choice(self._connections))
        else:
            self._restart(rng.randrange(len(self.nodes)))

    def write(self) -> None:
        """Somebody creates, changes or deletes something, as far as he knows it."""
        rng, node = self._rng, self._rng.choice(self.nodes)
        author = node.author
        if self._forks and rng.random() < 0.2:
            author = Author(key_of(rng.randrange(len(self.nodes))), node.store)
        states = {each: node.store.state_of(each) for each in node.store.documents(SCHEMA)}
        known = [each for each, found in states.items() if found is not None and not found.deleted]
        dice = rng.random()
        if not known or dice < 0.3:
            made = author.create(rng.choice((SCHEMA, OTHER)), {"n": rng.randrange(99)})
        elif dice < 0.95:
            made = author.update(rng.choice(known), {"n": rng.randrange(99)})
        else:
            made = author.delete(rng.choice(known))
        self.written.add(made)
        for each in self._connections:
            each.wake(node)

    def _connect(self, nodes: list[Node], *, live: bool, faulty: bool) -> None:
        one, other = nodes
        self._connections.append(Connection((one, other), self._rng, live=live, faulty=faulty))

    def _restart(self, number: int) -> None:
        """What its store has not done is not done at all."""
        node = self.nodes[number]
        node.author = Author(key_of(number), node.store)
        self._connections = [
            each for each in self._connections if all(end.node is not node for end in each.ends)
        ]

    def _turn(self, connection: Connection) -> None:
        before = connection.carried
        wrote = connection.turn()
        self.steps += 1
        self.bytes += connection.carried - before
        for node in wrote:
            for each in self._connections:
                if each is not connection:
                    each.wake(node)

    def _make_whole(self) -> None:
        self._connections = []
        nodes = self._rng.sample(self.nodes, len(self.nodes))
        for number, node in enumerate(nodes[1:], 1):
            self._connect([node, self._rng.choice(nodes[:number])], live=True, faulty=False)
        linked = {frozenset(each.nodes) for each in self._connections}
        for _ in range(self._rng.randrange(4)):
            pair = self._rng.sample(nodes, 2)
            if frozenset(pair) not in linked:
                linked.add(frozenset(pair))
                self._connect(pair, live=True, faulty=False)

    def settle(self) -> None:
        """Go on until nothing happens any more."""
        while moving := [each for each in self._connections if not each.at_rest]:
            for each in moving:  # all of them have a turn
                self._turn(each)

    def check(self) -> None:
        """All nodes have all operations that were ever written, and the same documents.

        That is not asked of documents that forks have torn apart.  And nobody has said that anybody
        else has broken a rule.
        """
        assert self.blamed == []
        forked = self.forked()
        first, *others = (
            {each: found for each, found in node.documents().items() if each not in forked}
            for node in self.nodes
        )
        assert all(documents == first for documents in others)
        if not forked:
            found = {each for document in first.values() for each in document.order}
            assert found == self.written
            for node in self.nodes:
                assert node.store.range((SCHEMA, OTHER)).position == len(found)


def run_p2panda_seed(seed: int) -> Simulation:
    """Run one seed, and what is written live in the end."""
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()
    for _ in range(3):  # live, from node to node
        simulation.write()
    simulation.settle()
    simulation.check()
    return simulation

"""Shared by the tests of the Replicator: nodes with a store, and cables between them.

A `World` carries bytes in chunks, answers effects in the order in which they were handed out,
reports an entry that one replicator of a node has stored to the node's others, and lets time pass
on request.  It keeps the law of driving: events, effects, bytes, until a round brings nothing.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import count
from random import Random

from p2p_support import Told, published

from culm.bamboo.audit import audit_log
from culm.bamboo.entry import LogKey
from culm.bamboo.records import NewEntry
from culm.bamboo.store import LogStore, MemoryStore
from culm.machine import Closed, Effect, Event
from culm.point2point import Limits, Role, Setup, State
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    Replicator,
    ReplicatorLimits,
    Settled,
    Timing,
)
from culm.testing import captures
from culm.testing.link import whole
from culm.testing.pipe import Chunker
from culm.testing.stores import contents
from culm.wire.multihash import YAMF

KEEP = Interest(live=True, accept_new_logs=True)
FETCH = Interest(live=False, accept_new_logs=True)
SERVE = Interest(live=True)

# Small enough for a payload of a few hundred bytes to be staged, in several pieces.
SMALL = ReplicatorLimits(
    payload_inline_max=64,
    batch_count_max=5,
    batch_size_max=256,
    connection=Limits(packet_size_max=48, data_window_max=4096),
)


@cache
def news_of(
    sizes: tuple[int, ...],
    *,
    log_id: int = 0,
    seed: int = 1,
    branch: bytes = b"",
    fork_at: int = 1,
    ended: bool = False,
) -> tuple[NewEntry, ...]:
    """A log with payloads of those sizes; from `fork_at` on they depend on `branch`."""
    noise = (
        Random(f"{seed} {log_id} {number} {branch if number >= fork_at else b''!r}")
        for number in range(1, len(sizes) + 1)
    )
    payloads = [each.randbytes(size) for each, size in zip(noise, sizes, strict=True)]
    return published(payloads, log_id=log_id, seed=seed, ended=ended)


def store_of(*logs: Iterable[NewEntry]) -> MemoryStore:
    """A store that has those entries."""
    store = MemoryStore(family=YAMF)
    for news in logs:
        entries = list(news)
        store.append(entries[0].entry.log, entries)
    return store


def key_of(news: Iterable[NewEntry]) -> LogKey:
    return next(iter(news)).entry.log


def check_store(store: LogStore) -> None:
    """Everything stored as verified must verify."""
    for log in store.logs():
        rows: list[tuple[bytes, bytes | None]] = []
        for kept in store.entries(log):
            data = store.read_payload(log, kept.seqnum, 0, kept.payload_size + 1)
            assert len(data) == kept.payload_stored
            rows.append((kept.encoded, data if kept.payload_complete else None))
        faults = [v for v in audit_log(log, rows, family=store.family, sparse=True) if v.reasons]
        assert not faults, faults[:3]


class End(Told):
    """A replicator of a node, and its results."""

    def __init__(self, node: Node, machine: Replicator) -> None:
        super().__init__()
        self.node = node
        self.machine = machine
        self.closed: Closed | None = None
        self.effects: deque[Effect] = deque()
        self.answers: list[tuple[Effect, object]] = []  # under way: a result, or an error
        self.sent_size = 0
        self.out = bytearray()  # arrives as soon as the other end reads
        self.line: deque[tuple[float, bytes]] = deque()  # with times of arrival
        self.ended = False  # nothing more will be sent
        self.eof_given = False
        self.cut = False

    @property
    def settled(self) -> bool:
        """Whether nothing waits for the store, and every log is settled."""
        waiting = self.effects or self.answers
        return not waiting and all(each.settled for each in self.machine.logs.values())

    @property
    def open(self) -> bool:
        """Whether its verbs can still be used."""
        return not self.cut and self.machine.state in (State.SETUP, State.ESTABLISHED)

    def drain(self) -> None:
        """Take everything, in the order of the law."""
        going_on = True
        while going_on:
            going_on = False
            while (event := self.machine.next_event()) is not None:
                going_on = True
                self._take(event)
            while (effect := self.machine.next_effect()) is not None:
                going_on = True
                self.effects.append(effect)
            going_on |= self._send()

    def _take(self, event: Event) -> None:
        assert self.closed is None, "an event after Closed"
        self.events.append(event)
        if isinstance(event, Closed):
            self.closed = event
        if isinstance(event, Settled):
            assert self.settled
        if isinstance(event, (EntryStored, ForkFound)):
            self.node.changed.append((self, event_log(event)))

    def _send(self) -> bool:
        """Send a piece, unless too much is under way already."""
        world = self.node.world
        if self.ended or len(self.out) >= world.capacity:
            return False
        size_max = world.take_size()
        data = self.machine.data_to_send(size_max)
        assert size_max is None or len(data) <= size_max
        self.line.append((world.now + world.latency, data))
        self.land()
        self.sent_size += len(data)
        return bool(data)

    def land(self) -> None:
        """Let everything arrive that is due by now."""
        while self.line and self.line[0][0] <= self.node.world.now:
            self.out += self.line.popleft()[1]

    def respond(self) -> None:
        """The store does the oldest effect, and answers at once."""
        self.perform()
        self.answer(-1)

    def perform(self) -> None:
        """The store does the oldest effect; the answer comes later."""
        effect = self.effects.popleft()
        try:
            result = self.node.respond(effect)
        except OSError as error:
            result = error
        self.answers.append((effect, result))

    def answer(self, at: int) -> None:
        """That answer arrives."""
        effect, result = self.answers.pop(at)
        if isinstance(result, OSError):
            self.machine.fail(effect.ticket, result)
        else:
            self.machine.complete(effect.ticket, result)
        self.drain()


def event_log(event: Event) -> LogKey:
    log = event.proof.log if isinstance(event, ForkFound) else getattr(event, "log", None)
    assert isinstance(log, LogKey)
    return log


class Node:
    """A store, and the replicators over it."""

    def __init__(
        self,
        world: World,
        store: LogStore,
        *,
        interest: Interest,
        limits: ReplicatorLimits,
    ) -> None:
        self.world = world
        self.store = store
        self.interest = interest
        self.limits = limits
        self.ends: list[End] = []
        self.changed: list[tuple[End | None, LogKey]] = []  # with the replicator that reported it
        self.setup = Setup()
        self.timing = Timing()
        self.paused = False  # the store does not answer
        self.respond: Callable[[Effect], object] = lambda effect: self.store.perform(effect)

    @property
    def end(self) -> End:
        """The latest replicator."""
        return self.ends[-1]

    def open(self, role: Role) -> End:
        machine = captures.make(
            Replicator,
            role=role,
            setup=self.setup,
            interest=self.interest,
            limits=self.limits,
            timing=self.timing,
            family=self.store.family,
        )
        end = self.world.end_type(self, machine)
        self.ends.append(end)
        machine.advance(self.world.now)
        return end

    def add(self, *news: NewEntry) -> None:
        """Store entries as their author does, and tell the replicators."""
        log = news[0].entry.log
        self.store.append(log, news)
        self.tell(log, None)

    def tell(self, log: LogKey, teller: End | None) -> None:
        for end in self.ends:
            if end is not teller and end.open:
                end.machine.stored(log)
                end.drain()


class Cable:
    """A connection of two nodes."""

    def __init__(self, left: End, right: End) -> None:
        self.left, self.right = left, right

    @property
    def directions(self) -> tuple[tuple[End, End], tuple[End, End]]:
        return (self.left, self.right), (self.right, self.left)

    @property
    def over(self) -> bool:
        return all(end.closed is not None for end in (self.left, self.right))


class World:
    """Nodes, cables, time, and chance (strictly by turns without `rng`).

    capacity: bytes under way in a direction above which nothing more is taken.
    late: answers of a store come later than its actions, and in any order.
    """

    end_type: type[End] = End

    def __init__(
        self,
        *,
        chunker: Chunker = whole,
        rng: Random | None = None,
        capacity: int = 1 << 20,
        take_size: Callable[[], int | None] = lambda: None,
        steps_max: int = 100_000,
        late: bool = False,
        latency: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.rng = rng
        self.chunker = chunker
        self.capacity = capacity
        self.take_size = take_size
        self.steps_max = steps_max
        self.late = late
        self.latency = latency  # seconds, one way: data arrives as time passes (`wait`)
        self.nodes: list[Node] = []
        self.cables: list[Cable] = []
        self.steps = 0
        self.carried = 0  # bytes
        self._later: list[tuple[float, int, Callable[[], object]]] = []  # a heap
        self._number = count()

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Do that when it is so late."""
        heapq.heappush(self._later, (time, next(self._number), action))

    def node(
        self,
        store: LogStore | None = None,
        *,
        interest: Interest = KEEP,
        limits: ReplicatorLimits = SMALL,
    ) -> Node:
        made = Node(
            self,
            MemoryStore(family=YAMF) if store is None else store,
            interest=interest,
            limits=limits,
        )
        self.nodes.append(made)
        return made

    def connect(self, left: Node, right: Node) -> Cable:
        cable = Cable(left.open(Role.PROACTIVE), right.open(Role.REACTIVE))
        self.cables.append(cable)
        for end in (cable.left, cable.right):
            end.drain()
        return cable

    def cut(self, cable: Cable) -> None:
        """Lose everything under way; both ends see the end of the stream."""
        for end in (cable.left, cable.right):
            end.ended = True
            end.cut = True
            end.out.clear()
            end.line.clear()
            if end.closed is None:
                end.machine.receive_eof()
                end.drain()
        self.cables.remove(cable)

    # Running

    def moves(self) -> Iterator[Callable[[], object]]:
        """The possible next steps."""
        for node in self.nodes:
            if node.changed:
                yield partial(self._tell, node)
            if not node.paused:
                for end in node.ends:
                    if end.effects:
                        yield end.perform if self.late else end.respond
                    if end.answers:
                        yield partial(self._answer, end)
        for cable in self.cables:
            for sender, receiver in cable.directions:
                if self._deliverable(sender, receiver):
                    yield partial(self.deliver, sender, receiver)

    def _answer(self, end: End) -> None:
        end.answer(0 if self.rng is None else self.rng.randrange(len(end.answers)))

    def _tell(self, node: Node) -> None:
        end, log = node.changed.pop(0)
        node.tell(log, end)

    def _deliverable(self, sender: End, receiver: End) -> int:
        if receiver.closed is not None:
            sender.out.clear()
            return 0
        if sender.out:
            return min(len(sender.out), receiver.machine.read_size())
        over = (sender.closed is not None or sender.ended) and not sender.line
        return int(over and not receiver.eof_given)

    def deliver(self, sender: End, receiver: End) -> None:
        """Let some bytes arrive, or the end of them."""
        size = self._deliverable(sender, receiver)
        if sender.out:
            size = min(size, max(1, self.chunker(size)))
            data = bytes(sender.out[:size])
            del sender.out[:size]
            self.carried += len(data)
            receiver.machine.receive_data(data)
        else:
            receiver.eof_given = True
            receiver.machine.receive_eof()
        receiver.drain()
        sender.drain()

    def run(self, steps: int | None = None) -> World:
        """Take at most `steps` possible steps, or go on until none is left."""
        for _ in range(self.steps_max if steps is None else steps):
            moves = list(self.moves())
            if not moves:
                return self
            self.steps += 1
            (moves[0] if self.rng is None else self.rng.choice(moves))()
        if steps is None:
            last = [end.events[-4:] for node in self.nodes for end in node.ends if not end.closed]
            raise AssertionError(f"not quiet after {self.steps_max} steps: {last}")
        return self

    def wait(self, seconds: float = 1.0) -> World:
        """Let time pass, deadline by deadline, and run."""
        self.run()
        until = self.now + seconds
        for _ in range(10_000):
            deadlines = [
                deadline
                for node in self.nodes
                for end in node.ends
                if end.closed is None
                if (deadline := end.machine.next_deadline()) is not None and deadline <= until
            ]
            lines = [end.line for node in self.nodes for end in node.ends if end.line]
            deadlines += [line[0][0] for line in lines if line[0][0] <= until]
            deadlines += [time for time, _, _ in self._later[:1] if time <= until]
            # Deadlines in the past are due at once, but time does not run backwards for them.
            self.now = max(self.now, min(deadlines, default=until))
            for node in self.nodes:
                for end in node.ends:
                    end.land()
                    if end.closed is None:
                        end.machine.advance(self.now)
                        end.drain()
            while self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
            self.run()
            if not deadlines:
                return self
        raise AssertionError("time does not pass: some deadline comes again and again")

    def settle(self) -> World:
        """Run until every open replicator reports that it has settled."""
        return self.wait()


def settled(end: End) -> bool:
    return bool(end.of(Settled))


def same(*nodes: Node) -> bool:
    """Whether all stores have the same content (the proofs of a fork may differ)."""
    found = [
        {
            log: (head, newest, fork and fork.seqnum, entries)
            for log, (head, newest, fork, entries) in contents(node.store).items()
        }
        for node in nodes
    ]
    return all(each == found[0] for each in found)

"""Nodes that write, and replicate over connections with every kind of fault.

A connection brings bytes late and in pieces of any size, spoils some, and is cut at any byte; a
store answers late; a node stops at any moment, and starts anew from the contents of its store.  In
the end the network is whole: its connections, in rings too, have no fault, and all of them are
live.  From then on no side has a reason to blame the other, whichever nodes write and however slow
a line is.

In some networks

- a node's folder is restored from a backup, and its author goes on at once, with another key;
- authors choose the operations that a change follows as other implementations do, or freely;
- an author writes on two nodes at once, and forks its logs; the fate of such logs and of the
  documents they create is open, as is the content of documents to which they contribute, but
  nothing else depends on them;
- one node is of a laxer implementation, and passes on entries that are invalid for the others, too;
- some peers support log heights only, and say so with ``Have``, or stay silent;
- any limit is 1, or one side takes fewer ranges than the other asks about;
- one peer never reads;
- a line stalls for longer than its peers' patience, and loses nothing;
- lines are so slow that a message may take longer than this patience;
- the interests of nodes change, and change back;
- peers speak the dialect of aquadoggo, whose ids are used again, and are never live: one of them
  asks for a session after each news, as soon as the last one is over, and sometimes once more;
- nodes remember what they sent to a peer, and that memory is restored from another time, or from
  another peer: then it may take some more connections until all have everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from nacl.signing import SigningKey
from p2panda_faults import LAX, accepted
from p2panda_heights_only import HeightsOnly
from p2panda_nodes import OTHER, SCHEMA, Node

from culm.bamboo.entry import decode as decode_entry
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError
from culm.p2panda import (
    Author,
    Dialect,
    ErrorCode,
    Limits,
    Mode,
    Offers,
    OperationStored,
    Policy,
    Replicator,
    ReplicatorLimits,
    SessionEnded,
    decode,
)
from culm.p2panda.effects import NewOperation
from culm.p2panda.store import MemoryStore
from culm.reconcile import SessionLimits
from culm.testing import captures
from culm.wire.multihash import YASMF

NODES_MAX = 20
STEPS_MAX = 50_000  # where 4,000 are many
BOTH = (SCHEMA, OTHER)
# How often all nodes are connected anew, if their memories of each other may be wrong.
ROUNDS_MAX = 8
# How long a line may stall: longer than the wait for an answer, or than the patience of a session.
SLEEPS_S = (35.0, 310.0)
SLOW_SIZE, SLOW_S = 350, 5.0  # what a slow line carries in a turn, and its time
LONG_SIZE = 30_000  # an operation that takes longer there than a session may stand still
# Errors that the two peers of such a line may report of each other. Support for log heights only is
# no fault, and is reported where there is no room to ask for these at once.
_LATE = frozenset(
    {ErrorCode.UNANSWERED, ErrorCode.STALLED, ErrorCode.GIVEN_UP, ErrorCode.HEIGHTS_ONLY}
)
# Errors that two peers may report of each other if one takes few ranges.
_FEW = frozenset({ErrorCode.TOO_MANY_RANGES, ErrorCode.GIVEN_UP})
# Limits that hold up no peer if they are 1.
_SMALL = (
    *("unwritten_size_max", "unsent_size_max", "batch_size_max", "batch_count_max", "spans_max"),
    *("logs_known_max", "operations_known_max", "repeated_max", "left_out_max"),
)
_SMALL_OF_CONNECTION = ("receive_buffer_max", "sessions_max", "answers_size_max")


def key_of(number: int) -> SigningKey:
    """The key of the author on the node of that number."""
    return SigningKey((number + 1).to_bytes(32, "big"))


class End:
    """A node's end of a connection: the replicator, and its store's pending answers.

    ears: filters the peer's bytes, if this end supports log heights only.
    """

    def __init__(self, node: Node, machine: Replicator, ears: HeightsOnly | None) -> None:
        self.node = node
        self.machine = machine
        self.ears = ears
        self.incoming = bytearray()  # on their way here
        self.open = True
        self.blamed: list[RemoteProtocolError] = []  # faults that the peer is accused of
        self._effects: deque[Any] = deque()
        self._answers: deque[tuple[Any, Any]] = deque()  # results that are not reported at once
        self._taken = False  # all events and effects
        self._sent = False  # all bytes

    @property
    def at_rest(self) -> bool:
        """Whether nothing will happen here without new bytes or a wake-up."""
        waits = self._effects or self._answers
        return not self.open or (self._taken and self._sent and not waits)

    def stir(self) -> None:
        """The machine has had input: it may have something to say."""
        self._taken = self._sent = False

    def answer(self, count: int, *, late: bool) -> bool:
        """Let the store do at most `count` things, one after the other; the result is that of
        `hear`.

        late: its results are reported in the next turn.
        """
        stored = False
        for _ in range(count):
            stored |= self._take()
            if not self._effects:
                break
            effect = self._effects.popleft()
            self._answers.append((effect.ticket, self.node.store.perform(effect)))
            if not late:
                self._tell()
        if not late:
            self._tell()
        return stored

    def _tell(self) -> None:
        """Report the store's results to the machine."""
        while self._answers:
            self.machine.complete(*self._answers.popleft())
            self.stir()

    def hear(self, size: int) -> bool:
        """Read up to `size` bytes, in the sizes the machine asks for.

        Returns whether anything has been stored.
        """
        stored = self._take()
        while self.incoming and self.open:
            room = min(size, len(self.incoming), self.machine.read_size())
            if not room:
                break
            data = bytes(self.incoming[:room])
            del self.incoming[:room]
            self.machine.receive_data(data if self.ears is None else self.ears.heard(data))
            stored |= self._take_events()
            size -= room
            self.stir()
        return stored

    def say(self, size: int) -> bytes:
        """Take up to `size` bytes for the peer."""
        if self._sent:
            return b""
        data = self.machine.data_to_send(size) if size else b""
        if data:
            self.stir()
        self._sent = not data
        return data

    def _take(self) -> bool:
        """Take events and effects; returns whether anything has been stored."""
        if self._taken:
            return False
        stored = self._take_events()
        while (effect := self.machine.next_effect()) is not None:
            self._effects.append(effect)
        self._taken, self._sent = True, False  # asking for effects may have produced bytes
        return stored

    def _take_events(self) -> bool:
        stored = False
        while (event := self.machine.next_event()) is not None:
            stored |= isinstance(event, OperationStored)
            self.open &= not isinstance(event, Closed)
            if isinstance(event, SessionEnded | Closed) and event.error is not None:
                self._blame(event.error)
        return stored

    def _blame(self, error: RemoteProtocolError) -> None:
        # A peer that takes a request for one in the other mode is told that the session is over, or
        # gets messages of a session that it asked for in vain, whose id it has since used again.
        if self.ears is None or error.code not in {ErrorCode.GIVEN_UP, ErrorCode.WRONG_MODE}:
            self.blamed.append(error)


def some_limits(rng: Random, *, unforgiving: bool) -> ReplicatorLimits:
    """Any of them may be 1.

    unforgiving: one fault may be enough to end the connection; honest peers have none, if all that
    they say arrives soon.
    """
    small = rng.random() ** 2

    def chosen(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: 1 for name in names if rng.random() < small}

    ranges_max = rng.choice((1, 2, 9)) if rng.random() < small / 2 else 1 << 16
    connection = chosen(_SMALL_OF_CONNECTION)
    if unforgiving and rng.random() < 0.5:
        connection["faults_max"] = 0
    return ReplicatorLimits(
        connection=Limits(**connection),
        comparison=SessionLimits(ranges_max=ranges_max),
        **chosen(_SMALL),
    )


class Connection:
    """Two replicators, with bytes carried between them while it lasts.

    faulty: about one byte in 1500 is changed.
    unforgiving: one fault ends it at an end that is drawn.
    stuck: nothing is read at either end.
    slow: each turn takes some seconds, in which few bytes arrive, and the stores catch up.
    insists: it is not live, in aquadoggo's dialect, and the first end asks again and again.
    may_be_slow: the ends hear parts of messages, and do not wait for each other.
    at_rest: nothing happened in its last turn, and nothing will before a wake-up.
    """

    def __init__(
        self,
        nodes: tuple[Node, Node],
        rng: Random,
        *,
        live: bool,
        faulty: bool,
        unforgiving: bool,
        stuck: bool = False,
        insists: bool = False,
        offers: tuple[Offers | None, Offers | None] = (None, None),
    ) -> None:
        self.nodes = nodes
        self.insists = self._is_to_ask = insists
        self._rng = rng
        self._faulty = faulty
        self.stuck = stuck
        self.slow = False
        self.carried = 0  # bytes
        self.at_rest = False
        self.has_slept = False
        self._now = 0.0
        self._mode = mode = rng.choice(list(Mode))
        limits = [some_limits(rng, unforgiving=unforgiving) for _ in nodes]
        few = any(each.comparison.ranges_max < 1 << 16 for each in limits)
        self._no_fault = _FEW if few else frozenset[ErrorCode]()
        self.ends = tuple(
            End(
                node,
                captures.make(
                    Replicator,
                    local_peer=ids[0],
                    remote_peer=ids[1],
                    dialect=Dialect.AQUADOGGO if insists else Dialect.SEED,
                    policy=Policy(asks=asks, mode=mode, live=live and not insists),
                    limits=bounds,
                    offers=remembered,
                ),
                HeightsOnly(silent=rng.random() < 0.5)
                if rng.random() < 0.1 and not insists
                else None,
            )
            for node, ids, asks, bounds, remembered in zip(
                nodes,
                ((b"a", b"b"), (b"b", b"a")),
                (True, rng.random() < 0.5),
                limits,
                offers,
                strict=True,
            )
        )
        # One that takes an operation in each turn is slower than its line, which nobody can see.
        roomy = all(
            min(each.unwritten_size_max, each.connection.answers_size_max) > 1 for each in limits
        )
        self.may_be_slow = roomy and not (stuck or any(end.ears for end in self.ends))
        self._changes = 0
        self.has_changed = False
        for end in self.ends:
            end.machine.advance(self._now)
        self.interest(BOTH, *self.ends)

    def interest(self, schemas: tuple[str, ...], *ends: End) -> None:
        """These ends announce these schemas, if they are open; a request may come too early."""
        self._changes += 1
        self.has_changed |= schemas != BOTH
        for end in ends:
            if end.open:
                end.machine.announce(schemas, timestamp=self._changes)
                end.stir()
        self.at_rest, self._is_to_ask = False, self.insists

    def wait(self) -> None:
        """Let enough time pass for a request to count as unanswered."""
        self._pass_time(31.0)

    def sleep(self) -> None:
        """The line stalls for a while, and loses nothing."""
        self.has_slept = True
        self._pass_time(self._rng.choice(SLEEPS_S))

    def _pass_time(self, time: float) -> None:
        self._now += time
        for end in self.ends:
            end.machine.advance(self._now)
            end.stir()
        self.at_rest = False

    @property
    def blamed(self) -> list[RemoteProtocolError]:
        """Accusations by either end that lateness or limits do not explain."""
        found = [error for end in self.ends for error in end.blamed]
        is_late = self.has_slept or self.has_changed
        excused = self._no_fault | (_LATE if is_late else frozenset())
        return [each for each in found if each.code not in excused]

    @property
    def waits(self) -> bool:
        """Whether a request may still turn out to be unanswered."""
        deadlines = [end.machine.next_deadline() for end in self.ends if end.open]
        return not self.stuck and any(each is not None for each in deadlines)

    @property
    def is_given_up(self) -> bool:
        """Whether lateness was too much for a peer that supports log heights only.

        It takes messages of sessions whose ids it has used again for faults.
        """
        return self.has_slept and any(end.ears and not end.open for end in self.ends)

    def turn(self) -> set[Node]:
        """Both ends go on a little; the nodes that stored something."""
        wrote = set[Node]()
        if self.slow:
            self._pass_time(SLOW_S)
        if self._is_to_ask and self.ends[0].open:
            self._ask()
        for end, peer in (self.ends, self.ends[::-1]):
            if (end.incoming or not end.at_rest) and end.open and self._turn(end, peer):
                wrote.add(end.node)
        asker = self.ends[0]
        asks = self._is_to_ask and asker.open and asker.machine.next_deadline() is None
        self.at_rest = all(end.at_rest for end in self.ends) and not asks
        return wrote

    def _ask(self) -> None:
        """The first end asks for a session, unless there is one."""
        try:
            self.ends[0].machine.request(BOTH, mode=self._mode)
        except LocalProtocolError:
            return
        self._is_to_ask = self._rng.random() < 0.5
        self.ends[0].stir()

    def _turn(self, end: End, peer: End) -> bool:
        """One end goes on a little; returns whether it has stored anything."""
        rng = self._rng
        stored = end.answer(rng.choice((0, 1, 9)), late=rng.random() < 0.3)
        size = rng.choice((rng.randint(1, 100), 5000, 1 << 22))
        if self.slow:
            stored |= end.answer(99, late=False)
            size = SLOW_SIZE
        stored |= end.hear(size)
        is_full = self.stuck or (self.slow and len(peer.incoming) > SLOW_SIZE)
        if data := end.say(0 if is_full else size):
            self.carried += len(data)
            peer.incoming += self._spoilt(data)
        return stored

    def _spoilt(self, data: bytes) -> bytes:
        if not self._faulty or self._rng.random() * 1500 > len(data):
            return data
        spoilt = bytearray(data)
        spoilt[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(spoilt)

    def wake(self, node: Node) -> None:
        """That node has stored something that did not come from here."""
        for end in self.ends:
            if end.node is node and end.open:
                end.machine.stored()
                end.stir()
                self.at_rest, self._is_to_ask = False, self.insists


class Simulation:
    """A network whose course depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        count = 2 + int((NODES_MAX - 1) * self._rng.random() ** 2)  # small networks more often
        self._more = Random(~seed)
        self._slow, self._insist, self._changes = (
            self._more.random() < chance for chance in (0.2, 0.08, 0.08)
        )
        self.nodes = [Node(number + 1) for number in range(count)]
        self._keys = list(range(count))  # a new one where a store was restored
        self._connections: list[Connection] = []
        self._forks, self._restores, self._remembers, is_lax, self._sleeps = (
            self._rng.random() < chance for chance in (0.3, 0.2, 0.3, 0.3, 0.2)
        )
        self._lax = Node(NODES_MAX + 1) if is_lax else None
        self._poisons = 0
        # what the first node remembers of the second
        self._offers: dict[tuple[Node, Node], Offers] = {}
        self._older: list[Offers] = []
        self.written: set[bytes] = set()
        """The ids of all operations."""
        self.steps = 0
        """Turns of connections, and the bytes that these have carried."""
        self.bytes = 0

    def run(self) -> None:
        """Everything goes wrong for a while; then the network is mended, and goes on."""
        for _ in range(self._rng.randint(10, 40)):
            self._step()
        self.written &= {each for node in self._all for each in operations_of(node)}
        if self._slow:
            self.written.add(self.nodes[0].create(text="x" * LONG_SIZE))
        self._make_whole()
        for _ in range(self._rng.choice((0, 10, 60))):  # slow lines beside fast ones
            connection = self._rng.choice(self._connections)
            if (self._sleeps or connection.insists) and self._rng.random() < 0.4:
                connection.sleep()
            if self._changes and self._more.random() < 0.2:
                schemas = self._more.choice(((SCHEMA,), (OTHER,), (), BOTH))
                connection.interest(schemas, self._more.choice(connection.ends))
            self.write() if self._rng.random() < 0.4 else self._turn(connection)
        for each in self._connections:
            if each.has_changed:
                each.interest(BOTH, *each.ends)
        self.settle()
        for _ in range(ROUNDS_MAX):
            if not self._remembers or self._have_everything():
                break
            self._make_whole()
            self.settle()

    @property
    def _all(self) -> list[Node]:
        return self.nodes if self._lax is None else [*self.nodes, self._lax]

    @property
    def blamed(self) -> list[RemoteProtocolError]:
        """The accusations on all present connections."""
        read = (each for each in self._connections if not each.stuck)
        return [error for each in read for error in each.blamed]

    def forked(self) -> set[bytes]:
        """The documents with entries at some nodes that others cannot take."""
        logs = self._forked_logs()
        found = [node.store.documents_of(logs).values() for node in self._all]
        return {each.document_id for documents in found for each in documents}

    def _forked_logs(self) -> set[Any]:
        entries: dict[tuple[Any, int], bytes] = {}
        logs = set()
        for node in self._all:
            for each in kept_by(node):
                if entries.setdefault((each.log, each.seqnum), each.entry) != each.entry:
                    logs.add(each.log)
        return logs

    def _step(self) -> None:
        rng, dice = self._rng, self._rng.random()
        if dice < 0.5:
            self.write()
        elif dice < 0.7 or not self._connections:
            self._connect(rng.sample(self._all, 2), live=rng.random() < 0.5, faulty=True)
        elif dice < 0.9:
            for _ in range(rng.randint(1, 15)):
                self._turn(rng.choice(self._connections))
        elif dice < 0.95:
            self._connections.remove(rng.choice(self._connections))
        else:
            self._restart(rng.randrange(len(self.nodes)))
        if self._lax is not None and rng.random() < 0.3:
            self._poison(self._lax)

    def write(self) -> None:
        """An author creates, changes or deletes something, as far as it knows it."""
        rng, node = self._rng, self._rng.choice(self.nodes)
        author = node.author
        if self._forks and rng.random() < 0.2:
            author = Author(key_of(rng.randrange(len(self.nodes))), node.store)
        states = {each: node.store.state_of(each) for each in node.store.documents(SCHEMA)}
        known = [each for each, found in states.items() if found is not None and not found.deleted]
        dice = rng.random()
        if not known or dice < 0.3:
            made = author.create(rng.choice((SCHEMA, OTHER)), {"n": rng.randrange(99)})
        else:
            document = rng.choice(known)
            previous = self._followed(node, document)
            if dice < 0.95:
                made = author.update(document, {"n": rng.randrange(99)}, previous=previous)
            else:
                made = author.delete(document, previous=previous)
        self.written.add(made)
        for each in self._connections:
            each.wake(node)

    def _followed(self, node: Node, document: bytes) -> list[bytes] | None:
        """The operations that a change follows: those our authors name or, in some changes, any.

        In forked logs only the former will do: they name the creation, which all nodes have.
        """
        if self._forks or self._rng.random() < 0.7:
            return None
        written = sorted(node.store.operations(document))
        return self._rng.sample(written, self._rng.randint(1, min(3, len(written))))

    def _poison(self, lax: Node) -> None:
        """The lax node gets entries that are invalid for the others, and writes a valid one."""
        self._poisons += 1
        kind = self._rng.choice([each for each in sorted(LAX) if each != "another schema"])
        lax.store.append([accepted(kind, self._poisons)])
        self.written.add(lax.create(n=self._poisons))
        for each in self._connections:
            each.wake(lax)

    def _connect(self, nodes: list[Node], *, live: bool, faulty: bool, stuck: bool = False) -> None:
        one, other = nodes
        offers = self._remembered(one, other), self._remembered(other, one)
        made = Connection(
            (one, other),
            self._rng,
            live=live,
            faulty=faulty,
            unforgiving=not (faulty or self._sleeps),
            stuck=stuck,
            insists=self._insist and not stuck and self._more.random() < 0.4,
            offers=offers,
        )
        self._connections.append(made)

    def _remembered(self, node: Node, peer: Node) -> Offers | None:
        """A node's memory of a peer: whole, none, from an earlier time, or of another peer."""
        rng = self._rng
        if not self._remembers or rng.random() < 0.2:
            return None
        offers = self._offers.setdefault((node, peer), Offers(logs_max=rng.choice((1, 3, 99))))
        if self._older and rng.random() < 0.2:
            offers = self._offers[node, peer] = rng.choice(self._older)
        self._older.append(deepcopy(offers))
        return offers

    def _restart(self, number: int) -> None:
        """Pending writes of its store are lost, and perhaps completed ones as well."""
        node = self.nodes[number]
        if self._restores and self._rng.random() < 0.5:
            node.store = restored(node, self._rng)
            self._keys[number] += NODES_MAX
        node.author = Author(key_of(self._keys[number]), node.store)
        self._connections = [
            each for each in self._connections if all(end.node is not node for end in each.ends)
        ]

    def _turn(self, connection: Connection) -> None:
        before = connection.carried
        wrote = connection.turn()
        self.steps += 1
        assert self.steps < STEPS_MAX, "it does not come to an end"
        self.bytes += connection.carried - before
        for node in wrote:
            for each in self._connections:
                if each is not connection:
                    each.wake(node)
        if connection.is_given_up:  # they connect anew
            self._connections.remove(connection)
            self._connect(list(connection.nodes), live=True, faulty=False)

    def _make_whole(self) -> None:
        self._connections = []
        nodes = self._rng.sample(self._all, len(self._all))
        for number, node in enumerate(nodes[1:], 1):
            self._connect([node, self._rng.choice(nodes[:number])], live=True, faulty=False)
        linked = {frozenset(each.nodes) for each in self._connections}
        for _ in range(self._rng.randrange(4)):
            pair = self._rng.sample(nodes, 2)
            if frozenset(pair) not in linked:
                linked.add(frozenset(pair))
                self._connect(pair, live=True, faulty=False)
        if self._rng.random() < 0.2:
            self._connect(self._rng.sample(nodes, 2), live=True, faulty=False, stuck=True)
        for each in self._connections:
            each.slow = self._slow and each.may_be_slow

    def settle(self) -> None:
        """Go on until nothing happens any more, even after a wait."""
        moving = self._connections
        while moving:
            for each in moving:  # each of them has a turn
                if not each.at_rest:
                    self._turn(each)
            moving = [each for each in self._connections if not each.at_rest]
            if not moving:
                moving = [each for each in self._connections if each.waits]
                for each in moving:
                    each.wait()

    def check(self) -> None:
        """All nodes have all operations ever written, and the same documents.

        Documents torn apart by forks are exempt.  And no node has accused another of breaking a
        rule.
        """
        assert self.blamed == []
        forked = self.forked()
        first, *others = self._documents_but(forked)
        assert all(documents == first for documents in others)
        if not forked:
            found = {each for document in first.values() for each in document.order}
            assert found == self.written
            for node in self.nodes:
                assert node.store.range(BOTH).position == len(found)
        assert len({frozenset(self._whole(node)) for node in self.nodes}) == 1

    def _whole(self, node: Node) -> Iterator[bytes]:
        """All entries of a node in unforked logs, of documents that all nodes know.

        Without those that follow an operation that not all nodes have, from there on: that is on a
        branch of a forked log, or is missed itself.
        """
        cut = set(self._forked_logs())
        everywhere = set.intersection(*(set(operations_of(each)) for each in self.nodes))
        known = [
            set(each.store.documents(SCHEMA) + each.store.documents(OTHER)) for each in self.nodes
        ]
        documents = set.intersection(*known)
        for each in kept_by(node):
            if each.operation and not everywhere.issuperset(decode(each.operation).previous):
                cut.add(each.log)
            document_id = node.store.documents_of([each.log])[each.log].document_id
            if each.log not in cut and document_id in documents:
                yield each.entry

    def _documents_but(self, forked: set[bytes]) -> list[dict[bytes, Any]]:
        return [
            {each: found for each, found in node.documents().items() if each not in forked}
            for node in self.nodes
        ]

    def _have_everything(self) -> bool:
        forked = self.forked()
        first, *others = self._documents_but(forked)
        found = {each for document in first.values() for each in document.order}
        return all(documents == first for documents in others) and (
            bool(forked) or found == self.written
        )


def kept_by(node: Node) -> list[Any]:
    """All entries of a node with their operations, in the order of storing."""
    return list(node.store.read_new(BOTH, count_max=1 << 20, size_max=1 << 30))


def operations_of(node: Node) -> list[bytes]:
    """The ids of all operations of a node."""
    return [YASMF.hash(each.entry) for each in kept_by(node)]


def restored(node: Node, rng: Random) -> MemoryStore:
    """The store of a node, restored to some earlier moment."""
    kept, store = kept_by(node), MemoryStore()
    for _, log, _, entry, operation in kept[: rng.randint(0, len(kept))]:
        document = node.store.documents_of([log])[log].document_id
        new = NewOperation(decode_entry(entry, family=YASMF), decode(operation), document)
        store.append([new])
    return store


@captures.of_failures
def run_p2panda_seed(seed: int) -> Simulation:
    """Run one seed, then some live writes."""
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()
    for _ in range(3):  # live, from node to node
        simulation.write()
    simulation.settle()
    simulation.check()
    return simulation
